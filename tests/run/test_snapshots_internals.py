"""What snapshots are packed into, and a writer that is slow or fails."""

import dataclasses
import errno
import os
import signal
import time

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st
from tests.run.test_snapshots import Farm, Phases, equal, no_threads, synchronous
from tests.run.test_snapshots import each as each

import denizen as dz
from denizen.errors import DataError, StorageError
from denizen.model import Stage
from denizen.run import Snapshots, _narrow, _zarr, load, resume
from denizen.run._blocks import Blocks
from denizen.run._snapshots import Kept
from denizen.run._zarr import ZarrSnapshots


@given(st.lists(st.integers(0, 9), min_size=1, max_size=3), st.integers(0, 2**32), st.sampled_from([*_narrow.PACKED]))
def test_packed_codes_are_given_back(shape, seed, stored):
    form = _narrow.Form("int8", stored, shape[-1])
    codes = torch.randint(0, 1 << form.bits, shape, generator=torch.Generator().manual_seed(seed), dtype=torch.int8)
    packed, bad = _narrow.narrow(form, codes)
    assert bad is None
    assert tuple(packed.shape) == form.shape(tuple(shape))
    assert torch.equal(packed, by_hand(codes, form.bits))
    assert torch.equal(_narrow.widen(form, packed.numpy()), codes)


def by_hand(codes, bits):
    """Packed as the guide says."""
    each = 8 // bits
    rows = np.pad(codes.numpy(), [(0, 0)] * (codes.dim() - 1) + [(0, -codes.shape[-1] % each)])
    parts = rows.reshape(*rows.shape[:-1], rows.shape[-1] // each, each).astype(np.int64)
    return torch.from_numpy((parts << np.arange(0, 8, bits)).sum(axis=-1).astype(np.uint8))


@pytest.mark.parametrize("stored", _narrow.PACKED)
def test_packed_codes_of_a_slice(stored):
    form = _narrow.Form("int8", stored)
    codes = torch.randint(0, 1 << form.bits, (3, 17), dtype=torch.int8)
    for part in (codes[:, 1:9], codes[1:], codes.flatten()[3:11], codes.T):
        packed, _ = _narrow.narrow(dataclasses.replace(form, size=part.shape[-1]), part)
        assert torch.equal(packed, by_hand(part, form.bits))


def test_a_folder_that_an_early_version_packed_too_closely_is_not_gone_on_with(tmp_path, monkeypatch):
    monkeypatch.setattr(_narrow, "_packed", lambda kind, value: "bits" if kind.name == "stage" else None)
    dz.simulate(Phases(), 2, snapshots=Snapshots(1), out=tmp_path / "r")
    monkeypatch.undo()
    with pytest.raises(DataError, match=r"'stage' are stored as bits, which cannot hold.*run again for snapshots"):
        resume(tmp_path / "r", Phases(), 1)


@pytest.mark.parametrize(("value", "bad"), [(3.0e38, False), (3.4e38, True), (float("inf"), False)])
def test_bfloat16_ends_a_little_before_float32(value, bad):
    assert bool(_narrow.narrow(_narrow.Form("float32", "bfloat16"), torch.tensor([1.0, value]))[1]) is bad


@pytest.mark.parametrize("sink", [Kept, ZarrSnapshots])
def test_the_simulation_waits_where_all_buffers_are_full(tmp_path, monkeypatch, sink):
    real, rings = sink.write, []

    def slow(self, place, arrays):
        while rings and place == 1 and rings[0].waits == 0:
            time.sleep(0.001)  # until the simulation has filled the ring and waits
        real(self, place, arrays)

    monkeypatch.setattr(sink, "write", slow)
    out = None if sink is Kept else tmp_path / "r"
    run = dz.simulate(Farm(), 0, snapshots=Snapshots(1, slots=3), out=out)
    rings.append(run._snapshots.ring)
    equal(run.extend(20).snapshots, synchronous(20, 1))
    assert run._snapshots.ring.waits >= 1
    assert run._snapshots.ring.seconds_waited > 0
    assert run._snapshots.ring.puts == 21


def test_a_damaged_field_leaves_the_others(tmp_path, monkeypatch):
    monkeypatch.setattr(_zarr, "EACH", 1)
    monkeypatch.setattr(_zarr, "THREADS", 1)  # nothing is kept in memory
    run = dz.simulate(Farm(), 2, snapshots=Snapshots(1), out=tmp_path / "r")
    path = next((tmp_path / "r" / "snapshots" / "weight").glob("c.0.1*"))
    path.write_bytes(path.read_bytes()[:-1] + b"x")
    for view in (run.snapshots, load(tmp_path / "r").snapshots):
        assert torch.equal(view["age"], synchronous(2, 1)["age"])
        with pytest.raises(DataError, match=r"snapshot|cannot be read"):
            view["weight"]


class Faulty:
    """Writing fails from a place on, until it is repaired."""

    def __init__(self, monkeypatch, place, error):
        self.place, self.error, self.real = place, error, Blocks.writes
        monkeypatch.setattr(Blocks, "writes", lambda block, *args: self.writes(block, *args))

    def writes(self, block, group, values, unnamed):
        calls = self.real(block, group, values, unnamed)
        if self.place is not None and group * block.each + values.shape[1] > self.place and block.path.name == "age":
            calls[-1] = self.fail
        return calls

    def fail(self):
        raise self.error


FULL = OSError(errno.ENOSPC, "No space left on device")


@pytest.mark.parametrize("place", [1, 4])
@pytest.mark.parametrize("error", [FULL, RuntimeError("codec")], ids=["system", "zarr"])
@pytest.mark.parametrize("slots", [1, 8])
@pytest.mark.usefixtures("each")
def test_what_cannot_be_written_surfaces_and_can_be_tried_again(
    tmp_path, monkeypatch, saves_always, place, error, slots
):
    run = dz.simulate(Farm(), 0, snapshots=Snapshots(2, slots=slots), out=tmp_path / "r")
    fault = Faulty(monkeypatch, place, error)
    with pytest.raises(StorageError, match=r"(No space left|codec).*Safe on disk: .*make room") as failure:
        run.extend(20)
    assert no_threads()
    part = load(tmp_path / "r")
    assert part.status == "failed"
    assert f"{len(part.snapshots['step'])} snapshots" in str(failure.value) or part.steps == 0
    equal(part.snapshots, synchronous(part.steps, 2))
    reference = synchronous(20, 2)
    fault.place = None
    run.extend(20 - run.steps)
    equal(run.snapshots, reference)
    equal(load(tmp_path / "r").snapshots, reference)


def test_what_could_not_be_written_can_be_saved_elsewhere(tmp_path, monkeypatch):
    run = dz.simulate(Farm(), 6, snapshots=Snapshots(2, slots=8), out=tmp_path / "r")
    fault = Faulty(monkeypatch, 4, FULL)
    with pytest.raises(StorageError, match="No space left"):
        run.extend(9)
    fault.place = None
    reference = synchronous(run.steps, 2)
    run.save(tmp_path / "elsewhere")
    equal(load(tmp_path / "elsewhere").snapshots, reference)
    equal(run.snapshots, reference)
    equal(resume(tmp_path / "elsewhere", Farm(), 15 - run.steps).snapshots, synchronous(15, 2))
    equal(resume(tmp_path / "r", Farm()).snapshots, synchronous(15, 2))


def test_a_folder_that_cannot_be_made_leaves_the_run_with_the_old_one(tmp_path, monkeypatch):
    run = dz.simulate(Farm(), 6, snapshots=Snapshots(2), out=tmp_path / "r")
    fault = Faulty(monkeypatch, 2, FULL)
    with pytest.raises(StorageError, match="cannot be written: No space left"):
        run.save(tmp_path / "elsewhere")
    assert [path.name for path in (tmp_path / "elsewhere").iterdir()] == [".lock"]
    fault.place = None
    equal(run.extend(6).snapshots, synchronous(12, 2))
    equal(load(tmp_path / "r").snapshots, synchronous(12, 2))


def test_a_form_that_the_store_does_not_have_is_refused(tmp_path):
    dz.simulate(Farm(), 1, snapshots=Snapshots(1), out=tmp_path / "r")
    saved = load(tmp_path / "r")
    taken = saved.manifest.snapshots
    for form, words in (
        (_narrow.Form("int8", "bits", 10**15), "does not hold"),
        (_narrow.Form("int8", "int8"), "uint8"),
    ):
        changed = dataclasses.replace(taken, forms=(form, *taken.forms[1:]))
        saved.manifest = dataclasses.replace(saved.manifest, snapshots=changed)
        with pytest.raises(DataError, match=words):
            saved.snapshots  # noqa: B018 - a property


def test_an_interrupt_while_the_simulation_waits_for_a_buffer(monkeypatch):
    real, rings = Kept.write, []

    def slow(self, place, arrays):
        if rings and place == 1:
            while rings[0].waits == 0:
                time.sleep(0.001)
            os.kill(os.getpid(), signal.SIGINT)
            time.sleep(0.05)  # it is the simulation that is interrupted, not this
        real(self, place, arrays)

    monkeypatch.setattr(Kept, "write", slow)
    run = dz.simulate(Farm(), 0, snapshots=Snapshots(1, slots=1))
    rings.append(run._snapshots.ring)
    with pytest.raises(KeyboardInterrupt):
        run.extend(20)
    assert no_threads()
    rings.clear()
    equal(run.extend(20 - run.steps).snapshots, synchronous(20, 1))


def test_negative_numbers_fit_no_unsigned_type():
    negative = torch.tensor([-1], dtype=torch.int8)
    assert _narrow.narrow(_narrow.Form("int8", "uint8"), negative)[1]
    assert not _narrow.narrow(_narrow.Form("int8", "int16"), negative)[1]


@pytest.mark.parametrize(
    ("levels", "stored"), [(2, "bits"), (3, "2 bits"), (5, "4 bits"), (16, "4 bits"), (17, "int8")]
)
def test_stages_take_the_bits_of_their_levels(levels, stored):
    names = tuple(map(str, range(levels)))
    codes = torch.randint(0, levels, (2, 9), dtype=torch.int8)

    class Places(dz.State):
        stage: Stage = dz.stage("agents", levels=("few", "declared"))

    state = Places(stage=Stage(codes, names))
    form = _narrow.chosen(None, state)["stage"]
    assert form.stored == stored
    assert torch.equal(_narrow.widen(form, _narrow.narrow(form, codes)[0].numpy()), codes)
    assert _narrow.chosen({"stage": torch.int8}, state)["stage"].stored == "int8"
    assert _narrow.chosen(None, state.replace(stage=Stage(codes, names).relax()))["stage"].stored == "float32"
