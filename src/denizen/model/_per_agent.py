"""Logic written for a single agent, used inside a step for all agents."""

import warnings
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError

_fallbacks = 0


class OneWorldAtATimeError(ModelError):
    """A step cannot run for several worlds at once; the engine then runs them one after another."""


def per_agent(function: Callable[..., Any]) -> Callable[..., Any]:
    """Turn a function of one agent's values (0-d tensors) into one of all agents' (`[agents]` tensors).

    Runs through `torch.vmap`. A function that vmap cannot run, because it branches on a value for example, is called
    once for each agent instead, with one warning; both ways give the same bits. Randomness is drawn outside and passed
    in.

    Args:
        function: of 0-d tensors, returning a tensor or a tuple of tensors of fixed shape.

    Examples:
        >>> halve = per_agent(lambda x: x / 2)
        >>> halve(torch.tensor([2.0, 4.0]))
        tensor([1., 2.])
    """
    use_loop = False

    def over_agents(*values: Tensor) -> Any:
        nonlocal use_loop
        if not use_loop:
            try:
                return torch.vmap(function)(*values)
            except (RuntimeError, NotImplementedError) as error:
                if torch.compiler.is_compiling():
                    raise
                use_loop = True
                name = getattr(function, "__name__", "function")
                warnings.warn(
                    f"per_agent({name}): vmap cannot run it ({str(error).splitlines()[0]}); it is called once for each "
                    f"agent, which is slow: replace branches on values by torch.where",
                    stacklevel=2,
                )
        if any(torch._C._functorch.is_batchedtensor(value) for value in values):
            raise OneWorldAtATimeError("per_agent: a loop over agents needs one world at a time")
        return _loop(function, values)

    return over_agents


def per_agent_fallbacks() -> int:
    """Number of times a loop over agents stood in for vmap in this process."""
    return _fallbacks


def _loop(function: Callable[..., Any], values: tuple[Tensor, ...]) -> Any:
    global _fallbacks
    _fallbacks += 1
    results = [function(*row) for row in zip(*values, strict=True)]
    if isinstance(results[0], tuple):
        return tuple(torch.stack(column) for column in zip(*results, strict=True))
    return torch.stack(results)
