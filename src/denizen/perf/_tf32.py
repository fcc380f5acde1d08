"""Whether products of float32 may be TF32, within a block."""

import contextlib
from collections.abc import Generator
from typing import Any

import torch

from denizen.ops._library import tf32_switch


@contextlib.contextmanager
def tf32(allowed: bool, *owners: Any) -> Generator[None]:
    """Set it for owners of a switch: `torch.backends.cuda.matmul`, `torch.backends.cudnn`; put back after the block.

    What runs there may call `torch.set_float32_matmul_precision`, which reaches the CPU's products as well. They are
    put back too: torch refuses to tell a precision that the CPU's and the GPU's do not share.
    """
    switches = [(owner, tf32_switch(owner)[0]) for owner in owners]
    cpu: Any = torch.backends.mkldnn
    settings = [*switches, (cpu.matmul, "fp32_precision")]
    kept = [(owner, name, getattr(owner, name)) for owner, name in settings]
    try:
        for owner, name in switches:
            setattr(owner, name, allowed if name == "allow_tf32" else "tf32" if allowed else "ieee")
        yield
    finally:
        for owner, name, before in kept:
            setattr(owner, name, before)
