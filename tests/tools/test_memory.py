"""The memory report: which tensors are largest, under which names, each block once."""

import pytest
import torch

from denizen import tools


def test_largest_tensors_and_their_names():
    model = torch.nn.Linear(1000, 3000)
    optimizer = torch.optim.Adam(model.parameters())
    model(torch.ones(1, 1000)).sum().backward()
    optimizer.step()
    local = torch.zeros(1_000_000)
    view = local[10:]
    report = tools.memory_report("cpu", top=6, model=model, optimizer=optimizer)
    names = {held.where: held for held in report.largest}
    weight = names["model.weight"]
    assert (weight.nbytes, weight.shape, weight.dtype) == (12_000_000, (3000, 1000), torch.float32)
    assert "model.weight.grad" in names
    assert any(name.startswith("optimizer.state[0]['exp_avg") for name in names)
    place = next(name for name in names if name.endswith((" local", " view")))
    assert place.startswith("test_memory.py:")
    assert names[place].tensors == 2
    assert names[place].nbytes == 4_000_000
    assert view.numel() == 999_990
    assert report.seen == report.allocated >= 4 * 12_000_000 + 4_000_000
    assert report.peak is report.reserved is None
    text = str(report)
    assert "11.4 MiB  float32 [3000, 1000]  model.weight" in text
    assert [held.nbytes for held in report.largest] == sorted((h.nbytes for h in report.largest), reverse=True)


def test_what_has_no_memory_is_left_out():
    kept = [torch.empty(3, device="meta"), torch.eye(3).to_sparse(), torch.empty(0)]
    report = tools.memory_report("meta")
    assert report.largest == []
    tools.memory_report("cpu", kept=kept)


@pytest.mark.cuda
def test_on_a_gpu():
    big = torch.zeros(5_000_001, device="cuda")
    report = tools.memory_report("cuda")
    (held,) = (held for held in report.largest if held.shape == big.shape)  # earlier tests may have left larger ones
    assert held.where.endswith(" big")
    assert report.reserved >= report.allocated >= report.seen >= big.nbytes
    assert report.peak >= report.allocated
    assert "reserved" in str(report)
