"""Fruit catcher: fruits fall down a grid, a sprite at the bottom moves sideways to catch them.

The game of zhao-kun/rl-grpo, from a description of its rules.
"""

from collections.abc import Callable, Sequence

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, expect_function
from denizen.model import whole

LEFT, STAY, RIGHT = 0, 1, 2


class Field(dz.State):
    """The sprite and the fruits of one world; row 0 is the top. A free slot keeps the place of its last fruit."""

    sprite: Tensor = dz.count()
    x: Tensor = dz.count("slots")
    y: Tensor = dz.count("slots")
    active: Tensor = dz.mask("slots")
    caught: Tensor = dz.count()
    missed: Tensor = dz.count()

    @property
    def score(self) -> Tensor:
        """Fruits caught less fruits missed in this life: int32 `[]`."""
        return self.caught - self.missed


Reward = Callable[[Field, Field], Tensor]
"""From the state before a step and the one after it: float32 `[]`."""


def score_change(before: Field, now: Field) -> Tensor:
    """By how much the score changed."""
    return (now.score - before.score).to(torch.float32)


def original_reward(before: Field, now: Field) -> Tensor:
    """The reward of the original, for comparison: a miss costs half, and every step pays 0.04."""
    change = score_change(before, now)
    landed = now.caught + now.missed
    rate = now.caught / landed.clamp(min=1)
    first = 0.1 * now.score + 0.5 * torch.expm1(rate) + 0.05
    later = (change.clamp(min=0) + 0.5 * change.clamp(max=0) - 0.01 + 0.05).clamp(-2, 2)
    return torch.where(before.time.step == 0, first, later)


class Fruits(dz.Env):
    """Move left (0), stay (1) or move right (2); +1 for every fruit caught, -1 for every one missed.

    What falls does not depend on what the sprite does: worlds of one number see the same fruits.

    Attributes:
        spawn_prob: probability of an optional fruit in a step that allows one.
        width: columns.
        height: rows; a fruit lands `height` - 1 steps after it appeared.
        sprite_width: columns in which the sprite catches, odd.
        max_fruits: fruits in the air at most.
        min_fruits: fewer are filled up at once, as soon as `min_interval` allows.
        min_interval: rows that the newest fruit must have fallen before another one appears.
        max_steps: steps of a life. They are part of the task, so the last one is terminal; None: no end.
        stop_at_thresholds: end a life when the score reaches `win_score` or `fail_score`.
        win_score: score that wins.
        fail_score: score that loses.
        starts: columns in which a life may start, all as likely; None: those in which the sprite is all inside.
        pays: the reward.
        raw: observe plain numbers, those of free slots stale, as the original does.
        clock: append the share of the life that is left to the observation.
    """

    spawn_prob: Tensor = dz.param(0.5, low=0, high=1, learnable=False, about="probability of an optional fruit")
    width: int = 20
    height: int = 15
    sprite_width: int = 3
    max_fruits: int = 3
    min_fruits: int = 1
    min_interval: int = 5
    max_steps: int | None = 100
    stop_at_thresholds: bool = False
    win_score: int = 30
    fail_score: int = -30
    starts: Sequence[int] | None = None
    pays: Reward = score_change
    raw: bool = False
    clock: bool = False

    def __post_init__(self) -> None:
        super().__post_init__()
        whole("Fruits", "sprite_width", self.sprite_width, 1)
        if self.sprite_width % 2 == 0:
            raise InputError(f"Fruits: sprite_width={self.sprite_width}, expected an odd number: it has a middle")
        whole("Fruits", "max_fruits", self.max_fruits, 1)
        for name, low, high in (
            ("width", max(2, self.sprite_width), None),
            ("height", 2, None),
            ("min_fruits", 0, self.max_fruits),
            ("min_interval", 1, None),
            ("win_score", 1, None),
            ("fail_score", None, -1),
        ):
            whole("Fruits", name, getattr(self, name), low, high)
        if self.max_steps is not None:
            whole("Fruits", "max_steps", self.max_steps, 1, hint=", or None for no end")
        elif self.clock:
            raise InputError("Fruits: clock=True needs max_steps: it tells the share of the steps that are left")
        expect_function("Fruits: pays", self.pays, "before", "now")
        starts = self.start_columns
        if not starts or any(not isinstance(x, int) or not 0 <= x < self.width for x in starts):
            raise InputError(f"Fruits: starts={self.starts!r}, expected columns from 0 to {self.width - 1}")

    @property
    def time_limit(self) -> int | None:
        """The longest life; its last step is terminal as well, which counts."""
        return self.max_steps

    @property
    def half(self) -> int:
        """Columns to each side of the sprite's middle in which it catches."""
        return self.sprite_width // 2

    @property
    def start_columns(self) -> tuple[int, ...]:
        """Columns in which a life may start."""
        if self.starts is None:
            return tuple(range(self.half, self.width - self.half))
        return tuple(self.starts)

    @property
    def action_space(self) -> dz.rl.Discrete:
        """Left, stay, right."""
        return dz.rl.Discrete(3)

    @property
    def observation_space(self) -> dz.rl.Box:
        """The sprite's column, then column, row and presence of each fruit; the share of time left where asked."""
        size = 1 + 3 * self.max_fruits + self.clock
        if self.raw:
            return dz.rl.Box(0.0, float(max(self.width, self.height)), (size,))
        return dz.rl.Box(-1.0, 1.0, (size,))

    def init(self, rng: dz.rng.Rng) -> Field:
        """One fruit in the top row, the sprite in one of the start columns."""
        columns = torch.tensor(self.start_columns, dtype=torch.int32, device=self.spawn_prob.device)
        start = columns[rng.integers("start", 0, len(self.start_columns))][0]
        first = rng.integers("fruit", 0, self.width)
        slots = torch.arange(self.max_fruits, device=first.device)
        zero = torch.zeros_like(start)
        return Field(
            sprite=start,
            x=torch.where(slots == 0, first, 0),
            y=torch.zeros_like(slots),
            active=slots == 0,
            caught=zero,
            missed=zero,
        )

    def step(self, now: Field, action: Tensor, rng: dz.rng.Rng) -> Field:
        """Move, let fall, land, spawn."""
        sprite = (now.sprite + action - 1).clamp(0, self.width - 1)
        y = now.y + now.active
        lands = (now.active != 0) & (y == self.height - 1)
        caught = lands & ((now.x - sprite).abs() <= self.half)
        stays = (now.active != 0) & ~lands

        born = self._born(stays, y, lands.any(), rng)
        columns = rng.on("slots", self.max_fruits).integers("column", 0, self.width)
        return now.replace(
            sprite=sprite,
            x=torch.where(born, columns, now.x),
            y=torch.where(born, 0, y),
            active=stays | born,
            caught=now.caught + caught.sum(),
            missed=now.missed + (lands & ~caught).sum(),
        )

    def _born(self, stays: Tensor, y: Tensor, freed: Tensor, rng: dz.rng.Rng) -> Tensor:
        """Bool `[slots]`: slots that get a new fruit, the lowest-numbered free ones."""
        count = stays.sum()
        newest = torch.where(stays, y, self.height).amin()  # of no fruit: as far down as can be
        gate = (count == 0) | (newest >= self.min_interval)
        forced = (self.min_fruits - count).clamp(min=0)
        chance = rng.bernoulli("spawn", self.spawn_prob)[0] != 0  # drawn in every step, used or not
        optional = chance & (forced == 0) & ~freed & (count < self.max_fruits)
        new = torch.where(gate, forced + optional, 0)
        return ~stays & ((~stays).cumsum(0) <= new)

    def observe(self, now: Field) -> Tensor:
        """Float32 `[1 + 3 slots]`, one more with the clock; empty slots are exactly 0 unless `raw`."""
        if self.raw:
            sprite, x, y = (value.to(torch.float32) for value in (now.sprite, now.x, now.y))
        else:
            # Products: what CUDA makes of a quotient by a number, and then the same bits everywhere.
            across, down, there = 2 / (self.width - 1), 2 / (self.height - 1), now.active != 0
            sprite = now.sprite * across - 1
            x = torch.where(there, now.x * across - 1, 0.0)
            y = torch.where(there, now.y * down - 1, 0.0)
        parts = [sprite[None], torch.stack([x, y, now.active.to(torch.float32)], dim=-1).flatten()]
        if self.clock:
            assert self.max_steps is not None
            parts.append(1 - now.time.step.to(torch.float32)[None] * (1 / self.max_steps))
        return torch.cat(parts)

    def reward(self, before: Field, action: Tensor, now: Field) -> Tensor:
        """What `pays` says."""
        return self.pays(before, now)

    def terminated(self, now: Field) -> Tensor:
        """The steps are over, or the score has reached a threshold where that counts."""
        over = torch.zeros((), dtype=torch.bool, device=now.score.device)
        if self.max_steps is not None:
            over = over | (now.time.step >= self.max_steps)
        if self.stop_at_thresholds:
            over = over | (now.score >= self.win_score) | (now.score <= self.fail_score)
        return over

    @dz.series
    def caught(self, before: Field, now: Field) -> Tensor:
        """Fruits caught in the step."""
        return now.caught - before.caught

    @dz.series
    def missed(self, before: Field, now: Field) -> Tensor:
        """Fruits missed in the step."""
        return now.missed - before.missed

    def in_place(self, device: torch.device, max_resets: int) -> dz.model.InPlace | None:
        """A step of many worlds as one operation, where each world has one life and pays the change of its score."""
        if type(self) is not Fruits:  # what a subclass does otherwise, the operation knows nothing of
            return None
        from denizen.zoo.fruits._fast import in_place

        return in_place(self, device, max_resets)

    def draw(self, now: Field) -> list[str]:
        """The grid: `o` fruits, `=` the sprite."""
        rows = [[" "] * self.width for _ in range(self.height)]
        middle = int(now.sprite)
        for x in range(max(0, middle - self.half), min(self.width, middle + self.half + 1)):
            rows[-1][x] = "="
        for x, y, active in zip(now.x.tolist(), now.y.tolist(), now.active.tolist(), strict=True):
            if active:
                rows[y][x] = "o"
        edge = "+" + "-" * self.width + "+"
        status = f"step {int(now.time.step)}  score {int(now.score):+d}  caught {int(now.caught)}"
        return [edge, *["|" + "".join(row) + "|" for row in rows], edge, status]
