"""The lander as one rigid body: masses, levers and ground, by the published numbers of Gymnasium's LunarLander-v3."""

import math

import numpy as np

SCALE = 30.0  # pixels of a unit of length
HULL = [(x / SCALE, y / SCALE) for x, y in [(-14, 17), (-17, 0), (-17, -10), (17, -10), (17, 0), (14, 17)]]
HULL_DENSITY, LEG_DENSITY = 5.0, 1.0
LEG_AWAY, LEG_DOWN, LEG_WIDTH, LEG_HEIGHT, LEG_ANGLE = 20 / SCALE, 18 / SCALE, 2 / SCALE, 8 / SCALE, 0.34


def _polygon() -> tuple[float, tuple[float, float], float]:
    """(area, centroid, second moment about the origin) of the hull."""
    x, y = np.array(HULL).T  # counterclockwise
    next_x, next_y = np.roll(x, -1), np.roll(y, -1)
    cross = x * next_y - next_x * y
    area = cross.sum() / 2
    centroid = ((x + next_x) * cross).sum() / 6 / area, ((y + next_y) * cross).sum() / 6 / area
    second = (cross * (x * x + x * next_x + next_x**2 + y * y + y * next_y + next_y**2)).sum() / 12
    return float(area), (float(centroid[0]), float(centroid[1])), float(second)


def _turned(x: float, y: float, angle: float) -> tuple[float, float]:
    return math.cos(angle) * x - math.sin(angle) * y, math.sin(angle) * x + math.cos(angle) * y


def _leg() -> tuple[tuple[float, float], tuple[float, float]]:
    """(centre, lowest corner) of the right leg, swung out, from the hull's origin; the left one is its mirror image."""
    x, y = _turned(-LEG_AWAY, LEG_DOWN, LEG_ANGLE)
    foot = _turned(-LEG_WIDTH, -LEG_HEIGHT, LEG_ANGLE)
    return (-x, -y), (foot[0] - x, foot[1] - y)


_area, HULL_CENTRE, _second = _polygon()
_leg_mass = LEG_DENSITY * 4 * LEG_WIDTH * LEG_HEIGHT
_leg_centre, FOOT = _leg()
MASS = HULL_DENSITY * _area + 2 * _leg_mass
CENTRE = (0.0, (HULL_DENSITY * _area * HULL_CENTRE[1] + 2 * _leg_mass * _leg_centre[1]) / MASS)
_about_origin = HULL_DENSITY * _second + 2 * _leg_mass * (
    _leg_centre[0] ** 2 + _leg_centre[1] ** 2 + (LEG_WIDTH**2 + LEG_HEIGHT**2) / 3
)
INERTIA = _about_origin - MASS * CENTRE[1] ** 2  # about the centre of mass
