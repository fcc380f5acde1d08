"""COVID with a vaccine: an immune state where asked for, the model as it was where not."""

import itertools

import pytest
import torch

import denizen as dz
from denizen.disease import Campaign, Vaccine, Waning
from denizen.errors import InputError
from denizen.population import synthetic
from denizen.zoo.covid import Covid, CovidWithVaccine, covid

TOWN = synthetic("astoria", size=1_500)
FAST = {"R": 15.0, "symmetrize": True}
WHOLLY = Vaccine(1.0, "all_or_nothing")


def run(model: Covid, *campaigns: Campaign, steps: int = 25, **options) -> dz.run.Run:
    return dz.simulate(model, steps, seed=2, interventions=campaigns, compile=False, **options)


def test_without_doses_it_is_the_model_without_a_vaccine():
    plain, product = run(covid(TOWN, **FAST)), run(covid(TOWN, **FAST, vaccine=WHOLLY))
    assert type(covid(TOWN, **FAST)) is Covid
    assert "vaccine" not in plain.state.kinds
    for name in plain.series_names:
        assert torch.equal(plain[name], product[name])
    assert torch.equal(plain.state.exposed.value, product.state.exposed.value)


def test_the_immune_are_never_exposed_and_the_old_go_first():
    model = covid(TOWN, **FAST, vaccine=WHOLLY)
    campaign = Campaign(vaccine="vaccine", doses_per_day=120, priority="group", groups=(5, 4, 3, 2, 1, 0))
    cases = {"who": lambda events: events["caught"], "doses": lambda events: events["campaign/doses"]}
    found = run(model, campaign, record=cases)
    doses, caught = found["doses"][0], found["who"][0]
    assert doses.sum(dim=1).tolist() == [120] * 12 + [60] + [0] * 12
    had = (doses.cumsum(0) > 0) & (caught != 0)
    assert not bool(had.any())
    groups = [model.group[day != 0] for day in doses]
    assert all(int(later.max()) <= int(early.min()) for early, later in itertools.pairwise(groups[:13]))
    assert found["immune"][0, -1] == found["susceptible"][0, -1]
    assert found["vaccinated"][0, -1] == 1_500
    assert int(found["daily_infected"].sum()) < int(run(covid(TOWN, **FAST))["daily_infected"].sum())


def test_a_leaky_vaccine_of_efficacy_0_changes_nothing_and_batches_hold():
    campaign = Campaign(vaccine="vaccine", doses_per_day=200)
    none = run(covid(TOWN, **FAST, vaccine=Vaccine(0.0)), campaign, steps=12)
    assert torch.equal(none["daily_infected"], run(covid(TOWN, **FAST), steps=12)["daily_infected"])
    waning = covid(TOWN, **FAST, vaccine=Vaccine(0.8, waning=Waning(6.0, 2)))
    whole, alone = run(waning, campaign, steps=12, replicates=2), run(waning, campaign, steps=5, worlds=[1]).extend(7)
    assert torch.equal(whole["immune"][1], alone["immune"][0])
    assert int(whole["immune"][0, -1]) < int(whole["vaccinated"][0, -1])


def test_wrong_vaccines_are_refused():
    with pytest.raises(InputError, match=r"covid: vaccine=0.9, expected denizen.disease.Vaccine\("):
        covid(TOWN, **FAST, vaccine=0.9)
    assert isinstance(covid(TOWN, **FAST, vaccine=WHOLLY), CovidWithVaccine)
