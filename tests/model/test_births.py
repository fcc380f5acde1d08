"""Births and deaths within a capacity: identities, conservation, overflow, and everybody else's draws."""

from typing import Any

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from torch import Tensor

import denizen as dz
from denizen.errors import CapacityError, InputError, ModelError
from denizen.model import Act, During, History, Stage, Time, births, child_id, own
from denizen.relax import MeanField

BORN = 2**61


class Flock(dz.State):
    alive: Tensor = dz.mask("agents")
    age: Tensor = dz.count("agents")
    coat: Stage = dz.stage("agents", levels=("white", "grey", "black"))
    fed: History = dz.history("agents", length=3)
    place: Tensor = dz.real("agents", "xy")
    grass: Tensor = dz.real("cells")
    mood: Tensor = dz.real("agents")


class Sheep(dz.Model):
    """Births and deaths at given rates; `mood` draws from all of an agent's own streams."""

    num_agents: int = 60
    start: int = 20
    birth: Tensor = dz.param(0.3, low=0.0)
    death: Tensor = dz.param(0.2, low=0.0)
    twins: bool = False

    def init(self, rng: dz.rng.Rng) -> Flock:
        n = self.num_agents
        return Flock(
            alive=(torch.arange(n) < self.start).to(torch.int8),
            age=torch.zeros(n, dtype=torch.int32),
            coat=rng.integers("coat", 0, 3).to(torch.int8),
            fed=rng.integers("fed", 0, 4),
            place=torch.zeros(n, 2),
            grass=torch.ones(5),
            mood=rng.normal("mood"),
        )

    def step(self, now: Flock, rng: dz.rng.Rng) -> Flock:
        dead = rng.event("die", self.death) * now.alive
        now = now.replace(
            alive=now.alive - dead,
            age=now.age + now.alive,
            mood=now.mood * 0.5 + rng.normal("mood"),
            fed=now.fed.record(rng.event("eat", 0.5)),
        )
        parents = now.alive * rng.event("bear", self.birth)
        fields = {"age": 0, "mood": 0 * now.mood, "coat": "grey", "fed": now.fed}
        after = births(now, rng, parents, **fields)
        return births(after, rng, parents, **fields) if self.twins else after

    @dz.series
    def alive(self, now: Flock) -> Tensor:
        return now.alive.sum()

    @dz.series
    def died(self, before: Flock, now: Flock) -> Tensor:
        survived = (before.alive * now.alive) * (before.id == now.id)
        return before.alive.sum() - survived.sum()

    @dz.series
    def born(self, before: Flock, now: Flock) -> Tensor:
        return ((before.id != now.id) * now.alive).sum()


# --- identities -------------------------------------------------------------------------------------------------------


def python_child(parent: int, step: int) -> int:
    """The hash in Python's integers, modulo 2^64."""
    a, b, c = (x % 2**64 for x in (-7046029254386353131, -4658895280553007687, -7723592293110705685))
    z = (parent * a + (step + 1) * b) % 2**64
    z = ((z ^ (z >> 30)) * b) % 2**64
    z = ((z ^ (z >> 27)) * c) % 2**64
    z ^= z >> 31
    return (z & (BORN - 1)) | BORN


@given(parent=st.integers(0, 2**62 - 1), step=st.integers(0, 2**40))
def test_child_ids_are_a_hash(parent: int, step: int) -> None:
    assert child_id(torch.tensor(parent), torch.tensor(step)).item() == python_child(parent, step)


def test_child_ids_are_frozen_and_distinct() -> None:
    assert child_id(torch.tensor([0, 1, 37_518]), torch.tensor(3)).tolist() == [
        python_child(k, 3) for k in (0, 1, 37_518)
    ]
    ids = torch.cat([child_id(torch.arange(20_000), torch.tensor(step)) for step in range(50)])
    assert ids.unique().numel() == 1_000_000
    assert int(ids.min()) >= BORN
    assert int(ids.max()) < 2**62
    grandchildren = child_id(ids[:1000], torch.tensor(51))
    assert torch.cat([ids, grandchildren]).unique().numel() == 1_001_000


def test_child_ids_draw_independent_numbers() -> None:
    ids = child_id(torch.arange(50_000), torch.tensor(9))
    rng = dz.rng.Rng(torch.tensor([1, 1]), torch.tensor(0), num=50_000, ids=ids)
    own = dz.rng.Rng(torch.tensor([1, 1]), torch.tensor(0), num=50_000)
    child, parent = rng.uniform("x").double().numpy(), own.uniform("x").double().numpy()
    assert abs(child.mean() - 0.5) < 4 * np.sqrt(1 / 12 / 50_000)
    assert abs(np.corrcoef(child, parent)[0, 1]) < 4 / np.sqrt(50_000)


# --- placing ----------------------------------------------------------------------------------------------------------


def flock(alive: list[int]) -> Any:
    n = len(alive)
    state = Flock(
        alive=torch.tensor(alive, dtype=torch.int8),
        age=torch.arange(n, dtype=torch.int32),
        coat=Stage(torch.arange(n).remainder(3).to(torch.int8), ("white", "grey", "black")),
        fed=History.start(torch.arange(n).remainder(4), length=3),
        place=torch.arange(2.0 * n).reshape(n, 2),
        grass=torch.ones(5),
        mood=torch.arange(float(n)),
    )
    return own(state, Time(torch.tensor(7), 1.0, "day"), torch.arange(n))


def rng_for(n: int) -> dz.rng.Rng:
    return dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(7), num=n)


@given(
    alive=st.lists(st.integers(0, 1), min_size=1, max_size=12),
    seed=st.integers(0, 99),
    dtype=st.sampled_from(["int8", "bool"]),
)
def test_against_plain_python(alive: list[int], seed: int, dtype: str) -> None:
    n, gen = len(alive), np.random.default_rng(seed)
    wanted = [int(a and gen.random() < 0.5) for a in alive]
    now, rng = flock(alive), rng_for(len(alive))
    parents = torch.tensor(wanted).to(getattr(torch, dtype))
    after = births(now, rng, parents, age=100 + now.age, coat=now.coat, place=now.place)
    free, parents = [k for k in range(n) if not alive[k]], [k for k in range(n) if wanted[k]]
    assert int(rng._bad[0][1]) == int(len(parents) > len(free))
    placed = dict(zip(free, parents, strict=False))
    for k in range(n):
        source = placed.get(k, k)
        assert after.alive[k] == int(alive[k] or k in placed)
        assert after.age[k] == (100 + placed[k] if k in placed else k)
        assert after.coat.value[k] == source % 3
        assert after.fed.value[k] == (0 if k in placed else k % 4)
        assert after.place[k].tolist() == [2.0 * source, 2.0 * source + 1]
        assert after.mood[k] == (0 if k in placed else k)
        assert after.id[k] == (python_child(placed[k], 7) if k in placed else k)
    assert torch.equal(after.grass, now.grass)


class Kin(dz.State):
    alive: Tensor = dz.mask("agents")
    ill: Tensor = dz.mask("agents")
    ties: Tensor = dz.real("agents", "agents")
    heard: Tensor = dz.mask("signs", "agents")


def test_a_child_has_nothing_of_its_place_and_of_its_parent() -> None:
    """Whatever the dead left there, also as others hold it; what it has of its parent is given."""
    kin = Kin(
        alive=torch.tensor([1, 0, 0], dtype=torch.int8),
        ill=torch.ones(3, dtype=torch.int8),
        ties=torch.ones(3, 3),
        heard=torch.ones(2, 3, dtype=torch.int8),
    )
    now = own(kin, Time(torch.tensor(7), 1.0, "day"), torch.arange(3))
    after = births(now, rng_for(3), now.alive)
    assert after.alive.tolist() == [1, 1, 0]
    assert after.ill.tolist() == [1, 0, 1]
    assert after.ties.tolist() == [[1, 0, 1], [0, 0, 0], [1, 0, 1]]
    assert after.heard.tolist() == [[1, 0, 1], [1, 0, 1]]
    assert births(now, rng_for(3), now.alive, ties=now.ties, ill=now.ill).ties.tolist() == [[1, 0, 1]] * 3


@pytest.mark.parametrize("number", [5, 5.0, torch.tensor(5), np.int64(5), np.float32(5)])
def test_one_value_for_all_children(number: Any) -> None:
    now = flock([1, 1, 0, 0])
    given = {"mood": number, "place": number}
    after = births(now, rng_for(4), now.alive, **given, coat="black", fed=2, age=9, alive=1)
    assert after.mood.tolist() == [0, 1, 5, 5]
    assert after.place[2:].tolist() == [[5, 5], [5, 5]]
    assert after.coat.value.tolist() == [0, 1, 2, 2]
    assert after.fed.value.tolist() == [0, 1, 2, 2]
    assert after.age.tolist() == [0, 1, 9, 9]
    assert after.alive.tolist() == [1, 1, 1, 1]
    assert births(now, rng_for(4), now.alive, mood=np.float32(0.5)).mood.tolist() == [0, 1, 0.5, 0.5]
    assert births(now, rng_for(4), now.alive, coat=now.coat, fed=now.fed).fed.value.tolist() == [0, 1, 0, 1]
    assert births(now, rng_for(4), now.alive, age=2**40, coat=256).age.tolist() == [0, 1, -1, -1]


def test_the_dead_and_free_places_have_no_children() -> None:
    now, rng = flock([1, 0, 0, 1, 0]), rng_for(5)
    after = births(now, rng, torch.ones(5), mood=now.mood + 10)
    assert after.alive.tolist() == [1, 1, 1, 1, 0]
    assert after.mood.tolist() == [0, 10, 13, 3, 4]
    assert int(rng._bad[0][1]) == 0


def test_values_that_do_not_fit_are_no_other_values() -> None:
    now = flock([1, 0])
    after = births(now, rng_for(2), torch.tensor([1, 0]), fed=torch.tensor([256, 0]), age=torch.tensor([2**32, 0]))
    assert (after.fed.value[1], after.age[1]) == (-1, -1)


def test_two_births_in_a_step_have_their_own_ids() -> None:
    now, rng = flock([1, 1, 0, 0, 0, 0, 0]), rng_for(7)
    parents = torch.tensor([1, 1, 0, 0, 0, 0, 0])
    once = births(now, rng, parents)
    twice = births(once, rng["twins"], parents)
    assert twice.alive.tolist() == [1, 1, 1, 1, 1, 1, 0]
    assert twice.id.unique().numel() == 7
    run = dz.simulate(Sheep(num_agents=4000, twins=True), 12, replicates=2)
    for world in range(2):
        ids = run.state.id[world][run.state.alive[world] == 1]
        assert ids.unique().numel() == ids.numel()


# --- runs -------------------------------------------------------------------------------------------------------------


def test_births_keep_the_rules() -> None:
    """Batched and compiled too; and nothing of the dead is left in who is born."""
    report = dz.check(Sheep(), gradient=False)
    assert report.ok, str(report)
    assert len(report.proved) == 6


def test_books_balance() -> None:
    run = dz.simulate(Sheep(num_agents=400), 25, replicates=3)
    before = torch.cat([torch.full((3, 1), 20), run["alive"][:, :-1]], dim=1)
    assert torch.equal(run["alive"], before - run["died"] + run["born"])
    assert int(run["born"].min(dim=1).values.max()) >= 0
    assert int(run["born"].sum()) > 100
    for world in range(3):
        alive = run.state.alive[world] == 1
        assert run.state.id[world][alive].unique().numel() == int(alive.sum())


def test_expected_growth() -> None:
    """Birth and death at constant hazards: mean after 5 steps within 4 standard errors of the formula."""
    run = dz.simulate(Sheep(num_agents=500, start=50), 5, replicates=100)
    growth = np.exp(-0.2) * (1 + (1 - np.exp(-0.3)))
    final = run["alive"][:, -1].double()
    assert abs(float(final.mean()) - 50 * growth**5) < 4 * float(final.std()) / 10


def test_the_unaffected_live_the_same_lives() -> None:
    """Agents alive in both runs at the end have the same bits, whatever is born or dies around them."""
    runs = [
        dz.simulate(Sheep(birth=b, death=d), 6, replicates=2).state for b, d in ((0.0, 0.1), (0.1, 0.1), (0.1, 0.3))
    ]
    for left in runs:
        for right in runs:
            both = (left.id == right.id) & (left.alive == 1) & (right.alive == 1) & (left.id < BORN)
            assert both.any()
            for name in ("mood", "age"):
                assert torch.equal(getattr(left, name)[both], getattr(right, name)[both])
            assert torch.equal(left.fed.value[both], right.fed.value[both])


def test_a_child_lives_its_life_at_any_place() -> None:
    """The same children elsewhere, because others died: whoever exists in both runs has the same mood."""
    left = dz.simulate(Sheep(num_agents=200, birth=0.2, death=0.0), 6).state
    right = dz.simulate(Sheep(num_agents=120, birth=0.2, death=0.0), 6).state
    moods = dict(zip(left.id[0].tolist(), left.mood[0].tolist(), strict=True))
    shared = [(i, m) for i, m in zip(right.id[0].tolist(), right.mood[0].tolist(), strict=True) if i in moods]
    assert sum(i >= BORN for i, _ in shared) > 10
    assert all(moods[i] == m for i, m in shared)


@pytest.mark.parametrize("replicates", [1, 4])
def test_overflow_stops_the_run_at_the_end_of_the_chunk(replicates: int) -> None:
    run = dz.simulate(Sheep(num_agents=22, death=0.0, birth=0.0), 3, replicates=replicates)
    assert run.steps == 3
    with pytest.raises(CapacityError, match=r"more children than free places; raise the capacity.*between steps 0 and"):
        dz.simulate(Sheep(num_agents=22, death=0.0), 40, replicates=replicates)


def test_exactly_full_is_no_overflow() -> None:
    now, rng = flock([1, 1, 0, 0]), rng_for(4)
    assert births(now, rng, now.alive).alive.tolist() == [1, 1, 1, 1]
    assert int(rng._bad[0][1]) == 0
    full = births(now, rng_for(4), now.alive)
    again = rng_for(4)
    assert torch.equal(births(full, again, 0 * full.alive).id, full.id)
    assert int(again._bad[0][1]) == 0


def test_births_by_an_intervention() -> None:
    immigrate = Act(name="grow", when=During(2, 3), change=lambda model, now, rng: births(now, rng, now.alive))
    run = dz.simulate(Sheep(birth=0.0, death=0.0), 4, replicates=2, interventions=[immigrate])
    assert run["alive"].tolist() == [[20, 20, 40, 40]] * 2
    assert run.state.id[0].unique().numel() == 60


class Ranch(dz.Env):
    """An environment in which sheep are born; lives end at different times."""

    num_agents: int = 12

    @property
    def action_space(self) -> dz.rl.Discrete:
        return dz.rl.Discrete(2)

    @property
    def observation_space(self) -> dz.rl.Box:
        return dz.rl.Box(0.0, 12.0, (1,))

    def init(self, rng: dz.rng.Rng) -> Flock:
        return Sheep(num_agents=12, start=3).init(rng)

    def step(self, now: Flock, action: Tensor, rng: dz.rng.Rng) -> Flock:
        return births(now, rng, rng.event("bear", 0.3), age=now.age + 1)

    def observe(self, now: Flock) -> Tensor:
        return now.alive.sum().to(torch.float32)[None]

    def reward(self, before: Flock, action: Tensor, now: Flock) -> Tensor:
        return (now.age.sum() + 0.1 * now.id.remainder(1000).sum()).to(torch.float32)

    def terminated(self, now: Flock) -> Tensor:
        return now.alive.sum() > 6


def test_births_in_worlds_of_an_environment() -> None:
    """Worlds that are of different ages are what each is alone."""
    together = dz.rl.Worlds(Ranch(), 3, device="cpu")
    alone = [dz.rl.Worlds(Ranch(), 1, worlds=[k], device="cpu") for k in range(3)]
    for worlds in (together, *alone):
        worlds.reset()
    ended = torch.zeros(3)
    for _ in range(8):
        step = together.step(torch.zeros(3, dtype=torch.int64))
        steps = [one.step(torch.zeros(1, dtype=torch.int64)) for one in alone]
        assert torch.equal(step.reward, torch.cat([one.reward for one in steps]))
        ended += step.terminated
    together.check()
    assert ended.unique().numel() > 1


# --- wrong uses -------------------------------------------------------------------------------------------------------


class Bare(dz.State):
    on: Tensor = dz.mask("agents")


def test_wrong_uses() -> None:
    now = flock([1, 0, 1])
    with pytest.raises(ModelError, match=r"no field of Bare says who of 'agents' is alive; declare: alive"):
        births(Bare(on=torch.ones(3)), rng_for(3), now.alive)
    with pytest.raises(ModelError, match="'agge' is not a field over agents; did you mean 'age'"):
        births(now, rng_for(3), now.alive, agge=now.age)
    with pytest.raises(ModelError, match="'grass' is not a field over agents"):
        births(now, rng_for(3), now.alive, grass=now.grass)
    with pytest.raises(ModelError, match=r"parents has shape \(2,\), expected \(3,\)"):
        births(now, rng_for(3), now.alive[:2])
    with pytest.raises(ModelError, match=r"parents is list, expected \(3,\)"):
        births(now, rng_for(3), [1, 0, 1])  # pyrefly: ignore
    with pytest.raises(ModelError, match=r"unknown level 'blue'; valid: black"):
        births(now, rng_for(3), now.alive, coat="blue")
    with pytest.raises(ModelError, match=r"coat of the children is Stage\(a, b; codes \(3,\)\), expected the form of"):
        births(now, rng_for(3), now.alive, coat=Stage(now.coat.value, ("a", "b")))
    with pytest.raises(ModelError, match="fed of the children is Stage"):
        births(now, rng_for(3), now.alive, fed=now.coat)
    with pytest.raises(ModelError, match=r"age of the children is str 'old', expected a number for all or a tensor"):
        births(now, rng_for(3), now.alive, age="old")
    with pytest.raises(ModelError, match=r"age of the children is list \[0, 0, 0\]"):
        births(now, rng_for(3), now.alive, age=[0, 0, 0])
    for half in (0.5, np.float32(0.5), torch.tensor(0.5)):
        with pytest.raises(
            ModelError, match=r"age of the children is torch\.float32 \(\), expected torch\.int32 \(3,\)"
        ):
            births(now, rng_for(3), now.alive, age=half)
    with pytest.raises(ModelError, match=r"age of the children is torch\.float32"):
        births(now, rng_for(3), now.alive, age=now.mood)
    with pytest.raises(ModelError, match=r"mood of the children is .*\(2,\)"):
        births(now, rng_for(3), now.alive, mood=now.mood[:2])
    with pytest.raises(ModelError, match="not differentiable"):
        dz.simulate(Sheep(), 2, relax=MeanField())


def test_what_is_no_state_and_no_stream_is_refused():
    with pytest.raises(InputError, match="births: now=int, rng=str, expected the state and the rng of the step"):
        dz.model.births(3, "rng", 5)  # pyrefly: ignore
