"""What an environment may offer beside its step for one world: a step of many worlds that changes their tensors."""

import dataclasses
from collections.abc import Callable
from typing import NamedTuple

from torch import Tensor

from denizen.model._flat_env import Look


class Advanced(NamedTuple):
    """What a step of many worlds gave; the tensors that it was given hold the states after resets.

    Attributes:
        clock: int64 `[]`: steps of the run.
        look: `[worlds, …]`: of the states after resets.
        reward: float32 `[worlds]`; 0 where a world waited.
        terminated: bool `[worlds]`.
        truncated: bool `[worlds]`.
        valid: bool `[worlds]`: the world acted.
        flows: for each series that is a flow, in the order of `Env.all_series`: float32 `[worlds]`.
        final: looks before resets, of the worlds of `final_index`.
        final_index: int64 `[rows]`: those whose lives begin anew first, by position, then others, up to the most that
            may begin anew in a step; all worlds in their order where all may.
    """

    clock: Tensor
    look: Look
    reward: Tensor
    terminated: Tensor
    truncated: Tensor
    valid: Tensor
    flows: dict[str, Tensor]
    final: Look
    final_index: Tensor


@dataclasses.dataclass(frozen=True)
class InPlace:
    """A step of many worlds in place, which gives the bits of the environment's own methods.

    Attributes:
        advance: of (leaves, [age, waiting, faults, waited], clock, keys, action). What it writes, it writes by
            operations of denizen whose schema says so, so that graphs of it can be recorded, compiled and captured.
        checks: labels of the checks on actions, rewards and draws, in the order in which faults number them; a check on
            observations comes after them.
    """

    advance: Callable[[list[Tensor], list[Tensor], Tensor, Tensor, Tensor], Advanced]
    checks: tuple[str, ...]
