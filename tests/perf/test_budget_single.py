"""Copies and waits of single values, of lists and of nothing: as CUPTI counted them on an H200 with torch 2.11."""

import numpy as np
import pytest
import torch

import denizen as dz

NAMES = {
    "x": "torch.zeros(64, 64, device=d)",
    "v": "torch.zeros(1024, device=d)",
    "z": "torch.zeros((), device=d)",
    "mask": "torch.arange(1024, device=d) % 3 == 0",
    "idx": "torch.arange(8, device=d)",
    "h": "torch.tensor(0.5)",
    "whole": "torch.tensor(3)",
    "row": "torch.ones(64)",
    "one": "torch.ones(1)",
    "pinned": "torch.tensor(0.5).pin_memory()",
    "none": "torch.empty(0)",
    "there": "torch.empty(0, device=d)",
    "array": "np.ones(8, np.float32)",
    "scalar": "np.asarray(np.float32(0.5))",
}
# Lines by copies to the device that are waited for or go through pageable memory, and by reads.
GROUPS = {
    (1, 0): """
        torch.tensor(0.5, device=d)
        torch.tensor(3, device=d)
        torch.tensor(True, device=d)
        torch.tensor([0.5], device=d)
        torch.tensor([1.0] * 8, device=d)
        torch.tensor(scalar, device=d)
        torch.tensor(np.float32(1), device=d)
        torch.as_tensor(0.5, device=d)
        torch.as_tensor(scalar, device=d)
        torch.as_tensor(h, device=d)
        torch.as_tensor(array, device=d)
        torch.asarray(0.5, device=d)
        x.new_tensor(0.5)
        h.to(d)
        h.to(d, non_blocking=True)
        pinned.to(d)
        one.to(d)
        h.to(d, torch.float64)
        whole.to(d)
        v[0] = 3.0
        x[0, 0] = 3.0
        z[...] = 3.0
        v[idx] = 3.0
        v[0] = h
        v[idx] = h
        x[0] = row
        v[[1, 2]]
        v[torch.tensor([1, 2])]
        z.copy_(h)
        v.copy_(h)
        z.copy_(whole)
        z[...] = h
        v.index_put_((idx,), h)
        torch.where(mask, h, v)
        torch.stack([h, h]).to(d)
        torch.tensor([h, h], device=d)
        torch.from_numpy(array).to(d)
    """,
    (0, 0): """
        torch.tensor([], device=d)
        pinned.to(d, non_blocking=True)
        x[0] = 3.0
        v[2:5] = 3.0
        v[...] = 3.0
        v[mask] = 3.0
        v[0] = z
        v[mask] = h
        v.fill_(3.0)
        v.fill_(h)
        v.fill_(z)
        z.copy_(pinned, non_blocking=True)
        v.masked_fill_(mask, 3.0)
        v.masked_fill_(mask, h)
        v.index_fill_(0, idx, 3.0)
        v.scatter_(0, idx, 3.0)
        torch.full((8,), 3.0, device=d)
        torch.full((), 3.0, device=d)
        torch.full_like(v, 3.0)
        torch.scalar_tensor(3.0, device=d)
        torch.zeros((), device=d)
        torch.arange(8, device=d)
        v + 3.0
        v + h
        h + v
        z.add_(h)
        torch.maximum(v, h)
        torch.where(mask, 1.0, 0.0)
        torch.where(mask, v, 0.0)
        torch.lerp(v, v, h)
        v.clamp(0.0, 1.0)
        torch._foreach_mul([v, x], h)
        none.to(d)
        there.copy_(none)
        there.cpu()
        v[:0] = none
        there.tolist()
        there.cpu().numpy()
        torch.rand(8, device=d)
    """,
    (2, 0): """
        v[[1, 2]] = 3.0
    """,
    (0, 1): """
        v[mask] = z
        v[idx[0]]
        z.item()
    """,
    (1, 2): """
        torch.tensor([z, z], device=d)
    """,
}
ON_AN_H200 = {line.strip(): key for key, lines in GROUPS.items() for line in lines.strip().splitlines()}


def counted(line, device, **more):
    guard = dz.budget(None, None, recompiles=None, device=device)
    names = {"torch": torch, "np": np, "d": guard.device} | more
    names |= {name: eval(text, names) for name, text in NAMES.items()}
    code = compile(line, "<a line>", "exec")
    exec(code, names)
    with guard:
        names["v"].add(1)
        exec(code, names)
    return guard.report


def wrong(device):
    found = {}
    for line in ON_AN_H200:
        measured = counted(line, device).measured
        found[line] = measured["transfers"], measured["host_reads"]
    return {line: was for line, was in found.items() if was != ON_AN_H200[line]}


def test_single_values_are_carried_like_any_tensor():
    assert wrong("simulated") == {}


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="no CUDA device")
def test_single_values_are_carried_on_a_gpu():
    found = wrong("cuda")
    found.pop("torch.tensor([z, z], device=d)", None)  # reads past every operation; its warnings come with the copy's
    assert found == {}


def test_what_to_write_for_one_number():
    (finding,) = counted("torch.tensor(0.5, device=d)", "simulated").findings
    assert finding.kind == "h2d-fresh"
    assert "torch.full" in finding.note
    assert counted("torch.tensor([1.0, 2.0], device=d)", "simulated").findings[0].note == ""


def test_a_librarys_own_fill_and_copy_is_no_number_written(tmp_path):
    """Both run for one instruction of the user's; only what one instruction makes and writes came from the host."""
    library = tmp_path / "site-packages" / "library.py"
    library.parent.mkdir()
    library.write_text("def use(z, torch, d):\n    filled = torch.full((), 3.0, device=d)\n    z.copy_(filled)\n")
    names: dict = {}
    exec(compile(library.read_text(), library, "exec"), names)
    assert counted("use(z, torch, d)", "simulated", use=names["use"]).measured["transfers"] == 0
