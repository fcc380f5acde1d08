"""Rows of a launch: sets of parameters × worlds in one run of a model, or a function of theta and worlds in its place.

Whoever simulates many sets of parameters, to fit them or to look at them, launches them here.
"""

from collections.abc import Iterable, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.model import Model, extent
from denizen.run import simulate

MOST_AGENTS = 1 << 26  # of all rows of a launch together: enough to fill a GPU, and a GiB or two


def at_once(model: Model, most: int = MOST_AGENTS) -> int:
    """Rows of a launch that has at most so many agents in all, at least one."""
    return max(1, most // max(1, extent(model)[0]))


def simulated(
    model: Model, steps: int, worlds: Sequence[int], values: Mapping[str, Tensor], names: Iterable[str], **options: Any
) -> dict[str, Tensor]:
    """Series `[rows, steps, …]` of a model on the CPU, by name.

    Args:
        model: what runs.
        steps: of each row.
        worlds: number of the world of each row.
        values: of parameters, `[rows, …]` by name.
        names: of the series.
        **options: of `simulate`.
    """
    run = simulate(model, steps, worlds=worlds, params=values, **options)
    return {name: run[name].detach().cpu() for name in names}


def called(caller: str, series: Mapping[str, Any], theta: Tensor, steps: int) -> dict[str, Tensor]:
    """What a function gave for theta `[rows, P]`: `[rows, steps, …]` by name, on the CPU.

    Raises:
        ModelError: it has another shape.
    """
    found = {}
    for name, given in series.items():
        try:
            found[name] = values = torch.as_tensor(given).detach().cpu()
        except (TypeError, ValueError, RuntimeError) as error:
            raise ModelError(
                f"{caller}: the function gave {name!r} of type {type(given).__name__}, expected numbers: {error}"
            ) from error
        if values.is_complex():
            raise ModelError(f"{caller}: the function gave {name!r} of {values.dtype}, expected real numbers")
        if values.dim() < 2 or len(values) != len(theta) or values.shape[1] < steps:
            raise ModelError(
                f"{caller}: the function gave {name!r} of shape {tuple(values.shape)} for theta {tuple(theta.shape)}, "
                f"expected [{len(theta)}, {steps}, …]: one row for each row of theta"
            )
    return {name: values[:, :steps] for name, values in found.items()}
