"""Runs whose rows go on from one another's states: everything of a state moves, and the random numbers stay."""

from collections.abc import Mapping
from typing import Any

import pytest
import torch
from tests.run.played import Played
from torch import Tensor

import denizen as dz
from denizen.run._sieve import again, branch, sift
from denizen.space import generators


class Town(dz.State):
    ill: Tensor = dz.mask("agents")
    since: dz.model.History = dz.history("agents", length=5)
    wealth: Tensor = dz.real("agents")


class Falling(dz.Model):
    rate: Tensor = dz.param(0.1, low=0.0)
    num_agents: int = 60

    def init(self, rng: dz.rng.Rng) -> Town:
        ill = rng.bernoulli("ill", 0.1)
        never = torch.zeros(60, dtype=torch.int64, device=ill.device)
        return Town(ill=ill, since=dz.model.History.start(never, length=5), wealth=rng.normal("wealth"))

    def step(self, now: Any, rng: dz.rng.Rng) -> Town:
        new = (1 - now.ill) * rng.event("fall", self.rate.expand(60))
        return now.replace(ill=now.ill + new, since=now.since.record(new), wealth=now.wealth + rng.normal("gain"))

    @dz.series
    def by_group(self, now: Any) -> Tensor:
        return now.ill.reshape(2, 30).sum(1)


CALM = dz.model.Scale(
    target="rate",
    factor=0.0,
    when=dz.model.Trigger(lambda now: now.ill.sum() > 22, lambda now: now.ill.sum() > 100),
    name="calm",
)


def begun(worlds: list[int], device: str = "cpu", **options: Any) -> dz.run.Run:
    return dz.simulate(Falling(), 0, worlds=worlds, seed=3, device=device, interventions=[CALM], **options)


class Picks:
    """Chooses these rows after one step; keeps what it saw."""

    def __init__(self, after: int, rows: list[int]) -> None:
        self.after, self.rows, self.seen = after, rows, []

    def due(self, step: int) -> bool:
        return step == self.after

    def see(self, step: int, records: Mapping[str, Tensor]) -> Tensor | None:
        (record,) = records.values()
        self.seen.append((step, record))
        return torch.tensor(self.rows, device=record.device) if self.due(step) else None


def same(one: dz.run.Run, other: dz.run.Run) -> None:
    assert one.steps == other.steps
    for left, right in zip(one._run_state.leaves, other._run_state.leaves, strict=True):
        assert torch.equal(left, right)
    assert torch.equal(one._run_state.switches, other._run_state.switches)


ROWS = [2, 2, 0, 1]
STAYING = [0, 2, 2, 0]  # in place: a row that others go on from stays


def test_the_whole_state_moves_and_world_numbers_stay() -> None:
    run, plain = begun([0, 1, 2, 3]), begun([0, 1, 2, 3])
    picks = Picks(4, ROWS)
    sift(run, 4, picks)
    plain.extend(4)
    assert torch.equal(torch.cat([seen for _, seen in picks.seen], dim=1), plain["by_group"])
    assert 0 < plain._run_state.switches.sum() < 4, "the intervention tells rows apart"
    for field in ("ill", "wealth"):
        assert torch.equal(getattr(run.state, field), getattr(plain.state, field)[ROWS])
    assert torch.equal(run._run_state.switches, plain._run_state.switches[ROWS])
    split = branch(plain, torch.tensor(ROWS), [0, 1, 2, 3])
    run.extend(3)
    split.extend(3)
    same(run, split)
    assert torch.equal(run["by_group"], split["by_group"])
    assert not torch.equal(run.state.wealth[0], run.state.wealth[1]), "copies draw apart"


def test_a_branch_leaves_the_run_as_it_is() -> None:
    run, alone = begun([0, 1, 2]), begun([0, 1, 2])
    run.extend(3)
    branch(run, torch.tensor([1, 1]), [70, 71]).extend(2)
    branch(run, torch.tensor([0, 1, 2]), [0, 1, 2]).extend(2)
    run.extend(2)
    alone.extend(5)
    same(run, alone)
    assert torch.equal(run["by_group"], alone["by_group"])


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=[pytest.mark.compile, pytest.mark.slow])])
def test_a_run_begun_again_is_the_run_of_those_worlds(compile: bool) -> None:
    rates = {"rate": torch.tensor([0.1, 0.2])}
    run = begun([0, 1], params=rates, compile=compile)
    run.extend(4)
    again(run, [5, 6], {"rate": torch.tensor([0.3, 0.05])})
    run.extend(4)
    fresh = begun([5, 6], params={"rate": [0.3, 0.05]}).extend(4)
    same(run, fresh)
    assert run.worlds == [5, 6]
    assert torch.equal(run["by_group"], fresh["by_group"])


@pytest.mark.parametrize("params", [{}, {"rate": torch.tensor([0.1, 0.2, 0.05, 0.1])}])
def test_captured_steps_follow_rows_and_a_run_begun_again(params: dict[str, Tensor]) -> None:
    captured, eager = (
        begun([0, 1, 2, 3], params={name: value.clone() for name, value in params.items()}) for _ in "ab"
    )
    for run in (captured, eager):
        run.extend(2)
    captured._capture, captured._path = Played(captured), "captured"
    for run in (captured, eager):
        again(run, [4, 5, 6, 7], {name: value + 0.05 for name, value in params.items()})
        sift(run, 8, Picks(4, STAYING))
        again(run, [8, 9, 10, 11], params)
        sift(run, 8, Picks(5, STAYING))
        run.extend(3)
    same(captured, eager)
    assert torch.equal(captured["by_group"], eager["by_group"])


class Mood(dz.Model):
    """What is summed over neighbours depends on a parameter, or on the state alone."""

    contacts: dz.Graph
    loudness: Tensor = dz.param(1.0, low=0.0)

    @property
    def num_agents(self) -> int:
        return self.contacts.num_agents

    def init(self, rng: dz.rng.Rng) -> Any:
        return Loud(loud=rng.bernoulli("loud", 0.2))

    def step(self, now: Any, rng: dz.rng.Rng) -> Any:
        heard = self.contacts.sum(now.loud)
        return now.replace(loud=rng.bernoulli("call", (0.1 + 0.2 * self.loudness * heard).clamp(max=0.9)))

    @dz.series
    def all_loud(self, now: Any) -> Tensor:
        return now.loud.sum()


class Softened(Mood):
    def step(self, now: Any, rng: dz.rng.Rng) -> Any:
        heard = self.contacts.sum(now.loud * self.loudness, max=2.0)
        return now.replace(loud=rng.bernoulli("call", (0.1 + 0.2 * heard).clamp(max=0.9)))


class Loud(dz.State):
    loud: Tensor = dz.mask("agents")


@pytest.mark.parametrize(
    ("model", "given", "alike"), [(Mood, False, True), (Mood, True, True), (Softened, True, False)]
)
def test_sums_over_neighbours_follow_rows_in_place(model: type[Mood], given: bool, alike: bool) -> None:
    town = dz.Graph.from_edges(generators.erdos_renyi(50, 4.0, seed=0))
    params = {"loudness": torch.tensor([0.5, 1.0, 0.5, 0.5])} if given else {}
    runs = [
        dz.simulate(
            model(town),
            2,
            worlds=[0, 1, 2, 3],
            seed=3,
            device="cpu",
            params={name: value.clone() for name, value in params.items()},
        )
        for _ in "ab"
    ]
    captured, eager = runs
    captured._capture = Played(captured, 8, 1)
    chunks = captured._capture._chunks
    assert chunks._arguments
    assert chunks._alike == alike
    for run in runs:
        sift(run, 8, Picks(4, STAYING))
        again(run, [4, 5, 6, 7], params)
        sift(run, 8, Picks(6, STAYING))
    same(captured, eager)


@pytest.mark.cuda
@pytest.mark.parametrize("compile", [False, True])
def test_the_gpu_moves_rows_as_the_cpu_does(compile: bool) -> None:
    """Captured steps too: chunks between choices, and a run begun again with the graphs that it has."""
    there, here = begun([0, 1, 2, 3], "cuda", compile=compile), begun([0, 1, 2, 3], compile=False)
    for run in (there, here):
        sift(run, 9, Picks(4, STAYING))
        again(run, [4, 5, 6, 7], {})
        sift(run, 9, Picks(5, STAYING))
        run.extend(2)
    assert torch.equal(there.state.ill.cpu(), here.state.ill)
    assert torch.allclose(there.state.wealth.cpu(), here.state.wealth, atol=1e-5)
    assert torch.equal(there._run_state.switches.cpu(), here._run_state.switches)
    assert torch.equal(there["by_group"].cpu(), here["by_group"])
