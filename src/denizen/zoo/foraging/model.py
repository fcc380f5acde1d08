"""Foraging on a torus with food and poison; the rules of FIM43-Redeye/goodharts_law, from a description of them."""

import dataclasses
from collections.abc import Collection, Mapping
from typing import Any

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import InPlace, number, one_of, whole
from denizen.zoo._picture import BLUE, GREEN, PAPER, RED
from denizen.zoo.foraging.grid import Bits, cells, draw_empty, draws_for, flipped, scattered, windows
from denizen.zoo.foraging.modes import MODES, Mode, Outcome

LIFETIMES = ("persist", "life")
CELL, SEEN = 3, (225, 230, 240)  # of pictures: pixels of a cell, colour of what is seen


class Plot(dz.State):
    """One world and its agent."""

    planes: Tensor = dataclasses.field(metadata={"kind": Bits(axes=("planes", "rows", "words"))})
    taken: Tensor = dz.count("rows")
    foods: Tensor = dz.count()
    poisons: Tensor = dz.count()
    x: Tensor = dz.count()
    y: Tensor = dz.count()
    energy: Tensor = dz.real()
    ate_food: Tensor = dz.mask()
    ate_poison: Tensor = dz.mask()
    food: Tensor = dz.count()
    poison: Tensor = dz.count()
    last_steps: Tensor = dz.count()
    last_food: Tensor = dz.count()
    last_poison: Tensor = dz.count()


class Foraging(dz.Env):
    """Eight moves. Food gives energy, poison takes it, every step costs some, and without energy the agent dies.

    Attributes:
        food_share: of the food that is drawn for a world, rounded; what may differ between worlds or change with a
            training, where it holds from the next world on, thus with `grid_lifetime="life"`.
        poison_share: the same for poison.
        mode: what the agent sees, what it is paid for, whether it can die.
        height: rows of the torus.
        width: columns.
        food_range: fewest and most food, drawn uniformly for every world; what is eaten grows again elsewhere.
        poison_range: the same for poison.
        steps: time limit of a life; None: none.
        grid_lifetime: ``"persist"``: a world keeps its items when a life ends, and the agent moves; ``"life"``: every
            life has a world of its own.
        start_energy: of a life.
        move_cost: energy for every step.
        food_energy: that food gives.
        poison_energy: that poison takes.
        view_radius: cells seen to each side.
        max_move: cells that a move may go in each direction, at the same cost.
    """

    food_share: Tensor = dz.param(1.0, low=0, high=1, learnable=False, about="share of the food drawn for a world")
    poison_share: Tensor = dz.param(1.0, low=0, high=1, learnable=False, about="share of the poison drawn for a world")
    mode: Mode = MODES["ground_truth"]
    height: int = 128
    width: int = 128
    food_range: tuple[int, int] = (64, 256)
    poison_range: tuple[int, int] = (64, 256)
    steps: int | None = 512
    grid_lifetime: str = "persist"
    start_energy: float = 1.0
    move_cost: float = 0.01
    food_energy: float = 1.0
    poison_energy: float = 2.0
    view_radius: int = 5
    max_move: int = 1

    def __post_init__(self) -> None:
        super().__post_init__()
        if not isinstance(self.mode, Mode):
            raise InputError(f"Foraging: mode={self.mode!r}, expected a Mode such as MODES['proxy']")
        for name, low, high in (
            ("height", 2, 32_000),
            ("width", 2, 32_000),
            ("view_radius", 1, 7),
            ("max_move", 1, None),
        ):
            whole("Foraging", name, getattr(self, name), low, high)
        if self.steps is not None:
            whole("Foraging", "steps", self.steps, 1, hint=", or None for no limit")
        one_of("Foraging", "grid_lifetime", self.grid_lifetime, LIFETIMES)
        for name in ("start_energy", "move_cost", "food_energy", "poison_energy"):
            number("Foraging", name, getattr(self, name), 0, 1_000_000)
        self._ranges()

    def _ranges(self) -> None:
        for name in ("food_range", "poison_range"):
            value: Any = getattr(self, name)
            pair = isinstance(value, tuple | list) and len(value) == 2 and all(type(n) is int for n in value)
            if not pair or not 0 <= value[0] <= value[1]:
                raise InputError(f"Foraging: {name}={value!r}, expected (fewest, most), two whole numbers")
        if self.most_items > self.height * self.width - 2:
            raise InputError(
                f"Foraging: up to {self.most_items} items on {self.height} x {self.width} cells; the agent and what "
                f"grows again need two that are empty"
            )

    @property
    def most_items(self) -> int:
        """Food and poison that a world may have."""
        return self.food_range[1] + self.poison_range[1]

    @property
    def time_limit(self) -> int | None:
        """Steps after which a life is cut off."""
        return self.steps

    @property
    def action_space(self) -> dz.rl.Discrete:
        """Moves in the order of (dx, dy), from the lowest to the highest, without (0, 0)."""
        return dz.rl.Discrete((2 * self.max_move + 1) ** 2 - 1)

    @property
    def view_size(self) -> int:
        """Side of the square that is seen."""
        return 2 * self.view_radius + 1

    @property
    def observation_space(self) -> dz.rl.Box:
        """Bit x of row y of plane 0 says food, of plane 1 poison, in every mode: int16 `[2, size]`."""
        return dz.rl.Box(0, 2**self.view_size - 1, (2, self.view_size), torch.int16)

    def init(self, rng: dz.rng.Rng) -> Plot:
        """A fresh world: numbers of items, food, poison, then the agent, all on different cells."""
        foods = self._drawn(rng, "foods", self.food_range, self.food_share)
        poisons = self._drawn(rng, "poisons", self.poison_range, self.poison_share)
        size = self.height * self.width
        draws = draws_for(self.most_items, size)
        if draws < size // 2:
            order = rng.on("draws", draws).integers("cells", 0, size)
        else:
            order = rng.on("cells", size).permutation("cells")
        planes, taken = scattered(order, foods, poisons, self.height, self.width)
        zero = torch.zeros_like(foods)
        fresh = Plot(
            planes=planes,
            taken=taken,
            foods=foods,
            poisons=poisons,
            x=zero,
            y=zero,
            energy=torch.full_like(zero, self.start_energy, dtype=torch.float32),
            ate_food=zero,
            ate_poison=zero,
            food=zero,
            poison=zero,
            last_steps=zero,
            last_food=zero,
            last_poison=zero,
        )
        return self._placed(fresh, rng)

    @staticmethod
    def _drawn(rng: dz.rng.Rng, name: str, bounds: tuple[int, int], share: Tensor) -> Tensor:
        """How many of an item a world has."""
        number = rng.integers(name, bounds[0], bounds[1] + 1)[0]
        return (number * share).round().to(number.dtype)

    def reset(self, ended: Plot, rng: dz.rng.Rng) -> Plot:
        """The next life: in a new world, or in the same world at another place."""
        last = {"last_steps": ended.time.step, "last_food": ended.food, "last_poison": ended.poison}
        if self.grid_lifetime == "life":
            return self.init(rng).replace(**last)
        zero = torch.zeros_like(ended.x)
        fresh = ended.replace(
            energy=torch.full_like(ended.energy, self.start_energy),
            ate_food=zero,
            ate_poison=zero,
            food=zero,
            poison=zero,
            **last,
        )
        return self._placed(fresh, rng)

    def _placed(self, plot: Plot, rng: dz.rng.Rng) -> Plot:
        """The agent on an empty cell."""
        word = rng.integers("place", 0, 2**31)[0]
        nowhere = torch.full_like(word, -1)
        y, x = draw_empty(plot.planes, plot.taken.to(torch.int64), self.width, word, nowhere, nowhere)
        return plot.replace(y=y, x=x)

    def step(self, now: Plot, action: Tensor, rng: dz.rng.Rng) -> Plot:
        """Move, pay for it, eat what is there; what was eaten grows again on an empty cell."""
        side = 2 * self.max_move + 1
        jump = action + (action >= side * side // 2)  # over (0, 0)
        x = (now.x.to(torch.int64) + jump // side - self.max_move) % self.width
        y = (now.y.to(torch.int64) + jump % side - self.max_move) % self.height
        ate_food, ate_poison = cells(now.planes, y[None], x[None]).flatten().unbind()
        change = 0.0 if self.mode.frozen else 1.0
        energy = now.energy - change * self.move_cost
        energy = energy + change * self.food_energy * ate_food
        energy = energy - change * self.poison_energy * ate_poison

        ate = ate_food + ate_poison
        taken = now.taken.scatter_add(0, y[None], -ate[None])
        word = rng.integers("grow", 0, 2**31)[0]
        row, column = draw_empty(now.planes, taken.to(torch.int64), self.width, word, y, x)
        rows, columns, signs = torch.stack([y, row]), torch.stack([x, column]), torch.stack([-ate, ate])
        return now.replace(
            planes=flipped(now.planes, ate_poison.to(torch.int64).expand(2), rows, columns, signs),
            taken=taken.scatter_add(0, row[None], ate[None]),
            x=x,
            y=y,
            energy=energy,
            ate_food=ate_food,
            ate_poison=ate_poison,
            food=now.food + ate_food,
            poison=now.poison + ate_poison,
        )

    def observe(self, now: Plot) -> Tensor:
        """The square around the agent, packed: int16 `[2, size]`."""
        around = torch.arange(-self.view_radius, self.view_radius + 1, device=now.planes.device)
        rows, columns = (now.y + around) % self.height, (now.x + around) % self.width
        return windows(now.planes, rows, columns, self.width).to(torch.int16)

    def unpacked(self, observation: Tensor) -> Tensor:
        """Food and poison as seen: float32 `[rows, 2, size, size]`, row y, column x, the agent in the middle."""
        place = torch.arange(self.view_size, dtype=torch.int16, device=observation.device)
        return ((observation[..., None] >> place) & 1).to(torch.float32)

    def network_input(self, observation: Tensor) -> Tensor:
        """What the mode's view shows: float32 `[rows, 2, size, size]`."""
        return self.mode.view(self.unpacked(observation))

    def privileged(self, now: Plot) -> Tensor:
        """The world's numbers of food and poison, by the middle and half the width of their ranges: float32 `[2]`."""
        numbers = zip((now.foods, now.poisons), self._scales, strict=True)
        return torch.stack([(number - middle) * scale for number, (middle, scale) in numbers])

    @property
    def _scales(self) -> list[tuple[float, float]]:
        """Middle and inverse half width of the ranges of items. Quotients differ between devices, products do not."""
        return [((low + high) / 2, 2 / ((high - low) or 2)) for low, high in (self.food_range, self.poison_range)]

    def privileged_input(self, observation: Tensor, privileged: Tensor | None) -> Tensor:
        """The numbers of items, and the true types of what is seen, in every mode: float32 `[rows, 2 + 2 size^2]`."""
        assert privileged is not None
        return torch.cat([privileged, self.unpacked(observation).flatten(1)], dim=-1)

    def reward(self, before: Plot, action: Tensor, now: Plot) -> Tensor:
        """What the mode pays."""
        return self.mode.pay(
            Outcome(now.ate_food, now.ate_poison, self.terminated(now), self._near(before), self._near(now))
        )

    def _near(self, now: Plot) -> Tensor:
        """Closeness of food in the view: 0.5 / (d + 0.5), d the distance in cells to the nearest; 0 without food."""
        food = self.unpacked(self.observe(now)[None])[0, 0]
        return (food * self._nearness(food.device)).amax()

    def _nearness(self, device: torch.device) -> Tensor:
        """0.5 / (d + 0.5) of each cell of the view: float32 `[size, size]`."""
        around = torch.arange(-self.view_radius, self.view_radius + 1, device=device)
        distance = torch.hypot(around[:, None].to(torch.float32), around[None, :].to(torch.float32))
        return 0.5 / (distance + 0.5)

    def terminated(self, now: Plot) -> Tensor:
        """Out of energy."""
        return now.energy <= 0

    @dz.series
    def food(self, before: Plot, now: Plot) -> Tensor:
        """Food eaten in the step."""
        return now.ate_food

    @dz.series
    def poison(self, before: Plot, now: Plot) -> Tensor:
        """Poison eaten in the step."""
        return now.ate_poison

    @dz.series
    def deaths(self, before: Plot, now: Plot) -> Tensor:
        """Whether the step ended a life by hunger or poison."""
        return self.terminated(now).to(torch.int8)

    def measures(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """Share of food in what was eaten, and the reward for each item eaten; NaN where nothing was."""
        eaten = sums["food"] + sums["poison"]
        eaten = torch.where(eaten > 0, eaten, torch.nan)
        return {"food_ratio": sums["food"] / eaten, "reward_per_consumed": sums["reward"] / eaten}

    def check_changing(self, names: Collection[str]) -> None:
        """See `Env`; shares hold from the beginning of a world."""
        if names and self.grid_lifetime != "life":
            raise InputError(
                f"Foraging: {' and '.join(names)} cannot change with a training where a world keeps its items from "
                f"life to life (grid_lifetime={self.grid_lifetime!r}); set grid_lifetime='life', a world for each life"
            )

    def in_place(self, device: torch.device, max_resets: int) -> InPlace | None:
        """A step of many worlds as one operation, on devices with Triton."""
        whole = float(self.food_share) == float(self.poison_share) == 1
        if type(self) is not Foraging or not whole:  # what a subclass does otherwise, the operation knows nothing of
            return None
        from denizen.zoo.foraging._fast import in_place

        return in_place(self, device, max_resets)

    def draw(self, now: Plot) -> Tensor:
        """Food green, poison red, the agent blue in what it sees: uint8 `[3 rows, 3 columns, 3]`."""
        image = torch.tensor(PAPER, dtype=torch.uint8).repeat(self.height, self.width, 1)
        around = torch.arange(-self.view_radius, self.view_radius + 1)
        rows, columns = (int(now.y) + around) % self.height, (int(now.x) + around) % self.width
        image[rows[:, None], columns[None, :]] = torch.tensor(SEEN, dtype=torch.uint8)
        food, poison = cells(now.planes.cpu(), torch.arange(self.height), torch.arange(self.width)).bool()
        image[food] = torch.tensor(GREEN, dtype=torch.uint8)
        image[poison] = torch.tensor(RED, dtype=torch.uint8)
        image[int(now.y), int(now.x)] = torch.tensor(BLUE, dtype=torch.uint8)
        return image.repeat_interleave(CELL, 0).repeat_interleave(CELL, 1)
