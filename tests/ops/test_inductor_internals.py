"""How inductor's kernels store columns that are side by side."""

import importlib.util
import subprocess
import sys
import types
from pathlib import Path
from typing import Any

import pytest
import torch

from denizen.ops import _inductor


class Line:
    def __init__(self, name, line):
        self.name, self.line = name, line

    def _new_line(self, line):
        return Line(self.name, line)


def lines(*parts):
    return [Line(f"buf{n}", f"tl.store(out_ptr{n} + ({at}), tmp{n}, {mask})") for n, at, mask in parts]


GROUPS = {f"buf{n}": ["buf1", "buf2", "buf3", "buf4"] for n in range(1, 5)}


def test_columns_that_are_all_there_are_one_store():
    given = lines(
        (3, "4*x0", "xmask"), (9, "x0", "xmask"), (1, "4*x0", "xmask"), (4, "4*x0", "xmask"), (2, "4*x0", "xmask")
    )
    first, last = _inductor._joined(given, GROUPS)
    assert first is given[1]
    blocks = {f"tmp{n}": torch.tensor([10 * n, 10 * n + 1]) for n in range(1, 5)}
    tl = types.SimpleNamespace(
        broadcast_to=lambda block, size: block,
        join=lambda a, b: torch.stack([a, b], -1),
        reshape=lambda block, size: block.reshape(size),
        arange=torch.arange,
        store=lambda at, block, mask: (at, block, mask),
    )
    names = {"tl": tl, "out_ptr1": 100, "x0": torch.tensor([0, 1]), "xmask": torch.tensor([True, False]), "XBLOCK": 2}
    at, block, mask = eval(last.line, {}, {**names, **blocks})
    assert at.tolist() == [[100, 101, 102, 103], [104, 105, 106, 107]]
    assert block.tolist() == [[10, 20, 30, 40], [11, 21, 31, 41]]
    assert mask.tolist() == [[True], [False]]


def test_other_columns_are_left_as_they_are():
    for given in (
        lines((1, "4*x0", "None"), (2, "4*x0", "None"), (3, "4*x0", "None")),
        lines((1, "4*x0", "None"), (2, "4*x0", "None"), (3, "4*x0", "None"), (4, "4*x1", "None")),
        lines((1, "8*x0", "None"), (2, "8*x0", "None"), (3, "8*x0", "None"), (4, "8*x0", "None")),
        lines((5, "4*x0", "None")),
    ):
        assert _inductor._joined(given, GROUPS) == given


@pytest.mark.slow
@pytest.mark.skipif(importlib.util.find_spec("triton") is None, reason="triton is not installed")
def test_columns_of_sums_are_stored_as_the_kernel_of_a_reduction_can():
    script = Path(__file__).with_name("columns_without_gpu.py")
    command = [sys.executable, "-W", "ignore", str(script)]
    done = subprocess.run(command, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr[-3000:]
    assert done.stdout.splitlines() == ["at_hand 1 joined", "of_sums 1 apart", "beside_others 2 joined"]


def test_the_key_of_graphs_on_disk_tells_the_code_of_operations(monkeypatch: Any, tmp_path: Any) -> None:
    for name in ("nn", "ops"):
        (tmp_path / name).mkdir()
        (tmp_path / name / "_one.py").write_text("a = 1")
    monkeypatch.setattr(_inductor, "__file__", str(tmp_path / "ops" / "_inductor.py"))
    keys = [_inductor._sources()]
    for name in ("nn", "ops"):
        (tmp_path / name / "_one.py").write_text("a = 2")
        keys.append(_inductor._sources())
    assert len(set(keys)) == 3
