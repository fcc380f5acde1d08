"""Stages of a step: in their order, shuffled in rounds, told in the manifest."""

import json
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Time, alive, births, deaths, in_order, own, shuffle

PEOPLE = 24


class Room(dz.State):
    here: Tensor = alive("agents")
    money: Tensor = dz.count("agents")
    taken: Tensor = dz.count()


class Shop(dz.Model):
    """People die, each takes a coin while there are some, the rich have children; all in stages."""

    num_agents: int = PEOPLE
    coins: int = 10

    step = in_order("leave", shuffle("take", rounds=8), "bear")

    def init(self, rng: dz.rng.Rng) -> Room:
        return Room(
            here=(torch.arange(PEOPLE) < 16).to(torch.int8),
            money=torch.zeros(PEOPLE, dtype=torch.int32),
            taken=torch.zeros((), dtype=torch.int32),
        )

    def leave(self, now: Room, rng: dz.rng.Rng) -> Room:
        return deaths(now, rng.record("left", rng.event("go", 0.2)))

    def take(self, now: Room, rng: dz.rng.Rng, acting: Tensor) -> Room:
        wants = acting * rng.event("go", 1.0) * (now.taken < self.coins)
        rng.record("took", wants)
        return now.replace(money=now.money + wants, taken=now.taken + wants.sum().to(torch.int32))

    def bear(self, now: Room, rng: dz.rng.Rng) -> Room:
        now = births(now, rng, rng.event("bear", 0.3))
        return now.replace(taken=torch.zeros_like(now.taken))

    @dz.series
    def took(self, events: dz.rng.Events) -> Tensor:
        return events["take/took"].sum()

    @dz.series
    def left(self, events: dz.rng.Events) -> Tensor:
        return events["leave/left"].sum()

    @dz.series
    def there(self, now: Room) -> Tensor:
        return now.here.sum()


def of_rounds(number: int) -> Any:
    """The shop with another number of rounds."""
    step = in_order("leave", shuffle("take", rounds=number), "bear")
    return type("Shop", (Shop,), {"step": step, "__annotations__": {}})


def test_a_round_sees_what_the_earlier_ones_did() -> None:
    """All at once, everybody finds coins; the more rounds, the closer to one coin after the other."""
    taken = [int(dz.simulate(of_rounds(k)(coins=4), 1, compile=False)["took"].sum()) for k in (1, 3, 40)]
    assert taken[0] > taken[1] >= taken[2]
    assert taken[2] in (4, 5)


def test_without_interaction_rounds_do_not_matter() -> None:
    runs = [dz.simulate(of_rounds(k)(coins=1000), 6, replicates=2, compile=False) for k in (1, 8)]
    for name in runs[0].series_names:
        assert torch.equal(runs[0][name], runs[1][name]), name
    assert torch.equal(runs[0].state.money, runs[1].state.money)
    assert torch.equal(runs[0].state.id, runs[1].state.id)


def test_stages_are_in_the_manifest_and_asked_for_again(tmp_path: Any) -> None:
    whole = dz.simulate(Shop(), 6, worlds=[1], compile=False)
    dz.simulate(Shop(), 3, replicates=2, compile=False, out=tmp_path / "run")
    resumed = dz.run.resume(tmp_path / "run", Shop(), 3, compile=False)
    assert torch.equal(whole["took"][0], resumed["took"][1])
    assert "leave, then take (shuffled over agents in 8 rounds), then bear" in " ".join(str(whole.plan()).split())
    manifest = json.loads((tmp_path / "run" / "manifest.json").read_text())
    assert manifest["model"]["stages"] == "leave, take (shuffled over agents in 8 rounds), bear"
    other = of_rounds(4)
    other.__module__, other.__qualname__ = Shop.__module__, Shop.__qualname__
    with pytest.raises(
        InputError, match=r"stages is leave, take \(shuffled over agents in 4 rounds\), bear here and was"
    ):
        dz.run.resume(tmp_path / "run", other(), 1, compile=False)


def test_nothing_happens_to_who_died_in_a_stage_before() -> None:
    class Once(dz.Model):
        num_agents: int = PEOPLE
        step = in_order("leave", "look")
        init = Shop.init

        def leave(self, now: Room, rng: dz.rng.Rng) -> Room:
            return deaths(now, now.here)

        def look(self, now: Room, rng: dz.rng.Rng) -> Room:
            rng.record("hit", rng.event("hit", 50.0))
            return now

        @dz.series
        def hit(self, events: dz.rng.Events) -> Tensor:
            return events["look/hit"].sum()

    assert int(dz.simulate(Once(), 1, compile=False)["hit"].sum()) == 0


def test_one_graph() -> None:
    report = dz.check(of_rounds(2)(), gradient=False)
    assert report.ok, report


def test_wrong_stages() -> None:
    with pytest.raises(InputError, match=r"in_order: stages=\['move', 'move'\], expected names of methods"):
        in_order("move", "move")
    with pytest.raises(InputError, match="in_order: stage 3, expected the name of a method"):
        in_order(3)  # pyrefly: ignore
    with pytest.raises(InputError, match="rounds=0, expected a whole number from 1 to 256"):
        shuffle("move", rounds=0)
    lost = type("Lost", (Shop,), {"step": in_order("mvoe"), "__annotations__": {}})
    with pytest.raises(ModelError, match=r"Lost has no stage 'mvoe': write def mvoe\(self, now, rng\)"):
        dz.simulate(lost(), 1, compile=False)
    empty = type("Empty", (Shop,), {"step": in_order("leave"), "leave": lambda self, now, rng: None})
    with pytest.raises(ModelError, match="stage 'leave' returned NoneType, expected the state"):
        dz.simulate(empty(), 1, compile=False)


def test_a_step_is_called_without_an_engine() -> None:
    """As authors do in a notebook: with random numbers of their own making."""
    now = Shop().init(dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=PEOPLE, phase="init"))
    now = own(now, Time(torch.tensor(0), 1.0, "step"), torch.arange(PEOPLE))
    after = of_rounds(3)().leave(now, dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=PEOPLE))
    assert int(after.here.sum()) <= 16
    seen = in_order("leave", "bear")(Shop(), now, dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=PEOPLE))
    assert int(seen.here.sum()) > 0
