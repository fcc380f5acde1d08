"""Random numbers of learning: actions and shuffles, as pure functions of (seed, replica, stream, step)."""

import torch
from torch import Tensor

from denizen import ops
from denizen.rng import stream_number


class Draws:
    """Counter-based draws for rows of a batch; a replayed graph never repeats them, since the step is on the device.

    Attributes:
        keys: int64 `[rows, 2]` (seed, replica).
    """

    def __init__(self, seed: int, replicas: Tensor) -> None:
        """Args:
        seed: of the run.
        replicas: int64 `[rows]`: numbers that tell rows apart.
        """
        self.keys = torch.stack([torch.full_like(replicas, seed), replicas], dim=1)

    def uniform(self, stream: str, step: Tensor, num: int) -> Tensor:
        """Uniform on (0, 1), never 0 or 1: float32 `[rows, num]`."""
        words = ops.draw_words(self.keys.new_empty(0), num, self.keys, step, stream_number(f"learn/{stream}"))
        return ((words >> 9).to(torch.float32) + 0.5) * 2.0**-23


class Shuffles:
    """Random orders, as pure functions of (seed, number of the shuffle)."""

    def __init__(self, seed: int, device: torch.device) -> None:
        self._key = torch.tensor([[seed, 0]], device=device)

    def order(self, step: Tensor, num: int) -> Tensor:
        """A random order of 0 … num - 1: int64 `[num]`; `step` int64 `[]` is the number of the shuffle."""
        words = ops.draw_words(self._key.new_empty(0), num, self._key, step, stream_number("learn/shuffle"))[0]
        return torch.argsort(words, stable=True)
