"""Stands for CUDA where there is none: notes in which order streams and events are used, and by which thread."""

import contextlib
import threading

import torch


class FakeCuda:
    """Streams and events that write down what is done with them; tensors stay on the CPU."""

    def __init__(self, monkeypatch):
        self.calls, self.streams, fake = [], [], self

        class Stream:
            def __init__(self, device=None, name="side"):
                self.device, self.name = device, name
                fake.streams.append(self)

            def wait_event(self, event):
                fake.calls.append((self.name, "waits for", event.number))

        class Event:
            count = 0

            def __init__(self, enable_timing=False, blocking=False):
                self.enable_timing, self.blocking, self.number = enable_timing, blocking, Event.count
                self.recorded = self.done = False
                Event.count += 1

            def record(self, stream=None):
                self.recorded, self.done = True, False
                fake.calls.append((stream.name if stream else "compute", "records", self.number))

            def query(self):
                return self.done

            def synchronize(self):
                assert self.recorded
                self.done = True
                fake.calls.append((threading.current_thread().name, "host waits for", self.number))

            def elapsed_time(self, other):
                assert self.enable_timing
                assert other.enable_timing
                return 2.5

        self.compute = Stream(name="compute")

        @contextlib.contextmanager
        def on(stream):
            yield

        monkeypatch.setattr(torch.cuda, "Stream", Stream)
        monkeypatch.setattr(torch.cuda, "Event", Event)
        monkeypatch.setattr(torch.cuda, "stream", on)
        monkeypatch.setattr(torch.cuda, "current_stream", lambda device=None: self.compute)
        monkeypatch.setattr(torch.cuda, "current_device", lambda: 0)

    def of(self, what):
        return [call for call in self.calls if call[1] == what]
