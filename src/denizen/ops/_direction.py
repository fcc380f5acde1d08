"""Push or pull: which way a sum over neighbours goes on CUDA. The result is the same."""

from collections.abc import Iterator
from contextlib import contextmanager
from typing import NamedTuple

from torch import Tensor

from denizen.errors import InputError

PUSH, PULL, BY_TRAFFIC = 0, 1, 2
SAMPLE = 32  # one block of agents in so many is counted
SWITCH = 0.5  # senders that cost as much as one receiver, unless measured

_chosen: str | float | None = None


class Traffic(NamedTuple):
    """How many agents are active and eligible, in a sample of blocks.

    Attributes:
        seen: int32 `[worlds, 4]`, contiguous: active and eligible the time before; decides the way.
        seeing: the same, zeros: filled for the next time.
        switch: pull where active > switch * eligible.
    """

    seen: Tensor
    seeing: Tensor
    switch: float


@contextmanager
def direction(chosen: str | float | None) -> Iterator[None]:
    """Within this context sums of counts and of bounded real values on CUDA go as told; changes no bit.

    Graphs recorded earlier stay as they are.

    Args:
        chosen: ``"push"``, ``"pull"``, a number to switch at (pull where active senders > number × eligible receivers),
            or None to switch where it was measured to pay.

    Raises:
        InputError: for anything else.
    """
    global _chosen
    number = isinstance(chosen, int | float) and not isinstance(chosen, bool) and chosen >= 0
    if chosen not in ("push", "pull", None) and not number:
        raise InputError(f"direction: {chosen!r}, expected 'push', 'pull', a number of at least 0, or None")
    before, _chosen = _chosen, chosen
    try:
        yield
    finally:
        _chosen = before


def way(traffic: Traffic | None) -> tuple[int, float]:
    """(PUSH, PULL or BY_TRAFFIC; where to switch)."""
    if _chosen == "pull":
        return PULL, 0.0
    if _chosen == "push" or traffic is None:
        return PUSH, 0.0
    return BY_TRAFFIC, traffic.switch if _chosen is None else float(_chosen)
