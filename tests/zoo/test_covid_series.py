"""COVID against a second writing of its equations, and against the series of section 5 of shared/spec/covid.md."""

import numpy as np
import pytest
import torch

from denizen.population import Population, load, synthetic
from denizen.zoo.covid import covid, gamma_kernel

DAYS = 21
LABELS = ["20-29", "30-39", "40-49", "50-64", "65+", "under 19"]  # the order of Astoria's codes


def crowd(num: int, seeds: int, stage: int) -> Population:
    """Random contacts in which an epidemic takes off."""
    rng = np.random.default_rng(stage)
    stages = np.zeros(num, dtype=np.int8)
    stages[rng.choice(num, seeds, replace=False)] = stage
    columns = {"age": rng.integers(0, 6, num).astype(np.uint8), "disease_stages": stages}
    source, target = (rng.integers(0, num, 6 * num).astype(np.int32) for _ in range(2))
    return Population("crowd", num, columns, {"age": LABELS}, {"0": (source, target)})


def numbers(text: str) -> torch.Tensor:
    return torch.tensor([float(word) for word in text.split()], dtype=torch.float64)


def written_out(population: Population, R, reference: bool, q: float, worlds: int, seed: int) -> np.ndarray:
    """Sections 3.4 and 3.5 line by line, with times as the specification keeps them: D `[worlds, days]`."""
    rng, n = np.random.default_rng(seed), population.size
    A, kernel = np.array([0, 0.33, 0.72, 0, 0]), gamma_kernel(40).double().numpy()
    S, Ibar = np.array([0.35, 0.69, 1.03, 1.03, 1.03, 1.03]), np.array([2.0, 3, 3, 3, 3, 4])
    a = population.columns["age"] if reference else np.array([1, 2, 3, 4, 5, 0])[population.columns["age"]]
    source, target, _ = population.edges("0")
    Ibar, R = (np.full(6, 2.0), [sum(R)] * len(R)) if reference else (Ibar, R)
    out = np.zeros((worlds, DAYS))
    never = 2**31 - 1
    for world in range(worlds):
        s = population.columns["disease_stages"].astype(int)
        T = np.select([s == 1, s == 2], [-1, -3 if reference else -7], never)
        N = np.select([s == 1, s == 2], [3 if reference else 5, 5 if reference else 4], never)
        for t in range(DAYS):
            k = np.clip(t - T - 1, 0, 39)
            w = np.where((s == 1) | (s == 2), A[s] * kernel[k], 0.0)
            force = R[min(t // 7, len(R) - 1)] * S[a] / Ibar[a] * np.bincount(target, w[source], n)
            x = rng.random(n) < -np.expm1(-force)
            e = x & (rng.random(n) >= q) & (s == 0)
            out[world, t] = e.sum()
            s[e], T[e], N[e] = 1, t, t + 6
            leave, on = (s == 2) & (t >= N), (s == 1) & (t >= N)
            s[leave], N[leave] = 3, never
            s[on], N[on] = 2, t + 5
    return out


@pytest.mark.parametrize(
    ("reference", "stage", "R", "q"),
    [
        (False, 1, [4.75] * 3, 0.0),
        (False, 2, [6.0, 2.0], 0.3),
        (True, 1, [0.5] * 3, 0.0),
        (True, 2, [0.7, 0.2, 0.4], 0.1),
    ],
)
def test_covid_against_its_equations_written_out(theory, reference, stage, R, q):
    population = crowd(1200, 40, stage)
    worlds = 40
    model = covid(population, R=R, reference=reference, isolation=q)
    ours = theory.simulate(model, DAYS, replicates=worlds)["daily_infected"].double()
    theirs = torch.from_numpy(written_out(population, R, reference, q, worlds, 7))
    setting = f"{'reference' if reference else 'intended'}, seeds in stage {stage}, R {R}, isolation {q}"
    one, two = ours.sum(dim=1), theirs.sum(dim=1)
    theory.compare(f"{setting}: infections", float(one.mean()), float(two.mean()), (one.var() + two.var()) / worlds)
    daily = (ours.mean(dim=0) - theirs.mean(dim=0)).abs()
    assert (daily <= 5 * ((ours.var(dim=0) + theirs.var(dim=0)) / worlds).sqrt() + 1e-9).all()


SERIES = {
    "reference": "0 0.9 8.6 27.4 60.5 37.2 29.7 51.6 85.1 114 133 167 197 246 306 373 443 503 580 646 724",
    "intended": "0 .3 1.9 7.2 11.2 12.2 21.0 15.1 14.6 16.0 20.3 22.1 27.3 33.3 34.5 34.1 40.0 44.2 47.8 53.0 55.0",
    "symmetrize": "0 .4 3.9 14.8 22.8 24.2 45.9 43.1 54 77 114 155 196 273 348 450 599 771 970 1201 1448",
}
SUMS = {"reference": (4733, 1350), "intended": (511, 123), "symmetrize": (6811, 431)}


def by_graph(theory, graphs: int, **options) -> torch.Tensor:
    """Mean D `[graphs, days]` over 8 seeds on each of several stand-ins."""
    rows = []
    for seed in range(graphs):
        model = covid(synthetic("astoria", networks=["0"], seed=seed), **options)
        rows.append(theory.simulate(model, DAYS, replicates=8, seed=seed)["daily_infected"].double().mean(dim=0))
    return torch.stack(rows)


def check_series(theory, profile: str, graphs: int) -> None:
    """Means over graphs, whose scatter, theirs over 5 graphs and ours, is the error."""
    options = {} if profile == "intended" else {profile: True}
    ours, theirs = by_graph(theory, graphs, **options), numbers(SERIES[profile])
    mean, spread = SUMS[profile]
    total = ours.sum(dim=1)
    setting = f"{profile}, {graphs} graphs x 8 seeds: infections in 21 days"
    theory.compare(setting, float(total.mean()), mean, spread**2 / 5 + total.var() / graphs)
    daily = (ours.var(dim=0) * (1 / 5 + 1 / graphs)).sqrt()
    assert ((ours.mean(dim=0) - theirs).abs() <= 5 * daily + 0.5).all()


def test_covid_series_of_a_stand_in(theory):
    check_series(theory, "intended", graphs=5)


@pytest.mark.slow
@pytest.mark.parametrize("profile", SERIES)
def test_covid_series_of_stand_ins_at_length(theory, profile):
    check_series(theory, profile, graphs=20)


@pytest.mark.slow
@pytest.mark.parametrize(("R", "expected"), [(2.0, 130), (9.5, 1633)])
def test_covid_at_other_reproduction_numbers(theory, R, expected):
    ours = by_graph(theory, 20, R=[R] * 3).sum(dim=1)
    setting = f"intended, R {R}, 20 graphs x 8 seeds: infections in 21 days"
    theory.compare(setting, float(ours.mean()), expected, ours.var() * (1 / 5 + 1 / 20))


@pytest.mark.real
def test_covid_on_astoria(theory, data_root):
    """One run of the original with seed 0, and means of three seeds at other R: sums of D over 21 days."""
    astoria = load(data_root / "astoria")
    R = torch.tensor([14.25, 12.825, 15.675]) / 3
    run = theory.simulate(
        covid(astoria, reference=True, R=[1.0] * 3),
        DAYS,
        replicates=24,
        params={"R": (R.repeat(8) * 3)[:, None].expand(24, 3)},
    )
    total = run["daily_infected"].double().sum(dim=1).reshape(8, 3)
    for column, (expected, seeds) in enumerate([(4489, 1), (3724, 3), (4612, 3)]):
        ours = total[:, column]
        setting = f"reference, R {3 * float(R[column]):.5g}: infections in 21 days"
        theory.compare(setting, float(ours.mean()), expected, ours.var() * (1 / seeds + 1 / 8))


@pytest.mark.real
def test_astoria_day_by_day(theory, data_root):
    """The original's one run lies among ours, each day and in its final stages."""
    one = numbers("0 1 8 24 59 39 35 51 105 134 120 168 186 256 307 324 425 448 523 561 715")
    run = theory.simulate(covid(load(data_root / "astoria"), reference=True), DAYS, replicates=64)
    ours = run["daily_infected"].double()
    assert ((one - ours.mean(dim=0)).abs() <= 4 * ours.std(dim=0) * (1 + 1 / 64) ** 0.5).all()
    for name, expected in (("susceptible", 32984), ("exposed", 2996), ("infected", 1037), ("recovered", 501)):
        sample = run[name][:, -1].double()
        assert abs(float(sample.mean()) - expected) < 4 * float(sample.std()) * (1 + 1 / 64) ** 0.5, name
