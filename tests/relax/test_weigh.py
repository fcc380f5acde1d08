"""Slopes without bias, by the score function and by a coupled other outcome: against exact forms and differences."""

import math
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import Ask
from denizen.relax import OneFlip, ScoreFunction
from denizen.zoo.covid import covid
from denizen.zoo.seir import SEIR
from denizen.zoo.sir import SIR

UNBIASED = [ScoreFunction(), ScoreFunction(reward_to_go=False), ScoreFunction(baseline=None), OneFlip()]
BOTH = [ScoreFunction(), OneFlip()]
CITY = dz.Graph.from_edges(dz.space.generators.erdos_renyi(200, 8.0, seed=1))


class Flags(dz.State):
    on: Tensor = dz.mask("agents")


class Square(dz.Model):
    """(x - 0.3)² of one Bernoulli number x a step: the slope of its mean is 0.4 at every p."""

    p: Tensor = dz.param(0.1, low=0.0, high=1.0)
    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Flags:
        return Flags(on=rng.bernoulli("none", 0.0))

    def step(self, now: Flags, rng: dz.rng.Rng) -> Flags:
        return now.replace(on=rng.bernoulli("toss", self.p))

    @dz.series
    def square(self, now: Flags) -> Tensor:
        return ((now.on - 0.3) ** 2).sum()


class Birth(dz.Model):
    """A linear birth process in steps: who is there has a child with probability 1 - exp(-b), which has its own place.

    Begun by one with probability `seed`; after t steps the mean is seed (2 - exp(-b))^t, in the limit of short steps
    seed e^bt, whose slope by b is t times that.
    """

    b: Tensor = dz.param(0.1, low=0.0)
    seed: Tensor = dz.param(0.5, low=0.0, high=1.0)
    num_agents: int = 32

    def init(self, rng: dz.rng.Rng) -> Flags:
        first = (torch.arange(self.num_agents) == 0).to(torch.int8)
        return Flags(on=rng.bernoulli("seed", self.seed, where=first))

    def step(self, now: Flags, rng: dz.rng.Rng) -> Flags:
        born = now.on * rng["birth"].event("bear", self.b, where=now.on)
        parent = (torch.arange(self.num_agents) - 2**now.time.step) % self.num_agents
        return now.replace(on=now.on + born.gather(0, parent))

    @dz.series
    def alive(self, now: Flags) -> Tensor:
        return now.on.sum()


def slopes(model: Any, name: str, series: str, steps: int, worlds: int, relax: Any) -> tuple[Tensor, Tensor]:
    """float64 `[worlds]`: slopes of each world's last value, and the values."""
    values = getattr(model, name).expand(worlds).clone().requires_grad_()
    run = dz.simulate(model, steps, replicates=worlds, params={name: values}, relax=relax)
    last = run[series][:, -1]
    (grad,) = torch.autograd.grad(last.sum(), values)
    return grad.double(), last.detach().double()


def within(sample: Tensor, expected: float, sigmas: float = 3.0) -> bool:
    return abs(float(sample.mean()) - expected) < sigmas * float(sample.std()) / math.sqrt(sample.numel())


@pytest.mark.parametrize("relax", UNBIASED, ids=repr)
@pytest.mark.parametrize("p", [0.1, 0.5, 0.9])
def test_the_slope_of_a_square_is_exact(relax: Any, p: float) -> None:
    found, _ = slopes(Square(p=p), "p", "square", 2, 4000, relax)
    assert within(found, 0.4)


@pytest.mark.parametrize("relax", UNBIASED, ids=repr)
def test_slopes_of_a_birth_process_are_exact(relax: Any) -> None:
    """By the rate of every step, and by a probability that only init draws with."""
    steps, b, mean = 5, 0.1, 2 - math.exp(-0.1)
    found, alive = slopes(Birth(), "b", "alive", steps, 4000, relax)
    assert within(alive, 0.5 * mean**steps, 4.0)
    assert within(found, 0.5 * steps * mean ** (steps - 1) * math.exp(-b))
    found, _ = slopes(Birth(), "seed", "alive", steps, 4000, relax)
    assert within(found, mean**steps)


@pytest.mark.parametrize("relax", [*BOTH, dz.relax.StraightThrough()], ids=repr)
def test_short_steps_come_to_the_exponential(relax: Any) -> None:
    """e^bt for t = 1 and b = 1 in 5 steps: (1 + 1/5)^5 within the step's error, of which the exact form is known."""
    values = torch.full((4000,), 0.2, requires_grad=True)
    run = dz.simulate(Birth(seed=1.0), 5, replicates=4000, params={"b": values}, relax=relax)
    (grad,) = torch.autograd.grad(run["alive"][:, -1].sum(), values)
    q = math.exp(-0.2)
    assert within(grad.double(), 5 * (2 - q) ** 4 * q)
    assert (2 - q) ** 5 == pytest.approx(math.e, rel=0.19)


@pytest.mark.parametrize("relax", BOTH, ids=repr)
@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize(
    "build",
    [
        pytest.param(lambda: SIR(CITY, seed_share=0.1, infectious_phases=2), id="sir"),
        pytest.param(lambda: SEIR(CITY, seed_share=0.1), id="seir"),
        pytest.param(
            lambda: covid(dz.population.synthetic("astoria", size=300), reference=True, sample_deaths=True), id="covid"
        ),
    ],
)
def test_series_and_state_are_those_of_hard_runs(build: Any, relax: Any, replicates: int) -> None:
    model = build()
    relax = ScoreFunction(baseline=None) if replicates == 1 and isinstance(relax, ScoreFunction) else relax
    hard = dz.simulate(model, 8, replicates=replicates, seed=3)
    soft = dz.simulate(model, 8, replicates=replicates, seed=3, relax=relax)
    assert soft.series_names == hard.series_names
    for name in hard.series_names:
        assert torch.equal(soft[name], hard[name].to(torch.float32)), name
    for name in hard.state.kinds:
        field, other = getattr(hard.state, name), getattr(soft.state, name)
        field, other = (value if isinstance(value, Tensor) else value.value for value in (field, other))
        assert torch.equal(field, other), name
        assert field.dtype == other.dtype


@pytest.mark.parametrize("relax", BOTH, ids=repr)
def test_the_other_outcome_is_one_draw_and_what_follows_from_it(relax: Any) -> None:
    """Slopes of what happened before the chosen draw are 0, and a run that went on has those of the whole run."""
    rate = torch.full((16,), 0.1, requires_grad=True)
    whole, parts = (dz.simulate(SIR(CITY), n, replicates=16, params={"infect_rate": rate}, relax=relax) for n in (9, 4))
    before = parts["cases"]
    parts.extend(5)
    assert torch.equal(parts["cases"][:, :4], before)
    for step in (0, 4, 8):
        one, other = (
            torch.autograd.grad(run["cases"][:, step].sum(), rate, retain_graph=True) for run in (whole, parts)
        )
        assert torch.equal(one[0], other[0])


@pytest.mark.parametrize("relax", BOTH, ids=repr)
@pytest.mark.parametrize("checkpoint", [None, 5])
def test_gradient_has_the_slopes_of_simulate(relax: Any, checkpoint: int | None) -> None:
    model = SIR(CITY, seed_share=0.1)
    gradient = dz.run.Gradient(
        model,
        lambda series: series["cases"].sum(dim=1).mean(),
        9,
        wrt=["infect_rate", "infectious_days"],
        relax=relax,
        replicates=16,
        checkpoint=checkpoint,
        optimizer=lambda params: torch.optim.SGD(params, lr=0.0),
    )
    live = {name: getattr(model, name).clone().requires_grad_() for name in gradient.params}
    run = dz.simulate(model.replace(**live), 9, replicates=16, relax=relax)
    total = run["cases"].sum(dim=1).mean()
    expected = torch.autograd.grad(total, list(live.values()))
    for _ in range(2):
        assert torch.equal(gradient(), total.detach())
        for value, slope in zip(gradient.gradients.values(), expected, strict=True):
            assert value.item() == pytest.approx(slope.item(), rel=1e-4)
    gradient.check()
    assert gradient.series["cases"].shape == (16, 9)


@pytest.mark.slow
@pytest.mark.parametrize(("relax", "worlds"), [(ScoreFunction(), 640), (OneFlip(), 960)])
def test_slopes_of_an_epidemic_are_without_bias(relax: Any, worlds: int) -> None:
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(200, 10.0, seed=1))
    model = SIR(graph, infect_rate=0.05, infectious_days=4.0, seed_share=0.05)
    found = dz.relax.measure(model, 12, relaxations=[relax], worlds=worlds)
    for row in found.slopes:
        assert abs(row.ratio - 1) <= 3 * row.ratio_error < 0.8


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: ScoreFunction("mean"), "ScoreFunction: baseline='mean', expected 'leave-one-out' or None"),
        (lambda: ScoreFunction(reward_to_go=1), "ScoreFunction: reward_to_go=1, expected True or False"),
        (lambda: dz.simulate(Square(), 2, relax=ScoreFunction())["square"], "one world has no others"),
        (lambda: dz.simulate(Square(), 2, worlds=[1, 1], relax=OneFlip()), "worlds has a number twice"),
        (lambda: dz.simulate(Square(), 2, relax=OneFlip(), out="folder"), "out= with relax=OneFlip"),
        (lambda: dz.simulate(Square(), 2, relax=OneFlip()).save("folder"), "run.save: what relax=OneFlip"),
        (
            lambda: dz.simulate(
                Square(), 2, relax=OneFlip(), interventions=[Ask(target="p", groups=("all",), answer=lambda *_: 0.1)]
            ),
            "asks the host",
        ),
    ],
)
def test_what_does_not_go_is_refused(call: Any, words: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    monkeypatch.chdir(tmp_path)
    with pytest.raises(InputError, match=words):
        call()
    assert not list(tmp_path.iterdir())
