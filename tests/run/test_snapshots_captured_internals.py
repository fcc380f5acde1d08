"""Snapshots within captured chunks, graphs being replaced by plain calls: groups leave at once, with the same bits."""

import time

import pytest
import torch
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st
from tests.run.played import Played
from tests.run.test_snapshots import NARROW, Farm, equal, no_threads, phases, synchronous
from tests.run.test_snapshots_internals import FULL, Faulty

import denizen as dz
from denizen.errors import CapacityError, StorageError
from denizen.run import Snapshots, _ring, _run, _snapshots, _zarr, load, resume
from denizen.run._chunks import pieces
from denizen.run._snapshots import Kept, _stack

LENGTHS = (70, 1, 33, 128, 7)  # of the extensions of a run that has six steps
STEPS = 6 + sum(LENGTHS)


class Replayed(Played):
    """A capture whose graphs are plain calls; their results lie where those of the same graph lay before."""

    def __init__(self, run, longest=64):
        super().__init__(run, longest)
        self.kept, self.replays, self.fails = {}, [], 0

    def _replay(self, length, due, store):
        records, group = super()._replay(length, due, store)
        self.replays.append((length, due))
        kept = self.kept.setdefault((length, due), (records, group))
        for old, new in zip(kept[0], records, strict=True):
            old.copy_(new)
        if group is not None:
            kept[1].pack.buffer.copy_(group.pack.buffer)
            if group.bad is not None:
                kept[1].bad.copy_(group.bad)
        if self.fails == len(self.replays):
            raise KeyboardInterrupt
        return kept


@pytest.fixture(autouse=True, scope="module")
def long_chunks():
    """Chunks are as long as they may be, however slow the machine."""
    with pytest.MonkeyPatch.context() as monkeypatch:
        monkeypatch.setattr(_run, "CHUNK_SECONDS", 1e9)
        yield


def captured(run, longest=64):
    """The run, from now on in captured chunks."""
    run._capture = Replayed(run, longest)
    run._times["later"] = 1e-9  # so quick that chunks are as long as they may be
    run._snapshots.gather(longest)
    return run


@pytest.fixture(scope="module")
def every_step():
    """Snapshots of every step of an eager run, by number of replicates."""
    runs = {worlds: dz.simulate(Farm(), STEPS, replicates=worlds, seed=5, snapshots=Snapshots(1)) for worlds in (1, 3)}
    return {worlds: dict(run.snapshots.items()) for worlds, run in runs.items()}


def reference(whole, every, steps=STEPS):
    """Every so manieth of them."""
    return {
        name: values[: steps + 1 : every] if name == "step" else values[:, : steps + 1 : every]
        for name, values in whole.items()
    }


# By default in pairs: each of the one with one of the other.
PAIRS = [(1, 3), (2, 1), (3, 3), (5, 1), (64, 3), (100, 1)]
OTHERS = [pytest.param(every, 4 - worlds, marks=pytest.mark.slow) for every, worlds in PAIRS]


@pytest.mark.parametrize(("every", "worlds"), PAIRS + OTHERS)
def test_equal_to_those_of_an_eager_run(every_step, every, worlds):
    run = dz.simulate(Farm(), 6, replicates=worlds, seed=5, snapshots=Snapshots(every), compile=False)
    captured(run)
    for length in LENGTHS:
        run.extend(length)
    equal(run.snapshots, reference(every_step[worlds], every))
    assert run._snapshots.ring.entries == STEPS // every + 1
    assert no_threads()


@settings(max_examples=4)
@given(phases, st.integers(1, 3), st.integers(1, 4))
def test_a_state_of_more_levels_than_declared_comes_back(model, worlds, every):
    options = {"replicates": worlds, "seed": 3, "compile": False}
    run = captured(dz.simulate(model, 6, snapshots=Snapshots(every), **options), longest=8)
    equal(run.extend(17).snapshots, synchronous(23, every, model, **options))


def test_several_groups_make_one_put(every_step):
    run = captured(dz.simulate(Farm(), 6, seed=5, snapshots=Snapshots(2), compile=False))
    ring = run._snapshots.ring
    assert (ring.most, ring.puts) == (32, 4)
    run.extend(64)
    assert run._capture.replays == [(64, range(2, 65, 2))]
    assert (ring.puts, ring.entries) == (5, 36)
    run.extend(130)
    assert (ring.puts, ring.entries) == (6, 101)  # two groups of 32 and one of one
    assert len(run._capture.kept) == 2
    equal(run.snapshots, reference(every_step[1], 2, 200))


@pytest.mark.parametrize("folder", [True, False])
@pytest.mark.parametrize(("every", "steps", "puts"), [(1, 240, 2), (16, 446, 4), (40, 360, 2)])
def test_groups_leave_where_a_buffer_is_full_or_at_the_end(tmp_path, every, steps, puts, folder):
    out = tmp_path / "r" if folder else None
    run = dz.simulate(Farm(growth=0.0), 4, snapshots=Snapshots(every, ["place"]), compile=False, out=out)
    captured(run, 16)
    before = run._snapshots.ring.puts
    run.extend(steps)
    # 15 groups, eight to a buffer; 28 snapshots, one to a group; 9 of them
    assert run._snapshots.ring.puts - before == puts
    whole = dz.simulate(Farm(growth=0.0), run.steps, snapshots=Snapshots(every, ["place"]), compile=False)
    equal(run.snapshots, dict(whole.snapshots.items()))
    if folder:
        equal(load(out).snapshots, dict(whole.snapshots.items()))


def test_what_has_not_left_the_device_is_written_by_a_save_and_dropped_with_its_chunk(tmp_path, every_step):
    run = captured(dz.simulate(Farm(), 6, seed=5, snapshots=Snapshots(2), compile=False))
    store = run._snapshots
    with torch.no_grad():
        run_state, _ = run._take(run._run_state, 6, 134, store)
    assert (store.ring.puts, store.ring.entries) == (4, 4 + 64)  # two groups wait for others
    store.drop(6 + 33)  # within the first
    assert len(store.view(38)["step"]) == 20
    equal(store.view(38), reference(every_step[1], 2, 38))
    store.drop(6)
    run.save(tmp_path / "r")
    assert load(tmp_path / "r").snapshots["step"].tolist() == [0, 2, 4, 6]
    with torch.no_grad():
        run._run_state, _ = run._take(run._run_state, 6, 134, store)
    run._steps = 134
    store.copy_to(kept := Kept(), 134)
    assert len(kept._taken) == 68
    equal(run.snapshots, reference(every_step[1], 2, 134))


def test_narrow_fields_and_those_that_do_not_fit(every_step):
    run = dz.simulate(Farm(), 6, replicates=3, seed=5, snapshots=Snapshots(3, NARROW), compile=False)
    captured(run).extend(70)
    exact = reference(every_step[3], 3, 76)
    for name, dtype in NARROW.items():
        values = exact[name]
        assert torch.equal(run.snapshots[name], values if dtype is None else values.to(dtype).to(values.dtype)), name
    run = dz.simulate(Farm(), 6, snapshots=Snapshots(2, {"place": None, "age": torch.int8}), compile=False)
    captured(run).extend(64)
    with pytest.raises(CapacityError, match=r"'age' has int32 values that int8 cannot hold"):
        run.extend(128)
    assert (run.steps, len(run.snapshots["step"])) == (70, 36)
    run.extend(20)  # the flag was of the chunk that failed
    assert int(run.snapshots["age"].max()) == 90


@pytest.mark.parametrize("folder", [True, False])
def test_an_interrupt_after_groups_were_put(tmp_path, every_step, folder):
    out = tmp_path / "r" if folder else None
    run = captured(dz.simulate(Farm(), 6, seed=5, snapshots=Snapshots(2), out=out, compile=False))
    run.extend(64)
    run._capture.fails = 3  # of 200 steps, of which 64 are done then
    with pytest.raises(KeyboardInterrupt):
        run.extend(129)
    assert run.steps == 70
    equal(run.snapshots, reference(every_step[1], 2, 70))
    if folder:
        saved = load(tmp_path / "r")
        assert (saved.status, saved.steps) == ("interrupted", 70)
        assert zarr.open_group(tmp_path / "r" / "snapshots", mode="r")["age"].shape[1] == 36
        run = captured(resume(tmp_path / "r", Farm(), 1))
    equal(run.extend(210 - run.steps).snapshots, reference(every_step[1], 2, 210))


@pytest.mark.parametrize(
    ("place", "slots"),
    [(36, 1), (50, 8), *(pytest.param(*each, marks=pytest.mark.slow) for each in [(36, 8), (50, 1)])],
)
def test_a_group_that_can_only_be_written_in_part(tmp_path, monkeypatch, every_step, place, slots):
    monkeypatch.setattr(_zarr, "EACH", 3)
    wanted = Snapshots(1, slots=slots)
    run = captured(dz.simulate(Farm(), 6, seed=5, snapshots=wanted, out=tmp_path / "r", compile=False))
    fault = Faulty(monkeypatch, place, FULL)
    with pytest.raises(StorageError, match="No space left"):
        run.extend(128)
    assert no_threads()
    fault.place = None
    equal(load(tmp_path / "r").snapshots, reference(every_step[1], 1, load(tmp_path / "r").steps))
    run.save(tmp_path / "elsewhere")  # also what is still in the buffers
    equal(load(tmp_path / "elsewhere").snapshots, reference(every_step[1], 1, run.steps))
    equal(run.extend(150 - run.steps).snapshots, reference(every_step[1], 1, 150))
    equal(load(tmp_path / "elsewhere").snapshots, reference(every_step[1], 1, 150))


def test_the_simulation_waits_where_all_buffers_hold_groups(monkeypatch, every_step):
    real, rings = Kept.write, []

    def slow(self, place, arrays):
        while rings and place >= 10 and rings[0].waits == 0:
            time.sleep(0.001)  # until the simulation has filled the ring and waits
        real(self, place, arrays)

    monkeypatch.setattr(Kept, "write", slow)
    run = captured(dz.simulate(Farm(), 6, seed=5, snapshots=Snapshots(1, slots=2), compile=False), longest=4)
    rings.append(run._snapshots.ring)
    equal(run.extend(100).snapshots, reference(every_step[1], 1, 106))
    assert run._snapshots.ring.waits >= 1
    assert run._snapshots.ring.slots == 2


def test_groups_are_bounded(monkeypatch):
    def most(**options):
        run = dz.simulate(Farm(), 1, snapshots=Snapshots(2, ["alive"], **options))
        run._snapshots.gather(64)
        assert run._snapshots.ring.nbytes <= max(_ring.BYTES, 2 * 64)
        return run._snapshots.ring.most

    assert most() == 32
    monkeypatch.setattr(_ring, "BYTES", 5 * 64 * 2)
    assert (most(), most(slots=5), most(slots=6)) == (5, 2, 1)
    monkeypatch.setattr(_snapshots, "GROUP_BYTES", 4 * 37)
    assert most() == 4


@given(st.integers(0, 300), st.integers(0, 700), st.integers(1, 64), st.integers(0, 200), st.integers(1, 64))
def test_pieces(start, count, longest, every, most):
    parts = list(pieces(start, start + count, longest, every, most))
    assert [step for begin, end in parts for step in range(begin, end)] == list(range(start, start + count))
    kinds = set()
    for begin, end in parts:
        due = [step - begin for step in range(begin + 1, end + 1) if every and step % every == 0]
        assert 1 <= end - begin <= longest
        assert len(due) <= most
        kinds.add((end - begin, *due))
    assert len(kinds) <= (2 if not every else 5 if every > longest else 4 + min(most, longest // every).bit_length())


def test_later_chunks_take_the_graphs_of_earlier_ones():
    run = captured(dz.simulate(Farm(growth=0.0), 7, snapshots=Snapshots(3, ["place"]), compile=False))
    run.extend(1200)  # two chunks of up to 512 steps end with a whole graph
    lengths = [length for length, _ in run._capture.replays]
    assert lengths == [2, *[63] * 19, 1]
    assert run.snapshots["step"].tolist() == list(range(0, 1208, 3))
    run.extend(103)
    assert [length for length, _ in run._capture.replays[len(lengths) :]] == [2, 63, 24, 12, 2]


@pytest.mark.parametrize("shape", [(0,), (1,), (7,), (8,), (3, 6), (2, 5, 4)])
@pytest.mark.parametrize("dtype", [torch.int8, torch.bool, torch.float16, torch.int32, torch.float64])
@pytest.mark.parametrize("kind", ["as they are", "transposed", "shifted"])
def test_states_are_stacked_by_wide_entries(shape, dtype, kind):
    made = [torch.randint(0, 2, shape).to(dtype) for _ in range(3)]
    if kind == "transposed":
        made[1] = made[1].mT.contiguous().mT if made[1].dim() > 1 else made[1]
    if kind == "shifted":
        made[1] = torch.cat([made[0].reshape(-1)[:1], made[1].reshape(-1)])[made[0].numel() > 0 :].view(shape)
    expected = torch.stack(made)
    assert torch.equal(_stack(tuple(made)), expected)
    assert torch.equal(_stack((made[0],)), expected[:1])
    out = torch.empty_like(expected)
    _stack(tuple(made), out)
    assert torch.equal(out, expected)
