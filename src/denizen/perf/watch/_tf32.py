"""Whether products of float32 may be TF32: asked, and set within a block."""

import contextlib
from collections.abc import Generator
from typing import Any

import torch


def tf32_switch(owner: Any) -> tuple[str, Any]:
    """The attribute of `torch.backends.cuda.matmul` or `torch.backends.cudnn` that may be read; its value for TF32.

    The older switch sets the newer one too, and stays readable; the newer one makes reading the older one an error, so
    it is used only where somebody has begun with it.
    """
    with contextlib.suppress(RuntimeError):
        _ = owner.allow_tf32
        return "allow_tf32", True
    return "fp32_precision", "tf32"


def takes_tf32(owner: Any) -> bool:
    """Whether its products of float32 may be TF32, by whichever switch somebody set."""
    name, value = tf32_switch(owner)
    return bool(getattr(owner, name) == value)


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
