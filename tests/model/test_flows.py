"""Flows count what happened in a step, whatever else moves agents; against plain loops over agents."""

import dataclasses
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Act, During, Intervention, Scale, births
from denizen.population import synthetic
from denizen.relax import MeanField, StraightThrough
from denizen.rng import Events, Rng
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir
from inside import Inside

NUM, STEPS, SEED = 90, 16, 4
SOURCE, TARGET = np.random.default_rng(0).integers(0, NUM, (2, 600))
CONTACTS = dz.Graph.from_edges(SOURCE, TARGET, NUM)
EDGES = [(int(a), int(b)) for a, b in zip(SOURCE, TARGET, strict=True) if a != b]
RATE, DAYS = 0.06, 4.0
MODEL = sir(CONTACTS, infect_rate=RATE, infectious_days=DAYS, seed_share=0.05)


def vaccinate(model: Any, now: Any, rng: Rng) -> Any:
    dose = rng.bernoulli("dose", 0.08)
    rng.record("doses", dose * now.stage.is_("susceptible"))
    return now.replace(stage=now.stage.move(dose, "recovered", source="susceptible"))


def arrive(model: Any, now: Any, rng: Rng) -> Any:
    return now.replace(stage=now.stage.move(rng.bernoulli("fall", 0.03), "infected", source="susceptible"))


CAMPAIGN = Act(name="campaign", change=vaccinate, when=During(3, 11))
IMPORTS = Act(name="imports", change=arrive, when=During(1))
GIVEN = {"doses": lambda events: events["campaign/doses"].sum()}


def written_out(world: int) -> tuple[list[int], list[int]]:
    """(cases, doses) of each step of SIR with the campaign and the imports, agent by agent, with the same draws."""
    key, zero = torch.tensor([SEED, world]), torch.tensor(0)
    stage = [int(seed) for seed in Rng(key, zero, num=NUM, phase="init").bernoulli("seed", 0.05)]
    cases, doses = [], []
    for step in range(STEPS):
        rng = Rng(key, torch.tensor(step), num=NUM)
        dose = rng["intervention", "campaign"].bernoulli("dose", 0.08).tolist()
        fall = rng["intervention", "imports"].bernoulli("fall", 0.03).tolist()
        doses.append(0)
        for k in range(NUM):
            if 3 <= step < 11 and dose[k] and stage[k] == 0:
                stage[k] = 2
                doses[-1] += 1
            if step >= 1 and fall[k] and stage[k] == 0:
                stage[k] = 1
        ill = [0.0] * NUM
        for a, b in EDGES:
            ill[b] += stage[a] == 1 and stage[b] == 0
        catch = rng.event("catch", RATE * torch.tensor(ill)).tolist()
        heal = rng.bernoulli("heal", torch.tensor([float(s == 1) for s in stage]) / DAYS).tolist()
        cases.append(0)
        for k in range(NUM):
            if stage[k] == 0 and catch[k]:
                stage[k] = 1
                cases[-1] += 1
            elif stage[k] == 1 and heal[k]:
                stage[k] = 2
    return cases, doses


LOOPS = [written_out(world) for world in range(3)]
CASES, DOSES = (torch.tensor([loop[k] for loop in LOOPS]) for k in (0, 1))


def campaigned(steps: int = STEPS, **options: Any) -> Any:
    return dz.simulate(MODEL, steps, seed=SEED, interventions=[CAMPAIGN, IMPORTS], record=GIVEN, **options)


def test_cases_are_the_infections_of_a_plain_loop() -> None:
    assert CASES.sum() > 60
    assert DOSES.sum() > 60
    batch = campaigned(replicates=3)
    assert torch.equal(batch["cases"], CASES)
    assert torch.equal(batch["doses"], DOSES)
    alone = campaigned(worlds=[2])
    assert torch.equal(alone["cases"], CASES[2:])
    assert torch.equal(alone["doses"], DOSES[2:])
    assert alone.kinds == {"cases": "flow", "infected": "level", "recovered": "level", "doses": "flow"}


def test_cases_compiled_and_in_pieces(inside: Inside) -> None:
    inside.backend("aot_eager")
    run = campaigned(5, replicates=3, compile=True).extend(STEPS - 5)
    assert run.stats()["path"] == "compiled"
    assert torch.equal(run["cases"], CASES)
    assert torch.equal(run["doses"], DOSES)


def test_cases_of_a_resumed_run(tmp_path: Any) -> None:
    campaigned(6, replicates=3).save(tmp_path / "run")
    again = dz.run.resume(tmp_path / "run", MODEL, STEPS - 6, record=GIVEN, interventions=[CAMPAIGN, IMPORTS])
    assert torch.equal(again["cases"], CASES)
    assert torch.equal(again["doses"], DOSES)


def test_cases_of_relaxed_runs() -> None:
    soft = campaigned(replicates=3, relax=StraightThrough())
    assert torch.equal(soft["cases"].detach(), CASES.float())
    assert torch.equal(soft["doses"].detach(), DOSES.float())
    mean = campaigned(relax=MeanField())
    balance = NUM * (1 - 0.05) - mean["cases"].sum() - mean["doses"].sum()
    left = mean.state.stage.is_("susceptible").sum() + imported(mean)
    torch.testing.assert_close(balance, left, rtol=1e-5, atol=1e-3)


def imported(run: Any) -> Tensor:
    """Those who fell ill by the imports alone: what the susceptible lost otherwise in a run of the same kind."""
    counted = Act(
        name="imports",
        when=During(1),
        change=lambda model, now, rng: (
            rng.record("ill", now.stage.is_("susceptible") * 0.03),
            arrive(model, now, rng),
        )[1],
    )
    record = {"ill": lambda events: events["imports/ill"].sum()}
    again = dz.simulate(MODEL, STEPS, seed=SEED, interventions=[CAMPAIGN, counted], record=record, relax=MeanField())
    assert torch.equal(again["cases"], run["cases"])
    return again["ill"].sum()


def test_a_gradient_of_what_was_recorded() -> None:
    """The slope of the recorded cases is that of the fall of the susceptible, where nothing else moves them."""
    record = {"fall": lambda before, now: (before.stage.is_("susceptible") - now.stage.is_("susceptible")).sum()}
    slopes = []
    for name in ("cases", "fall"):
        gradient = dz.run.Gradient(
            MODEL,
            lambda series, name=name: series[name].sum(),
            6,
            wrt=["infect_rate"],
            relax=StraightThrough(),
            record=record,
            device="cpu",
        )
        gradient()
        slopes.append(gradient.gradients["infect_rate"])
    torch.testing.assert_close(*slopes, rtol=1e-4, atol=0.0)
    assert slopes[0] > 0


@pytest.mark.parametrize("build", [sir, seir])
def test_flows_of_states_begin_after_the_interventions(build: Any) -> None:
    """`before` is what the step found, so that the fall of the susceptible is the cases, under interventions too."""
    record = {
        "fall": lambda before, now: (before.stage.is_("susceptible") - now.stage.is_("susceptible")).sum(),
        "found": lambda before, now: before.stage.is_("recovered").sum(),
    }
    run = dz.simulate(build(CONTACTS), STEPS, replicates=3, interventions=[CAMPAIGN], record=record | GIVEN)
    assert torch.equal(run["fall"], run["cases"])
    left = torch.cat([torch.zeros(3, 1, dtype=torch.int64), run["recovered"][:, :-1]], dim=1)
    assert torch.equal(run["found"], left + run["doses"])
    assert bool((run["doses"][:, 3:11].sum(dim=1) > 0).all())


@pytest.mark.parametrize("sampled", [False, True])
def test_flows_of_covid_under_a_campaign(sampled: bool) -> None:
    """Infections are the fall of the susceptible less the doses; deaths are the rise of the dead."""
    model = covid(synthetic("astoria", size=1000), symmetrize=True, R=[25.0], mortality=0.5, sample_deaths=sampled)

    def protect(model: Any, now: Any, rng: Rng) -> Any:
        dose = rng.record("doses", now.exposed.never() * rng.bernoulli("dose", 0.02))
        longest = model.kernel.numel() + 1  # exposed long ago: over
        value = torch.where(dose != 0, longest, now.exposed.value).to(now.exposed.value.dtype)
        return now.replace(exposed=dz.model.History(value, now.exposed.length))

    campaign = Act(name="campaign", change=protect, when=During(2, 12))
    run = dz.simulate(model, 30, replicates=2, interventions=[campaign], record=GIVEN)
    start = dz.simulate(model, 0, replicates=2).state.exposed.never().sum(dim=1)
    total = run["daily_infected"].sum(dim=1) + run["doses"].sum(dim=1)
    assert torch.equal(start - run["susceptible"][:, -1], total)
    assert run["daily_infected"].sum() > 50
    if sampled:
        assert torch.equal(run["daily_deaths"].cumsum(dim=1), run["dead"])
        assert run["dead"][:, -1].sum() > 10


# --- births -----------------------------------------------------------------------------------------------------------


class Village(dz.State):
    alive: Tensor = dz.mask("agents")
    ill: Tensor = dz.mask("agents")


class Parish(dz.Model):
    """SI with births of the well and deaths: both change how many are well, as infection does."""

    contacts: dz.Graph
    rate: Tensor = dz.param(0.05, low=0.0)

    def init(self, rng: Rng) -> Village:
        alive = rng.bernoulli("alive", 0.5)
        return Village(alive=alive, ill=alive * rng.bernoulli("ill", 0.2))

    def step(self, now: Village, rng: Rng) -> Village:
        well = now.alive * (1 - now.ill)
        caught = rng.record("caught", well * rng.event("catch", self.rate * self.contacts.sum(now.ill, where=well)))
        dead = rng["end"].record("died", now.alive * rng.event("die", 0.1))
        now = now.replace(alive=now.alive - dead, ill=(now.ill + caught) * (1 - dead))
        born = rng.record("born", now.alive * rng.event("bear", 0.12))
        return births(now, rng, born, ill=0 * now.ill)

    @dz.series
    def cases(self, events: Events) -> Tensor:
        return events["caught"].sum()

    @dz.series
    def deaths(self, events: Events) -> Tensor:
        return events["end/died"].sum()

    @dz.series
    def births(self, events: Events) -> Tensor:
        return events["born"].sum()

    @dz.series
    def fall(self, before: Village, now: Village) -> Tensor:
        return (before.alive * (1 - before.ill) - now.alive * (1 - now.ill)).sum()

    @dz.series
    def change(self, before: Village, now: Village, events: Events) -> Tensor:
        """The living who are more, less those who were born, plus those who died: 0."""
        rise = now.alive.sum() - before.alive.sum()
        return rise - events["born"].sum() + events["end/died"].sum()


@pytest.mark.parametrize("compiled", [False, True])
def test_flows_with_births_and_deaths(compiled: bool, inside: Inside) -> None:
    inside.backend("aot_eager")
    run = dz.simulate(Parish(CONTACTS), STEPS, seed=SEED, replicates=2, compile=compiled)
    cases = torch.zeros(2, STEPS, dtype=torch.int64)
    for world in range(2):  # the same events drawn anew, from states that another run left
        for step in range(STEPS):
            state = dz.simulate(Parish(CONTACTS), step, seed=SEED, worlds=[world], compile=False).state
            alive, ill, ids = state.alive[0], state.ill[0], state.id[0]
            pressure = [0.0] * NUM
            for a, b in EDGES:
                pressure[b] += int(ill[a]) * int(alive[b]) * (1 - int(ill[b]))
            rng = Rng(torch.tensor([SEED, world]), torch.tensor(step), num=NUM, ids=ids)
            catch = rng.event("catch", 0.05 * torch.tensor(pressure)).tolist()
            cases[world, step] = sum(catch[k] for k in range(NUM) if alive[k] and not ill[k])
    assert torch.equal(run["cases"], cases)
    assert not torch.equal(run["fall"], cases)  # births and deaths of the well count there
    assert bool((run["change"] == 0).all())
    assert run["births"].sum() > 20
    assert run["deaths"].sum() > 20


def test_a_check_notes_differences_of_levels() -> None:
    report = dz.check(Parish(CONTACTS), gradient=False)
    assert report.ok, report
    assert len(report.notes) == 1
    assert "series 'fall' is a difference of levels" in report.notes[0]
    assert "rng.record" in report.notes[0]
    assert report.notes[0] in str(report)


class Told(type(MODEL)):  # type: ignore[misc]
    """Flows that are differences of levels, in several forms, and flows that are none."""

    @dz.series
    def lost(self, before: Any, now: Any) -> Tensor:
        return before.stage.is_("susceptible").sum() - now.stage.is_("susceptible").sum()

    @dz.series
    def went(self, before: Any, now: Any) -> Tensor:
        return (before.stage.is_("susceptible") * now.stage.is_("infected")).sum()

    @dz.series
    def healed(self, before: Any, now: Any) -> Tensor:
        return (now.stage.is_("recovered") - before.stage.is_("recovered")).clamp(min=0).sum()

    @dz.series
    def clock(self, before: Any, now: Any) -> Tensor:
        return now.time.step - before.time.step

    @dz.series
    def last(self, before: Any, now: Any) -> Tensor:
        return now.stage.is_("infected").sum()

    @dz.series
    def first(self, before: Any, now: Any) -> Tensor:
        return before.stage.is_("infected").sum()


def test_which_series_are_noted() -> None:
    notes = dz.check(Told(CONTACTS), gradient=False).notes
    assert [note.partition("series '")[2].partition("'")[0] for note in notes] == ["lost", "went", "healed"]
    assert all("test_flows.py:" in note for note in notes)


# --- recording --------------------------------------------------------------------------------------------------------


def make(**options: Any) -> Rng:
    return Rng(torch.tensor([1, 2]), torch.tensor(0), num=5, **options)


def test_what_is_recorded_comes_back_unchanged_under_its_name() -> None:
    rng, mask, amount = make(), torch.tensor([1, 0, 0, 1, 0], dtype=torch.int8), torch.rand(5, 2)
    assert rng.record("caught", mask) is mask
    inner = rng["day", 3]
    assert inner.record("caught", amount) is amount
    inner["work"].record("late", mask != 0)
    rng["intervention", "campaign"].record("doses", mask)
    rng.on("edges", 2).record("broken", torch.ones(2))
    assert list(rng.events) == ["caught", "day/3/caught", "day/3/work/late", "campaign/doses", "broken"]
    assert rng.events["day/3/caught"] is inner.events["caught"] is amount
    assert list(inner.events) == ["caught", "work/late"]
    assert "caught" in inner.events
    assert "campaign/doses" not in inner.events
    assert repr(inner.events) == "Events(caught, work/late)"


def test_what_cannot_be_recorded() -> None:
    rng = make()
    rng["a"].record("b", torch.ones(5))
    with pytest.raises(ModelError, match=r"rng.record: the name 'a/b' is used twice in one step"):
        rng.record("a/b", torch.ones(5))
    for wrong in (torch.ones(4), torch.ones(()), torch.ones(1, 5), 3, None, [1, 0, 0, 0, 0]):
        with pytest.raises(ModelError, match=r"rng.record\('x'\): got .*, expected a tensor with 5 entries first"):
            rng.record("x", wrong)  # type: ignore[arg-type]
    with pytest.raises(ModelError, match="init is no step"):
        make(phase="init")["seeds"].record("x", torch.ones(5))
    rng.record("caught", torch.ones(5))
    with pytest.raises(ModelError, match=r"events\['caght'\]: nothing was recorded .* 'caught'"):
        rng.events["caght"]
    with pytest.raises(ModelError, match="the step recorded none"):
        make().events["caught"]


@pytest.mark.parametrize("replicates", [1, 2])
def test_unknown_events_name_the_known_ones(replicates: int) -> None:
    with pytest.raises(ModelError, match=r"events\['doses'\]: nothing was recorded under this name.*caught"):
        dz.simulate(MODEL, 3, replicates=replicates, record={"doses": lambda events: events["doses"].sum()})
    with pytest.raises(ModelError, match=r"campaign/doses"):
        dz.simulate(
            MODEL,
            3,
            replicates=replicates,
            interventions=[CAMPAIGN],
            record={"doses": lambda events: events["campaign/dose"].sum()},
        )


@pytest.mark.parametrize(
    "function",
    [
        lambda events, now: 0,
        lambda a, b, c: 0,
        lambda before, events, now: 0,
        lambda: 0,
        lambda a, b, c, events: 0,
        min,
    ],
)
def test_series_of_other_arguments(function: Any) -> None:
    with pytest.raises(dz.errors.InputError, match=r"expected a function of \(now\) or \(before, now\), or \(events\)"):
        dz.simulate(MODEL, 1, record={"x": function})
    with pytest.raises(ModelError, match=r"expected \(self, now\) or \(self, before, now\), or \(self, events\)"):
        dz.series(lambda self, events, now: 0)


@dataclasses.dataclass(frozen=True, kw_only=True)
class Own(Intervention):
    """One that minds nothing of whether it is on."""

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        rng.record("one", torch.ones(NUM, 2))
        return model, now


def test_interventions_record_while_they_are_on() -> None:
    given = {"one": lambda events: events["own/one"].sum(dim=0)}
    run = dz.simulate(MODEL, 4, replicates=2, interventions=[Own(name="own", when=During(1, 3))], record=given)
    assert run["one"].tolist() == [[[0, 0], [NUM, NUM], [NUM, NUM], [0, 0]]] * 2


def test_other_interventions_leave_what_is_counted_as_it_was() -> None:
    nothing = Scale(target="infect_rate", factor=1.0, when=During(0))
    bare = dz.simulate(MODEL, STEPS, replicates=2)
    assert torch.equal(dz.simulate(MODEL, STEPS, replicates=2, interventions=[nothing])["cases"], bare["cases"])


# --- environments -----------------------------------------------------------------------------------------------------


class Pond(dz.State):
    fish: Tensor = dz.mask("agents")


class Fishing(dz.Env):
    num_agents: int = 30
    action_space = dz.rl.Discrete(2)
    observation_space = dz.rl.Box(0, 30, (1,))
    time_limit = 6

    def init(self, rng: Rng) -> Pond:
        return Pond(fish=rng.bernoulli("fish", 0.8))

    def step(self, now: Pond, action: Tensor, rng: Rng) -> Pond:  # type: ignore[override]
        hooked = rng.record("hooked", now.fish * rng.bernoulli("hook", 0.3 * action))
        return now.replace(fish=now.fish - hooked)

    def observe(self, now: Pond) -> Tensor:
        return now.fish.sum()[None].to(torch.float32)

    def reward(self, before: Pond, action: Tensor, now: Pond) -> Tensor:
        return (before.fish.sum() - now.fish.sum()).to(torch.float32)

    def terminated(self, now: Pond) -> Tensor:
        return now.fish.sum() == 0

    @dz.series
    def catches(self, events: Events) -> Tensor:
        return events["hooked"].sum()


def test_flows_of_environments() -> None:
    worlds = dz.rl.Worlds(Fishing(), 3, device="cpu")
    worlds.reset()
    caught = 0.0
    for _ in range(4):
        step = worlds.step(torch.tensor([0, 1, 1]))
        assert torch.equal(step.flows["catches"], step.reward)
        caught += float(step.flows["catches"].sum())
    worlds.check()
    assert caught > 20


def test_series_by_group_keep_the_author_s_own_arguments() -> None:
    """`lambda now, group=0: …` was taken for (before, now), and a state that equals no number gave 0 everywhere."""
    places = torch.arange(NUM) % 3
    functions: dict[str, Any] = {}
    for group in range(3):
        functions[f"cases {group}"] = lambda events, group=group: (events["caught"] * (places == group)).sum()
        functions[f"ill {group}"] = lambda now, *, group=group: (now.stage.is_("infected") * (places == group)).sum()
        functions[f"left {group}"] = lambda before, now, group=group: (
            (before.stage.is_("susceptible") - now.stage.is_("susceptible")) * (places == group)
        ).sum()
    run = dz.simulate(MODEL, STEPS, seed=SEED, record=functions)
    for name, whole in (("cases", "cases"), ("ill", "infected"), ("left", "cases")):
        parts = torch.stack([run[f"{name} {group}"] for group in range(3)])
        assert torch.equal(parts.sum(0), run[whole])
        assert (parts.sum((1, 2)) > 0).all()
    assert {run.kinds[f"ill {group}"] for group in range(3)} == {"level"}
    with pytest.raises(InputError, match=r"expected a function of \(now\)"):
        dz.simulate(MODEL, 1, record={"x": lambda now, *, group: now.stage.is_("infected").sum()})


@pytest.mark.parametrize("function", [lambda noted: noted["caught"].sum(), lambda now, noted: noted["caught"].sum()])
def test_events_by_another_name_are_told(function: Any) -> None:
    with pytest.raises(ModelError, match=r"last argument called events: events\['caught'\]"):
        dz.simulate(MODEL, 1, record={"x": function})
    with pytest.raises(TypeError, match="not iterable"):
        iter(dz.simulate(MODEL, 1).state)
