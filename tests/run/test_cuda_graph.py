"""A captured function: every call is one call of the function, whichever way it goes."""

from typing import Any

import pytest
import torch
from torch import Tensor

from denizen.run import CapturedFunction, NotCapturedError


class Adder:
    """Adds one to a tensor in place; gives the sum as a new one."""

    def __init__(self, device: str = "cpu") -> None:
        self.total = torch.zeros(3, device=device)

    def __call__(self) -> Tensor:
        self.total.add_(1)
        return self.total * 2


def test_each_call_is_one_call_of_the_function(played_graphs: None) -> None:
    adder = Adder()
    call = CapturedFunction(adder, "sums")
    assert [call()[0].item() for _ in range(4)] == [2, 4, 6, 8]
    assert call.captured


def test_a_capture_beforehand_leaves_its_warm_up_to_the_caller(played_graphs: None) -> None:
    adder = Adder()
    call = CapturedFunction(adder, "sums", warm_up=3)
    call.capture()
    assert (adder.total[0], call.captured) == (3, True)
    adder.total.zero_()
    assert call()[0] == 2


@pytest.mark.parametrize("how", ["call", "capture", "try_capture"])
def test_what_cannot_be_captured_is_called_with_one_warning(
    how: str, played_graphs: None, monkeypatch: pytest.MonkeyPatch
) -> None:
    def refuse(self: Any, pool: Any) -> Any:
        raise RuntimeError("CUDA error: operation not permitted\nand more")

    monkeypatch.setattr(CapturedFunction, "_attempt", refuse)
    adder = Adder()
    call = CapturedFunction(adder, "sums")
    told = "^sums could not be captured in a CUDA graph and run eagerly, with equal results: .* not permitted$"
    if how == "capture":
        with pytest.raises(NotCapturedError, match=r"^CUDA error: operation not permitted$"):
            call.capture()
        return
    if how == "try_capture":
        with pytest.warns(UserWarning, match=told):
            assert not call.try_capture()
        adder.total.zero_()
    else:
        assert call()[0] == 2
        with pytest.warns(UserWarning, match=told):
            assert call()[0] == 4
    before = adder.total[0].item()
    assert call()[0] == 2 * (before + 1)
    assert not call.captured


def test_a_function_that_is_not_to_be_captured_is_called(played_graphs: None) -> None:
    call = CapturedFunction(Adder(), "sums", captures=False)
    assert [call()[0].item() for _ in range(3)] == [2, 4, 6]
    assert not call.captured


@pytest.mark.cuda
def test_on_a_device() -> None:
    adder = Adder("cuda")
    call = CapturedFunction(adder, "sums", backward=False)
    assert [call()[0].item() for _ in range(5)] == [2, 4, 6, 8, 10]
    assert call.captured
    read = CapturedFunction(lambda: adder().sum().item(), "reads", backward=False)
    assert read() == 36
    with pytest.warns(UserWarning, match="^reads could not be captured in a CUDA graph and run eagerly"):
        assert read() == 42
    assert read() == 48
