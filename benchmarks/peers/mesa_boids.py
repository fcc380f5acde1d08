"""Boids with Mesa, by the rules of denizen.zoo.boids, one bird after another in random order."""

# ruff: noqa: D101, D102

import mesa
import numpy as np
from _worker import serve
from mesa.experimental.continuous_space import ContinuousSpace, ContinuousSpaceAgent

rules = {}


class Bird(ContinuousSpaceAgent):
    def __init__(self, model, position, heading):
        super().__init__(model.space, model)
        self.position, self.heading = position, heading

    def step(self):
        around, distances = self.get_neighbors_in_radius(rules["radius"])
        others = [k for k, bird in enumerate(around) if bird is not self]
        if others:
            birds = [around[k] for k in others]
            away = self.space.calculate_difference_vector(self.position, agents=birds)
            crowd = away[np.asarray(distances)[others] < 1].sum(axis=0)
            course = np.sum([bird.heading for bird in birds], axis=0)
            turn = 0.03 * away.sum(axis=0) - 0.015 * crowd + 0.05 * course
            heading = self.heading + turn / len(birds)
            self.heading = heading / np.linalg.norm(heading)
        self.position += self.heading


class Flock(mesa.Model):
    def __init__(self, seed):
        super().__init__(rng=seed)
        side, draw = rules["side"], np.random.default_rng(seed)
        self.space = ContinuousSpace([[0, side], [0, side]], torus=True, random=self.random, n_agents=rules["birds"])
        for _ in range(rules["birds"]):
            aim = draw.normal(size=2)
            Bird(self, draw.random(2) * side, aim / np.linalg.norm(aim))


def setup(**given):
    rules.update(given)


def run(steps, seed):
    model = Flock(seed)

    def work():
        for _ in range(steps):
            model.agents.shuffle_do("step")
        return float(np.linalg.norm(np.mean([bird.heading for bird in model.agents], axis=0)))

    return work, lambda order: {"order": order}


if __name__ == "__main__":
    serve(setup, run, {"mesa": mesa.__version__})
