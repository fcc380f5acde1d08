"""Pictures of foraging worlds for people."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from denizen.zoo._picture import BLUE, GREEN, PAPER, RED
from denizen.zoo.foraging.grid import cells

if TYPE_CHECKING:
    from denizen.zoo.foraging.model import Foraging, Plot

CELL = 3  # pixels
SEEN = (225, 230, 240)


def picture(env: "Foraging", now: "Plot") -> Tensor:
    """Food green, poison red, the agent blue in the square that it sees: uint8 `[3 rows, 3 columns, 3]`."""
    image = torch.tensor(PAPER, dtype=torch.uint8).repeat(env.height, env.width, 1)
    around = torch.arange(-env.view_radius, env.view_radius + 1)
    rows, columns = (int(now.y) + around) % env.height, (int(now.x) + around) % env.width
    image[rows[:, None], columns[None, :]] = torch.tensor(SEEN, dtype=torch.uint8)
    food, poison = cells(now.planes.cpu(), torch.arange(env.height), torch.arange(env.width)).bool()
    image[food] = torch.tensor(GREEN, dtype=torch.uint8)
    image[poison] = torch.tensor(RED, dtype=torch.uint8)
    image[int(now.y), int(now.x)] = torch.tensor(BLUE, dtype=torch.uint8)
    return image.repeat_interleave(CELL, 0).repeat_interleave(CELL, 1)
