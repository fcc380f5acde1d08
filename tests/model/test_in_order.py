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
    near = type("Near", (Shop,), {"step": in_order("laeve"), "__annotations__": {}})
    with pytest.raises(ModelError, match=r"Near has no stage 'laeve': did you mean 'leave'\? or write def laeve"):
        near()
    turns = type("Turns", (Shop,), {"step": in_order(shuffle("bear")), "__annotations__": {}})
    with pytest.raises(ModelError, match=r"stage 'bear' takes .*: write def bear\(self, now, rng, acting\)"):
        turns()
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


# --- what is noted in rounds ------------------------------------------------------------------------------------------


class Market(Shop):
    """Who acts notes who it is and next to whom it stands, dies sometimes, and others take its place."""

    step = in_order(shuffle("act", rounds=4))

    def act(self, now: Room, rng: dz.rng.Rng, acting: Tensor) -> Room:
        place = torch.arange(PEOPLE)
        sold = acting * rng.event("sell", 0.7)
        rng.record("sold", sold, by=place.roll(1), me=now.id, next=now.id[place.roll(1)], turn=acting * 7)
        now = deaths(now, acting * rng.event("go", 0.4))
        return births(now, rng, acting * rng.event("bear", 0.4), money=3)

    @dz.series
    def took(self, events: dz.rng.Events) -> Tensor:
        return events["act/sold"].sum()

    @dz.series
    def left(self, now: Room) -> Tensor:
        return now.money.sum()


def test_rows_of_a_shuffled_stage_are_of_the_round_in_which_it_happened() -> None:
    """They had the identities and columns of the last round."""
    log = dz.run.EventLog("act/sold")
    run = dz.simulate(Market(), 8, replicates=2, seed=1, compile=False, log=log)
    rows = run.events("act/sold")
    assert len(rows) == int(run["took"].sum()) > 60
    assert (rows["turn"] == 7).all()
    assert (rows["id"] == rows["me"]).all()
    assert (rows["by"] == rows["next"]).all()
    assert len({*rows["id"].tolist()}) > PEOPLE  # the born among them
    alone = dz.simulate(Market(), 8, worlds=[1], seed=1, compile=False, log=log).events("act/sold")
    for name in ("step", "id", "by", "turn"):
        assert (rows[name][rows["replicate"] == 1] == alone[name]).all(), name
    assert list(rows)[4:6] == ["id", "by"]


def test_a_function_of_a_log_means_places_as_the_step_found_them() -> None:
    """Who died in a stage before, and whose place a child has by now, was said to be that child."""

    class Feud(Market):
        step = in_order("go", "hit")

        def go(self, now: Room, rng: dz.rng.Rng) -> Room:
            now = deaths(now, rng.event("go", 0.5))
            return births(now, rng, rng.event("bear", 0.8))

        def hit(self, now: Room, rng: dz.rng.Rng) -> Room:
            rng.record("hit", rng.event("hit", 1.0))
            return now

        @dz.series
        def took(self, events: dz.rng.Events) -> Tensor:
            return events["hit/hit"].sum()

    def neighbour(model: Any, before: Any, happened: Tensor, rng: dz.rng.Rng) -> dict[str, Tensor]:
        place = torch.arange(PEOPLE).roll(1)
        return {"by": place, "then": before.id[place]}

    run = dz.simulate(Feud(), 5, seed=1, compile=False, log=dz.run.EventLog({"hit/hit": neighbour}))
    rows = run.events("hit/hit")
    assert len(rows) > 30
    assert (rows["by"] == rows["then"]).all()


# --- who lives after an intervention, and in environments -------------------------------------------------------------


class Awake(Shop):
    """Everybody alive is noted, who was born before the step among them."""

    num_agents: int = PEOPLE

    def step(self, now: Room, rng: dz.rng.Rng) -> Room:
        rng.record("seen", rng.event("see", 60.0), me=now.id)
        return now

    @dz.series
    def took(self, events: dz.rng.Events) -> Tensor:
        return events["seen"].sum()

    @dz.series
    def left(self, now: Room) -> Tensor:
        return now.money.sum()


def test_a_step_knows_whom_an_intervention_killed_or_brought() -> None:
    """Things happened to the killed, not to the born, and rows had the identity of who had been there."""

    def change(model: Any, now: Room, rng: dz.rng.Rng) -> Room:
        now = deaths(now, (torch.arange(PEOPLE) < 4).to(torch.int8))
        return births(now, rng, (torch.arange(PEOPLE) < 7).to(torch.int8))

    act = dz.model.Act(name="change", when=dz.model.During(1, 2), change=change)
    run = dz.simulate(Awake(), 3, compile=False, interventions=[act], log=dz.run.EventLog("seen"))
    assert run["took"].tolist() == [[16, 15, 15]]
    rows = run.events("seen")
    assert (rows["id"] == rows["me"]).all()


def test_nothing_happens_to_the_dead_in_an_environment() -> None:
    class Pond(dz.State):
        fish: Tensor = alive("agents")
        frogs: Tensor = alive("frogs")

    class Fishing(dz.Env):
        num_agents: int = 30
        action_space = dz.rl.Discrete(2)
        observation_space = dz.rl.Box(0, 30, (1,))

        stages = in_order("swim", shuffle("jump", rounds=2, axis="frogs"))

        def init(self, rng: dz.rng.Rng) -> Pond:
            return Pond(fish=(torch.arange(30) < 10).to(torch.int8), frogs=(torch.arange(20) < 5).to(torch.int8))

        def step(self, now: Pond, action: Tensor, rng: dz.rng.Rng) -> Pond:  # type: ignore[override]
            return self.stages(now, rng)

        def swim(self, now: Pond, rng: dz.rng.Rng) -> Pond:
            rng.record("swam", rng.event("swim", 60.0))
            return now

        def jump(self, now: Pond, rng: dz.rng.Rng, acting: Tensor) -> Pond:
            rng.on("frogs").record("jumped", acting * rng.on("frogs").event("jump", 60.0))
            return now

        def observe(self, now: Pond) -> Tensor:
            return now.fish.sum()[None].to(torch.float32)

        def reward(self, before: Pond, action: Tensor, now: Pond) -> Tensor:
            return now.fish.sum().to(torch.float32)

        def terminated(self, now: Pond) -> Tensor:
            return now.fish.sum() == 0

        @dz.series
        def swam(self, events: dz.rng.Events) -> Tensor:
            return events["swim/swam"].sum() + 100 * events["jump/jumped"].sum()

    worlds = dz.rl.Worlds(Fishing(), 2, device="cpu")
    worlds.reset()
    assert worlds.step(torch.tensor([0, 1])).flows["swam"].tolist() == [510, 510]
