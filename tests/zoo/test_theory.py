"""Homogeneous mixing: final size, peak, growth, extinction, endemic share, constant hazards, durations.

Expected values come from the formulae of shared/spec/simulation_references.md, for parameters that it lists and for
others. `Mixing` is the complete mixture as a small model of its own; where the course of the mean is known, the zoo's
models run it themselves, under `relax=MeanField()` on a complete graph, whose agents then all carry the same shares.
"""

import math

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.relax import MeanField
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir


class People(dz.State):
    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


class Mixing(dz.Model):
    """Everybody meets everybody: hazard R0 / days times the infected share. One-step phases make `days` fixed."""

    everybody: Tensor  # only its length counts
    R0: Tensor = dz.param(2.0, low=0.0)
    days: Tensor = dz.param(4.0, low=0.01)
    seeds: Tensor = dz.param(1.0, low=0.0)  # number of seeds; they are the first agents
    phases: int = 1
    immunity: bool = True

    @property
    def num_agents(self) -> int:
        return self.everybody.numel()

    @property
    def sick(self) -> tuple[str, ...]:
        return tuple(f"infected {k}" for k in range(self.phases))

    def init(self, rng) -> People:
        first = (torch.arange(self.num_agents, device=self.seeds.device) < self.seeds).to(torch.int8)
        return People(stage=dz.model.Stage(first, ("susceptible", *self.sick, "recovered")))

    def step(self, now: People, rng) -> People:
        stage, dt = now.stage, now.time.dt
        sick, free = stage.is_(*self.sick), stage.is_("susceptible")
        caught = rng.event("catch", free * (self.R0 / self.days * sick.sum() / self.num_agents))
        healed = rng.bernoulli("heal", sick * (self.phases * dt / self.days))
        stage = stage.advance(healed, *self.sick).advance(caught, "susceptible")
        if not self.immunity:
            stage = stage.move(stage.is_("recovered"), "susceptible", source="recovered")
        return now.replace(stage=stage)

    @dz.series
    def infected(self, now: People):
        return now.stage.is_(*self.sick).sum()

    @dz.series
    def ever(self, now: People):
        return self.num_agents - now.stage.is_("susceptible").sum()


def mixing(num_agents: int, **fields) -> Mixing:
    return Mixing(torch.zeros(num_agents), **fields)


def root(function, low: float, high: float) -> float:
    """The zero of a function that changes sign between low and high, by bisection."""
    sign = function(low) > 0
    for _ in range(200):
        middle = (low + high) / 2
        low, high = (middle, high) if (function(middle) > 0) == sign else (low, middle)
    return (low + high) / 2


def final_size(R0: float, seeds: float = 0.0) -> float:
    return root(lambda z: z - 1 + (1 - seeds) * math.exp(-R0 * z), 1e-6, 1.0)


@pytest.mark.parametrize(("R0", "z"), [(1.1, 0.176134), (1.5, 0.582812), (2.5, 0.892645), (5.0, 0.993023)])
def test_the_formulae_give_the_listed_numbers(R0, z):
    assert final_size(R0) == pytest.approx(z, abs=1e-6)


@pytest.mark.parametrize(
    ("R0", "phases", "days", "dt"), [(1.5, 1, 3.0, 1.0), (2.2, 3, 3.0, 1.0), (1.7, 2, 4.0, 1.0), (3.1, 1, 1.5, 0.5)]
)
def test_final_size(theory, R0, phases, days, dt):
    """Holds for any infectious period and any step: escaping is exp(-R0 z), as each case brings R0 in all."""
    num = 10_000
    run = theory.simulate(mixing(num, R0=R0, days=days, seeds=200.0, phases=phases), 110, replicates=24, dt=dt, seed=1)
    assert run["infected"][:, -1].sum() <= 2
    sample = run["ever"][:, -1] / num
    theory.mean(f"R0 {R0}, {days} days in {phases} phases, dt {dt}, 2 % seeds", sample, final_size(R0, 0.02))


def complete(num_agents: int) -> dz.Graph:
    ids = torch.arange(num_agents)
    source, target = torch.cartesian_prod(ids, ids).T
    return dz.Graph.from_edges(source, target, num_agents)  # self-loops are dropped


@pytest.mark.parametrize("R0", [1.5, 2.0, 3.3])
def test_peak_and_invariant_of_the_equations(theory, R0):
    """I + S - ln(S) / R0 stands still in every step, whatever its length; the peak needs short steps."""
    num, days, dt, seeds = 5, 1.0, 0.03, 1e-3
    model = sir(complete(num), infect_rate=R0 / days / (num - 1), infectious_days=days, seed_share=seeds)
    run = theory.simulate(model, 1500, dt=dt, relax=MeanField())
    infected, recovered = run["infected"][0].double() / num, run["recovered"][0].double() / num
    susceptible = 1 - infected - recovered
    invariant = infected + susceptible - susceptible.log() / R0
    assert float((invariant - invariant[0]).abs().max()) < 1e-4  # float32 shares, 1,500 steps
    peak = 1 - (1 + math.log(R0 * (1 - seeds))) / R0
    theory.value(f"peak prevalence, R0 {R0}", float(infected.max()), peak, 2e-4, "step of 0.03")
    theory.value(f"final size, R0 {R0}", float(recovered[-1]), final_size(R0, seeds), 2e-4, "1,500 steps")


def growth(R0: float, latent: float, sick: float, m: int, n: int, dt: float = 0.0) -> float:
    """Growth rate r with gamma stages of m and n phases; dt 0 is Wallinga and Lipsitch (2007), else the steps'."""

    def total(r: float) -> float:
        if dt == 0:
            return R0 * (1 - (r * sick / n + 1) ** -n) / (r * sick * (r * latent / m + 1) ** m)
        grow = math.exp(-r * dt)

        def passed(days: float, phases: int) -> float:
            p = phases * dt / days
            return (p * grow / (1 - (1 - p) * grow)) ** phases

        # Cases of step t are exposed from t + 1 and infect in the steps of their infectious stage.
        return R0 / sick * dt * grow * passed(latent, m) * (1 - passed(sick, n)) / (1 - grow)

    return root(lambda r: total(r) - 1, 1e-6, 2.0)


def test_growth_formula_agrees_with_the_listed_number():
    assert growth(2.5, 5, 7, 1, 1) == pytest.approx(0.097356, abs=1e-6)
    r = growth(2.5, 5, 7, 1, 1)
    assert (r + 1 / 5) * (r + 1 / 7) == pytest.approx(2.5 / 35)
    assert math.log(2) / r == pytest.approx(7.120, abs=1e-3)
    assert growth(1.8, 3, 4, 2, 3, dt=1e-4) == pytest.approx(growth(1.8, 3, 4, 2, 3), rel=1e-3)
    fixed = root(lambda r: 1.8 * math.exp(-3 * r) * (1 - math.exp(-4 * r)) / (4 * r) - 1, 1e-6, 2.0)
    assert growth(1.8, 3, 4, 5000, 5000) == pytest.approx(fixed, rel=1e-3)


def measured_growth(theory, R0, latent, sick, m, n, dt) -> float:
    """From day 100 to day 130 of an epidemic so small that nobody is missing yet."""
    num = 4
    model = seir(
        complete(num),
        infect_rate=R0 / sick / (num - 1),
        latent_days=latent,
        infectious_days=sick,
        latent_phases=m,
        infectious_phases=n,
        seed_share=1e-14,
    )
    run = theory.simulate(model, round(130 / dt), dt=dt, relax=MeanField())
    cases = run["infectious"][0].double()
    return float((cases[-1] / cases[round(100 / dt) - 1]).log() / 30)


@pytest.mark.parametrize(("R0", "latent", "sick", "m", "n"), [(2.5, 5, 7, 1, 1), (1.8, 3, 4, 2, 3), (1.5, 4, 6, 4, 6)])
def test_growth_rate(theory, R0, latent, sick, m, n):
    setting = f"R0 {R0}, latent {latent} d in {m}, infectious {sick} d in {n} phases"
    daily = measured_growth(theory, R0, latent, sick, m, n, 1.0)
    theory.value(f"{setting}, dt 1, per day", daily, growth(R0, latent, sick, m, n, 1.0), 2e-5)
    coarse, fine = (measured_growth(theory, R0, latent, sick, m, n, dt) for dt in (0.5, 0.25))
    limit = 2 * fine - coarse  # the error is first order in dt
    theory.value(f"{setting}, dt to 0", limit, growth(R0, latent, sick, m, n), 0.01 * limit, "second order in dt")
    theory.value(f"{setting}, doubling, days", math.log(2) / limit, math.log(2) / growth(R0, latent, sick, m, n), 0.07)


def extinction(R0: float, ticks: float, phases: int, seeds: int) -> float:
    """Root of the offspring's generating function: Poisson with mean R0 D / ticks, D negative binomial ticks."""

    def offspring(s: float) -> float:
        stay = math.exp(-R0 / ticks * (1 - s))
        p = phases / ticks
        return (p * stay / (1 - (1 - p) * stay)) ** phases

    return root(lambda q: offspring(q) - q, 0.0, 1 - 1e-9) ** seeds


def test_extinction_formula_has_the_two_known_limits():
    assert extinction(2.0, 1e5, 1, 1) == pytest.approx(1 / 2.0, abs=1e-4)
    fixed = extinction(2.0, 7, 7, 1)
    assert fixed == pytest.approx(math.exp(2.0 * (fixed - 1)), abs=1e-9)


@pytest.mark.parametrize(
    ("R0", "ticks", "phases", "seeds"),
    [(2.0, 3, 3, 1), (1.6, 4, 4, 3), (2.0, 3, 1, 1), (2.5, 16, 1, 1), (1.7, 6, 2, 2)],
)
def test_extinction(theory, R0, ticks, phases, seeds):
    num, worlds = 1_000, 500
    model = mixing(num, R0=R0, days=float(ticks), seeds=float(seeds), phases=phases)
    run = theory.simulate(model, 20 * ticks if ticks < 10 else 9 * ticks, replicates=worlds, seed=5)
    ever, ill = run["ever"][:, -1], run["infected"][:, -1]
    extinct = (ill == 0) & (ever < 0.15 * num)
    law = "fixed" if phases == ticks else f"{phases} phase(s)"
    setting, expected = f"R0 {R0}, {ticks} steps {law}, {seeds} seed(s)", extinction(R0, ticks, phases, seeds)
    theory.share(setting, int(extinct.sum()), worlds, expected)


@pytest.mark.parametrize("R0", [1.6, 3.0])
def test_endemic_share_without_immunity(theory, R0):
    """SIS: 1 - 1/R0 for short steps; in steps of dt the share that balances infections and recoveries."""
    num, days, dt = 4_000, 4.0, 0.5
    run = theory.simulate(
        mixing(num, R0=R0, days=days, seeds=num / 2, immunity=False), 300, replicates=16, dt=dt, seed=2
    )
    share = root(lambda i: (1 - i) * -math.expm1(-R0 / days * dt * i) - i * dt / days, 1e-3, 1.0)
    assert share == pytest.approx(1 - 1 / R0, abs=0.1)
    # The variance of i lowers its mean by var / i, here below 2 / num.
    theory.mean(f"R0 {R0}, dt {dt}", run["infected"][:, 100:].double().mean(dim=1) / num, share, bias=2 / num)


@pytest.mark.parametrize(("hazard", "dt"), [(0.002, 1.0), (0.05, 0.5), (0.7, 1.0), (2.0, 0.25)])
def test_constant_hazard(theory, hazard, dt):
    """Events over agent-steps at risk, which are those susceptible at the start of a step: 1 - exp(-h dt)."""

    class Risk(dz.Model):
        num: Tensor
        rate: Tensor = dz.param(0.0, low=0.0)

        @property
        def num_agents(self) -> int:
            return self.num.numel()

        def init(self, rng):
            return People(stage=torch.zeros(self.num_agents, dtype=torch.int8))

        def step(self, now, rng):
            hit = rng.event("hit", self.rate * now.stage.is_("susceptible"))
            return now.replace(stage=now.stage.advance(hit, "susceptible"))

    record = {
        "risk": lambda before, now: before.stage.is_("susceptible").sum(),
        "events": lambda before, now: (before.stage.is_("susceptible") - now.stage.is_("susceptible")).sum(),
    }
    run = theory.simulate(Risk(torch.zeros(20_000), rate=hazard), 12, replicates=4, dt=dt, seed=3, record=record)
    events, risk = int(run["events"].sum()), int(run["risk"].sum())
    theory.share(f"hazard {hazard}, dt {dt}", events, risk, -math.expm1(-hazard * dt))


def negative_binomial(phases: int, p: float, ticks: Tensor) -> Tensor:
    """P(the sum of `phases` geometric times = ticks)."""
    waits = ticks - phases
    choose = torch.lgamma(ticks) - torch.lgamma(torch.tensor(float(phases))) - torch.lgamma(waits + 1)
    stay = waits * math.log1p(-p) if p < 1 else torch.where(waits == 0, 0.0, -torch.inf)
    return (choose + phases * math.log(p) + stay).exp()


def chi_square(observed: Tensor, expected: Tensor) -> tuple[float, int]:
    """Statistic and degrees of freedom, cells merged from the right until each expects 8."""
    cells: list[tuple[float, float]] = []
    o = e = 0.0
    for a, b in zip(observed.tolist(), expected.tolist(), strict=True):
        o, e = o + a, e + b
        if e >= 8:
            cells.append((o, e))
            o = e = 0.0
    if cells:
        cells[-1] = (cells[-1][0] + o, cells[-1][1] + e)
    return sum((a - b) ** 2 / b for a, b in cells), max(len(cells) - 1, 1)


@pytest.mark.parametrize(
    ("days", "phases", "dt"), [(7.0, 1, 1.0), (6.5, 6, 1.0), (7.0, 7, 1.0), (6.0, 3, 1.0), (2.6, 2, 0.5)]
)
def test_durations(theory, days, phases, dt):
    """Steps in a stage follow the sum of its phases' geometric times, for seeds as for later cases, exposed or ill.

    The mean is that of the stated law whether or not it is a whole number of steps; the variance is per agent.
    """
    num = 3_000
    steps = 40 + round(12 * days / dt)
    contacts = dz.space.generators.random_in_neighbours(num, 12, seed=1)
    model = seir(
        contacts,
        infect_rate=3.0,
        seed_share=0.4,
        latent_days=days,
        latent_phases=phases,
        infectious_days=days,
        infectious_phases=phases,
    )
    record = {
        "latent": lambda before, now: before.stage.is_(*model.latent),
        "sick": lambda before, now: before.stage.is_(*model.sick),
    }
    run = theory.simulate(model, steps, dt=dt, seed=4, record=record)
    assert run["exposed"][0, -1] + run["infectious"][0, -1] == 0
    seeds = run["sick"][0, 0] == 1
    ticks, p = {name: run[name][0].sum(dim=0).double() for name in record}, phases * dt / days
    groups = {"seeds": ticks["sick"][seeds], "later cases": ticks["sick"][~seeds], "latent": ticks["latent"][~seeds]}
    values = torch.arange(1, steps + 1, dtype=torch.float64)
    expected = torch.where(values >= phases, negative_binomial(phases, p, values.clamp(min=phases)), 0.0)
    for name, sample in groups.items():
        sample = sample[sample > 0]
        assert sample.numel() > 0.97 * (num * 0.38 if name == "seeds" else num * 0.58)
        theory.mean(f"steps, {name}: {days} days in {phases} phases, dt {dt}", sample, days / dt)
        law = phases * (1 - p) / p**2
        spread = float(sample.var())
        assert abs(spread - law) <= 6 * max(law, 1e-9) * math.sqrt(4 / sample.numel()) + 1e-9, (name, spread, law)
        observed = torch.bincount(sample.long(), minlength=steps + 1)[1:].double()
        statistic, freedom = chi_square(observed, expected * sample.numel())
        assert statistic < freedom + 5 * math.sqrt(2 * freedom), (name, statistic, freedom)
