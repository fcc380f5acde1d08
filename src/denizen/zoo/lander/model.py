"""A lander comes down between hills on two engines, by the rules of Gymnasium's LunarLander-v3 but for its contacts."""

import math

import torch
from torch import Tensor

import denizen as dz
from denizen.zoo._picture import BLUE, INK, RED, Sketch
from denizen.zoo.lander import body

WIDTH, HEIGHT, SECONDS, PARTS = 20.0, 600 / 45, 1 / 50, 4
GRAVITY, PUSH, MAIN, SIDE = -10.0, 1000.0, 13.0, 0.6
CHUNKS, PAD = 11, HEIGHT / 4
STIFF, DAMP, MOST, FRICTION = 1200.0, 100.0, 47.0, 0.3  # of a leg: force a length and a speed, most of it, of sliding
LAG = -0.113  # turning for a speed to the right: a push on the hull lets the legs swing back (read off Gymnasium)
STILL, TURNS, REST = 0.1, 2 * math.pi / 180, 25  # speeds of a body at rest, as on slopes legs creep; steps of it


class Flight(dz.State):
    """The hull's origin, angle to the left, speeds of the centre of mass, and the ground; legs that touch it."""

    x: Tensor = dz.real()
    y: Tensor = dz.real()
    angle: Tensor = dz.real()
    speed_x: Tensor = dz.real()
    speed_y: Tensor = dz.real()
    turn: Tensor = dz.real()
    touching: Tensor = dz.mask("legs")
    crashed: Tensor = dz.mask()
    resting: Tensor = dz.count()
    fuel: Tensor = dz.real()
    ground: Tensor = dz.real("places")


class Lander(dz.Env):
    """Nothing (0), left engine (1), main engine (2), right engine (3); or two numbers: main and side engine.

    Attributes:
        continuous: actions are two numbers from -1 to 1. The main engine works from 0 on, with half to full power; the
            side engines beyond -0.5 and 0.5.
    """

    continuous: bool = False

    time_limit = 1_000
    observation_space = dz.rl.Box(-math.inf, math.inf, (8,))

    @property
    def action_space(self) -> dz.rl.Discrete | dz.rl.Box:
        """Four choices, or two numbers."""
        return dz.rl.Box(-1.0, 1.0, (2,)) if self.continuous else dz.rl.Discrete(4)

    def init(self, rng: dz.rng.Rng) -> Flight:
        """At the top, pushed anywhere, over hills with a flat pad in the middle; one step has passed."""
        push = rng.on("push", 2).uniform("push", -PUSH, PUSH)
        height = rng.on("hills", CHUNKS + 1).uniform("height", 0.0, HEIGHT / 2)
        place = torch.arange(CHUNKS + 1, device=push.device)
        height = torch.where((place - CHUNKS // 2).abs() <= 2, PAD, height)
        ground = 0.33 * (height.roll(1) + height + height.roll(-1))[:CHUNKS]
        zero = torch.zeros_like(push[0])
        speed = push * SECONDS / body.MASS
        no = torch.zeros(2, dtype=torch.int8, device=push.device)
        start = Flight(
            x=zero + WIDTH / 2,
            y=zero + HEIGHT,
            angle=zero,
            speed_x=speed[0],
            speed_y=speed[1],
            turn=LAG * speed[0],
            touching=no,
            crashed=no[0],
            resting=no[0].to(torch.int32),
            fuel=zero,
            ground=ground,
        )
        return _moved(start)

    def step(self, now: Flight, action: Tensor, rng: dz.rng.Rng) -> Flight:
        """Engines push, then a fiftieth of a second passes."""
        scatter = rng.on("engines", 2).uniform("scatter", -1.0, 1.0) / body.SCALE
        if self.continuous:
            given = action.clamp(-1, 1)
            main = torch.where(given[0] > 0, 0.5 + 0.5 * given[0], 0.0)
            side = torch.where(given[1].abs() > 0.5, given[1].abs(), 0.0)
            way = given[1].sign()
        else:
            main, side = (action == 2).to(torch.float32), (action % 2 == 1).to(torch.float32)
            way = (action - 2).to(torch.float32)
        sin, cos = now.angle.sin(), now.angle.cos()
        down, along = 4 / body.SCALE + 2 * scatter[0], scatter[1]
        x, y = sin * down - cos * along, -cos * down - sin * along
        now = _pushed(now, x, y, -MAIN * main * x, -MAIN * main * y)
        along = 3 * scatter[1] + way * 12 / body.SCALE
        x, y = sin * scatter[0] - cos * along, -cos * scatter[0] - sin * along
        # By the published rules the engines sit where the angle puts them: 17 and 14 are not the same lever.
        high, wide = y + cos * 14 / body.SCALE, x - sin * 17 / body.SCALE
        now = _pushed(now, wide, high, -SIDE * side * x, -SIDE * side * y)
        return _moved(now).replace(fuel=0.3 * main + 0.03 * side)

    def observe(self, now: Flight) -> Tensor:
        """Place from the pad, speed, angle, turning, and whether each leg touches the ground: float32 `[8]`."""
        lever = body.HULL_CENTRE[1] - body.CENTRE[1]
        speed_x = now.speed_x - now.turn * lever * now.angle.cos()
        speed_y = now.speed_y - now.turn * lever * now.angle.sin()
        numbers = [
            (now.x - WIDTH / 2) / (WIDTH / 2),
            (now.y - (PAD + body.LEG_DOWN)) / (HEIGHT / 2),
            speed_x * (WIDTH / 2) * SECONDS,
            speed_y * (HEIGHT / 2) * SECONDS,
            now.angle,
            20 * now.turn * SECONDS,
        ]
        return torch.cat([torch.stack(numbers), now.touching.to(torch.float32)])

    def reward(self, before: Flight, action: Tensor, now: Flight) -> Tensor:
        """What the step brought towards standing on the pad, less fuel; -100 for a crash, 100 for having landed."""
        moved = self._worth(now) - self._worth(before) - now.fuel
        return torch.where(self._landed(now), 100.0, torch.where(self._lost(now), -100.0, moved))

    def terminated(self, now: Flight) -> Tensor:
        """Crashed, out of sight to a side, or at rest."""
        return self._lost(now) | self._landed(now)

    def _worth(self, now: Flight) -> Tensor:
        x, y, speed_x, speed_y, angle, _, left, right = self.observe(now).unbind()
        return 10 * (left + right) - 100 * (torch.hypot(x, y) + torch.hypot(speed_x, speed_y) + angle.abs())

    def _lost(self, now: Flight) -> Tensor:
        return (now.crashed != 0) | ((now.x - WIDTH / 2).abs() >= WIDTH / 2)

    def _landed(self, now: Flight) -> Tensor:
        return now.resting >= REST

    def draw(self, now: Flight) -> Tensor:
        """Hills, pad, hull and legs."""
        picture = Sketch(160, 240, (0.0, 0.0), (WIDTH, HEIGHT))
        ground = now.ground.tolist()
        for place in range(CHUNKS - 1):
            left, right = ((WIDTH / (CHUNKS - 1) * k, ground[k]) for k in (place, place + 1))
            picture.line(left, right, 0.15, RED if abs(place - CHUNKS // 2 + 0.5) < 1 else INK)
        sin, cos, x, y = float(now.angle.sin()), float(now.angle.cos()), float(now.x), float(now.y)

        def at(point: tuple[float, float]) -> tuple[float, float]:
            return x + cos * point[0] - sin * point[1], y + sin * point[0] + cos * point[1]

        for side in (1, -1):
            picture.line(at((0.0, 0.0)), at((side * body.FOOT[0], body.FOOT[1])), 0.2)
        corners = [at(corner) for corner in body.HULL]
        for one, other in zip(corners, corners[1:] + corners[:1], strict=True):
            picture.line(one, other, 0.3, BLUE)
        return picture.pixels


def _pushed(now: Flight, x: Tensor, y: Tensor, impulse_x: Tensor, impulse_y: Tensor) -> Flight:
    """After an impulse at a place that is given from the hull's origin."""
    lever_x = x + now.angle.sin() * body.CENTRE[1]
    lever_y = y - now.angle.cos() * body.CENTRE[1]
    return now.replace(
        speed_x=now.speed_x + impulse_x / body.MASS,
        speed_y=now.speed_y + impulse_y / body.MASS,
        turn=now.turn + (lever_x * impulse_y - lever_y * impulse_x) / body.INERTIA,
    )


def _mirrored(like: Tensor) -> Tensor:
    """1 for the right of two, -1 for the left: float32 `[2]`."""
    return 1.0 - 2.0 * torch.arange(2, device=like.device)


def _placed(now: Flight, x: Tensor, y: float) -> tuple[Tensor, Tensor]:
    """Where points of the hull are, from the hull's origin."""
    sin, cos = now.angle.sin(), now.angle.cos()
    return cos * x - sin * y, sin * x + cos * y


def _under(ground: Tensor, x: Tensor) -> tuple[Tensor, Tensor]:
    """(height, slope) of the ground under places `[places]`."""
    along = (x * (CHUNKS - 1) / WIDTH).clamp(0, CHUNKS - 1 - 1e-4)
    left = torch.arange(CHUNKS - 1, device=x.device) == along.floor()[:, None]
    low, high = (ground[:-1] * left).sum(1), (ground[1:] * left).sum(1)
    return low + (high - low) * (along - along.floor()), (high - low) * (CHUNKS - 1) / WIDTH


def _moved(now: Flight) -> Flight:
    """A step in parts: weight, the legs' springs against the ground, motion."""
    part = SECONDS / PARTS
    touching = now.touching != now.touching
    for _ in range(PARTS):
        now, touches = _supported(now.replace(speed_y=now.speed_y + GRAVITY * part), part)
        touching = touching | touches
        lever = body.CENTRE[1]  # the centre of mass moves straight on; the hull's origin turns about it
        angle = now.angle + now.turn * part
        now = now.replace(
            x=now.x + now.speed_x * part + lever * (angle.sin() - now.angle.sin()),
            y=now.y + now.speed_y * part - lever * (angle.cos() - now.angle.cos()),
            angle=angle,
        )
    # A body in the air falls as by one Euler step of the whole, which Gymnasium's engine takes.
    falls = GRAVITY * SECONDS * (SECONDS - part) / 2
    now = now.replace(y=now.y + torch.where(touching.any(), 0.0, falls))
    sides = _mirrored(now.x)
    corners = [_placed(now, sides * wide, high) for wide, high in body.HULL if wide > 0]
    x, y = (torch.cat(part) for part in zip(*corners, strict=True))
    still = (torch.hypot(now.speed_x, now.speed_y) < STILL) & (now.turn.abs() < TURNS) & touching.any()
    return now.replace(
        touching=touching,
        crashed=(now.y + y < _under(now.ground, now.x + x)[0]).any(),
        resting=torch.where(still, now.resting + 1, torch.zeros_like(now.resting)),
    )


def _supported(now: Flight, part: float) -> tuple[Flight, Tensor]:
    """(after what the ground does to both feet in a part of a step, whether each touches it)."""
    x, y = _placed(now, _mirrored(now.x) * body.FOOT[0], body.FOOT[1])
    height, slope = _under(now.ground, now.x + x)
    long = torch.hypot(slope, torch.ones_like(slope))
    normal_x, normal_y = -slope / long, 1 / long
    deep = (height - now.y - y) * normal_y
    lever_x, lever_y = x + now.angle.sin() * body.CENTRE[1], y - now.angle.cos() * body.CENTRE[1]
    speed_x, speed_y = now.speed_x - now.turn * lever_y, now.speed_y + now.turn * lever_x
    into = -(speed_x * normal_x + speed_y * normal_y)
    aside = speed_x * normal_y - speed_y * normal_x
    force = torch.where(deep > 0, (STIFF * deep + DAMP * into).clamp(0, MOST), 0.0)
    slide = torch.minimum(torch.maximum(-DAMP * aside, -FRICTION * force), FRICTION * force)
    push_x, push_y = (force * normal_x + slide * normal_y) * part, (force * normal_y - slide * normal_x) * part
    pushed = now.replace(
        speed_x=now.speed_x + push_x.sum() / body.MASS,
        speed_y=now.speed_y + push_y.sum() / body.MASS,
        turn=now.turn + (lever_x * push_y - lever_y * push_x).sum() / body.INERTIA,
    )
    return pushed, deep > 0
