"""Interventions: when they are on, what they change, and that they change nothing else."""

import re
from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Act, Ask, During, Intervention, Scale, Stage, Trigger
from denizen.relax import StraightThrough
from denizen.space import Graph, Layers
from denizen.zoo.sir import SIR
from inside import Inside

AGENTS, STEPS = 120, 12


class People(dz.State):
    stage: Stage = dz.stage("agents", levels=("well", "ill", "over"))
    doses: Tensor = dz.count("agents", max=1)


class Outbreak(dz.Model):
    layers: Layers
    group: Tensor
    rate: Tensor = dz.param(0.15, low=0.0)
    caution: Tensor = dz.param([0.0, 0.0], low=0.0, high=1.0)

    def init(self, rng: dz.rng.Rng) -> People:
        ill = rng.bernoulli("ill", 0.1)
        well = Stage(torch.zeros(AGENTS, dtype=torch.int8), ("well", "ill", "over"))
        return People(stage=well.move(ill, "ill", source="well"), doses=0 * ill)

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        pressure = self.layers.sum(now.stage.is_("ill"), where=now.stage.is_("well"), step=now.time.step)
        careful = dz.model.lookup(self.caution, self.group)
        caught = rng.event("catch", self.rate * pressure * (1 - careful))
        stage = now.stage.move(rng.event("heal", 0.2), "over", source="ill")
        return now.replace(stage=stage.move(caught, "ill", source="well"))

    @dz.series
    def cases(self, before: People, now: People) -> Tensor:
        return (before.stage.is_("well") - now.stage.is_("well")).sum()

    @dz.series
    def ill(self, now: People) -> Tensor:
        return now.stage.is_("ill").sum()

    @dz.series
    def seen_rate(self, now: People) -> Tensor:
        """The parameter as the step saw it."""
        return self.rate + 0.0

    @dz.series
    def seen_school(self, now: People) -> Tensor:
        return self.layers.strength["school"] + 0.0

    @dz.series
    def seen_caution(self, now: People) -> Tensor:
        return self.caution + 0.0


def graph(seed: int) -> Graph:
    return Graph.from_edges(*np.random.default_rng(seed).integers(0, AGENTS, (2, 500)), AGENTS)


MODEL = Outbreak(Layers({"home": graph(1), "school": graph(2)}), torch.arange(AGENTS).remainder(2).to(torch.uint8))
BOTH = pytest.mark.parametrize("replicates", [1, 3])


def run(*interventions: Intervention, replicates: int = 1, steps: int = STEPS, **options: Any) -> Any:
    return dz.simulate(MODEL, steps, replicates=replicates, interventions=list(interventions), **options)


# --- when -------------------------------------------------------------------------------------------------------------


@BOTH
@pytest.mark.parametrize(("start", "stop"), [(0, None), (0, 0), (3, 7), (5, 6), (11, None), (99, None), (0, 99)])
def test_during(start: int, stop: int | None, replicates: int) -> None:
    seen = run(Scale(target="rate", factor=0.5, when=During(start, stop)), replicates=replicates)["seen_rate"]
    on = [start <= step and (stop is None or step < stop) for step in range(STEPS)]
    expected = MODEL.rate * torch.tensor([0.5 if o else 1.0 for o in on])
    assert torch.equal(seen, expected.expand(replicates, -1))


@given(start=st.integers(0, 60), stop=st.one_of(st.none(), st.integers(0, 60)), seed=st.integers(0, 20))
@settings(max_examples=40)
def test_trigger_has_hysteresis(start: int, stop: int | None, seed: int) -> None:
    """Against a plain loop over the series of the ill, which the intervention itself changes."""
    off = None if stop is None else lambda now: now.stage.is_("ill").sum() < stop
    when = Trigger(lambda now: now.stage.is_("ill").sum() > start, off)
    out = run(Scale(target="rate", factor=0.25, when=when), seed=seed, steps=8)
    before = [int(dz.simulate(MODEL, 0, seed=seed).state.stage.is_("ill").sum()), *out["ill"][0].tolist()]
    on, seen = False, []
    for ill in before[:-1]:
        on = (on if stop is None else not ill < stop) if on else ill > start
        seen.append(MODEL.rate.item() * (0.25 if on else 1.0))
    assert out["seen_rate"][0].tolist() == pytest.approx(seen)


@pytest.mark.parametrize(
    ("answer", "got"),
    [
        (lambda now: now.stage.is_("ill") != 0, "shape (60,)"),  # one truth for each agent
        (lambda now: None, "NoneType"),
        (lambda now: 1.0, "float 1.0"),
    ],
)
@BOTH
def test_a_trigger_answers_once_for_its_world(answer: Any, got: str, replicates: int) -> None:
    got = re.escape(got).replace("60", r"\d+")
    for when in (Trigger(answer), Trigger(lambda now: now.time.step >= 0, answer)):
        with pytest.raises(ModelError, match=f"Trigger: (start|stop) returned {got}.*, expected one truth"):
            run(Scale(target="rate", factor=0.5, when=when), replicates=replicates)


@pytest.mark.parametrize("groups", [2, "ab", None])
def test_groups_are_labels(groups: Any) -> None:
    with pytest.raises(InputError, match=r"Ask: groups=.*, expected the groups' labels"):
        run(Ask(target="caution", groups=groups, answer=lambda group, step: 0.5))


def test_triggers_switch_in_each_world_by_itself() -> None:
    when = Trigger(lambda now: now.stage.is_("ill").sum() > 30, lambda now: now.stage.is_("ill").sum() < 25)
    batch = run(Scale(target="rate", factor=0.1, when=when), replicates=6)
    assert len({tuple(row) for row in batch["seen_rate"].tolist()}) > 1
    for world in range(6):
        alone = run(Scale(target="rate", factor=0.1, when=when), worlds=[world])
        for name in batch.series_names:
            assert torch.equal(batch[name][world : world + 1], alone[name])


@pytest.mark.parametrize("parts", [[1, 11], [5, 7], [1] * 12])
def test_switches_survive_chunks(parts: list[int]) -> None:
    when = Trigger(lambda now: now.stage.is_("ill").sum() > 20, lambda now: now.stage.is_("ill").sum() < 5)
    whole = run(Scale(target="rate", factor=0.1, when=when))
    pieces = run(Scale(target="rate", factor=0.1, when=when), steps=0)
    for steps in parts:
        pieces.extend(steps)
    assert torch.equal(whole["seen_rate"], pieces["seen_rate"])


# --- scale ------------------------------------------------------------------------------------------------------------


@BOTH
def test_scaling_equals_another_parameter(replicates: int) -> None:
    scaled = run(Scale(target="rate", factor=0.5, when=During(0)), replicates=replicates)
    other = dz.simulate(MODEL.replace(rate=MODEL.rate * 0.5), STEPS, replicates=replicates)
    assert torch.equal(scaled["cases"], other["cases"])


@BOTH
def test_closing_a_layer(replicates: int) -> None:
    closed = run(Scale(target="layers.school", factor=0.0, when=During(0)), replicates=replicates)
    without = MODEL.replace(layers=Layers({"home": graph(1), "school": Graph.from_edges([], [], AGENTS)}))
    assert torch.equal(closed["cases"], dz.simulate(without, STEPS, replicates=replicates)["cases"])
    late = run(Scale(target="layers.school", factor=0.0, when=During(4)), replicates=replicates)
    assert torch.equal(late["cases"][:, :4], run(replicates=replicates)["cases"][:, :4])
    assert late["seen_school"][0].tolist() == [1.0] * 4 + [0.0] * 8


def test_schedules_are_scaled_too() -> None:
    scheduled = MODEL.replace(layers=Layers({"home": graph(1), "school": graph(2)}, {"school": [1.0, 0.5]}))
    closure = Scale(target="layers.school", factor=0.5, when=During(2))
    seen = dz.simulate(scheduled, 4, interventions=[closure])["seen_school"]
    assert seen[0].tolist() == [[1.0, 0.5], [1.0, 0.5], [0.5, 0.25], [0.5, 0.25]]


def test_several_act_in_order() -> None:
    half = Scale(name="half", target="rate", factor=0.5, when=During(2))
    fifth = Scale(name="fifth", target="rate", factor=0.2, when=During(4, 6))
    seen = run(half, fifth)["seen_rate"][0] / MODEL.rate
    torch.testing.assert_close(seen, torch.tensor([1.0, 1.0, 0.5, 0.5, 0.1, 0.1, *[0.5] * 6]))


# --- act --------------------------------------------------------------------------------------------------------------


def vaccinate(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
    """One in four of the well, once each, is moved to over."""
    chosen = rng.record("doses", rng.bernoulli("dose", 0.25) * now.stage.is_("well"))
    return now.replace(stage=now.stage.move(chosen, "over", source="well"), doses=now.doses + chosen)


@BOTH
def test_vaccination_conserves_people(replicates: int) -> None:
    out = run(
        Act(name="vaccinate", when=During(3, 6), change=vaccinate),
        replicates=replicates,
        record={
            "levels": lambda now: now.stage.counts(),
            "doses": lambda now: now.doses.sum(),
            "flow": lambda events: events["vaccinate/doses"].sum(),
        },
    )
    assert (out["levels"].sum(dim=-1) == AGENTS).all()
    assert (out["flow"][:, :3] == 0).all()
    assert (out["flow"][:, 3:6] > 0).all()
    assert (out["flow"][:, 6:] == 0).all()
    assert torch.equal(out["flow"].cumsum(dim=1), out["doses"])
    bare = run(replicates=replicates)
    assert torch.equal(out["cases"][:, :3], bare["cases"][:, :3])
    assert (out["cases"].sum(dim=1) <= bare["cases"].sum(dim=1)).all()


def test_its_draws_are_its_own() -> None:
    """The same name in the model's step, in two interventions: different numbers and no clash."""

    def draw(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
        return now.replace(doses=rng.event("catch", 0.7).to(torch.int32))

    first, second = (run(Act(name=n, when=During(0), change=draw), steps=1).state.doses for n in ("a", "b"))
    assert not torch.equal(first, second)


@pytest.mark.parametrize("returned", [None, 5, {}])
def test_an_act_must_return_a_state(returned: Any) -> None:
    with pytest.raises(ModelError, match=r"intervention 'act': change returned .* expected People"):
        run(Act(when=During(0), change=lambda model, now, rng: returned))


@pytest.mark.parametrize("start", [0, 5])
def test_an_act_keeps_the_kinds(start: int) -> None:
    with pytest.raises(ModelError, match=r"People.doses.*would cut off"):
        run(Act(when=During(start), change=lambda model, now, rng: now.replace(doses=now.doses * 0.5)))
    with pytest.raises(ModelError, match=r"People.doses"):
        run(Act(when=During(start), change=lambda model, now, rng: now.replace(doses=now.doses[:5])))


def test_what_an_idle_act_would_do_wrong_does_not_matter() -> None:
    def wrong(model: Any, now: Any, rng: dz.rng.Rng) -> Any:
        return now.replace(doses=rng.bernoulli("x", 2.0).to(torch.int32))

    assert torch.equal(run(Act(when=During(99), change=wrong))["cases"], run()["cases"])
    with pytest.raises(ModelError, match=r"rng.bernoulli\('x'\)"):
        run(Act(when=During(5), change=wrong))


def test_acts_in_relaxed_runs() -> None:
    hard = run(Act(when=During(2), change=vaccinate))
    soft = run(Act(when=During(2), change=vaccinate), relax=StraightThrough())
    assert torch.equal(hard["cases"].float(), soft["cases"].detach())


# --- ask --------------------------------------------------------------------------------------------------------------


class Asked:
    """Notes every question; answers 0.5 for the young, rising with the steps for the old."""

    def __init__(self) -> None:
        self.questions: list[tuple[str, int]] = []

    def __call__(self, group: str, step: int) -> float:
        self.questions.append((group, step))
        return 0.5 if group == "young" else step / 20


@BOTH
@pytest.mark.parametrize("compiled", [False, True])
def test_asked_once_per_group_and_step(replicates: int, compiled: bool, inside: Inside) -> None:
    inside.backend("aot_eager")
    torch._dynamo.reset()
    asked = Asked()
    out = run(
        Ask(target="caution", groups=("young", "old"), answer=asked), replicates=replicates, compile=compiled, steps=7
    )
    out.extend(5)
    assert out.stats()["path"] == ("compiled" if compiled else "eager")
    assert asked.questions == [(group, step) for step in range(STEPS) for group in ("young", "old")]
    expected = torch.tensor([[0.5, step / 20] for step in range(STEPS)])
    assert torch.equal(out["seen_caution"], expected.expand(replicates, -1, -1))


def test_asked_only_while_on() -> None:
    asked = Asked()
    ask = Ask(target="caution", groups=("young", "old"), answer=asked, when=During(2, 4))
    seen = run(ask)["seen_caution"][0]
    assert asked.questions == [("young", 2), ("old", 2), ("young", 3), ("old", 3)]
    assert seen[1].tolist() == [0.0, 0.0]
    assert seen[3].tolist() == pytest.approx([0.5, 0.15])
    assert seen[4].tolist() == [0.0, 0.0]


def test_the_same_answers_as_a_parameter() -> None:
    told = run(Ask(target="caution", groups=("a", "b"), answer=lambda g, step: 0.25 if g == "a" else 0.75))
    assert torch.equal(told["cases"], dz.simulate(MODEL.replace(caution=[0.25, 0.75]), STEPS)["cases"])


@pytest.mark.parametrize(
    "answer", [-0.1, 1.1, float("nan"), float("inf"), None, "0.5", True, [0.5], torch.tensor([0.1, 0.2]), 1j]
)
def test_bad_answers_raise(answer: Any) -> None:
    def tell(group: str, step: int) -> Any:
        return answer if (group, step) == ("old", 3) else 0.1

    with pytest.raises(ModelError, match=r"asked for caution of group 'old' at step 3, the answer was .* from 0 to 1"):
        run(Ask(target="caution", groups=("young", "old"), answer=tell))


@pytest.mark.parametrize("answer", [0, 1, 0.5, np.float64(0.5), np.float32(0.5), np.int64(1)])
def test_good_answers_of_any_number_type(answer: Any) -> None:
    out = run(Ask(target="caution", groups=("young", "old"), answer=lambda g, step: answer), steps=1)
    assert out["seen_caution"][0, 0].tolist() == [float(answer)] * 2


def test_a_function_that_fails_is_not_swallowed() -> None:
    def tell(group: str, step: int) -> float:
        raise ConnectionError("no line")

    with pytest.raises(ConnectionError, match="no line"):
        run(Ask(target="caution", groups=("young", "old"), answer=tell))


class Alone(SIR):
    interventions = Scale(target="infect_rate", factor=0.5, when=During(0))


class Word(SIR):
    interventions = ("lockdown",)


class Misspelt(SIR):
    interventions = (Scale(target="infect_rat", factor=0.5, when=During(0)),)


@pytest.mark.parametrize(
    ("plan", "said"),
    [
        (Alone, r"Alone: interventions is Scale.*, expected a tuple of interventions, such as \(Scale\(…\),\)"),
        (Word, "interventions has str 'lockdown', expected Scale, Course, Act or Ask"),
        (Misspelt, "Scale: the model has no 'infect_rat'; did you mean 'infect_rate'"),
    ],
)
@pytest.mark.parametrize("how", [dz.check, lambda model: dz.simulate(model, steps=1)])
def test_interventions_of_a_model_are_told_where_they_are_none(plan: Any, said: str, how: Any) -> None:
    with pytest.raises(InputError, match=said):
        how(plan(Graph.from_edges([0, 1], [1, 0])))
