"""The COVID model against shared/spec/covid.md, sections 3 to 6; its series are in test_covid_series.py."""

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.errors import DataError, InputError, ModelError
from denizen.population import Population, synthetic
from denizen.zoo.covid import AGE_GROUPS, covid, gamma_kernel

DAYS = 21
LABELS = ["20-29", "30-39", "40-49", "50-64", "65+", "under 19"]  # the order of Astoria's codes, not that of AGE_GROUPS
KERNEL = (
    "0 .001914 .031738 .099962 .159800 .179543 .162877 .128054 .090881 .059733 .036985 .021833 .012395 .006811 .003642 "
    "0.001902 .000973 .000489 .000242 .000118 .000057"
)
BETA = "0 .00063 .01047 .03299 .05273 .05925 .11727 .09220 .06543 .04301 .02663"


def numbers(text: str) -> torch.Tensor:
    return torch.tensor([float(word) for word in text.split()])


def people(age, stage, source, target, labels=LABELS) -> Population:
    age, stage = np.asarray(age, dtype=np.uint8), np.asarray(stage, dtype=np.int8)
    edges = (np.asarray(source, dtype=np.int32), np.asarray(target, dtype=np.int32))
    known = {"age": list(labels)} if labels else {}
    return Population("test", age.size, {"age": age, "disease_stages": stage}, known, {"0": edges})


def small(num: int = 1500, seeds: int = 40, stage: int = 1, seed: int = 0) -> Population:
    """Random contacts in which an epidemic takes off."""
    rng = np.random.default_rng(seed)
    stages = np.zeros(num)
    stages[rng.choice(num, seeds, replace=False)] = stage
    return people(rng.integers(0, 6, num), stages, rng.integers(0, num, 6 * num), rng.integers(0, num, 6 * num))


@pytest.fixture(scope="module")
def city() -> Population:
    return synthetic("astoria", networks=["0"])


def stages(model, now: dz.State) -> torch.Tensor:
    """Each agent's stage, worked out apart from the model's own series: 3 after the last age of its course."""
    age = now.exposed.value.long()
    table = torch.nn.functional.pad(model.stage, (1, 2), value=3)
    table[:, 0] = 0
    stage = table.gather(1, age[None].expand(table.shape[0], -1))
    stage = stage.gather(0, model.origin.long()[None])[0]
    return torch.where(now.dead != 0, 4, stage)


# --- tables -----------------------------------------------------------------------------------------------------------


def test_kernel():
    kernel = gamma_kernel(21)
    assert torch.allclose(kernel, numbers(KERNEL), atol=6e-7)
    assert float(kernel.double().sum()) == pytest.approx(0.999949, abs=1e-6)
    assert torch.equal(gamma_kernel(60)[:21], kernel)  # any length


def test_infectiousness_by_day_since_exposure(city):
    model = covid(city)
    beta = (model.infector[model.stage] * model.kernel)[:, :11]
    for origin in (0, 1):
        assert torch.allclose(beta[origin], numbers(BETA), atol=6e-6)
    assert float(beta[0].sum()) == pytest.approx(0.50062, abs=1e-5)
    assert float((model.infector[model.stage] * model.kernel)[:, 11:].sum()) == 0


def test_infectiousness_of_seeds_in_the_reference_profile(city):
    model = covid(city, reference=True)
    beta, kernel = model.infector[model.stage] * model.kernel, gamma_kernel(9)
    assert torch.allclose(beta[1, :4], 0.33 * kernel[:4])
    assert torch.allclose(beta[1, 4:9], 0.72 * kernel[4:9])
    assert float(beta[1, 9:].sum()) == 0
    assert torch.allclose(beta[0, :11], numbers(BETA), atol=6e-6)
    assert model.R.tolist() == [14.25] * 3
    assert model.interactions.tolist() == [2.0] * 6


def test_ages_are_mapped_by_label(city):
    counts = torch.bincount(covid(city).group.long(), minlength=6).tolist()
    assert counts == [4941, 6723, 11573, 5724, 4647, 3910]
    codes = torch.bincount(covid(city, reference=True).group.long(), minlength=6).tolist()
    assert codes == [6723, 11573, 5724, 4647, 3910, 4941]
    short = people([0, 1, 2, 3, 4, 5], [0] * 6, [0], [1], labels=["20t29", "30t39", "40t49", "50t64", "65A", "U19"])
    assert covid(short).group.tolist() == [1, 2, 3, 4, 5, 0]


def test_a_population_without_age_labels_is_refused_unless_the_order_is_stated():
    nameless = people([0, 5], [0, 0], [0], [1], labels=None)
    with pytest.raises(DataError, match="age"):
        covid(nameless)
    assert covid(nameless, age_order=LABELS).group.tolist() == [1, 0]


def test_it_needs_a_population() -> None:
    with pytest.raises(InputError, match=r"population is Graph, expected one of denizen\.population\.load"):
        covid(dz.Graph.from_edges([0], [1]))  # type: ignore[arg-type]


# --- one edge ---------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("code", "R", "reference", "hazard"),
    [
        (1, 4.75, False, 4.75 * 1.03 / 3 * 0.50062),
        (5, 4.75, False, 4.75 * 0.35 / 2 * 0.50062),
        (0, 2.0, False, 2.0 * 0.69 / 3 * 0.50062),
        (4, 3.0, False, 3.0 * 1.03 / 4 * 0.50062),
        (0, 1.0, True, 3.0 * 0.35 / 2 * float(0.33 * gamma_kernel(4).sum() + 0.72 * gamma_kernel(9)[4:].sum())),
    ],
)
def test_covid_one_contact(theory, code, R, reference, hazard):
    """A star: one exposed seed in the middle, many contacts of one age around it. Adults at R 4.75: 0.5580."""
    leaves = 30_000
    star = people([code] * (leaves + 1), [1] + [0] * leaves, np.zeros(leaves), np.arange(1, leaves + 1))
    run = theory.simulate(covid(star, R=[R] * 3, reference=reference), 14, seed=1)
    expected = 1 - np.exp(-hazard)
    if (code, R) == (1, 4.75):
        assert expected == pytest.approx(0.5580, abs=1e-4)
    setting = f"age code {code}, R {R}{', reference' if reference else ''}"
    theory.share(setting, int(run["daily_infected"].sum()), leaves, expected)


# --- identities -------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize("sample_deaths", [False, True])
@pytest.mark.parametrize("stage", [1, 2])
def test_books_balance_at_every_step(reference, sample_deaths, stage):
    model = covid(small(stage=stage), reference=reference, sample_deaths=sample_deaths)
    run = dz.simulate(
        model,
        40,
        replicates=2,
        record={
            "before": lambda before, now: stages(model, before),
            "after": lambda before, now: stages(model, now),
        },
    )
    before, after = run["before"], run["after"]
    names = ("susceptible", "exposed", "infected", "recovered", "dead")
    counts = torch.stack([run[name] for name in names], dim=-1)
    found = torch.stack([(after == k).sum(dim=-1) for k in range(5)], dim=-1)
    assert torch.equal(counts.long(), found)
    assert (found.sum(dim=-1) == model.num_agents).all()
    drop = ((before == 0).sum(dim=-1) - (after == 0).sum(dim=-1)).float()
    assert torch.equal(drop, run["daily_infected"].float())
    assert float(drop.sum()) > 100
    left = ((before == 2) & (after > 2)).sum(dim=-1).double()
    if sample_deaths:
        assert torch.equal(run["daily_deaths"].cumsum(dim=1).long(), found[..., 4])
        assert ((after == 4).sum(dim=-1) <= left.cumsum(dim=1)).all()
    else:
        assert torch.allclose(run["daily_deaths"].double(), 0.12 * left, rtol=1e-5)
    assert (after >= before).all()  # nobody goes back
    assert ((after - before <= 1) | (after == 4)).all()  # nor skips a stage


def course(stage: int, days: int, reference: bool) -> list[int]:
    """Stages of a seed at the end of each day."""
    model = covid(people([1, 1], [stage, 0], [0], [1]), reference=reference, R=[0.0])
    return dz.simulate(model, days, record={"stage": lambda now: stages(model, now)[0]})["stage"][0].tolist()


def test_courses_of_seeds():
    """Exposed seeds wait 5 days (reference 3), infected ones are ill for the rest of their time (reference 5 days)."""
    assert course(1, 15, reference=False) == [1] * 5 + [2] * 5 + [3] * 5
    assert course(1, 15, reference=True) == [1] * 3 + [2] * 5 + [3] * 7
    assert course(2, 8, reference=False) == [2] * 4 + [3] * 4
    assert course(2, 8, reference=True) == [2] * 5 + [3] * 3


@pytest.mark.parametrize(("reference", "day"), [(False, 10), (True, 8)])
def test_first_deaths_are_those_of_the_seeds(city, reference, day):
    deaths = dz.simulate(covid(city, reference=reference), DAYS)["daily_deaths"][0]
    assert int(deaths.nonzero()[0]) == day
    assert float(deaths[day]) == pytest.approx(0.12 * 45)


def test_without_transmission_nobody_is_infected(city):
    run = dz.simulate(covid(city, R=[0.0, 0.0, 0.0]), DAYS, replicates=2)
    assert int(run["daily_infected"].sum()) == 0
    assert run["recovered"][:, -1].tolist() == [45.0, 45.0]


def test_defaults_have_an_epidemic(city):
    run = dz.simulate(covid(city), DAYS, replicates=8)
    assert float(run["daily_infected"].double().sum(dim=1).mean()) > 100
    assert float(run["daily_infected"][:, 20].double().mean()) > 5


def test_weeks_beyond_the_last_hold_the_last_value():
    population = small()
    few = dz.simulate(covid(population, R=[3.0, 5.0]), 35)["daily_infected"]
    many = dz.simulate(covid(population, R=[3.0, 5.0, 5.0, 5.0, 5.0]), 35)["daily_infected"]
    assert torch.equal(few, many)
    stopped = dz.simulate(covid(population, R=[9.0, 0.0]), 35)["daily_infected"][0]
    assert int(stopped[:7].sum()) > 0
    assert int(stopped[7:].sum()) == 0


def test_longer_courses_than_three_weeks():
    model = covid(small(), exposed_days=15, infected_days=20)
    run = dz.simulate(model, 60, record={"stage": lambda now: stages(model, now)})
    seed = int((model.origin == 1).nonzero()[0])
    assert run["stage"][0, :, seed].tolist() == [1] * 15 + [2] * 20 + [3] * 25


def test_covid_sampled_deaths(theory):
    expected = theory.simulate(covid(small()), 40, replicates=30)
    sampled = theory.simulate(covid(small(), sample_deaths=True), 40, replicates=30)
    assert torch.equal(expected["daily_infected"], sampled["daily_infected"])
    gap = sampled["daily_deaths"].double().sum(dim=1) - expected["daily_deaths"].double().sum(dim=1)
    theory.mean("sampled less expected deaths", gap, 0.0)
    assert int(sampled["dead"][:, -1].sum()) == int(sampled["daily_deaths"].sum())


# --- isolation --------------------------------------------------------------------------------------------------------


def test_full_isolation_stops_infection(city):
    assert int(dz.simulate(covid(city, isolation=1.0), DAYS)["daily_infected"].sum()) == 0


def test_isolation_by_group():
    model = covid(small(), isolation=[0.0, 1.0, 0.0, 1.0, 1.0, 0.0])
    run = dz.simulate(model, 30)
    ill = (run.state.exposed.value[0] != 0) & (model.origin == 0)
    by_group = torch.bincount(model.group[ill].long(), minlength=6)
    assert by_group[[1, 3, 4]].tolist() == [0, 0, 0]
    assert (by_group[[0, 2, 5]] > 0).all()


def test_covid_isolation_thins_infections(theory):
    """A contact that would infect does so with probability 1 - q."""
    leaves = 30_000
    star = people([1] * (leaves + 1), [1] + [0] * leaves, np.zeros(leaves), np.arange(1, leaves + 1))
    model = covid(star, isolation=0.4)
    beta, missed = 4.75 * 1.03 / 3 * (model.infector[model.stage] * model.kernel)[1].double(), 1.0
    for hazard in beta.tolist():
        missed *= 1 - (1 - np.exp(-hazard)) * 0.6
    theory.share("isolation 0.4", int(theory.simulate(model, 14)["daily_infected"].sum()), leaves, 1 - missed)


def test_a_callable_is_asked_once_for_each_group_and_day():
    asked: list[tuple[str, int]] = []

    def answer(group: str, day: int) -> float:
        asked.append((group, day))
        return 1.0 if day >= 5 else 0.25

    run = dz.simulate(covid(small(), isolation=answer), 12, replicates=3)
    assert asked == [(group, day) for day in range(12) for group in AGE_GROUPS]
    assert int(run["daily_infected"][:, 5:].sum()) == 0
    constant = dz.simulate(covid(small(), isolation=0.25), 5, replicates=3)
    assert torch.equal(run["daily_infected"][:, :5], constant["daily_infected"])


@pytest.mark.parametrize("answer", [1.5, -0.1, float("nan"), None, "often", True])
def test_a_bad_answer_raises(answer):
    with pytest.raises(ModelError, match=r"under 19.*step 2|isolation"):
        dz.simulate(covid(small(), isolation=lambda group, day: answer if day == 2 else 0.0), 4)


class Policy(torch.nn.Module):
    def __init__(self, value: float) -> None:
        super().__init__()
        self.value = torch.nn.Parameter(torch.tensor(value))

    def forward(self, seen: torch.Tensor) -> torch.Tensor:
        assert seen.shape == (6, 2)
        return self.value + 0 * seen.sum(dim=1)


@pytest.mark.parametrize("value", [0.0, 0.3, 1.0])
def test_a_module_decides_isolation(value):
    by_module, constant = (
        dz.simulate(covid(small(), isolation=how), 15, replicates=2)["daily_infected"] for how in (Policy(value), value)
    )
    assert torch.equal(by_module, constant)


def test_a_module_sees_the_infected_share_of_each_group():
    seen = []

    class Look(torch.nn.Module):
        def forward(self, inputs):
            seen.append(inputs.clone())
            return torch.zeros(6)

    model = covid(small(), isolation=Look())
    run = dz.simulate(model, 16, record={"stage": lambda now: stages(model, now)})
    sick = run["stage"][0, 14] == 2
    share = torch.stack([sick[model.group == k].float().mean() for k in range(6)])
    assert torch.allclose(seen[15][:, 0], share)
    assert seen[15][:, 1].tolist() == [2.0] * 6


def test_made_where_it_is_asked_for(device):
    host, there = covid(small(), symmetrize=True), covid(small(), symmetrize=True, device=device)
    for name in host.field_names:
        one, two = getattr(host, name), getattr(there, name)
        if isinstance(one, torch.Tensor):
            assert two.device.type == device.type
            assert torch.equal(one, two.cpu())
    assert torch.equal(host.contacts.in_idx, there.contacts.in_idx.cpu())
    runs = [dz.simulate(model, 20, seed=3, device=device) for model in (host, there)]
    assert all(torch.equal(runs[0][name], runs[1][name]) for name in runs[0].series_names)


# --- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    "arguments",
    [
        {"R": torch.zeros(3, 1)},
        {"R": []},
        {"R": [-1.0]},
        {"mortality": 1.2},
        {"susceptibility": [1.0] * 9},
        {"isolation": [0.1, 0.2]},
        {"isolation": 2.0},
        {"exposed_days": 0},
        {"infected_days": 2.5},
        {"mortalty": 0.1},
        {"R": [float("nan")] * 3},
        {"device": "gpu"},
    ],
)
def test_wrong_values_are_refused(arguments):
    with pytest.raises(InputError):
        covid(small(), **arguments)


def test_seeds_that_are_neither_exposed_nor_infected_are_refused():
    with pytest.raises(DataError, match="disease_stages"):
        covid(small(stage=3))
