"""Vaccines and campaigns: doses are exact, attack rates are those of theory, and wrong input is one line."""

import dataclasses
import math
import re
from typing import Any

import pytest
import torch

import denizen as dz
from denizen.disease import Campaign, Vaccine, Waning
from denizen.errors import InputError, ModelError
from denizen.model import Act, Ask, Course, During, Every, Scale, Trigger, Weekly
from denizen.relax import MeanField
from denizen.space.generators import erdos_renyi
from denizen.zoo.strains import strains

from .mixing import Mixing, People, people

N = 600
MODEL = Mixing(people(N), R0=0.0)
JAB = Vaccine(0.7)
WEEK = ("mon", "tue", "wed", "thu", "fri", "sat", "sun")


def doses(run_or_events: Any, name: str = "campaign") -> Any:
    return run_or_events[f"{name}/doses"]


def given(model: Mixing, steps: int, *campaigns: Campaign, **options: Any) -> torch.Tensor:
    """Who got doses in each step: `[steps, campaigns, agents]`."""
    names = [campaign.name for campaign in campaigns]
    record = {"who": lambda events: torch.stack([doses(events, name) for name in names])}
    return dz.simulate(model, steps, interventions=campaigns, record=record, compile=False, **options)["who"][0]


# --- attack rates -----------------------------------------------------------------------------------------------------


def final_size(kind: str, efficacy: float, coverage: float, R0: float, seed: float) -> float:
    """The root of the final-size equation: an all-or-nothing vaccine takes people out, a leaky one scales hazards."""
    total = 1.0
    for _ in range(400):
        hit = 1 - math.exp(-R0 * total)
        partly = 1 - math.exp(-(1 - efficacy) * R0 * total)
        vaccinated = (1 - efficacy) * hit if kind == "all_or_nothing" else partly
        total = seed + (1 - seed) * ((1 - coverage) * hit + coverage * vaccinated)
    return total


@pytest.mark.slow
@pytest.mark.parametrize("kind", ["leaky", "all_or_nothing"])
def test_attack_rates_are_those_of_the_final_size_equation(kind):
    """The same efficacy and coverage; the mean of 16 worlds lies within 4 standard errors, 0.0028 each."""
    num, efficacies = 8_000, [0.5] * 16 + [0.8] * 16
    model = Mixing(people(num), kind=kind, doses=0.5 * num, seed_share=0.02)
    run = dz.simulate(model, 90, replicates=32, params={"efficacy": efficacies}, compile=False)
    attack = 0.02 + run["cases"].sum(dim=1).double() / num  # seeds number 0.02 ± 0.0016
    assert set(run["cases"][:, -1].tolist()) <= set(range(4))  # over
    for efficacy in (0.5, 0.8):
        wanted = final_size(kind, efficacy, 0.5, 3.0, 0.02)
        other = final_size({"leaky": "all_or_nothing"}.get(kind, "leaky"), efficacy, 0.5, 3.0, 0.02)
        mean = attack[torch.tensor(efficacies) == efficacy].mean()
        assert abs(mean - wanted) < 0.013 < abs(other - wanted)


def test_efficacy_at_first_contact_is_the_same_by_either_kind():
    """One contact of hazard h: a leaky dose lets 1 - exp(-(1 - E) h) through, an all-or-nothing one (1 - E) of all."""
    like = torch.zeros(50_000, dtype=torch.int8)
    rng = dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=like.numel())
    leaky, wholly = (Vaccine(0.8, kind) for kind in ("leaky", "all_or_nothing"))
    factors = [v.factor(v.give(rng[v.kind], v.start(like), like + 1)) for v in (leaky, wholly)]
    assert factors[0].unique().tolist() == pytest.approx([0.2])
    assert factors[1].unique().tolist() == [0, 1]
    assert factors[1].mean().item() == pytest.approx(0.2, abs=4 * 0.4 / 50_000**0.5)


def test_a_second_dose_lifts_the_share_of_the_protected():
    like = torch.zeros(50_000, dtype=torch.int8)
    rng = dz.rng.Rng(torch.tensor([1, 0]), torch.tensor(0), num=like.numel())
    vaccine = Vaccine((0.5, 0.9), "all_or_nothing")
    one = vaccine.give(rng["first"], vaccine.start(like), like + 1)
    two = vaccine.give(rng["second"], one, like + 1)
    for status, share in ((one, 0.5), (two, 0.9)):
        assert 1 - vaccine.factor(status).mean().item() == pytest.approx(share, abs=0.01)
    assert bool((vaccine.factor(two) <= vaccine.factor(one)).all())
    assert torch.equal(vaccine.give(rng["third"], two, like + 1).value, two.value)  # there is no third


def test_a_second_dose_lifts_it_as_far_where_the_first_one_waned():
    like = torch.zeros(50_000, dtype=torch.int8)
    rng = dz.rng.Rng(torch.tensor([1, 0]), torch.tensor(0), num=like.numel())
    vaccine = Vaccine((0.5, 0.9), "all_or_nothing", Waning(5.0, 2))
    status = vaccine.give(rng["first"], vaccine.start(like), like + 1)
    for _ in range(2):
        status = status.advance(like + 1, "dose 1 protected", "dose 1 protected 2")
    assert not vaccine.protected(status).any()
    assert vaccine.given(status).all()
    assert status.is_("dose 1 waned").double().mean().item() == pytest.approx(0.5, abs=0.01)
    status = vaccine.give(rng["second"], status, like + 1)
    assert vaccine.protected(status).double().mean().item() == pytest.approx(0.9, abs=0.01)
    assert bool((status.is_(*vaccine.levels_of(2)) == 1).all())


@pytest.mark.parametrize("phases", [1, 4])
def test_waning_follows_its_law(phases):
    """The share still protected after t steps: a sum of `phases` geometric times has not passed."""
    num, steps, mean = 30_000, 25, 20.0
    model = Mixing(people(num), R0=0.0, waning=Waning(mean, phases), doses=float(num))
    status = dz.simulate(model, steps, compile=False)["status"][0]
    assert status[:, 0].eq(0).all()  # all had theirs
    leave, row, wanted = phases / mean, [1.0] + [0.0] * phases, []
    for _ in range(steps):
        row = [row[0] * (1 - leave), *[row[k] * (1 - leave) + row[k - 1] * leave for k in range(1, phases)], 0.0]
        wanted.append(sum(row))
    share = status[:, 1 : phases + 1].sum(dim=1).double() / num
    assert (share - torch.tensor(wanted)).abs().max() < 4 * 0.5 / num**0.5


# --- doses ------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(("dt", "a_day"), [(1.0, 7), (0.5, 7), (0.25, 3), (1.0, 2.5), (0.5, 0.3)])
def test_doses_of_a_day_are_exact(dt, a_day):
    who = given(MODEL, 40, Campaign(vaccine=JAB, doses_per_day=a_day, when=During(days=2)), dt=dt)
    a_step = who.sum(dim=(1, 2)).tolist()
    days = 40 * dt
    assert sum(a_step[: int(2 / dt)]) == 0
    assert sum(a_step) == math.floor(a_day * days) - math.floor(a_day * 2)
    assert max(a_step) - min(a_step[int(2 / dt) :]) <= 1
    if a_day == int(a_day):
        each = torch.tensor(a_step).reshape(int(days), -1).sum(dim=1)
        assert set(each[2:].tolist()) == {a_day}
    assert who.sum(dim=(0, 1)).max() <= 1  # nobody twice


def test_priorities_are_served_first_and_lots_within_them():
    by_score = Campaign(vaccine=JAB, doses_per_day=50, priority=lambda model, now: -model.group.float())
    by_group = Campaign(vaccine=JAB, doses_per_day=50, priority="group", groups=(2, 0))
    for campaign, wanted in ((by_score, [0, 1, 2]), (by_group, [2, 0])):
        who = given(MODEL, 14, campaign)[:, 0]
        groups = [MODEL.group[day != 0].tolist() for day in who]
        served = [group for day in groups for group in sorted(day, key=wanted.index)]
        assert served == [group for group in wanted for _ in range(200)]
        ids = who[0].nonzero().flatten()
        assert len(set((ids[1:] - ids[:-1]).tolist())) > 3  # by lot, not by place
    lots = [given(MODEL, 1, by_group, seed=seed)[0, 0] for seed in (1, 2)]
    assert not torch.equal(*lots)


def test_lots_are_even():
    """In 400 worlds everybody gets one of 30 doses equally often: chi-square with 59 degrees of freedom."""
    model, campaign = Mixing(people(60), R0=0.0), Campaign(vaccine=JAB, doses_per_day=30)
    record = {"who": lambda events: doses(events)}
    who = dz.simulate(model, 1, replicates=400, interventions=[campaign], record=record, compile=False)["who"]
    counts = who.sum(dim=(0, 1)).double()
    chi = ((counts - 200) ** 2 / (400 * 0.25)).sum()
    assert counts.sum() == 400 * 30
    assert 25 < chi < 110


def test_two_campaigns_of_one_vaccine_give_nobody_two_doses():
    first = Campaign(vaccine=JAB, doses_per_day=40, priority="group", groups=(2,), name="old")
    second = Campaign(vaccine=JAB, doses_per_day=40, when=During(2), name="all")
    who = given(MODEL, 20, first, second)
    assert who[:, 0].sum() + who[:, 1].sum() == N
    assert who.sum(dim=(0, 1)).max() == 1


class Two(Mixing):
    @property
    def vaccine(self) -> Vaccine:
        return Vaccine((0.5, 0.9), self.kind)


def test_second_doses_wait_their_time_and_go_first():
    campaign = Campaign(vaccine="vaccine", doses_per_day=100, interval=3, given="last_dose")
    record = {"last": lambda events: events["campaign/last doses"]}
    record |= {"who": lambda events: doses(events)}
    run = dz.simulate(Two(people(N), R0=0.0), 15, interventions=[campaign], record=record, compile=False)
    who, last = run["who"][0], run["last"][0]
    first = (who - last).argmax(dim=0)
    assert who.sum(dim=0).eq(2).all()
    assert torch.equal(last.argmax(dim=0) - first, torch.full((N,), 3))
    assert who.sum(dim=1).tolist() == [100] * 12 + [0] * 3
    assert last.sum(dim=1).tolist() == ([0] * 3 + [100] * 3) * 2 + [0] * 3
    assert run.state.vaccine.is_("dose 2 protected").all()


def test_needs_and_eligible():
    class Pair(People):
        booster: dz.model.Stage = dz.stage("agents", levels=JAB.levels)

    class Boosted(Mixing):
        def init(self, rng: dz.rng.Rng) -> Pair:
            begun = super().init(rng)
            return Pair(**{name: getattr(begun, name) for name in begun.kinds}, booster=JAB.start(begun.ill))

    first = Campaign(vaccine="vaccine", doses_per_day=10, eligible=lambda model, now: model.group == 1)
    booster = Campaign(vaccine=JAB, doses_per_day=1_000, field="booster", needs="vaccine", name="booster")
    model = Boosted(people(N), R0=0.0)
    who = given(model, 5, first, booster)
    assert torch.equal(who[:, 0], who[:, 1])  # each booster follows in the same step
    assert MODEL.group[who.sum(dim=(0, 1)) > 0].unique().tolist() == [1]
    circle = dataclasses.replace(first, needs="booster")
    with pytest.raises(InputError, match="'vaccine' needs 'booster' needs 'vaccine': nobody could ever have"):
        given(model, 1, circle, booster)


# --- promises ---------------------------------------------------------------------------------------------------------


def test_worlds_resume_and_order_of_agents():
    """Replicate i is worlds=[i]; a run goes on bit for bit; agents laid out in another order have the same world."""
    model = Mixing(people(90), kind="all_or_nothing", waning=Waning(8.0, 2), doses=20.0)
    campaign = Campaign(vaccine="vaccine", doses_per_day=4, priority="group", when=Weekly("monday", first="friday"))
    campaign = dataclasses.replace(campaign, name="mondays")
    options: dict[str, Any] = {"interventions": [campaign], "compile": False, "seed": 3}
    whole = dz.simulate(model, 20, replicates=3, **options)
    alone = dz.simulate(model, 9, worlds=[2], **options).extend(11)
    for name in ("cases", "status"):
        assert torch.equal(whole[name][2], alone[name][0])
    order = torch.randperm(90, generator=torch.Generator().manual_seed(0))
    moved = dz.simulate(model.replace(group=model.group[order]), 20, replicates=3, ids=order, **options)
    assert torch.equal(moved["status"], whole["status"])
    assert torch.equal(moved.state.vaccine.value, whole.state.vaccine.value[..., order])


def test_doses_flow_through_relaxed_runs():
    """Shares are handed out as doses are: all of the day's, and no more than there is of anybody."""
    campaign = Campaign(vaccine="vaccine", doses_per_day=10, priority="group")
    for kind in ("leaky", "all_or_nothing"):
        model = Mixing(people(90), kind=kind, efficacy=0.6)
        run = dz.simulate(
            model, 12, interventions=[campaign], relax=MeanField(), record={"d": lambda events: doses(events).sum()}
        )
        assert run["d"][0].tolist() == pytest.approx([10.0] * 9 + [0.0] * 3, abs=1e-3)
        protected = run["status"][0, -1, 1]
        assert float(protected) == pytest.approx(90.0 if kind == "leaky" else 54.0, abs=0.1)


def test_check_holds():
    campaign = Campaign(vaccine="vaccine", doses_per_day=4, priority="group")
    report = dz.check(Mixing(people(60), waning=Waning(8.0)), interventions=[campaign])
    assert report.ok, report


# --- wrong input ------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda: Vaccine(1.2), "Vaccine: efficacy=1.2, expected a number from 0 to 1"),
        (lambda: Vaccine(-0.1), "Vaccine: efficacy=-0.1, expected a number from 0 to 1"),
        (lambda: Vaccine(float("nan")), "Vaccine: efficacy=nan"),
        (lambda: Vaccine((0.9, 0.5)), "falls from dose to dose"),
        (lambda: Vaccine(0.9, "leeky"), "did you mean 'leaky'"),
        (lambda: Vaccine(0.9, waning=30), "expected Waning(mean, phases)"),
        (lambda: Waning(0.0), "Waning: mean=0.0, expected a number above 0"),
        (lambda: Waning(-3), "Waning: mean=-3"),
        (lambda: Waning(3.0, 0), "Waning: phases=0, expected a whole number from 1 to 60"),
    ],
)
def test_wrong_products_are_refused(make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make()


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"doses_per_day": -1}, "Campaign: doses_per_day=-1, expected a number, at least 0"),
        ({"doses_per_day": float("inf")}, "Campaign: doses_per_day=inf"),
        ({"doses_per_day": 1e-9}, "Campaign: doses_per_day=1e-09, expected 0, or at least 1e-06"),
        ({"vaccine": 0.9}, "Campaign: vaccine=0.9, expected a Vaccine"),
        ({"vaccine": "vacine"}, "Campaign: vaccine='vacine', expected a Vaccine, or the name"),
        ({"vaccine": Vaccine((0.5, 0.9))}, "say how many days lie between two, interval=21"),
        ({"interval": -2}, "Campaign: interval=-2, expected a number, at least 0"),
        ({"groups": (1, 2)}, "say which: priority='group'"),
        ({"groups": (1, 1), "priority": "group"}, "expected different codes"),
        ({"groups": (1, 9), "priority": "group"}, "Campaign: groups=(1, 9), and nobody has the group 9"),
        (
            {"eligible": lambda now: now.well},
            "Campaign: eligible is <lambda>(now), expected a function of (model, now)",
        ),
        ({"needs": "vaccine"}, "nobody could ever have a dose"),
        ({"when": 3}, "when=3, expected During"),
    ],
)
def test_wrong_campaigns_are_refused(changes, told):
    with pytest.raises(InputError, match=re.escape(told)):
        dz.simulate(MODEL, 1, interventions=[Campaign(**{"vaccine": JAB, "doses_per_day": 5, **changes})])


@pytest.mark.parametrize(
    "make",
    [
        lambda: Campaign(vaccine=JAB, doses_per_day=-3),
        lambda: Campaign(vaccine=JAB, doses_per_day=5, when=During(days=(40, 20))),
        lambda: Campaign(vaccine=Vaccine((0.5, 0.9)), doses_per_day=5),
        lambda: Scale(target="infect_rate", factor=float("nan"), when=During(0)),
        lambda: Course(target="infect_rate", values=[]),
        lambda: Course(target="infect_rate", values=[1.0, 2.0], dates=["2020-05-01", "2020-03-01"]),
        lambda: Act(change=lambda now: now, when=During(0)),
        lambda: Ask(target="infect_rate", groups="ab", answer=lambda group, step: 0.5),
        lambda: Weekly("someday"),
        lambda: Every(7, 8),
        lambda: Trigger(0.5),
        lambda: During(3, days=2),
    ],
)
def test_what_needs_no_model_is_refused_at_once(make):
    with pytest.raises(InputError, match=r"expected|out of order|say how many days"):
        make()


@pytest.mark.parametrize("doses", [1, 3, 10, 0.5])
def test_a_campaign_of_some_hours_gives_its_share_of_the_doses(doses):
    """However its hours lie in the day, and the doses in its hours."""
    for when in (Weekly(*WEEK, hours=(6, 12), first="mon"), Every(days=2, on_for=0.5)):
        campaign = Campaign(vaccine=JAB, doses_per_day=doses, when=when)
        assert int(given(MODEL, 4 * 60, campaign, dt=0.25).sum()) == pytest.approx(min(doses * 15, 600), abs=1.0)


@pytest.mark.parametrize(
    ("changes", "told"),
    [
        ({"field": "vacine"}, "the state has no field 'vacine'; did you mean 'vaccine'?"),
        ({"field": "ill"}, "expected dz.stage('agents', levels=vaccine.levels)"),
        ({"vaccine": Vaccine(0.5, "all_or_nothing")}, "expected none, dose 1 protected, dose 1 unprotected"),
        ({"priority": "grop"}, "priority='grop' is no field of the state or the model; did you mean 'group'?"),
        ({"priority": lambda model, now: now.ill.sum()}, "expected one number for each of 600 agents"),
        ({"eligible": lambda model, now: None}, "eligible is NoneType None"),
    ],
)
def test_campaigns_that_do_not_fit_the_state_are_told(changes, told):
    campaign = Campaign(**{"vaccine": JAB, "doses_per_day": 5, **changes})
    with pytest.raises(ModelError, match=re.escape(told)):
        dz.simulate(MODEL, 1, interventions=[campaign])


def test_a_priority_that_is_no_number_stops_the_run():
    campaign = Campaign(vaccine=JAB, doses_per_day=5, priority=lambda model, now: now.ill / 0)
    with pytest.raises(ModelError, match="campaign 'campaign': priority is NaN or infinite"):
        dz.simulate(MODEL, 1, interventions=[campaign])


def test_a_model_of_steps_has_no_days():
    class Steps(Mixing):
        time_unit = "step"

    with pytest.raises(InputError, match=r"doses_per_day=5 needs a model whose time_unit is a unit such as 'day'"):
        dz.simulate(Steps(people(9)), 1, interventions=[Campaign(vaccine=JAB, doses_per_day=5)])


@pytest.mark.cuda
@pytest.mark.parametrize("make", ["campaign", "second doses", "strains"])
def test_the_same_bits_on_a_gpu(make):
    campaign = Campaign(vaccine="vaccine", doses_per_day=70, priority="group")
    if make == "strains":
        model, campaigns = strains(erdos_renyi(3_000, 8, seed=0), arrival_day=3), []
    elif make == "campaign":
        model = Mixing(people(3_000), kind="all_or_nothing", waning=Waning(9.0, 2))
        campaigns = [dataclasses.replace(campaign, groups=(2, 0))]
    else:
        model = Two(people(3_000))
        campaigns = [dataclasses.replace(campaign, interval=3, given="last_dose")]
    here, there = (
        dz.simulate(model, 20, replicates=3, interventions=campaigns, device=device) for device in ("cpu", "cuda")
    )
    for name in here.series_names:
        assert torch.equal(here[name], there[name].cpu())
