"""Gradients through events and through time: mean field against differences, straight-through against hard runs."""

from collections.abc import Callable
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Act, During, Scale
from denizen.relax import Logistic, MeanField, OneFlip, ScoreFunction, StraightThrough
from denizen.space import Graph
from denizen.zoo.covid import covid
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR

AGENTS = 40


def graph(seed: int = 0, edges: int = 160, weighted: bool = False) -> Graph:
    gen = np.random.default_rng(seed)
    weight = gen.random(edges, dtype=np.float32) if weighted else None
    return Graph.from_edges(*gen.integers(0, AGENTS, (2, edges)), AGENTS, weight=weight)


def little_covid(**options: Any) -> Any:
    population = dz.population.synthetic("astoria", size=300)
    origin = torch.from_numpy(np.random.default_rng(1).choice(3, 300, p=[0.7, 0.15, 0.15]).astype(np.uint8))
    return covid(population, R=[9.0, 6.0, 3.0], **options).replace(origin=origin)


MODELS: dict[str, tuple[Callable[[], Any], str, int]] = {
    "sir": (lambda: SIR(graph(), seed_share=0.2), "cases", 12),
    "sir in phases": (lambda: SIR(graph(), seed_share=0.2, infectious_phases=4), "cases", 12),
    "sir weighted": (lambda: SIR(graph(weighted=True), seed_share=0.2, infect_rate=0.1), "infected", 10),
    "seir": (lambda: SEIR(graph(), seed_share=0.2), "cases", 12),
    "covid": (little_covid, "daily_infected", 16),
    "covid isolated": (lambda: little_covid(isolation=0.3), "daily_infected", 16),
    "covid deaths": (little_covid, "daily_deaths", 16),
    "covid sampled": (lambda: little_covid(sample_deaths=True), "dead", 16),
}


def learnable(model: Any) -> list[str]:
    return [name for name, spec in model.params.items() if spec.learnable]


def recorded(model: Any, series: str, steps: int, relax: Any, **options: Any) -> Tensor:
    return dz.simulate(model, steps, relax=relax, compile=False, **options)[series]


# --- mean field -------------------------------------------------------------------------------------------------------


def slope(model: Any, name: str, direction: Tensor, series: str, steps: int) -> float:
    """Central difference with Richardson's extrapolation, of a weighted sum over time, added up in float64."""
    value = getattr(model, name)

    def total(step: float) -> float:
        moved = model.replace(**{name: value + step * direction})
        out = recorded(moved, series, steps, MeanField()).double()
        return float((out * torch.arange(1, steps + 1)).sum())

    # float32 series of size S carry errors of S * 1e-6: a step of 4 % of the value keeps them below 1e-4 of the slope.
    h = 0.04
    wide = (total(h) - total(-h)) / (2 * h)
    narrow = (total(h / 2) - total(-h / 2)) / h
    return (4 * narrow - wide) / 3


@pytest.mark.parametrize("name", MODELS)
def test_mean_field_gradients_are_those_of_differences(name: str) -> None:
    build, series, steps = MODELS[name]
    model = build()
    names = [n for n in learnable(model) if bool((getattr(model, n) > 0).any())]
    live = model.replace(**{n: getattr(model, n).clone().requires_grad_() for n in names})
    out = recorded(live, series, steps, MeanField())
    total = (out * torch.arange(1, steps + 1)).sum()
    total.backward()
    noise = 1e-6 * float(total.detach())  # of the differences, see slope
    reached = 0
    for n in names:
        gradient, value = getattr(live, n).grad, getattr(model, n)
        if gradient is None or not gradient.any():
            continue  # a parameter that this series does not depend on
        reached += 1
        expected = slope(model, n, value, series, steps)
        assert float((gradient * value).sum()) == pytest.approx(expected, rel=1e-3, abs=noise), n
    assert reached >= 2


def test_gradients_of_single_entries_flow_through_time() -> None:
    """R of the first week decides what happens in the second and third."""
    model = little_covid()
    weekly = model.R.clone().requires_grad_()
    out = recorded(model.replace(R=weekly), "daily_infected", 21, MeanField())
    for week in range(3):
        (slopes,) = torch.autograd.grad(out[0, 7 * week : 7 * week + 7].sum(), weekly, retain_graph=True)
        assert (slopes[: week + 1].abs() > 1e-3).all()
        assert (slopes[week + 1 :] == 0).all()
    late = out[0, 14:].sum()
    (slopes,) = torch.autograd.grad(late, weekly)
    unit = torch.eye(3)
    for week in range(3):
        ends = [
            recorded(model.replace(R=model.R + s * unit[week]), "daily_infected", 21, MeanField()) for s in (0.2, -0.2)
        ]
        difference = (ends[0][0, 14:].double().sum() - ends[1][0, 14:].double().sum()) / 0.4
        assert slopes[week].item() == pytest.approx(difference.item(), rel=5e-3)


@pytest.mark.parametrize("name", ["sir", "seir", "covid"])
def test_mean_field_is_deterministic_but_for_the_seeds(name: str) -> None:
    build, series, steps = MODELS[name]
    model = build()
    one, two = (recorded(model, series, steps, MeanField(), seed=s) for s in (0, 1))
    assert torch.equal(one, two)


@pytest.mark.parametrize("name", MODELS)
def test_shares_stay_shares(name: str) -> None:
    build, series, _ = MODELS[name]
    run = dz.simulate(build(), 60, relax=MeanField())  # no field leaves its range by rounding, else this would raise
    assert torch.isfinite(run[series]).all()


class Masks(dz.State):
    susceptible: Tensor = dz.mask("agents")
    infected: Tensor = dz.mask("agents")
    immune: Tensor = dz.mask("agents")


class Epidemic(dz.Model):
    """The example of the design: masks as arithmetic."""

    contacts: Graph
    infect_rate: Tensor = dz.param(0.2, low=0.0)
    ill_days: Tensor = dz.param(6.0, low=1.0)

    def init(self, rng: dz.rng.Rng) -> Masks:
        infected = rng.bernoulli("seed", 0.1)
        return Masks(susceptible=1 - infected, infected=infected, immune=0 * infected)

    def step(self, now: Masks, rng: dz.rng.Rng) -> Masks:
        pressure = self.contacts.sum(now.infected, needed=now.susceptible)
        caught = now.susceptible * rng.event("catch", self.infect_rate * pressure)
        healed = now.infected * rng.event("heal", 1 / self.ill_days)
        return now.replace(
            susceptible=now.susceptible - caught, infected=now.infected + caught - healed, immune=now.immune + healed
        )

    @dz.series
    def cases(self, before: Masks, now: Masks) -> Tensor:
        return (before.susceptible - now.susceptible).sum()


@pytest.mark.parametrize("relax", [MeanField(), StraightThrough()])
def test_the_design_s_example_conserves_people(relax: Any) -> None:
    run = dz.simulate(Epidemic(graph()), 200, replicates=3, relax=relax)
    state = run.state
    total = state.susceptible + state.infected + state.immune
    torch.testing.assert_close(total, torch.ones(3, AGENTS))


# --- straight through -------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("name", [*MODELS, "masks"])
@pytest.mark.parametrize(("replicates", "relax"), [(1, StraightThrough()), (3, StraightThrough()), (3, Logistic())])
def test_straight_through_series_are_the_hard_ones(name: str, replicates: int, relax: Any) -> None:
    build, _, steps = MODELS.get(name, (lambda: Epidemic(graph()), "cases", 12))
    model = build()
    hard = dz.simulate(model, steps, replicates=replicates, seed=5)
    soft = dz.simulate(model, steps, replicates=replicates, seed=5, relax=relax)
    for series in hard.series_names:
        assert torch.equal(hard[series].to(torch.float32), soft[series].to(torch.float32)), series


@pytest.mark.parametrize("name", [*MODELS, "masks"])
def test_straight_through_gradients_reach_every_parameter(name: str) -> None:
    build, series, steps = MODELS.get(name, (lambda: Epidemic(graph()), "cases", 12))
    model = build()
    mine = [n for n in learnable(model) if n != "mortality" or series in ("daily_deaths", "dead")]
    live = model.replace(**{n: getattr(model, n).clone().requires_grad_() for n in mine})
    recorded(live, series, steps, StraightThrough(), replicates=4).sum().backward()
    for n in mine:
        gradient = getattr(live, n).grad
        assert gradient is not None, n
        assert torch.isfinite(gradient).all(), n
        assert gradient.any(), n


def test_straight_through_passes_the_whole_slope_of_each_draw() -> None:
    """Of what is linear in the draws it is unbiased: a sum of draws rises by 1 with each probability."""
    prob = torch.linspace(0.1, 0.9, 9, requires_grad=True)
    hard = (torch.rand(9) < prob).to(torch.int8)
    drawn = StraightThrough().draw(prob, lambda: hard)
    assert torch.equal(drawn, hard.float())
    drawn.sum().backward()
    assert torch.equal(prob.grad, torch.ones(9))


class Uniform:
    """A hard draw from given numbers."""

    def __init__(self, uniform: Tensor, prob: Tensor) -> None:
        self.given, self.prob = uniform, prob.detach()

    def __call__(self) -> Tensor:
        return (self.given < self.prob).to(torch.int8)

    def uniform(self) -> Tensor:
        return self.given.double()


@pytest.mark.parametrize("tau", [0.1, 0.5, 2.0])
def test_the_logistic_slope_is_that_of_its_function(tau: float) -> None:
    prob = torch.tensor([0.0, 1e-30, 1e-4, 0.2, 0.5, 0.9, 0.9999, 1.0, 0.2, 0.2], requires_grad=True)
    uniform = torch.tensor([0.4, 0.4, 2e-4, 0.1, 0.6, 0.95, 0.2, 0.5, 0.2, 1 - 2**-24])
    hard = Uniform(uniform, prob)
    drawn = Logistic(tau).draw(prob, hard)
    assert torch.equal(drawn, hard().float())
    (slope,) = torch.autograd.grad(drawn.sum(), prob)
    inside = prob.detach().double()[1:7].requires_grad_()
    soft = torch.sigmoid((torch.logit(inside) - torch.logit(uniform.double()[1:7])) / tau)
    (expected,) = torch.autograd.grad(soft.sum(), inside)
    torch.testing.assert_close(slope[1:7].double(), expected, rtol=2e-3, atol=1e-6)
    assert slope[0] == slope[7] == 0
    assert torch.isfinite(slope).all()


def test_the_uniform_numbers_decide_the_draw() -> None:
    """On streams of a run, for hazards and for probabilities."""

    class Told(StraightThrough):
        def draw(self, prob: Tensor, hard: Any) -> Tensor:
            drawn, below = hard(), hard.uniform() < prob.double()
            assert (drawn == below).double().mean() > 0.999  # a threshold is rounded to 32 bits
            assert 0.1 < drawn.double().mean() < 0.9
            return drawn.float()

    rng = dz.rng.Rng(torch.tensor([3, 1]), torch.tensor(2), num=5000, relax=Told())
    rng.event("one", torch.linspace(0.0, 1.0, 5000))
    rng["scope"].bernoulli("two", 0.4)


@pytest.mark.parametrize("tau", [0.0, -1.0, float("nan"), "much"])
def test_a_width_that_is_none_is_refused(tau: Any) -> None:
    with pytest.raises(InputError, match="Logistic: tau="):
        Logistic(tau)


@pytest.mark.parametrize("relax", [MeanField(), StraightThrough(), Logistic()])
def test_a_replicate_has_the_gradient_of_its_world_alone(relax: Any) -> None:
    model = SIR(graph(), seed_share=0.2)
    rates = torch.tensor([0.05, 0.1, 0.2], requires_grad=True)
    out = dz.simulate(model, 10, replicates=3, params={"infect_rate": rates}, relax=relax)["cases"]
    (together,) = torch.autograd.grad(out.sum(), rates)
    for world in range(3):
        rate = rates[world].detach().clone().requires_grad_()
        alone = dz.simulate(model.replace(infect_rate=rate), 10, worlds=[world], relax=relax)["cases"]
        assert torch.equal(alone[0], out[world])
        (slope_alone,) = torch.autograd.grad(alone.sum(), rate)
        assert together[world].item() == pytest.approx(slope_alone.item(), rel=1e-5)


@pytest.mark.parametrize(
    "relax", [StraightThrough(), *(pytest.param(one, marks=pytest.mark.slow) for one in (MeanField(), Logistic()))]
)
def test_compiled_gradients_are_the_eager_ones(relax: Any, inside: Any) -> None:
    inside.backend("aot_eager")
    torch._dynamo.reset()
    grads = []
    for compiled in (False, True):
        rate = torch.tensor(0.1, requires_grad=True)
        model = SIR(graph(), seed_share=0.2, infect_rate=rate)
        run = dz.simulate(model, 8, replicates=2, relax=relax, compile=compiled)
        assert run.stats()["path"] == ("compiled" if compiled else "eager")
        (grad,) = torch.autograd.grad(run["cases"].sum(), rate)
        grads.append(grad.item())
    assert grads[0] == pytest.approx(grads[1], rel=1e-5)


# --- how far off: against central differences under common random numbers -------------------------------------------

CITY = dz.Graph.from_edges(dz.space.generators.erdos_renyi(1000, 10.0, seed=1))
EPIDEMICS = {
    "sir": lambda: SIR(CITY, infect_rate=0.05, infectious_days=7.0),
    "seir": lambda: SEIR(CITY, infect_rate=0.08, latent_days=3.0, infectious_days=7.0),
}


def per_world(model: Any, name: str, steps: int, worlds: int, relax: Any) -> Tensor:
    """float64 `[worlds]`: slopes of each world's total of cases, on worlds that `differences` does not use."""
    values = getattr(model, name).expand(worlds).clone().requires_grad_()
    run = dz.simulate(model, steps, worlds=range(5000, 5000 + worlds), params={name: values}, relax=relax)
    (slopes,) = torch.autograd.grad(run["cases"].sum(), values)
    return slopes.double()


def differences(model: Any, name: str, steps: int, worlds: int, h: float = 0.05) -> Tensor:
    """float64 `[worlds]`: central differences, both sides with the same worlds in one launch."""
    value = float(getattr(model, name))
    sides = torch.tensor([value * (1 - h)] * worlds + [value * (1 + h)] * worlds)
    run = dz.simulate(model, steps, worlds=[*range(worlds)] * 2, params={name: sides})
    low, high = run["cases"].double().sum(dim=1).reshape(2, worlds)
    return (high - low) / (2 * h * value)


@pytest.mark.slow
@pytest.mark.parametrize("steps", [20, 40, 100])
@pytest.mark.parametrize(
    ("model", "name", "bands"),
    [
        ("sir", "infect_rate", {20: (1.4, 2.1), 40: (1.6, 2.5), 100: (1.6, 2.8)}),
        ("sir", "infectious_days", {20: (1.1, 1.6), 40: (1.0, 1.6), 100: (1.0, 1.8)}),
        ("seir", "infect_rate", {20: (1.2, 1.6), 40: (1.3, 2.1), 100: (1.5, 2.6)}),
        ("seir", "infectious_days", {20: (1.0, 1.4), 40: (0.9, 1.4), 100: (0.9, 1.5)}),
    ],
)
def test_straight_through_does_not_grow_with_the_horizon(model: str, name: str, bands: dict, steps: int) -> None:
    """Gated by `sign` and `where=` the ratios of SIR were 5, 46 and 23,000. A few worlds lie far above."""
    built = EPIDEMICS[model]()
    truth = differences(built, name, steps, 128).mean()
    ratios = per_world(built, name, steps, 48, StraightThrough()) / truth
    low, high = bands[steps]
    assert low < float(ratios.median()) < high
    assert low < float(ratios.mean()) < 1.6 * high


@pytest.mark.slow
@pytest.mark.parametrize("steps", [20, 40, 100])
@pytest.mark.parametrize("name", ["infect_rate", "infectious_days"])
@pytest.mark.parametrize("model", ["sir", "seir"])
def test_logistic_slopes_are_near_the_true_ones_at_every_horizon(model: str, name: str, steps: int) -> None:
    built = EPIDEMICS[model]()
    truth = differences(built, name, steps, 128).mean()
    ratios = per_world(built, name, steps, 24, Logistic()) / truth
    assert (0.7 if model == "sir" else 0.5) < float(ratios.mean()) < 1.4
    assert float(ratios.std()) < 0.6


@pytest.mark.cuda
@pytest.mark.parametrize("relax", [StraightThrough(), Logistic(), ScoreFunction(), OneFlip()], ids=repr)
def test_slopes_on_a_gpu_are_those_of_the_cpu(relax: Any) -> None:
    """Runs, and the whole gradient, which captures what it can with its second call."""
    found = {}
    for device in ("cpu", "cuda"):
        model = EPIDEMICS["sir"]()
        rate = torch.full((8,), 0.05, requires_grad=True)
        run = dz.simulate(model, 12, replicates=8, params={"infect_rate": rate}, relax=relax, device=device)
        (slopes,) = torch.autograd.grad(run["cases"].sum(), rate)
        gradient = dz.run.Gradient(
            model,
            lambda series: series["cases"].sum(dim=1).mean(),
            12,
            wrt=["infect_rate"],
            relax=relax,
            replicates=8,
            device=device,
        )
        whole = [(gradient().item(), gradient.gradients["infect_rate"].item()) for _ in range(3)]
        gradient.check()
        assert whole[0] == whole[1] == whole[2]
        found[device] = [*slopes.tolist(), *whole[0], *run["cases"].flatten().tolist()]
    assert found["cuda"] == pytest.approx(found["cpu"], rel=1e-3, abs=1e-2)


# --- common random numbers, and what must not carry gradients ---------------------------------------------------------


def test_common_random_numbers() -> None:
    """Differences of paired runs scatter far less than those of unpaired ones."""
    model, other = SIR(graph(), seed_share=0.1), SIR(graph(), seed_share=0.1, infect_rate=0.055)
    first = dz.simulate(model, 15, replicates=200, seed=0)["cases"].sum(dim=1).double()
    paired = dz.simulate(other, 15, replicates=200, seed=0)["cases"].sum(dim=1).double()
    unpaired = dz.simulate(other, 15, replicates=200, seed=1)["cases"].sum(dim=1).double()
    assert (paired - first).var() < 0.35 * (unpaired - first).var()
    assert (paired >= first).double().mean() > 0.7


def test_hard_runs_record_no_graph() -> None:
    rate = torch.tensor(0.1, requires_grad=True)
    run = dz.simulate(SIR(graph(), infect_rate=rate, seed_share=0.2), 3)
    assert not run["cases"].requires_grad
    assert not run.state.stage.value.requires_grad


def test_interventions_in_relaxed_runs() -> None:
    """Closing contacts halves the slope's cause; the gradient passes through scales and changes of the state."""
    rate = torch.tensor(0.1, requires_grad=True)
    model = SIR(graph(), infect_rate=rate, seed_share=0.2)

    def heal(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
        return now.replace(stage=now.stage.move(rng.bernoulli("cure", 0.5), "recovered", source="infected"))

    acts = [Scale(target="infect_rate", factor=0.5, when=During(2)), Act(when=During(4), change=heal)]
    out = dz.simulate(model, 8, relax=MeanField(), interventions=acts)["cases"]
    (gradient,) = torch.autograd.grad(out.sum(), rate)

    def total(value: float) -> float:
        moved = model.replace(infect_rate=value)
        return float(dz.simulate(moved, 8, relax=MeanField(), interventions=acts)["cases"].double().sum())

    assert gradient.item() == pytest.approx((total(0.104) - total(0.096)) / 0.008, rel=1e-3)


@pytest.mark.parametrize("relax", [MeanField(), StraightThrough()])
@pytest.mark.parametrize("draw", ["event", "bernoulli"])
def test_bad_values_stop_relaxed_runs_too(relax: Any, draw: str) -> None:
    class Bad(dz.Model):
        num_agents: int = 5

        def init(self, rng: dz.rng.Rng) -> Masks:
            zero = torch.zeros(5, dtype=torch.int8)
            return Masks(susceptible=zero, infected=zero, immune=zero)

        def step(self, now: Masks, rng: dz.rng.Rng) -> Masks:
            getattr(rng, draw)("x", -0.01 if draw == "event" else 1.01)
            return now

    with pytest.raises(ModelError, match=rf"rng.{draw}\('x'\)"):
        dz.simulate(Bad(), 2, relax=relax)


@pytest.mark.parametrize("name", ["seir", "covid"])
def test_relaxed_runs_resume_from_their_folder(name: str, tmp_path: Any) -> None:
    build, series, _ = MODELS[name]
    whole = dz.simulate(build(), 9, replicates=2, relax=MeanField())
    dz.simulate(build(), 4, replicates=2, relax=MeanField(), out=tmp_path / "run")
    again = dz.run.resume(tmp_path / "run", build(), 5, relax=MeanField())
    assert torch.equal(whole[series], again[series])
    kept = dz.simulate(build(), 4, relax=MeanField(), snapshots=dz.run.Snapshots(every=2)).snapshots
    assert all(values.shape[:2] == (1, 3) for key, values in kept.items() if key != "step")
