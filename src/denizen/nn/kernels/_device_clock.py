"""Laps: how long a part of a captured graph took, told by the device itself, since nobody stands beside it."""

import time

from torch import Tensor

from denizen.ops import variant


def device_clock(last: Tensor, seconds: Tensor) -> bool:
    """Write the time since the last lap, and begin the next one; on CUDA a launch, and no wait.

    Args:
        last: int64 `[1]`: when the last lap ended, in nanoseconds of the device's clock; becomes now.
        seconds: float32 `[1]`: the time since then.

    Returns:
        Whether there is a clock: on CPUs, and on CUDA where Triton runs; else nothing is written.
    """
    if last.device.type == "cuda" and variant(last.device) == "triton":
        from denizen.nn.kernels._cuda_device_clock import launch

        launch(last, seconds)
    elif last.device.type == "cpu":
        now = time.perf_counter_ns()
        seconds.copy_((now - last) * 1e-9)
        last.fill_(now)
    else:
        return False
    return True
