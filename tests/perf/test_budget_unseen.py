"""What cannot be looked at is said by name, and errors of the user's code keep their type, with the user's line."""

from pathlib import Path

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.errors import DenizenError, InputError
from denizen.perf.watch import counting

UNSEEN = {
    "nested tensors": "torch.nested.nested_tensor([torch.ones(2, 3), torch.ones(4, 3)], device=d) * 2",
    "nested tensors, jagged": "torch.nested.nested_tensor([x, x[:1]], layout=torch.jagged) * 2",
    "FlexAttention": "torch.nn.attention.flex_attention.flex_attention(q, q, q)",
    "subclasses of tensors": "x.as_subclass(Mine)",
    "subclasses of tensors, made": "torch.Tensor._make_subclass(Mine, x)",
    "subclasses of tensors, moved": "torch.ones(2).as_subclass(Mine).to(d)",
    "DLPack": "torch.from_dlpack(x)",
    "CUDA graphs": "torch.cuda.CUDAGraph()",
    "CUDA graphs, captured": "torch.cuda.make_graphed_callables(torch.sin, (x,))",
    "the address of a tensor's memory": "x.untyped_storage().data_ptr()",
    "`x.data = y` across devices": "setattr(torch.ones(2), 'data', x)",
}


class Mine(torch.Tensor):
    pass


def step_of(device, line):
    import torch.nn.attention.flex_attention

    names = {"torch": torch, "d": device, "x": torch.ones(2, device=device), "Mine": Mine}
    names["q"] = torch.ones(1, 1, 2, 2, device=device)
    return eval(f"lambda: {line}", names)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
@pytest.mark.parametrize("name", UNSEEN)
def test_what_cannot_be_looked_at_is_said_by_name(name):
    said = f"could not look: {name.partition(',')[0]}"
    guard = dz.budget(device="simulated")
    with pytest.raises(DenizenError) as caught, guard:
        step_of(guard.device, UNSEEN[name])()
    assert str(caught.value).startswith(said)
    with pytest.raises(DenizenError) as caught:
        dz.doctor(make=lambda device: step_of(device, UNSEEN[name]), device="simulated", steps=4)
    assert str(caught.value).startswith(said)


@pytest.mark.filterwarnings("ignore:The PyTorch API of nested tensors:UserWarning")
def test_nested_tensors_on_the_cpu_are_a_note():
    report = dz.doctor(lambda: torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2, steps=4)
    assert any("could not look at nested tensors" in note for note in report.notes)
    with counting(torch.device("cpu")) as seen:
        torch.nested.nested_tensor([torch.ones(2), torch.ones(3)]) * 2
    assert "aten::mul.Tensor" in seen.ops


def test_other_errors_of_a_region_stay_what_they_are():
    guard = dz.budget(device="simulated")
    with pytest.raises(RuntimeError, match="Expected all tensors to be on the same device"), guard:
        torch.ones(2, device=guard.device) + torch.ones(2)


def test_copies_of_ddp_are_told_and_not_counted():
    """When it rebuilds its buckets, in the second step of a loop; its place is that of torch's file."""
    file = Path(torch.nn.__file__).parent / "parallel" / "distributed.py"
    names: dict = {}
    exec(compile("def _pre_forward(order, device):\n    return order.to(device).cpu()\n", file, "exec"), names)
    guard = dz.budget(device="simulated")
    with guard:
        names["_pre_forward"](torch.ones(3), guard.device)
    assert [one.counted for one in guard.report.findings] == [False, False]


# --- errors of the user's code ----------------------------------------------------------------------------------------


def failing(*_):
    return {}["of the user's"]


def forward(x):
    return failing(x)


USES = {
    "bench": lambda: dz.perf.bench(lambda: failing, device="cpu", rounds=5),
    "bench, maker": lambda: dz.perf.bench(failing, device="cpu", rounds=5),
    "profile": lambda: dz.perf.profile(lambda: failing()),
    "doctor": lambda: dz.doctor(lambda: failing(), steps=4),
    "doctor, maker": lambda: dz.doctor(make=lambda device: failing(), steps=4),
}


@pytest.mark.parametrize("name", USES)
def test_errors_of_the_users_code_keep_their_type_and_name_the_line(name):
    with pytest.raises(KeyError) as caught:
        USES[name]()
    (note,) = caught.value.__notes__
    assert f"{__file__}:{failing.__code__.co_firstlineno + 1} in failing" in note
    assert caught.traceback[-1].name == "failing"


def test_equivalent_names_the_line_and_keeps_the_error():
    with pytest.raises(
        InputError, match=r"b raised KeyError in calls at .*test_budget_unseen.py:\d+ in failing"
    ) as caught:
        dz.perf.equivalent(lambda x: x, forward, torch.ones(2))
    assert isinstance(caught.value.__cause__, KeyError)


def test_an_error_taken_for_the_end_of_the_data_is_a_note():
    def make(device):
        net, taken = nn.Linear(2, 2).to(device), []

        def step():
            taken.append(1)
            if len(taken) > 8:
                failing()
            net(torch.ones(1, 2, device=device))

        return step

    (note,) = [note for note in dz.doctor(make=make, device="simulated", steps=4).notes if "KeyError" in note]
    assert "failed after 8 steps" in note
    assert f"{__file__}:{failing.__code__.co_firstlineno + 1} in failing" in note
