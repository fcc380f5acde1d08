"""State and trajectory against the rules of sections 3.4 and 3.5, substep by substep."""

import dataclasses

import pytest
import torch

import denizen as dz
from denizen.compat.agenttorch import DataLoader, Executor, LoadPopulation
from denizen.compat.agenttorch.models import covid
from denizen.errors import InputError

FIELDS = ("disease_stage", "infected_time", "next_stage_time")
NEVER = 2**31 - 1
SOFT = dz.relax.StraightThrough()


def population(infected_seeds):
    people = dz.population.synthetic(size=1000, networks=["0"])
    stages = people.columns["disease_stages"].copy()
    stages[:20] = 1  # enough seeds for an epidemic
    stages[20 : 20 + infected_seeds] = 2
    return dataclasses.replace(people, columns={**people.columns, "disease_stages": stages})


def follow(record=("daily_infected", "daily_deaths", *FIELDS), steps=21, seeds=10, relax=SOFT, **options):
    loader = DataLoader(covid, LoadPopulation(population(seeds)), **options)
    executor = Executor(covid, data_loader=loader, device="cpu", steps=steps, record=record, relax=relax, every=1)
    executor.execute()
    return executor.runner


def test_entry_0_is_the_start_and_each_step_has_two_records():
    trajectory = follow().state_trajectory
    assert len(trajectory) == 22
    assert [len(entry) for entry in trajectory] == [1, *[2] * 21]
    assert sum(len(entry) for entry in trajectory) == 43
    with pytest.raises(IndexError, match="22 entries"):
        trajectory[22]
    assert [record["current_substep"] for record in trajectory[3]] == [1, 0]
    assert trajectory[3][0]["current_step"] == 3
    assert len(trajectory[1:3]) == 2


@pytest.mark.parametrize("relax", [None, SOFT])
@pytest.mark.parametrize(
    "options", [{}, {"reference": True}, {"sample_deaths": True}, {"exposed_days": 3, "infected_days": 2}]
)
def test_every_record_follows_from_the_one_before(relax, options):
    """Stage, time of infection and next change by the written rules, from who was newly infected."""
    days, days_ill = options.get("exposed_days", 5), options.get("infected_days", 5)
    trajectory = follow(relax=relax, R=[14.0] * 3, **options).state_trajectory
    stage, since, due = (trajectory[0][0]["agents"]["citizens"][name] for name in FIELDS)
    seed_exposed, seed_infected = (3, 5) if "reference" in options else (days, days_ill - 1)
    assert (due[stage == 1] == seed_exposed).all()
    assert (due[stage == 2] == seed_infected).all()
    assert (since[stage == 1] == -1).all()
    assert (since[stage == 2] == (-3 if "reference" in options else -(days + 2))).all()
    for t, (first, second) in enumerate(trajectory[1:]):
        # transmission: whoever is newly exposed was susceptible, and nothing else changes
        new_stage, new_since, new_due = (first["agents"]["citizens"][name] for name in FIELDS)
        caught = new_since == t
        assert (stage[caught] == 0).all()
        assert first["environment"]["daily_infected"][t] == caught.sum()
        assert first["environment"]["daily_deaths"][t] == 0
        stage = torch.where(caught, 1, stage)
        since = torch.where(caught, t, since)
        due = torch.where(caught, t + 1 + days, due)
        assert torch.equal(new_stage, stage.to(torch.int8))
        assert torch.equal(new_since, since.to(torch.int32))
        assert torch.equal(new_due, due.to(torch.int32))
        # progression, from the old values
        out, on = (stage == 2) & (due <= t), (stage == 1) & (due <= t)
        final = second["agents"]["citizens"]["disease_stage"]
        assert ((final[out] == 3) | ((final[out] == 4) & ("sample_deaths" in options))).all()
        deaths = (final[out] == 4).sum() if "sample_deaths" in options else 0.12 * out.sum()
        assert second["environment"]["daily_deaths"][t].item() == pytest.approx(float(deaths), rel=1e-5)
        stage = torch.where(out, final, torch.where(on, 2, stage))
        due = torch.where(out, NEVER, torch.where(on, t + days_ill, due))
        for name, expected in zip(FIELDS, (stage, since, due), strict=True):
            assert torch.equal(second["agents"]["citizens"][name].long(), expected.long()), (name, t)
    assert (stage == 3).any()
    assert since[stage == 3].max() < NEVER  # still known when long recovered


def test_the_environment_fills_up_and_carries_the_graph():
    runner = follow(record=("daily_infected",))
    last = runner.state_trajectory[-1][-1]["environment"]["daily_infected"]
    assert last.shape == (21,)
    assert last.requires_grad
    for t in (1, 9, 20):
        now = runner.state_trajectory[t][-1]["environment"]["daily_infected"]
        assert torch.equal(now[:t], last[:t])
        assert (now[t:] == 0).all()
    assert set(runner.state_trajectory[-1][-1]["environment"]) == {"daily_infected"}
    assert len(runner.state_trajectory[-1][-1]["agents"]["citizens"]) == 0
    assert torch.equal(runner.state["environment"]["daily_infected"], last)


def test_how_often_is_an_argument():
    executor = Executor(
        covid, LoadPopulation(population(0)), device="cpu", record=("disease_stage", "daily_infected"), every=5
    )
    executor.execute(12)
    trajectory = executor.runner.state_trajectory
    assert [entry[-1]["current_step"] for entry in trajectory] == [0, 5, 10, 12]
    full = follow(seeds=0)
    for entry in trajectory[1:]:
        step = entry[0]["current_step"]
        for k in (0, 1):
            assert torch.equal(
                entry[k]["agents"]["citizens"]["disease_stage"],
                full.state_trajectory[step][k]["agents"]["citizens"]["disease_stage"],
            )
    assert torch.equal(
        trajectory[-1][-1]["environment"]["daily_infected"][:12], full.state["environment"]["daily_infected"][:12]
    )


def test_state_shows_columns_and_fields():
    runner = follow()
    citizens = runner.state["agents"]["citizens"]
    assert torch.equal(citizens["age"], runner._loader.population.age)
    assert {"gender", "disease_stages", *FIELDS} <= set(citizens)
    counts = citizens["disease_stage"].bincount(minlength=5)
    out = {name: runner.run[name][0, -1] for name in ("susceptible", "exposed", "infected", "recovered", "dead")}
    assert counts.tolist() == [int(value) for value in out.values()]
    with pytest.raises(KeyError, match="disease_stage"):
        citizens["disease_stag"]


def test_shares_are_not_passed_off_as_whole_numbers():
    runner = follow(record=("daily_infected",), relax=dz.relax.MeanField())
    with pytest.raises(InputError, match="carries shares"):
        runner.state["agents"]["citizens"]["disease_stage"]
