"""Sync warnings and allocator figures: by substitution here, on a GPU with the marker `cuda`."""

import threading
import warnings

import pytest
import torch

from denizen.perf.watch import allocations, counting, profiled, sync_warnings

MESSAGE = "called a synchronizing CUDA operation"  # torch's words


class Mode:
    """Stands in for torch.cuda's mode."""

    def __init__(self, monkeypatch, mode=0):
        self.mode = mode
        monkeypatch.setattr(torch.cuda, "get_sync_debug_mode", lambda: self.mode)
        monkeypatch.setattr(torch.cuda, "set_sync_debug_mode", self._set)

    def _set(self, mode):
        warnings.warn("Synchronization debug mode is a prototype feature", stacklevel=2)
        self.mode = {"default": 0, "warn": 1, "error": 2}.get(mode, mode)

    def wait(self):
        if self.mode:
            warnings.warn(f"{MESSAGE} (Triggered internally at …)", stacklevel=2)


def test_waits_are_heard_each_time_and_everything_is_restored(monkeypatch):
    mode, show, filters = Mode(monkeypatch), warnings.showwarning, list(warnings.filters)
    with sync_warnings() as places:
        for _ in range(3):
            mode.wait()
    assert len(places) == 3
    assert all(place.startswith(__file__) for place in places)
    assert (mode.mode, warnings.showwarning, warnings.filters) == (0, show, filters)


def test_restored_after_an_exception(monkeypatch):
    mode, show, filters = Mode(monkeypatch, 1), warnings.showwarning, list(warnings.filters)
    with pytest.raises(ZeroDivisionError), sync_warnings():
        1 / 0  # noqa: B018
    assert (mode.mode, warnings.showwarning, warnings.filters) == (1, show, filters)


def test_guards_nest(monkeypatch):
    mode = Mode(monkeypatch)
    with sync_warnings() as outer:
        mode.wait()
        with sync_warnings() as inner:
            mode.wait()
        assert mode.mode == 1
        mode.wait()
    assert (len(outer), len(inner), mode.mode) == (2, 1, 0)


@pytest.mark.parametrize(("before", "said"), [(0, 0), (1, 1)])
def test_other_threads_are_not_counted(monkeypatch, before, said):
    mode = Mode(monkeypatch, before)
    shown = []
    monkeypatch.setattr(warnings, "showwarning", lambda message, *rest: shown.append(message))
    with sync_warnings() as places:
        thread = threading.Thread(target=mode.wait)
        thread.start()
        thread.join()
    assert (len(places), len(shown)) == (0, said)


def test_other_warnings_pass(monkeypatch):
    Mode(monkeypatch)
    with pytest.warns(UserWarning, match="else"), sync_warnings() as places:
        warnings.warn("something else", stacklevel=1)
    assert places == []


def test_allocations_are_differences(monkeypatch):
    readings = iter(
        [
            {"allocation.all.allocated": 7, "segment.all.allocated": 2},
            {"allocation.all.allocated": 17, "segment.all.allocated": 3},
        ]
    )
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: next(readings))
    with allocations(torch.device("cuda")) as found:
        pass
    assert (found.count, found.device_mallocs, found.reuse) == (10, 1, 0.9)


def test_no_blocks_have_no_reuse(monkeypatch):
    monkeypatch.setattr(torch.cuda, "memory_stats", lambda device: {})
    with allocations(torch.device("cuda")) as found:
        pass
    assert (found.count, found.reuse) == (0, None)


@pytest.mark.cuda
def test_on_a_gpu():
    device = torch.device("cuda")
    x = torch.ones(1000, device=device)
    x.sum().item()
    with counting(device) as counts, sync_warnings() as places, allocations(device) as memory:
        (x * 2).sum().item()
        x[:3].cpu()
        torch.ones(4).to(device)
        torch.ones(3).sum().item()  # on the host
    assert counts.host_reads == {"aten::_local_scalar_dense": 1, "aten::_to_copy": 1}
    assert len(places) >= 2
    assert (counts.to_host.count, counts.to_host.bytes) == (2, 16)
    assert (counts.to_device.count, counts.to_device.bytes) == (1, 16)
    assert memory.count >= 2
    pinned = torch.empty(1000, pin_memory=True)
    with counting(device) as counts:
        pinned.copy_(x, non_blocking=True)
    assert (counts.host_reads.total(), counts.to_host.count) == (0, 1)
    assert torch.cuda.get_sync_debug_mode() == 0
    with profiled(device) as profile:
        y = x * 2 + 1
        y.cpu()
    assert len(profile.kernels) == 2
    assert len(profile.copies) == 1
    assert all(span.end > span.start for span in profile.kernels)
