"""The ring alone: what comes out is what was put in, later changes of the sources or not; streams are used in order."""

import contextlib
import signal
import threading

import pytest
import torch

from denizen.errors import CapacityError
from denizen.run import _ring
from denizen.run._ring import Ring
from denizen.run._snapshots import Kept
from denizen.run._writer import Writer

LAYOUT = [((2, 5), torch.int8), ((3,), torch.float32)]


def sources(k, device="cpu"):
    return [torch.full((2, 5), k, dtype=torch.int8, device=device), torch.arange(3.0, device=device) + k]


def filling(*ks):
    """Fills a pack with these entries."""

    def fill(pack):
        for entry, k in enumerate(ks):
            for target, source in zip(pack.tensors, sources(k, pack.buffer.device), strict=True):
                target[entry] = source

    return fill


def holds(tensors, *ks):
    """Whether tensors hold these entries and no others."""
    return all(
        torch.equal(a, torch.stack(b)) for a, b in zip(tensors, zip(*map(sources, ks), strict=True), strict=True)
    )


def taken(ring):
    """The oldest filled slot."""
    with ring.changed:
        ring.changed.wait_for(lambda: ring.filled)
        slot = ring.filled.popleft()
    ring.wait(slot)
    return slot


def test_first_in_first_out():
    ring = Ring(torch.device("cpu"), LAYOUT, 3)
    for k in range(3):
        assert ring.put(filling(k), k)
    assert ring.full
    assert not ring.put(filling(3), 3, give_up=lambda: True)
    for k in range(3):
        slot = taken(ring)
        assert [part.place for part in slot.parts] == [k]
        assert holds(slot.parts[0].pack.tensors, k)
        ring.hand_back(slot)
    assert (ring.puts, ring.waits, ring.slots, ring.nbytes) == (3, 1, 3, 3 * 128)


def test_two_threads():
    ring, seen = Ring(torch.device("cpu"), LAYOUT, 2), list[tuple]()

    def consume():
        nonlocal seen
        for _ in range(200):
            slot = taken(ring)
            seen += [(part.place, [tensor.clone() for tensor in part.pack.tensors]) for part in slot.parts]
            ring.hand_back(slot)

    thread = threading.Thread(target=consume)
    thread.start()
    for k in range(200):
        ring.put(filling(k % 100), k)
    thread.join()
    assert [place for place, _ in seen] == list(range(200))
    assert all(holds(tensors, k % 100) for k, tensors in seen)


def test_a_failed_copy_frees_its_buffer():
    ring = Ring(torch.device("cpu"), LAYOUT, 1)
    with pytest.raises(ZeroDivisionError):
        ring.put(lambda pack: 1 / 0, 0)
    assert not ring.full
    assert ring.put(filling(1), 1)


def test_several_entries_side_by_side():
    ring = Ring(torch.device("cpu"), LAYOUT, 2)
    assert ring.room() == (64 << 20) // 128
    ring.regroup(5)
    assert (ring.most, ring.size(5), ring.nbytes) == (5, 128, 2 * 8 * 128)
    ring.put(filling(1, 2, 3, 4, 5), 10, 5)
    ring.put(filling(6, 7), 15, 2)
    assert (ring.puts, ring.entries) == (0, 7)  # there is room for another
    ring.send()
    assert ring.puts == 1
    slot = taken(ring)
    assert [(part.place, part.count) for part in slot.parts] == [(10, 5), (15, 2)]
    assert holds(slot.parts[0].pack.tensors, 1, 2, 3, 4, 5)
    assert holds(slot.parts[1].pack.tensors, 6, 7)
    ring.hand_back(slot)
    ring.put(filling(8), 17)  # a buffer is laid out anew
    ring.send()
    assert holds(taken(ring).parts[0].pack.tensors, 8)
    ring.send()
    assert ring.puts == 2  # nothing was there to be sent


@pytest.mark.parametrize(("slots", "packs"), [(None, 8), (3, 2)])
def test_as_many_packs_leave_together_as_a_buffer_holds(monkeypatch, slots, packs):
    monkeypatch.setattr(_ring, "BYTES", 3 * 2 * 128 if slots else _ring.BYTES)
    ring = Ring(torch.device("cpu"), LAYOUT, slots)
    ring.regroup(2)
    assert ring.nbytes <= _ring.BYTES
    for k in range(packs):
        assert ring.puts == 0
        ring.put(filling(k, k + 1), 2 * k, 2)
    assert (ring.puts, len(ring.filled[0].parts)) == (1, packs)
    ring.put(filling(1), 2 * packs)
    ring.put(filling(2, 3), 2 * packs + 1, 2)
    ring.drop(2 * packs + 2)
    ring.send()
    assert [(part.place, part.count) for part in ring.filled[1].parts] == [(2 * packs, 1), (2 * packs + 1, 1)]
    ring.put(filling(1), 0)
    ring.drop(3)
    assert [(part.place, part.count) for part in ring.filled[0].parts] == [(0, 2), (2, 1)]
    assert len(ring.filled) == 1
    ring.drop(0)
    ring.send()
    assert len(ring._free) == ring.slots


@pytest.mark.parametrize(("one", "slots"), [(10, 32), (2 << 20, 16), (8 << 20, 8), (40 << 20, 3), (1 << 30, 2)])
def test_number_of_buffers_by_size(monkeypatch, one, slots):
    monkeypatch.setattr(torch, "empty", lambda size, **kind: torch.zeros(1, dtype=torch.uint8).expand(size))
    assert Ring(torch.device("cpu"), [((one,), torch.uint8)]).slots == slots


def test_buffers_that_the_host_cannot_hold():
    with pytest.raises(CapacityError, match=r"8 buffers of 931,322\.57 GiB do not fit .*slots="):
        Ring(torch.device("cpu"), [((10**15,), torch.uint8)], 8)


class Fake:
    """Stands for CUDA: notes in which order streams and events are used."""

    def __init__(self, monkeypatch):
        self.calls, self.done, fake, real = [], False, self, torch.empty
        stream = type("Stream", (), {})

        class Side(stream):
            def __init__(self, device):
                self.device = device

            def wait_event(self, event):
                fake.calls.append(("side waits", event.number))

        class Event:
            count = 0

            def __init__(self, blocking=False):
                self.blocking, self.number = blocking, Event.count
                Event.count += 1

            def record(self, stream):
                fake.calls.append(("recorded", self.number, "side" if isinstance(stream, Side) else "compute"))

            def query(self):
                return fake.done

            def synchronize(self):
                fake.calls.append(("host waits", self.number, threading.current_thread().name, self.blocking))

        @contextlib.contextmanager
        def on(stream):
            fake.calls.append("on side")
            yield
            fake.calls.append("off side")

        monkeypatch.setattr(torch.cuda, "Stream", Side)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "stream", on)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device: stream())
        monkeypatch.setattr(torch, "empty", lambda *args, dtype, **where: real(*args, dtype=dtype))


def test_streams_and_events_in_order(monkeypatch):
    fake = Fake(monkeypatch)
    ring = Ring(torch.device("cuda"), LAYOUT, 2)
    ring.regroup(3)
    for k in range(ring._room // 128):
        ring.put(lambda pack, k=k: (filling(k, 5, 6)(pack), fake.calls.append("filled")), 3 * k, 3)
    made = ring.filled[0].made.number
    assert fake.calls == [
        *["filled"] * 8,
        ("recorded", made, "compute"),
        "on side",
        ("side waits", made),
        ("recorded", made + 1, "side"),
        "off side",
    ]
    assert ring.filled[0].stage is not None  # alive until the copy is done
    del fake.calls[:]
    slot = taken(ring)
    assert fake.calls == [("host waits", made + 1, "MainThread", True)]
    assert slot.stage is None
    assert [part.pack.tensors[0][0, 0, 0].item() for part in slot.parts] == list(range(8))
    assert all(holds(part.pack.tensors, k, 5, 6) for k, part in enumerate(slot.parts))


def test_what_could_not_be_sent_stays_and_is_dropped_without_a_word_to_the_device(monkeypatch):
    fake = Fake(monkeypatch)
    ring = Ring(torch.device("cuda"), LAYOUT, 2)
    ring.regroup(2)
    ring.put(filling(1, 2), 0, 2)
    ring.put(filling(3), 2)
    with monkeypatch.context() as failing:
        failing.setattr(torch.cuda, "stream", lambda stream: 1 / 0)
        with pytest.raises(ZeroDivisionError):
            ring.send()
    assert (ring.puts, len(ring.filled), len(ring._free)) == (0, 0, 1)
    del fake.calls[:]
    ring.drop(1)
    assert not fake.calls
    ring.put(filling(4), 1)
    ring.send()
    slot = taken(ring)
    assert [(part.place, part.count) for part in slot.parts] == [(0, 1), (1, 1)]
    assert holds([tensor[:1] for tensor in slot.parts[0].pack.tensors], 1)
    assert holds(slot.parts[1].pack.tensors, 4)


def test_a_slow_writer_holds_no_memory_of_the_device(monkeypatch):
    fake = Fake(monkeypatch)
    ring = Ring(torch.device("cuda"), LAYOUT, 3)
    ring.put(filling(0), 0)
    ring.put(filling(1), 1)
    assert [slot.stage is None for slot in ring.filled] == [False, False]
    fake.done = True  # the copies, while the writer has not come to them
    ring.put(filling(2), 2)
    assert [slot.stage is None for slot in ring.filled] == [True, True, False]


@pytest.mark.cuda
def test_copies_from_the_device_while_it_goes_on():
    ring, seen = Ring(torch.device("cuda"), LAYOUT, 2), []

    def consume():
        nonlocal seen
        for _ in range(50):
            slot = taken(ring)
            seen += [(part.place, [tensor.clone() for tensor in part.pack.tensors]) for part in slot.parts]
            ring.hand_back(slot)

    thread = threading.Thread(target=consume)
    thread.start()
    busy = torch.ones(1 << 22, device="cuda")
    for k in range(50):
        ring.put(filling(k), k)
        for _ in range(20):
            busy = busy * 1.0001  # takes over memory that is free by now
    thread.join()
    assert all(holds(tensors, k) for k, tensors in seen)
    assert ring._free[0].buffer.is_pinned()


def test_an_interrupt_of_the_last_flush_comes_between_two_buffers():
    ring, written = Ring(torch.device("cpu"), LAYOUT, 3), []

    class Sink(Kept):
        def write(self, place, arrays):
            signal.raise_signal(signal.SIGINT)
            written.append(place)

    for k in range(3):
        ring.put(filling(k), k)
    writer = Writer(ring, Sink())
    for left in (2, 1, 0):
        with pytest.raises(KeyboardInterrupt):
            writer.flush()
        assert (len(ring.filled), len(ring._free)) == (left, 3 - left)
    writer.flush()
    assert written == [0, 1, 2]
