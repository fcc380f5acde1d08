"""The prefetching loader: same batches as the plain one, resumed or not; streams in order; ends and errors."""

import collections
import dataclasses
import importlib.util
import threading
import weakref
from pathlib import Path

import numpy as np
import pytest
import torch
from torch.utils.data import BatchSampler, DataLoader, Dataset, IterableDataset, RandomSampler

from denizen import tools
from denizen.errors import InputError

spec = importlib.util.spec_from_file_location("fake_cuda", Path(__file__).with_name("fake_cuda.py"))
fake_cuda = importlib.util.module_from_spec(spec)
spec.loader.exec_module(fake_cuda)

Pair = collections.namedtuple("Pair", "x y")


class Numbers(Dataset):
    """Samples that say which they are."""

    def __init__(self, length=23, fail=None, noisy=False):
        self.length, self.fail, self.noisy, self.seen = length, fail, noisy, []

    def __len__(self):
        return self.length

    def __getitem__(self, index):
        self.seen.append(index)
        if index == self.fail:
            raise RuntimeError(f"cannot decode sample {index}")
        noise = torch.rand(()) if self.noisy else torch.zeros(())
        return {"x": torch.full((2, 3), float(index)), "meta": Pair(torch.tensor(index) + noise, f"name {index}")}


class Stream(IterableDataset):
    def __iter__(self):
        yield from (torch.tensor(k) for k in range(17))


@pytest.fixture
def cuda(monkeypatch):
    """Loaders for "cuda" copy through slots, streams and events of a stand-in, to tensors on the CPU."""
    fake = fake_cuda.FakeCuda(monkeypatch)
    fake.recorded, fake.held = [], []
    empty, plain_to = torch.empty, torch.Tensor.to
    monkeypatch.setattr(torch, "empty", lambda *a, pin_memory=False, **k: empty(*a, **k))
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: False)

    def to(tensor, *args, **named):
        if args[:1] != (torch.device("cuda:0"),):
            return plain_to(tensor, *args, **named)
        assert named == {"non_blocking": True}
        fake.calls.append(("copy", threading.current_thread().name, tuple(tensor.shape)))
        return tensor.clone()

    monkeypatch.setattr(torch.Tensor, "to", to)
    monkeypatch.setattr(torch.Tensor, "record_stream", lambda self, stream: fake.recorded.append(stream.name))
    return fake


def flat(batch):
    """A batch as something that can be compared."""
    if isinstance(batch, torch.Tensor):
        return batch.tolist()
    if isinstance(batch, dict):
        return {key: flat(value) for key, value in batch.items()}
    return [flat(value) for value in batch] if isinstance(batch, (list, tuple)) else batch


def passes(loader, count=2, seed=5):
    torch.manual_seed(seed)
    return [[flat(batch) for batch in loader] for _ in range(count)]


@pytest.mark.parametrize("pinned", [False, True])
def test_batches_that_are_pinned_are_copied_from_where_they_lie(pinned, cuda, monkeypatch):
    staged, empty = [], torch.empty

    def asked(*sizes, pin_memory=False, **named):
        if pin_memory:
            staged.append(sizes)
        return empty(*sizes, **named)

    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: pinned)
    monkeypatch.setattr(torch, "empty", asked)
    assert flat(list(tools.PrefetchLoader([torch.arange(4), torch.ones(2)], "cuda:0"))) == [[0, 1, 2, 3], [1, 1]]
    assert bool(staged) != pinned


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("options", [{"shuffle": True}, {"drop_last": True}, {"batch_size": None}])
def test_same_batches_in_the_same_order(cuda, device, workers, options):
    dataset = Numbers(noisy=workers == 0)

    def plain(workers):
        return DataLoader(dataset, **{"batch_size": 4} | options, num_workers=workers)

    expected = passes(plain(0))  # workers change no batch, and cost a second
    loader = tools.PrefetchLoader(plain(workers), device)
    assert passes(loader) == expected
    assert len(loader) == len(expected[0])
    assert loader.epoch == 2
    if device == "cuda:0":
        assert set(cuda.recorded) == {"compute"}
        threads = {thread for name, thread, _ in cuda.calls if name == "copy"}
        assert threads == {"denizen-prefetch" if workers else "MainThread"}


def test_streams_wait_for_copies_and_slots_are_reused_behind_them(cuda):
    for depth in (1, 2, 3):
        del cuda.calls[:]
        loader = DataLoader(Numbers(12), 2, num_workers=1)
        for _ in tools.PrefetchLoader(loader, "cuda:0", depth=depth):
            pass
        # Each slot has two events, a batch's copies lie between them, and the consumer's stream waits for the second.
        records, waits = cuda.of("records"), cuda.of("waits for")
        ends = [number for _, _, number in records][1::2]
        assert {stream for stream, _, _ in records} == {"side"}
        assert [number for _, _, number in waits] == ends
        assert {stream for stream, _, _ in waits} == {"compute"}
        assert len(ends) == 6
        assert len(set(ends)) == min(depth, 6)
        # The host waits for a slot's copies before it writes there again, in the thread alone.
        host = cuda.of("host waits for")
        assert {thread for thread, _, _ in host} == {"denizen-prefetch"}
        for number in set(ends):
            own = [call for call in cuda.calls if call[1:] in (("records", number), ("host waits for", number))]
            assert [kind for _, kind, _ in own][:3] == ["records", "host waits for", "records"][: len(own)]
        began, shape = cuda.calls.index(records[0]), (2, 2, 3)
        assert cuda.calls[began : began + 4] == [
            records[0],
            ("copy", "denizen-prefetch", shape),
            ("copy", "denizen-prefetch", (2,)),
            records[1],
        ]


@dataclasses.dataclass(frozen=True)
class Sample:
    x: torch.Tensor
    label: str


class Moves:
    """Moves itself."""

    def __init__(self, calls):
        self.calls = calls

    def pin_memory(self):
        self.calls.append(("pinned", threading.current_thread().name))
        return self

    def to(self, device, non_blocking=False):
        self.calls.append((str(device), non_blocking))
        return self


def test_nested_containers_keep_their_types(cuda, monkeypatch):
    calls = []
    packed = torch.nn.utils.rnn.pack_sequence([torch.ones(3), torch.ones(2)])
    for name in ("pin_memory", "to"):
        monkeypatch.setattr(type(packed), name, lambda self, *args, **named: self)
    batch = {
        "list": [torch.arange(3), "text", None, 4],
        "ordered": collections.OrderedDict(a=torch.ones(2, 3).t(), b=(torch.ones(0),)),
        "sample": Sample(torch.ones(2), "cat"),
        "pair": Pair(torch.ones(1), np.ones(2)),
        "channels": torch.rand(2, 3, 4, 5).to(memory_format=torch.channels_last),
        "expanded": torch.ones(1).expand(5),
        "moves": Moves(calls),
        "bool": torch.tensor([True, False]),
        "packed": packed,
    }
    (got,) = list(tools.PrefetchLoader([batch], "cuda:0"))
    assert list(got) == list(batch)
    assert [type(value) for value in got.values()] == [type(value) for value in batch.values()]
    assert got["list"][0].equal(torch.arange(3))
    assert got["list"][0] is not batch["list"][0]
    assert got["list"][1:] == ["text", None, 4]
    assert got["sample"].label == "cat"
    assert got["pair"].y is batch["pair"].y
    assert got["channels"].equal(batch["channels"])
    assert got["channels"].is_contiguous(memory_format=torch.channels_last)
    assert got["ordered"]["a"].equal(batch["ordered"]["a"])
    assert got["ordered"]["a"].stride() == batch["ordered"]["a"].stride()
    assert got["expanded"].equal(torch.ones(5))
    assert calls == [("pinned", "MainThread"), ("cuda:0", True)]
    assert batch["sample"].x.equal(torch.ones(2))
    assert got["packed"] is packed  # its lengths have to stay on the CPU: it moves itself


class PinsAnother:
    """Its pinned form, which moves elsewhere, is another object."""

    def __init__(self, noted):
        self.noted = noted

    def pin_memory(self):
        pinned = PinsAnother(None)
        self.noted(pinned)
        return pinned

    def to(self, device, non_blocking=False):
        return "moved"


def test_what_copies_read_is_kept_until_they_are_done(cuda, monkeypatch):
    monkeypatch.setattr(torch.Tensor, "is_pinned", lambda self: True)
    alive = []

    def noted(thing):
        alive.append(weakref.ref(thing))
        return thing

    class Batches:
        def __iter__(self):
            yield from ([noted(torch.ones(3)), PinsAnother(noted)] for _ in range(2))

    def kept():
        return [one() is not None for one in alive]

    batches = iter(tools.PrefetchLoader(Batches(), "cuda:0", depth=1))
    assert next(batches)[1] == "moved"
    assert kept() == [True, True]
    next(batches)  # through the same slot, behind its copies
    assert kept() == [False, False, True, True]


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
@pytest.mark.parametrize("workers", [0, 1])
def test_errors_of_the_dataset_come_with_their_traceback(cuda, device, workers):
    loader = tools.PrefetchLoader(DataLoader(Numbers(fail=6), 4, num_workers=workers), device)
    seen = []
    with pytest.raises(RuntimeError, match="cannot decode sample 6") as raised:
        seen.extend(loader)
    assert len(seen) == 1
    text = str(raised.value) if workers else "".join(str(entry) for entry in raised.traceback)
    assert "__getitem__" in text
    assert not [t for t in threading.enumerate() if t.name == "denizen-prefetch"]


@pytest.mark.parametrize("persistent", [False, True])
def test_a_pass_left_early_ends_cleanly(cuda, persistent):
    dataset = Numbers(40)
    loader = tools.PrefetchLoader(DataLoader(dataset, 4, num_workers=2, persistent_workers=persistent), "cuda:0")
    for _ in range(3):
        for batch in loader:
            assert flat(batch)["x"][0][0][0] == 0.0
            break
        assert not [t for t in threading.enumerate() if t.name == "denizen-prefetch"]
    assert [flat(batch)["x"][0][0][0] for batch in loader] == [4.0 * k for k in range(10)]
    with loader as again:
        left = iter(again)
        next(left)
    assert not [t for t in threading.enumerate() if t.name == "denizen-prefetch"]


def samplers(kind, dataset):
    if kind == "generator":
        return {"batch_size": 4, "shuffle": True, "generator": torch.Generator().manual_seed(8)}
    if kind == "batch_sampler":
        sampler = RandomSampler(dataset, generator=torch.Generator().manual_seed(8))
        return {"batch_sampler": BatchSampler(sampler, 4, False)}
    if kind == "replacement":
        return {"batch_size": 4, "sampler": RandomSampler(dataset, replacement=True, num_samples=50)}
    return {"batch_size": 4, "shuffle": True}


KINDS = ["global", "generator", "batch_sampler", "replacement"]


@pytest.mark.parametrize(
    ("kind", "workers", "persistent", "at"),
    [
        *((kind, 0, False, at) for kind in KINDS for at in (0, 9)),
        # Workers are processes: each kind of sampler, each kind of worker and each moment, in pairs.
        *((kind, 1, number % 2 == 0, 9) for number, kind in enumerate(KINDS)),
        *((kind, 1, number % 2 == 1, 0) for number, kind in enumerate(KINDS[:2])),
        *(pytest.param(kind, 1, number % 2 == 1, 9, marks=pytest.mark.slow) for number, kind in enumerate(KINDS)),
        *(pytest.param(kind, 1, number % 2 == 0, 0, marks=pytest.mark.slow) for number, kind in enumerate(KINDS)),
        *(
            pytest.param(kind, 1, number % 2 == 1, 0, marks=pytest.mark.slow)
            for number, kind in enumerate(KINDS[2:], 2)
        ),
    ],
)
def test_resumes_behind_the_last_batch_that_was_used(cuda, kind, workers, persistent, at):
    def fresh():
        dataset = Numbers()
        options = samplers(kind, dataset)
        made = DataLoader(dataset, **options, num_workers=workers, persistent_workers=persistent)
        return tools.PrefetchLoader(made, "cuda:0", depth=3)

    torch.manual_seed(11)
    whole, state, random = [], None, None
    loader = fresh()
    for _ in range(3):
        for batch in loader:
            if len(whole) == at:
                state, random = loader.state_dict(), torch.get_rng_state()
            whole.append(flat(batch))
    assert (state["epoch"], state["batches"] - 1) == divmod(at, len(whole) // 3)

    again = fresh()
    again.load_state_dict(state)
    torch.set_rng_state(random)  # as a checkpoint of the training does
    rest = [flat(batch) for batch in again]
    rest += [flat(batch) for _ in range(2 - state["epoch"]) for batch in again]
    assert rest == whole[at + 1 :]
    assert again.epoch == 3


def test_resuming_loads_nothing_twice_where_it_can():
    dataset = Numbers()
    loader = tools.PrefetchLoader(DataLoader(dataset, 4, shuffle=True), "cpu")
    for number, _ in enumerate(loader):
        if number == 2:
            state = loader.state_dict()
            break
    used = dataset.seen[:12]
    del dataset.seen[:]
    loader.load_state_dict(state)
    for _ in loader:
        pass
    assert sorted(used + dataset.seen) == list(range(23))

    stream = tools.PrefetchLoader(DataLoader(Stream(), 4), "cpu")
    stream.load_state_dict({**tools.PrefetchLoader(DataLoader(Stream(), 4), "cpu").state_dict(), **state, "batches": 2})
    assert [flat(batch) for batch in stream] == [[8, 9, 10, 11], [12, 13, 14, 15], [16]]


def test_a_state_at_the_end_of_a_pass():
    loader = tools.PrefetchLoader(DataLoader(Numbers(8), 4), "cpu")
    for _ in loader:
        state = loader.state_dict()
    other = tools.PrefetchLoader(DataLoader(Numbers(8), 4), "cpu")
    other.load_state_dict(state)
    assert list(other) == []
    assert other.epoch == 1
    assert len(list(other)) == 2
    other.load_state_dict(loader.state_dict())  # between passes
    assert len(list(other)) == 2
    with pytest.raises(InputError, match="the state has no batches, order"):
        other.load_state_dict({"version": 1, "epoch": 2})
    with pytest.raises(InputError, match="the state has no version 1"):
        other.load_state_dict(state | {"version": 2})


def test_what_was_waited_for():
    report = tools.Waiting()
    clock = report.begin()
    clock.waited(3.0, {})
    report_seconds = []
    for wait, spent in ((1.0, {"load": 5.0, "pin": 0.25, "copy": 9.0}), (2.0, {"load": 1.0, "pin": 0.0, "copy": 0.5})):
        clock.waited(wait, spent)
        report_seconds.append(report.seconds_waited)
    assert report_seconds == [1.0, 3.0]
    assert report.waited_for == {"pin": 0.25, "load": 2.25, "copy": 0.5}
    assert (report.batches, report.first_batches, report.seconds_first) == (2, 1, 3.0)
    report.seconds = 30.0
    assert (report.share, report.loader_bound) == (0.1, True)
    report.divide_loading(dataset=2.0, collate=1.0)
    assert report.waited_for == pytest.approx({"dataset": 1.5, "collate": 0.75, "pin": 0.25, "copy": 0.5})
    assert "10.0% of 30.00 s, 1500.00 ms a batch: loader-bound" in str(report)
    assert "dataset 50%, collate 25%, pin 8%, copy 17%" in str(report)
    assert "nothing to report" in str(tools.Waiting())


@pytest.mark.parametrize("device", ["cpu", "cuda:0"])
def test_reports(cuda, device):
    for workers in (0, 1):
        loader = tools.PrefetchLoader(DataLoader(Numbers(), 4, shuffle=True, num_workers=workers), device)
        list(loader)
        before = torch.get_rng_state()
        report = loader.report()
        assert torch.get_rng_state().equal(before)
        assert (report.batches, report.first_batches) == (5, 1)
        assert set(report.waited_for) == {"dataset", "collate", "pin", "copy"}
        assert sum(report.waited_for.values()) == pytest.approx(report.seconds_waited)
        assert 0 < report.seconds_waited <= report.seconds
        assert (report.copy_seconds > 0) == (device == "cuda:0")
        assert "load" in loader.report(probe=0).waited_for
    assert "load" in tools.PrefetchLoader([1, 2, 3], "cpu").report().waited_for


def test_wrong_arguments():
    with pytest.raises(InputError, match="loader is a int: expected a DataLoader"):
        tools.PrefetchLoader(3)
    with pytest.raises(InputError, match="depth=0"):
        tools.PrefetchLoader([], "cpu", depth=0)


@pytest.mark.cuda
@pytest.mark.parametrize("workers", [0, 2])
@pytest.mark.parametrize("pin", [False, True])
def test_on_a_gpu(workers, pin):
    """Values stay right while the device is busy and memory is used again; the loop never waits for a copy."""
    plain = DataLoader(Numbers(64), 4, shuffle=True, num_workers=workers, pin_memory=pin)
    torch.manual_seed(3)
    expected = [flat(batch) for batch in plain]
    torch.manual_seed(3)
    busy, sums, got = torch.ones(1 << 22, device="cuda"), [], []
    for batch in tools.PrefetchLoader(plain, "cuda"):
        assert batch["x"].is_cuda
        for _ in range(50):
            busy = busy * 1.0
        sums.append(batch["x"].sum() + busy[0] * 0)
        got.append({"x": batch["x"].clone(), "meta": Pair(batch["meta"].x.clone(), batch["meta"].y)})
        del batch
    assert [flat(batch) for batch in got] == expected
    assert torch.stack(sums).tolist() == [sum(sum(map(sum, x)) for x in batch["x"]) for batch in expected]
