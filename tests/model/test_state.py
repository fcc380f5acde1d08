"""States: declaration, replacement, the engine's fields, and the form in which each kind is stored."""

import copy
from collections.abc import Callable
from typing import Any, ClassVar

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import FlatWorld, History, Setting, Stage, Time, faults, own
from denizen.relax import MeanField


class Being(dz.State):
    """One field of every kind."""

    note: ClassVar[str] = "not a field"
    on: Tensor = dz.mask("agents")
    stage: Stage = dz.stage("agents", levels=("a", "b", "c"))
    many: Tensor = dz.count("agents", max=9)
    size: Tensor = dz.real("agents", max=5.0)
    free: Tensor = dz.real("agents", "goods")
    past: History = dz.history("agents", length=4)
    day: Tensor = dz.count()


def being(**changes: Any) -> Being:
    zero = torch.zeros(3, dtype=torch.int8)
    fields = {"on": zero, "stage": zero, "many": zero, "size": zero.float(), "free": torch.zeros(3, 2), "past": zero}
    return Being(**{**fields, "day": torch.tensor(0), **changes})


def formed(relaxed: bool = False, **changes: Any) -> Being:
    """The state of a world whose `init` returns this one."""
    return stored(being(**changes), relaxed=relaxed)


def stored(first: Any, step: Callable[[Any], Any] | None = None, *, relaxed: bool = False) -> Any:
    """The state of a world whose `init` returns `first`; with `step`, that of one step later."""

    class Given(dz.Model):
        def init(self, rng: dz.rng.Rng) -> Any:
            return first

        def step(self, now: Any, rng: dz.rng.Rng) -> Any:
            return now if step is None else step(now)

    world = FlatWorld(Given(), Setting(relax=MeanField() if relaxed else None), torch.arange(3))
    key, start = torch.tensor([0, 0]), torch.tensor(0)
    leaves, _ = world.init(key, {})
    if step is None:
        return world.state(leaves, start)
    leaves, _, _, _ = world.step(leaves, torch.zeros(0, dtype=torch.int8), key, {}, start, {})
    return world.state(leaves, start + 1)


# --- declaring --------------------------------------------------------------------------------------------------------


def test_fields_are_inherited() -> None:
    class More(Being):
        extra: Tensor = dz.mask("agents")

    assert list(More.kinds) == [*Being.kinds, "extra"]
    assert "note" not in Being.kinds
    assert list(Being.kinds) == ["on", "stage", "many", "size", "free", "past", "day"]


@pytest.mark.parametrize("name", ["time", "id", "kinds", "replace"])
def test_names_of_the_engine(name: str) -> None:
    with pytest.raises(ModelError, match=f"'{name}' belongs to the engine"):
        type("Mine", (dz.State,), {"__annotations__": {name: Tensor}, name: dz.mask("agents")})


def test_a_field_without_kind() -> None:
    with pytest.raises(ModelError, match=r"Mine.x has no kind; write: x: Tensor = dz.mask"):
        type("Mine", (dz.State,), {"__annotations__": {"x": Tensor}})
    with pytest.raises(ModelError, match=r"Mine\.x has no kind"):
        type("Mine", (dz.State,), {"__annotations__": {"x": Tensor}, "x": 5})


@pytest.mark.parametrize("axis", [5, "two words", "", None])
def test_wrong_axes(axis: Any) -> None:
    for kind in (dz.mask, dz.count, dz.real, dz.history):
        with pytest.raises(InputError, match="axis"):
            kind(axis)
    with pytest.raises(InputError, match="axis"):
        dz.stage(axis, levels=("a", "b"))


@pytest.mark.parametrize("limit", [0, -1, 2**31, float("nan"), "many"])
def test_wrong_limits(limit: Any) -> None:
    with pytest.raises(InputError, match="max="):
        dz.count("agents", max=limit)
    if limit != 2**31:
        with pytest.raises(InputError, match="max="):
            dz.real("agents", max=limit)


@pytest.mark.parametrize(
    ("axes", "axis", "other"),
    [
        (["agent"], "agent", "agents"),
        (["agnets"], "agnets", "agents"),
        (["agents", "agent"], "agent", "agents"),
        (["agents", "regions", "region"], "regions", "region"),
        (["agents", "regions", "regions", "reigons"], "reigons", "regions"),
    ],
)
def test_a_misspelt_axis(axes: list[str], axis: str, other: str) -> None:
    fields = {f"x{k}": dz.mask(name) for k, name in enumerate(axes)}
    with pytest.raises(ModelError, match=rf"Mine\.x\d: axis '{axis}' is close to '{other}'"):
        type("Mine", (dz.State,), {"__annotations__": dict.fromkeys(fields, Tensor), **fields})


@pytest.mark.parametrize(
    "axes",
    [
        ["agents", "agencies"],
        ["ages", "agents"],
        ["level1", "level2"],
        ["goods", "foods"],
        ["agent", "agent"],  # on two fields: meant so
        ["region", "region", "regions", "regions"],
    ],
)
def test_axes_of_their_own(axes: list[str]) -> None:
    fields = {f"x{k}": dz.mask(name) for k, name in enumerate(axes)}
    cls: Any = type("Mine", (dz.State,), {"__annotations__": dict.fromkeys(fields, Tensor), **fields})
    assert list(cls.kinds) == list(fields)


@pytest.mark.parametrize("name", ["stage", "past"])
def test_no_equality_of_stages_and_histories(name: str) -> None:
    value = getattr(formed(), name)
    with pytest.raises(ModelError, match=r"has no ==.*write (stage\.is_\('a'\)|history\.within)"):
        _ = value == 1
    with pytest.raises(ModelError, match="has no =="):
        _ = torch.zeros(3) != value
    assert value in {value}


# --- making and replacing ---------------------------------------------------------------------------------------------


def test_unknown_and_missing_fields() -> None:
    with pytest.raises(ModelError, match="Being: unknown field 'one'"):
        Being(one=torch.zeros(3))
    with pytest.raises(ModelError, match=r"Being: no value for stage, many, size, free, past, day"):
        Being(on=torch.zeros(3))


def test_replace() -> None:
    old = own(formed(), Time(torch.tensor(4), 0.5, "day"), torch.arange(3))
    new = old.replace(on=1 - old.on)
    assert new.on.tolist() == [1, 1, 1]
    assert old.on.tolist() == [0, 0, 0]
    assert new.size is old.size
    assert new.time.value == 2.0
    assert new.id is old.id
    for name, words in (("stat", "did you mean 'stage'"), ("time", "belongs to the engine"), ("id", "belongs")):
        with pytest.raises(ModelError, match=words):
            old.replace(**{name: old.on})


def test_states_are_never_changed() -> None:
    state = formed()
    with pytest.raises(ModelError, match=r"return now.replace\(on=…\)"):
        state.on = 1 - state.on  # type: ignore[misc]
    with pytest.raises(ModelError, match="never changed"):
        state.new = 5
    with pytest.raises(ModelError, match="never changed"):
        del state.on
    with pytest.raises(AttributeError):
        state.absent  # noqa: B018 - attribute access is what is tested


def test_trees_copies_and_names() -> None:
    state = own(formed(), Time(torch.tensor(4), 1.0, "day"), torch.arange(3))
    doubled = pytree.tree_map(lambda leaf: leaf * 2, state)
    assert isinstance(doubled, Being)
    assert doubled.time.step == 8
    assert doubled.id.tolist() == [0, 2, 4]
    assert copy.copy(state).on is state.on
    assert "on=int8[3]" in repr(state)
    assert "Stage(a, b, c; codes (3,))" in repr(state)
    leaves, structure = pytree.tree_flatten(being())
    assert len(leaves) == 7
    assert pytree.tree_unflatten(leaves, structure).on is leaves[0]


# --- forms of kinds ---------------------------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("name", "value", "dtype"),
    [
        ("on", torch.tensor([True, False, True]), torch.int8),
        ("on", torch.tensor([1, 0, 1]), torch.int8),
        ("many", torch.tensor([1, 0, 9], dtype=torch.int8), torch.int32),
        ("many", torch.tensor([1, 0, 9], dtype=torch.uint8), torch.int32),
        ("size", torch.tensor([1, 0, 5]), torch.float32),
        ("size", torch.tensor([1.0, 0.0, 5.0], dtype=torch.float64), torch.float32),
        ("size", torch.tensor([1.0, 0.0, 5.0], dtype=torch.bfloat16), torch.float32),
        ("day", torch.tensor(7), torch.int32),
    ],
)
def test_conversions(name: str, value: Tensor, dtype: torch.dtype) -> None:
    for relaxed in (False, True):
        state = formed(relaxed, **{name: value})
        stored = getattr(state, name)
        assert stored.dtype == (torch.float32 if relaxed else dtype)
        assert stored.tolist() == value.tolist()
        assert not any(bad for _, bad in faults(state))


def test_stages_and_histories_from_codes() -> None:
    for dtype in (torch.int8, torch.uint8, torch.int64, torch.bool):
        codes = torch.tensor([1, 0, 1]).to(dtype)
        state = formed(stage=codes, past=codes)
        assert state.stage.value.tolist() == [1, 0, 1]
        assert state.past.value.tolist() == [1, 0, 1]
        assert state.stage.value.dtype == state.past.value.dtype == torch.int8
        soft = formed(True, stage=codes, past=codes)
        assert soft.stage.value.shape == (3, 3)
        assert soft.past.value.shape == (3, 5)
        assert soft.stage.is_("b").tolist() == [1.0, 0.0, 1.0]


@pytest.mark.parametrize("dtype", [torch.int8, torch.int16, torch.int64, torch.uint8])
def test_levels_and_ages_of_their_own(dtype: torch.dtype) -> None:
    """What `init` makes besides the declaration is stored as narrow, keeps its levels and is read back by them."""
    codes, names = torch.tensor([1, 0, 5]).to(dtype), [f"level {k}" for k in range(6)]
    state = formed(stage=Stage(codes, names), past=History(codes, 200))
    assert (state.stage.value.dtype, state.past.value.dtype) == (torch.int8, torch.int16)
    assert formed(past=History(codes, 125)).past.value.dtype == torch.int8
    wider = being(stage=Stage(codes, names), past=History(codes, 200))
    later = stored(wider, lambda now: now.replace(stage=codes, past=codes))
    assert later.stage.levels == tuple(names)
    assert later.past.length == 200
    assert later.stage.value.tolist() == later.past.value.tolist() == [1, 0, 5]
    soft = formed(True, stage=Stage(codes, names), past=History(codes, 200))
    assert soft.stage.value.shape == (3, 6)
    assert soft.past.value.shape == (3, 201)
    beyond = torch.tensor([0, 256, 2**16])
    found = [label for label, bad in faults(formed(stage=Stage(beyond, names), past=History(beyond, 200))) if bad]
    assert found == ["Being.stage (stage)", "Being.past (history)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        (
            {"stage": Stage(torch.zeros(3).int(), tuple(map(str, range(128))))},
            "stage has 128 levels, expected 1 to 127",
        ),
        ({"stage": Stage(torch.zeros(3).int(), ())}, "stage has 0 levels"),
        ({"stage": Stage(torch.zeros(3).int(), ("a", 2))}, "expected 1 to 127 names"),
        ({"stage": Stage(torch.zeros(3).int(), ("a", "b", "a"))}, "two levels called 'a'"),
        ({"stage": Stage(torch.zeros(3, 2).int(), ("a", "b"))}, r"stage has shape \(3, 2\), expected 1 axis: agents"),
        ({"stage": Stage([0, 1, 2], ("a", "b"))}, r"stage is list \[0, 1, 2\], expected a tensor"),
        ({"stage": Stage(torch.ones(3), ("a", "b"))}, r"float32 values of shape \(3,\), which are no codes"),
        ({"stage": Stage(torch.ones(3, 3), ("a", "b"))}, r"float32 values of shape \(3, 3\), which are no codes"),
        ({"past": History(torch.zeros(3, 2).int(), 4)}, r"past has shape \(3, 2\), expected 1 axis: agents"),
    ],
)
@pytest.mark.parametrize("relaxed", [False, True])
def test_levels_and_ages_that_cannot_be_meant(changes: dict[str, Any], words: str, relaxed: bool) -> None:
    with pytest.raises(ModelError, match=words):
        formed(relaxed, **changes)


@pytest.mark.parametrize("length", [0, -1, 32001])
def test_lengths_that_cannot_be_meant(length: int) -> None:
    with pytest.raises(ModelError, match=f"length={length}, expected 1 to 32000 steps"):
        History(torch.zeros(3).int(), length)


@pytest.mark.parametrize("name", ["on", "many", "stage", "past"])
@pytest.mark.parametrize("dtype", [torch.float32, torch.float64, torch.bfloat16])
def test_floats_are_never_narrowed(name: str, dtype: torch.dtype) -> None:
    with pytest.raises(ModelError, match=rf"Being\.{name}.*torch.{str(dtype)[6:]}|History.start: elapsed is {dtype}"):
        formed(**{name: torch.ones(3, dtype=dtype)})


@pytest.mark.parametrize("share", ["stage", "past"])
def test_shares_are_refused_in_a_hard_run(share: str) -> None:
    soft = getattr(formed(True), share)
    with pytest.raises(ModelError, match=rf"Being\.{share} holds shares in a run without relax="):
        formed(**{share: soft})


@pytest.mark.parametrize(
    ("changes", "fault"),
    [
        ({"on": torch.tensor([0, 2, 0])}, "on"),
        ({"on": torch.tensor([0, -1, 0])}, "on"),
        ({"on": torch.tensor([0, 256, 0])}, "on"),
        ({"on": torch.tensor([0, 2**32, 0])}, "on"),
        ({"many": torch.tensor([0, 10, 0])}, "many"),
        ({"many": torch.tensor([0, -1, 0])}, "many"),
        ({"many": torch.tensor([0, 2**32, 0])}, "many"),
        ({"stage": torch.tensor([0, 3, 0])}, "stage"),
        ({"stage": torch.tensor([0, -1, 0])}, "stage"),
        ({"stage": torch.tensor([0, 256, 0])}, "stage"),
        ({"size": torch.tensor([0, 5.1, 0])}, "size"),
        ({"size": torch.tensor([0, float("nan"), 0])}, "size"),
        ({"free": torch.full((3, 2), float("inf"))}, "free"),
        ({"past": torch.tensor([0, -1, 0])}, "past"),
        ({"past": torch.tensor([0, -256, 0])}, "past"),
        ({"size": torch.tensor([0, 1e300, 0], dtype=torch.float64)}, "size"),
    ],
)
def test_values_out_of_range_are_found(changes: dict[str, Tensor], fault: str) -> None:
    """Also those that would look harmless once narrowed, such as 256 as a byte."""
    found = [label.split(" ")[0] for label, bad in faults(formed(**changes)) if bad]
    assert found == [f"Being.{fault}"]


def test_shares_within_rounding_are_no_fault() -> None:
    state = formed(True, on=torch.tensor([1.0000002, -1e-7, 0.5]))
    assert not any(bad for _, bad in faults(state))
    state = formed(True, on=torch.tensor([1.1, 0.0, 0.5]))
    assert [label for label, bad in faults(state) if bad] == ["Being.on (mask)"]


@pytest.mark.parametrize(
    ("changes", "words"),
    [
        ({"on": 1}, r"Being.on is int 1, expected a tensor"),
        ({"on": None}, r"Being.on is NoneType"),
        ({"on": torch.zeros(4, dtype=torch.int8)}, r"axis 'agents'"),
        ({"free": torch.zeros(3)}, r"Being.free has shape \(3,\), expected 2 axes: agents, goods"),
        ({"day": torch.zeros(1).int()}, r"Being.day has shape \(1,\), expected 0 axes"),
        ({"stage": Stage(torch.zeros(4, dtype=torch.int8), ("a", "b"))}, "axis 'agents'"),
        ({"past": torch.zeros(3, 2).int()}, r"Being.past has shape \(3, 2\)"),
    ],
)
def test_wrong_shapes(changes: dict[str, Any], words: str) -> None:
    with pytest.raises(ModelError, match=words):
        formed(**changes)


def test_a_step_keeps_shapes_and_dtypes() -> None:
    assert stored(being(), lambda now: now.replace(many=now.many + 1)).many.tolist() == [1, 1, 1]
    with pytest.raises(ModelError, match=r"Being.free changed from float32\[3, 2\] to float32\[3, 4\]"):
        stored(being(), lambda now: now.replace(free=torch.zeros(3, 4)))
    with pytest.raises(ModelError, match="expected Being, got"):
        stored(being(), lambda now: 5)


def test_a_history_without_length() -> None:
    class Open(dz.State):
        past: History = dz.history("agents")

    with pytest.raises(ModelError, match=r"Open.past has no length; write dz.history\('agents', length=…\)"):
        stored(Open(past=torch.zeros(3).int()))
    given = History.start(torch.zeros(3).int(), length=7)
    assert stored(Open(past=given)).past.length == 7


def test_time() -> None:
    time = Time(torch.tensor(3), 0.25, "week")
    assert time.value == 0.75
    assert time.value.dtype == torch.float32


def test_levels_are_a_list_and_a_length_is_whole():
    with pytest.raises(InputError, match="stage: levels='abc', expected a list of names"):  # no three levels
        dz.stage("agents", levels="abc")
    for length in (2.5, "3", True, -1):
        with pytest.raises(InputError, match=f"history: length={length!r}, expected"):
            dz.history("agents", length=length)  # pyrefly: ignore
