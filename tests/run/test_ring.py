"""The ring alone: what comes out is what was put in, later changes of the sources or not; streams are used in order."""

import contextlib
import threading

import pytest
import torch

from denizen.errors import CapacityError
from denizen.run._ring import Ring

LAYOUT = [((2, 5), torch.int8), ((3,), torch.float32)]


def sources(k, device="cpu"):
    return [torch.full((2, 5), k, dtype=torch.int8, device=device), torch.arange(3.0, device=device) + k]


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
        assert ring.put(sources(k), k)
    assert ring.full
    assert not ring.put(sources(3), 3, give_up=lambda: True)
    for k in range(3):
        slot = taken(ring)
        assert slot.place == k
        assert all(torch.equal(a, b) for a, b in zip(slot.tensors, sources(k), strict=True))
        ring.hand_back(slot)
    assert (ring.puts, ring.waits, ring.slots, ring.nbytes) == (3, 1, 3, 3 * 128)


def test_two_threads():
    ring, seen = Ring(torch.device("cpu"), LAYOUT, 2), []

    def consume():
        for _ in range(200):
            slot = taken(ring)
            seen.append((slot.place, [tensor.clone() for tensor in slot.tensors]))
            ring.hand_back(slot)

    thread = threading.Thread(target=consume)
    thread.start()
    for k in range(200):
        ring.put(sources(k % 100), k)
    thread.join()
    assert [place for place, _ in seen] == list(range(200))
    assert all(torch.equal(a, b) for k, tensors in seen for a, b in zip(tensors, sources(k % 100), strict=True))


def test_a_failed_copy_frees_its_buffer():
    ring = Ring(torch.device("cpu"), LAYOUT, 1)
    with pytest.raises(ValueError, match="shorter"):
        ring.put(sources(0)[:1], 0)
    assert not ring.full
    assert ring.put(sources(1), 1)


@pytest.mark.parametrize(("one", "slots"), [(10, 8), (40 << 20, 3), (1 << 30, 2)])
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
        monkeypatch.setattr(torch, "empty", lambda *args, pin_memory, **kinds: real(*args, **kinds))


def test_streams_and_events_in_order(monkeypatch):
    fake = Fake(monkeypatch)
    ring = Ring(torch.device("cuda"), LAYOUT, 2)
    given = sources(4)
    ring.put(given, 0)
    assert fake.calls == [
        ("recorded", 0, "compute"), "on side", ("side waits", 0), ("recorded", 1, "side"), "off side"
    ]  # fmt: skip
    assert ring.filled[0].held == tuple(given)  # alive until the copy is done
    del fake.calls[:]
    slot = taken(ring)
    assert fake.calls == [("host waits", 1, "MainThread", True)]
    assert slot.held == ()


def test_a_slow_writer_holds_no_memory_of_the_device(monkeypatch):
    fake = Fake(monkeypatch)
    ring = Ring(torch.device("cuda"), LAYOUT, 3)
    ring.put(sources(0), 0)
    ring.put(sources(1), 1)
    assert [len(slot.held) for slot in ring.filled] == [2, 2]
    fake.done = True  # the copies, while the writer has not come to them
    ring.put(sources(2), 2)
    assert [len(slot.held) for slot in ring.filled] == [0, 0, 2]


@pytest.mark.cuda
def test_copies_from_the_device_while_it_goes_on():
    ring, seen = Ring(torch.device("cuda"), LAYOUT, 2), []

    def consume():
        for _ in range(50):
            slot = taken(ring)
            seen.append((slot.place, [tensor.clone() for tensor in slot.tensors]))
            ring.hand_back(slot)

    thread = threading.Thread(target=consume)
    thread.start()
    busy = torch.ones(1 << 22, device="cuda")
    for k in range(50):
        ring.put(sources(k, "cuda"), k)
        for _ in range(20):
            busy = busy * 1.0001  # takes over memory that is free by now
    thread.join()
    assert all(torch.equal(a, b) for k, tensors in seen for a, b in zip(tensors, sources(k), strict=True))
    assert all(tensor.is_pinned() for tensor in ring._free[0].tensors)
