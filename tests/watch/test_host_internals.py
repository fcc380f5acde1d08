"""What the host has left, by its own word, by that of control groups, and by limits of the process."""

import os

import pytest

from denizen.perf.watch import _host

VERSION_2 = ("", "memory.max", "memory.current", "anon 5\ninactive_file 300\n")
VERSION_1 = ("memory", "memory.limit_in_bytes", "memory.usage_in_bytes", "inactive_file 7\ntotal_inactive_file 300\n")


@pytest.mark.parametrize("names", [VERSION_2, VERSION_1], ids=["version 2", "version 1"])
@pytest.mark.parametrize(
    ("limits", "free"),
    [
        ({"job": ("max", 5_000)}, 100 << 10),  # none: what the host has
        ({"job/step": ("9000", 5_000)}, 4_300),
        ({"job/step": ("9000", 5_000), "job": ("20000", 19_000)}, 1_300),
        ({"": ("6000", 7_000)}, 0),  # as a container sees its own; beyond it already
        ({"other": ("10", 9)}, 100 << 10),
    ],
)
def test_a_container_or_a_batch_job_may_leave_less_than_the_host(tmp_path, monkeypatch, names, limits, free):
    place, most, used, stat = names
    (tmp_path / "self").mkdir()
    (tmp_path / "self" / "cgroup").write_text(f"3:cpu:/job\n0:{place}:/job/step\n")
    (tmp_path / "meminfo").write_text("MemTotal: 900 kB\nMemAvailable: 100 kB\n")
    for name, (limit, use) in limits.items():
        folder = tmp_path / "groups" / place / name
        folder.mkdir(parents=True, exist_ok=True)
        for file, text in ((most, limit), (used, str(use)), ("memory.stat", stat)):
            (folder / file).write_text(text)
    monkeypatch.setattr(_host, "PROC", tmp_path)
    monkeypatch.setattr(_host, "GROUPS", tmp_path / "groups")
    assert _host.free_on_host() == free


def test_a_process_may_be_allowed_less_than_the_host(monkeypatch):
    resource = pytest.importorskip("resource")
    for most, least in ((64 << 30, 1), (1 << 20, 0)):
        monkeypatch.setattr(resource, "getrlimit", lambda what, most=most: (most, most))
        assert least <= _host.free_on_host() <= most - (1 << 20)


def test_no_system_that_tells(tmp_path, monkeypatch):
    monkeypatch.setattr(_host, "PROC", tmp_path)
    monkeypatch.delattr(os, "sysconf_names", raising=False)
    assert _host.free_on_host() is None
