"""How long the device takes for what the host launches."""

from collections.abc import Callable

import torch

LAUNCHING = 1_000_000  # cycles, about 0.6 ms, for which the device waits while the host launches


def device_ms(launch: Callable[[], object]) -> float:
    """Milliseconds that the current CUDA device takes for what `launch` launches; the host waits until it is done.

    The device is held until all is launched: a launch takes as long as a sum over the neighbours of a million agents,
    and the host's part varies.
    """
    before, after = (torch.cuda.Event(enable_timing=True) for _ in range(2))
    torch.cuda._sleep(LAUNCHING)
    before.record()
    launch()
    after.record()
    after.synchronize()
    return before.elapsed_time(after)
