"""Small pictures of worlds for people: uint8 `[height, width, 3]`, drawn on the host from saved states."""

from collections.abc import Sequence

import torch
from torch import Tensor

Colour = tuple[int, int, int]
PAPER: Colour = (245, 245, 240)
INK: Colour = (60, 60, 60)
RED: Colour = (200, 60, 50)
BLUE: Colour = (50, 90, 180)
GREEN: Colour = (60, 150, 80)


class Sketch:
    """A picture with coordinates of its own: x to the right, y upwards.

    Attributes:
        pixels: uint8 `[height, width, 3]`.
    """

    def __init__(self, height: int, width: int, low: tuple[float, float], high: tuple[float, float]) -> None:
        """Args:
        height: in pixels.
        width: in pixels.
        low: (x, y) of the lower left corner.
        high: (x, y) of the upper right corner.
        """
        self.pixels = torch.tensor(PAPER, dtype=torch.uint8).repeat(height, width, 1)
        self._x = (low[0] + (torch.arange(width) + 0.5) / width * (high[0] - low[0]))[None, :]
        self._y = (high[1] - (torch.arange(height) + 0.5) / height * (high[1] - low[1]))[:, None]

    def line(self, start: Sequence[float], end: Sequence[float], width: float, colour: Colour = INK) -> None:
        """A line with round ends; a disc where both ends are one point."""
        (x, y), (dx, dy) = start, (end[0] - start[0], end[1] - start[1])
        along = ((self._x - x) * dx + (self._y - y) * dy) / max(dx * dx + dy * dy, 1e-12)
        along = along.clamp(0, 1)
        distance = torch.hypot(self._x - x - along * dx, self._y - y - along * dy)
        self.pixels[distance <= width / 2] = torch.tensor(colour, dtype=torch.uint8)

    def disc(self, at: Sequence[float], radius: float, colour: Colour = INK) -> None:
        """A filled circle."""
        self.line(at, at, 2 * radius, colour)


def tiles(planes: Sequence[tuple[Tensor, Colour]], size: int = 8, ground: Colour = (0, 0, 0)) -> Tensor:
    """Planes of 0 and 1 `[rows, columns]`, each with its colour, as a picture of squares; later ones lie on top."""
    rows, columns = planes[0][0].shape
    picture = torch.tensor(ground, dtype=torch.uint8).repeat(rows, columns, 1)
    for plane, colour in planes:
        picture[plane.cpu() != 0] = torch.tensor(colour, dtype=torch.uint8)
    return picture.repeat_interleave(size, 0).repeat_interleave(size, 1)
