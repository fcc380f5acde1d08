"""How much of a gradient is recomputed, in which pieces, and what is said where memory runs out."""

from typing import Any

import pytest
import torch
from tests.run.test_gradient import made

import denizen as dz
from denizen.errors import CapacityError
from denizen.run import _gradient
from denizen.run._engine import Stepper
from denizen.run._rollout import Cost, Rollout, Schedule, choose


def test_the_choice_follows_the_free_memory(monkeypatch: pytest.MonkeyPatch) -> None:
    cost = Cost(step=100, fresh=10, state=60)
    assert cost.of(20, None) == 20 * 100 + 180
    assert cost.of(20, 5) == 4 * 50 + 5 * 100 + 180
    assert cost.of(20, 10) == 2 * 60 + 10 * 100 + 180
    assert choose(20, cost, 2180) is None
    assert choose(20, cost, 2179) == 8
    assert choose(20, cost, 700) == 3
    assert choose(20, cost, 10) == 1  # nothing fits: what needs least
    whole = made("covid", 24)
    assert "nothing recomputed" in repr(whole)
    monkeypatch.setattr(_gradient, "free_bytes", lambda device: 3.2 * whole.bytes["needed"])
    tight = made("covid", 24)
    assert tight.checkpoint == 12
    assert "12 steps recomputed together" in repr(tight)
    assert torch.equal(whole(), tight())
    monkeypatch.setattr(_gradient, "free_bytes", lambda device: 1000)
    with pytest.raises(dz.errors.CapacityError, match=r"24 steps need about .* free on cpu; lower replicates or steps"):
        made("covid", 24)


@pytest.mark.parametrize(("steps", "block"), [(23, None), (23, 8), (23, 5), (3, None), (8, 8), (9, 6), (1, 1)])
def test_pieces_have_at_most_two_lengths(steps: int, block: int | None) -> None:
    blocks = list(Schedule.of(steps, block).blocks())
    assert sum(map(sum, blocks)) == steps
    assert all(sum(lengths) == block for lengths in blocks[:-1])
    assert len({length for lengths in blocks for length in lengths}) <= 2


def test_memory_that_runs_out_is_explained(monkeypatch: pytest.MonkeyPatch) -> None:
    def fails(*args: Any) -> Any:
        raise torch.OutOfMemoryError("CUDA out of memory. Tried to allocate 2.00 GiB.")

    gradient = made("sir", checkpoint=4)
    before = gradient()
    with monkeypatch.context() as patched:
        patched.setattr(Rollout, "run", fails)
        words = r"in its steps: 11 steps × 1 replicates, checkpoint=4; estimated were step .*needed .*lower checkpoint"
        with pytest.raises(CapacityError, match=words):
            gradient()
    assert torch.equal(gradient(), before)
    monkeypatch.setattr(Stepper, "start", fails)
    with pytest.raises(CapacityError, match="out of memory on cpu in its first step"):
        made("sir")
