"""torch's Adam without torch's compiler, which its first use would load (2 s)."""

import inspect
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor


class Adam(torch.optim.Adam):
    """`torch.optim.Adam` to the bit. What torch keeps its compiler out of is called without asking the compiler."""

    add_param_group = inspect.unwrap(torch.optim.Adam.add_param_group)
    zero_grad = inspect.unwrap(torch.optim.Adam.zero_grad)
    state_dict = inspect.unwrap(torch.optim.Adam.state_dict)
    load_state_dict = inspect.unwrap(torch.optim.Adam.load_state_dict)

    @torch.no_grad()
    def step(self, closure: Any = None) -> Any:
        """One step."""
        return _STEP(self, closure)


_STEP: Callable[..., Any] = inspect.unwrap(torch.optim.Adam.step)


def optimizer_of(kind: Callable[..., Any], params: list[Tensor], lr: float) -> Any:
    """What a function of parameters and ``lr=`` makes, such as a class of `torch.optim`."""
    return (Adam if kind is torch.optim.Adam else kind)(params, lr=lr)
