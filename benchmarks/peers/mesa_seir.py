"""SEIR with Mesa: one object an agent, two passes a step (decide, then change), neighbours as lists."""

# ruff: noqa: D101, D102

import mesa
import numpy as np
from _worker import serve

graph = {}


class Person(mesa.Agent):
    def __init__(self, model, age):
        super().__init__(model)
        self.age, self.caught, self.contacts = age, False, ()  # days since infection, 0: never

    def meet(self):
        model = self.model
        self.caught = False
        if self.age == 0:
            latent, last = model.latent, model.last
            k = sum(1 for other in self.contacts if latent < other.age <= last)
            if k:
                self.caught = model.random.random() < 1 - model.escape**k

    def progress(self):
        if self.age:
            self.age = min(self.age + 1, self.model.last + 1)
        elif self.caught:
            self.age = 1
            self.model.new += 1


class Epidemic(mesa.Model):
    def __init__(self, seed):
        super().__init__(rng=seed)
        self.latent, self.last, self.escape = graph["latent"], graph["latent"] + graph["infectious"], 1 - graph["b"]
        self.new = 0
        people = [
            Person(self, (self.random.random() < graph["seeds"]) * (self.latent + 1)) for _ in range(graph["agents"])
        ]
        source, pointer = graph["source"], graph["pointer"]
        for i, person in enumerate(people):
            person.contacts = [people[j] for j in source[pointer[i] : pointer[i + 1]]]

    def step(self):
        self.new = 0
        self.agents.do("meet")
        self.agents.do("progress")


def setup(path, agents, **disease):
    edges = np.load(path)
    pointer = np.searchsorted(edges["target"], np.arange(agents + 1)).tolist()
    graph.update(source=edges["source"].tolist(), pointer=pointer, agents=agents, **disease)


def run(steps, seed):
    model = Epidemic(seed)

    def work():
        cases = []
        for _ in range(steps):
            model.step()
            cases.append(model.new)
        return cases

    def finish(cases):
        return {"attack": sum(a.age > 0 for a in model.agents) / graph["agents"], "cases": cases}

    return work, finish


serve(setup, run, {"mesa": mesa.__version__})
