"""A device that fails and memory that runs out: the folder resumes, the first error is the one that is raised."""

import gc
import subprocess
import sys
import weakref
from pathlib import Path

import pytest
import torch
from tests.run.played import Played

import denizen as dz
from denizen._device import device_failed
from denizen.errors import CapacityError, InputError
from denizen.perf.watch import out_of_memory
from denizen.run import Snapshots, _machine, _ring, load, resume
from denizen.run._engine import Stepper
from denizen.run._machine import ASKED, _asked
from denizen.run._snapshots import Kept
from denizen.zoo.sir import SIR

WORDS = "CUDA error: an illegal memory access was encountered"
SNAPS = Snapshots(2, slots=2)


def model():
    ring = torch.arange(200)
    return SIR(dz.Graph.from_edges(ring, (ring + 1) % 200, 200, directed=False), infect_rate=0.3, seed_share=0.05)


class Lost(torch.Tensor):
    """A tensor of a device that has failed: whatever is asked of it raises."""

    @classmethod
    def __torch_function__(cls, func, types, args=(), kwargs=None):
        raise Device.error("in a read")


class Device:
    """Fails at a step of the run, or when told to; from then on nothing on it can be read."""

    error = staticmethod(lambda where: RuntimeError(f"{WORDS} {where}"))

    def __init__(self, monkeypatch, step=None):
        self.step, self.run, real = step, None, Stepper.advance

        def advance(stepper, run_state, answers):
            if self.step is not None and int(run_state.step) == self.step:
                self.fail("in a step")
            return real(stepper, run_state, answers)

        monkeypatch.setattr(Stepper, "advance", advance)

    def fail(self, where):
        self.step = None
        if self.run is not None:
            run_state = self.run._run_state
            run_state.leaves = [leaf.as_subclass(Lost) for leaf in run_state.leaves]
            self.run._chunks = {name: [part.as_subclass(Lost) for part in c] for name, c in self.run._chunks.items()}
        raise self.error(where)


@pytest.fixture
def every_chunk(inside, saves_always):
    """Save after every chunk."""
    inside.chunks(5)


def goes_on(folder, steps=40):
    """What a failed folder says of itself; then it is resumed and compared."""
    saved = load(folder)
    assert saved.status == "failed"
    assert saved.manifest.error.startswith(("RuntimeError: CUDA error", "AcceleratorError: CUDA error"))
    assert "failed" in (folder / "log.txt").read_text()
    whole = dz.simulate(model(), steps, replicates=2, snapshots=SNAPS)
    part = {name: saved[name] for name in saved.series_names}
    assert all(torch.equal(values, whole[name][:, : saved.steps]) for name, values in part.items())
    resumed = resume(folder, model())
    assert (resumed.steps, load(folder).status) == (steps, "finished")
    for name in whole.series_names:
        assert torch.equal(whole[name], resumed[name])
    for name in whole.snapshots:
        assert torch.equal(whole.snapshots[name], resumed.snapshots[name])
        assert torch.equal(whole.snapshots[name], load(folder).snapshots[name])
    return saved.steps


def begun(folder):
    return dz.simulate(model(), 0, replicates=2, snapshots=SNAPS, out=folder)


@pytest.mark.parametrize("kind", [RuntimeError, torch.AcceleratorError])
@pytest.mark.parametrize("step", [0, 1, 13, 39])
def test_in_a_step(tmp_path, monkeypatch, every_chunk, step, kind):
    monkeypatch.setattr(Device, "error", staticmethod(lambda where: kind(f"{WORDS} {where}")))
    run, device = begun(tmp_path / "r"), Device(monkeypatch, step)
    device.run = run
    with pytest.raises(kind, match=r"illegal memory access .*in a step") as failure:
        run.extend(40)
    (note,) = failure.value.__notes__
    assert "Safe on disk" in note
    assert "Go on in a new process: denizen.run.resume(" in note
    assert goes_on(tmp_path / "r") <= step


@pytest.mark.parametrize("with_folder", [True, False])
def test_in_init(tmp_path, monkeypatch, with_folder):
    def fail(self):
        raise Device.error("in init")

    with monkeypatch.context() as patched:
        patched.setattr(Stepper, "start", fail)
        with pytest.raises(RuntimeError, match="in init"):
            dz.simulate(model(), 5, out=tmp_path / "r" if with_folder else None)
    assert not (tmp_path / "r").exists()
    assert dz.simulate(model(), 5, out=tmp_path / "r").steps == 5


def test_in_the_first_save(tmp_path, monkeypatch):
    run = dz.simulate(model(), 0, replicates=2, snapshots=SNAPS)
    run._run_state.leaves = [leaf.as_subclass(Lost) for leaf in run._run_state.leaves]
    with pytest.raises(RuntimeError, match="in a read"):
        run.save(tmp_path / "r")
    assert [path.name for path in (tmp_path / "r").iterdir()] == [".lock"]  # the folder can be used again
    assert dz.simulate(model(), 5, out=tmp_path / "r").steps == 5


@pytest.mark.parametrize("where", ["_copy", "wait"])
@pytest.mark.parametrize("nth", [1, 3, 12])
def test_while_a_snapshot_is_copied(tmp_path, monkeypatch, every_chunk, where, nth):
    run, device, left, real = begun(tmp_path / "r"), Device(monkeypatch), [nth], getattr(_ring.Ring, where)
    device.run = run

    def copy(self, *args):
        left[0] -= 1
        if left[0] == 0:
            device.fail("in a copy")
        return real(self, *args)

    with monkeypatch.context() as patched:
        patched.setattr(_ring.Ring, where, copy)
        with pytest.raises(RuntimeError, match="CUDA error"):  # in a copy, or in a read that came before
            run.extend(40)
    goes_on(tmp_path / "r")


@pytest.mark.parametrize("nth", [1, 2, 4, 7])
def test_in_a_save(tmp_path, monkeypatch, every_chunk, nth):
    from denizen.run import _simulation_folder

    run, device, left, real = begun(tmp_path / "r"), Device(monkeypatch), [nth], _simulation_folder.encode
    device.run = run

    def encode(tensors):
        left[0] -= 1
        if left[0] == 0:
            device.fail("in a save")
        return real(tensors)

    with monkeypatch.context() as patched:
        patched.setattr(_simulation_folder, "encode", encode)
        with pytest.raises(RuntimeError, match="in a save"):
            run.extend(40)
    goes_on(tmp_path / "r")


def test_another_error_does_not_hide_behind_one_of_the_device(tmp_path, monkeypatch):
    """The state is lost, and what is raised says nothing of it: the save at the end fails, the error stays."""
    run, device = begun(tmp_path / "r"), Device(monkeypatch, 17)
    device.run = run
    monkeypatch.setattr(Device, "error", staticmethod(lambda where: ValueError(f"unheard of, {where}")))
    with pytest.raises(ValueError, match="in a step") as failure:
        run.extend(40)
    assert "could not be read: unheard of, in a read" in failure.value.__notes__[0]
    saved = load(tmp_path / "r")
    assert saved.manifest.error == "ValueError: unheard of, in a step"
    assert resume(tmp_path / "r", model()).steps == 40


CHILD = Path(__file__).with_name("programs") / "failure_on_a_gpu.py"


@pytest.mark.cuda
@pytest.mark.parametrize("compiled", [False, True])
def test_a_failure_on_a_gpu(tmp_path, compiled):
    """A process in which CUDA works no more: its folder is gone on with in another one."""
    pytest.importorskip("zarr")
    command = [sys.executable, CHILD, str(tmp_path / "r"), str(compiled)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode != 0
    assert "device-side assert" in done.stderr
    assert "Go on in a new process: denizen.run.resume(" in done.stderr
    saved = load(tmp_path / "r")
    assert saved.status == "failed"
    resumed = resume(tmp_path / "r", model(), device="cpu")
    whole = dz.simulate(model(), 40, replicates=2, snapshots=SNAPS, device="cpu")
    assert resumed.steps == 40
    assert all(torch.equal(whole[name], resumed[name]) for name in whole.series_names)
    assert torch.equal(whole.snapshots["stage"], resumed.snapshots["stage"])


def test_what_counts_as_a_failed_device():
    assert device_failed(RuntimeError("CUDA error: device-side assert triggered"))
    assert device_failed(torch.AcceleratorError("CUDA error: unspecified launch failure"))
    assert not device_failed(torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB."))
    assert not device_failed(torch.AcceleratorError("CUDA error: out of memory"))
    assert not device_failed(RuntimeError("The size of tensor a (3) must match"))
    assert not device_failed(KeyboardInterrupt())


class Plain(Played):
    """The first chunk ends half-way."""

    fails = True

    def _replay(self, length, due, store):
        done = super()._replay(length, due, store)
        if self.fails:
            self.fails = False
            raise KeyboardInterrupt
        return done


def test_a_captured_chunk_that_ends_half_way_is_run_again_from_its_start():
    run = dz.simulate(model(), 3, replicates=2, snapshots=Snapshots(5))
    run._capture = Plain(run, 8, 10**9)
    with pytest.raises(KeyboardInterrupt):
        run.extend(4)
    whole = dz.simulate(model(), 30, replicates=2, snapshots=Snapshots(5))
    run.extend(27)
    assert torch.equal(run["cases"], whole["cases"])
    assert torch.equal(run.snapshots["stage"], whole.snapshots["stage"])


# --- memory -----------------------------------------------------------------------------------------------------------

CUDA = (
    "CUDA out of memory. Tried to allocate 2.00 GiB. GPU 0 has a total capacity of 79.11 GiB of which 1.20 GiB is free"
)
CPU = "DefaultCPUAllocator: can't allocate memory: you tried to allocate 4000000000000 bytes. Error code 12"
ERRORS = {
    "cuda": (torch.OutOfMemoryError(CUDA), "2 GiB"),
    "cpu": (RuntimeError(CPU), "3.73e+03 GiB"),
    "numpy": (MemoryError("Unable to allocate 1.50 TiB for an array with shape (9,)"), "1.54e+03 GiB"),
    "plain": (MemoryError(), None),
}


class Hungry:
    """Memory runs out in the steps from one on, until there is more."""

    def __init__(self, monkeypatch, error, step, name="advance"):
        self.step, real = step, getattr(Stepper, name)
        self.kept = None

        def advance(stepper, *args):
            if self.step is not None and (not args or int(args[0].step) >= self.step):
                taken = torch.ones(1000)
                self.kept = weakref.ref(taken)
                raise error
            return real(stepper, *args)

        monkeypatch.setattr(Stepper, name, advance)


@pytest.mark.parametrize(("error", "asked"), ERRORS.values(), ids=ERRORS)
def test_memory_that_runs_out_in_a_step(tmp_path, monkeypatch, error, asked):
    hungry = Hungry(monkeypatch, error, 12)
    run = dz.simulate(model(), 6, replicates=8, snapshots=SNAPS, out=tmp_path / "r")
    monkeypatch.setattr(_machine, "free", lambda device: 3 << 30)
    with pytest.raises(CapacityError) as failure:
        run.extend(24)
    text = str(failure.value)
    assert text.startswith("SIR: out of memory on cpu in its steps")
    for words in ("3 GiB are free", "model ", "state ", "snapshots ", "lower replicates (", "worlds=", "precision"):
        assert words in text
    assert (f"{asked} more were asked for" in text) is (asked is not None)
    assert failure.value.__cause__ is error
    assert hungry.kept() is None  # what the failed steps held is free, though the error is still at hand
    assert run.steps >= 6
    saved = load(tmp_path / "r")
    assert (saved.status, saved.steps) == ("failed", run.steps)
    assert saved.manifest.error.startswith("CapacityError: SIR: out of memory")
    hungry.step = None
    whole = dz.simulate(model(), 30, replicates=8, snapshots=SNAPS)
    run.extend(30 - run.steps)
    assert torch.equal(run["cases"], whole["cases"])
    assert torch.equal(run.snapshots["stage"], whole.snapshots["stage"])


def test_memory_that_runs_out_in_init_and_of_one_replicate(monkeypatch):
    Hungry(monkeypatch, torch.OutOfMemoryError(CUDA), 0, "start")
    with pytest.raises(CapacityError, match=r"in init: 2 GiB more.*model .*state \(guessed\).*run fewer agents"):
        dz.simulate(model(), 3)


def test_memory_that_runs_out_for_buffers(monkeypatch):
    def fail(self, *args):
        raise MemoryError

    monkeypatch.setattr(Kept, "write", fail)
    with pytest.raises(
        CapacityError, match=r"snapshots .*keep fewer or narrower snapshots \(every=, fields=, slots=\)"
    ):
        dz.simulate(model(), 9, snapshots=Snapshots(1))


@pytest.mark.parametrize("path", ["native", "compiled"])
def test_memory_that_runs_out_while_compiling(path, monkeypatch, inside):
    def full(*args):
        raise torch.OutOfMemoryError(CUDA)

    def fail(stepper, backend):
        def gives_up(*args):
            raise RuntimeError("inductor gave up") from torch.OutOfMemoryError(CUDA)

        stepper._advance = gives_up

    if path == "native":
        monkeypatch.setattr("denizen.run._native.NativeStep", full)
    else:
        inside.without_native()
        monkeypatch.setattr(Stepper, "compile", fail)
    run = dz.simulate(model(), 1)
    run._compile = True
    with pytest.raises(CapacityError, match="while its step was compiled: 2 GiB more"):
        run.extend(9)
    run._compile = False
    assert torch.equal(run.extend(9 - run.steps)["cases"], dz.simulate(model(), 9)["cases"])


def test_other_errors_stay_what_they_are(monkeypatch):
    Hungry(monkeypatch, RuntimeError("The size of tensor a (3) must match"), 3)
    with pytest.raises(RuntimeError, match="must match"):
        dz.simulate(model(), 9)


def test_the_words_of_memory():
    for error, asked in ERRORS.values():
        assert out_of_memory(error)
        assert (_asked(error) > 0) is (asked is not None)
    assert float(ASKED.search(CUDA)[1]) == 2.0
    assert not out_of_memory(ValueError("out of memory"))


@pytest.mark.parametrize(("free", "fits"), [(100 << 20, 4), (19 << 20, 6), (10 << 20, 4), (0, 2)])
def test_replicates_that_fit(free, fits):
    """Eight replicates hold 20 MiB and ask for 20 more; 8 MiB are the model's."""
    assert _machine._fitting(8, 8 << 20, 20 << 20, 20 << 20, free) == fits


def test_graphs_count_before_anything_is_moved(monkeypatch):
    big = model()
    monkeypatch.setattr(_machine, "free", lambda device: 1 << 20)
    bytes_of_model = sum(leaf.nbytes for leaf in torch.utils._pytree.tree_leaves(big) if leaf is not None)
    _machine.check_room(big, 400, torch.device("cpu"))
    monkeypatch.setattr(_machine, "free", lambda device: 12 * 200 * 400 + bytes_of_model - 1)
    _machine.check_room(big, 400, torch.device("cpu"))
    with pytest.raises(InputError, match="are free on cuda"):
        _machine.check_room(big, 400, torch.device("cuda"))


@pytest.mark.cuda
def test_memory_that_runs_out_on_cuda():
    whole = dz.simulate(model(), 40, replicates=3, device="cuda")
    hog = []

    def eat(now):
        if hog and hog[0] is None:
            hog[0] = torch.empty(1 << 45, dtype=torch.uint8, device="cuda")
        return now.time.value

    run = dz.simulate(model(), 10, replicates=3, device="cuda", record={"eat": eat}, compile=False)
    hog.append(None)
    with pytest.raises(CapacityError, match=r"out of memory on cuda:0 in its steps: .*GiB more were asked for, .*free"):
        run.extend(30)
    gc.collect()
    hog.clear()
    assert torch.equal(run.extend(40 - run.steps)["cases"], whole["cases"])
