"""Contacts that change beside a static graph: SIR of 1M agents, checked against the CPU, then timed.

    python benchmarks/edges_gpu.py [--agents N] [--device cpu] [--out RESULT.json]

    static      a graph, 2 random in-neighbours for each agent
    ties        partnerships: 5 % seek one in each step, they last 40 steps: nearly 2 an agent, 4 at most
    redrawn     2 random contacts for each agent, drawn anew in each step
    mixing      random mixing of 16 groups
    places      people in 100,000 places, a tenth of whom move in each step

Milliseconds a step over 128 steps from the start, by replayed CUDA graphs. `couples` is the pairing of seekers alone,
beside a sort of all agents. On a CPU the checks run alone, on fewer agents. Under a minute.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))
sys.path.insert(0, str(Path(__file__).resolve().parent))

import _cuda
import torch
from torch import Tensor

import denizen as dz
from denizen import ops
from denizen.space import Mixing, Places, Ties, random_contacts
from denizen.zoo.sir import SIR

STEPS = 128
FEW = 20_000  # agents of the checks


LEVELS = ("susceptible", "infected", "recovered")


class Moving(dz.Model):
    """SIR over contacts of one kind; a subclass has the state and says how many infected are met."""

    num_agents: int = FEW
    days: float = 7.0
    infect_rate: Tensor = dz.param(0.05, low=0.0)

    def step(self, now: Any, rng: dz.rng.Rng) -> dz.State:
        """Contacts, infection, recovery."""
        infected = now.stage.is_("infected")
        pressure, changed = self.met(now, rng, infected)
        caught = rng.event("catch", self.infect_rate * pressure)
        healed = rng.bernoulli("heal", 1 / self.days, where=infected)
        return now.replace(stage=now.stage.advance(healed, "infected").advance(caught, "susceptible"), **changed)

    def met(self, now: Any, rng: dz.rng.Rng, infected: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """How many infected each agent meets, and fields that change."""
        raise NotImplementedError

    @dz.series
    def infected(self, now: Any) -> Tensor:
        """Infected at the end of the step."""
        return now.stage.is_("infected").sum()


class Partnered(dz.State):
    """Stage and ties."""

    stage: dz.model.Stage = dz.stage("agents", levels=LEVELS)
    partner: Tensor = dz.count("agents", "slots")
    until: Tensor = dz.count("agents", "slots")


class Partners(Moving):
    """Partnerships."""

    slots: int = 4

    def init(self, rng: dz.rng.Rng) -> Partnered:
        """A share infected, nobody tied."""
        ties = Ties.none(self.num_agents, self.slots)
        return Partnered(stage=rng.bernoulli("seed", 0.01), partner=ties.who, until=ties.until)

    def met(self, now: Any, rng: dz.rng.Rng, infected: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Over the partners of this step."""
        ties = Ties(now.partner, now.until, now.time.step)
        seeks = (ties.degree() < self.slots) * rng.bernoulli("seek", 0.05)
        ties = ties.form(rng, "pair", seeks, rng.exponential("lasts", 1 / 40))
        return ties.sum(infected), {"partner": ties.who, "until": ties.until}


class Staged(dz.State):
    """Stage alone."""

    stage: dz.model.Stage = dz.stage("agents", levels=LEVELS)


class Redrawn(Moving):
    """Contacts drawn anew."""

    def init(self, rng: dz.rng.Rng) -> Staged:
        """A share infected."""
        return Staged(stage=rng.bernoulli("seed", 0.01))

    def met(self, now: Any, rng: dz.rng.Rng, infected: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Over two random others."""
        return random_contacts(rng, "meet", 2).sum(infected), {}


class Placed(dz.State):
    """Stage and place."""

    stage: dz.model.Stage = dz.stage("agents", levels=LEVELS)
    place: Tensor = dz.count("agents")


class Rooms(Moving):
    """People in places."""

    places: Places = Places(FEW // 10)

    def init(self, rng: dz.rng.Rng) -> Placed:
        """A share infected, everybody somewhere."""
        return Placed(stage=rng.bernoulli("seed", 0.01), place=rng.integers("place", 0, self.places.num_places))

    def met(self, now: Any, rng: dz.rng.Rng, infected: Tensor) -> tuple[Tensor, dict[str, Tensor]]:
        """Over those in the same place; a tenth moved."""
        goal = rng.integers("goal", 0, self.places.num_places)
        place = torch.where(rng.bernoulli("move", 0.1) != 0, goal, now.place)
        return self.places.sum(infected, place), {"place": place}


def models(agents: int, device: str) -> dict[str, dz.Model]:
    """SIR over each kind of contacts."""
    group = torch.arange(agents, device=device) % 16
    matrix = torch.eye(16, device=device) + 1 / 16
    return {
        "static": SIR(_cuda.random_graph(agents, 2, device=device)),
        "ties": Partners(agents),
        "redrawn": Redrawn(agents),
        "mixing": SIR(Mixing(group, matrix)),
        "places": Rooms(agents, places=Places(agents // 10)),
    }


def check(device: str) -> None:
    """The GPU's series and ties are the CPU's, and so are those of plain torch."""
    for name, model in models(FEW, "cpu").items():
        with ops.reference_only():
            host = dz.simulate(model, 40, replicates=2, seed=3, device="cpu", compile=False)
        capture = device == "cuda" and name == "ties"  # compilation takes most of the minute
        there = dz.simulate(model, 40, replicates=2, seed=3, device=device, compile=capture)
        assert torch.equal(there["infected"].cpu(), host["infected"]), name
        for field in {"partner", "until", "place"} & set(host.state.kinds):
            assert torch.equal(getattr(there.state, field).cpu(), getattr(host.state, field)), (name, field)
        print(f"{name:10s} {FEW:,} agents: same bits as plain torch on the CPU", flush=True)


def pairing(agents: int) -> dict[str, float]:
    """Microseconds of pairing by share of seekers, and of sorting all agents."""
    word = torch.randint(0, 2**32, (1, agents), device="cuda")
    found = {"sort": _cuda.event_us(lambda: torch.sort(word))}
    none = torch.empty(0, dtype=torch.int64, device="cuda")
    for share in (0.03, 0.3, 1.0):
        pool = -(torch.rand(1, agents, device="cuda") > share).to(torch.int32)
        host = ops.couples(pool.cpu(), word.cpu(), none.cpu(), 1, False)
        assert torch.equal(ops.couples(pool, word, none, 1, False).cpu(), host), share
        found[f"couples {share:g}"] = _cuda.event_us(lambda pool=pool: ops.couples(pool, word, none, 1, False))
    return found


def main() -> None:
    """Check, time, print, save."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--agents", type=int, default=1_000_000)
    parser.add_argument("--device", choices=("cuda", "cpu"), default="cuda")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    began = time.perf_counter()
    check(given.device)
    result: dict[str, Any] = {**_cuda.facts(given.device), "agents": given.agents, "ms": {}}
    if given.device == "cuda":
        result["us"] = pairing(given.agents)
        for name, us in result["us"].items():
            print(f"{name:14s}{us:9.1f} us", flush=True)
        for name, model in models(given.agents, given.device).items():
            run = _cuda.captured(model)
            ms = result["ms"][name] = _cuda.replay_ms(run, STEPS)
            launches, busy, longest = _cuda.kernels(run)
            ratio = ms / result["ms"]["static"]
            print(f"{name:10s}{ms:9.4f} ms/step, {ratio:5.2f} of static, {launches:.1f} launches, busy {busy:.4f} ms")
            print("\n".join(f"             {line}" for line in longest), flush=True)
    print(f"{time.perf_counter() - began:.1f} s")
    if given.out:
        given.out.write_text(json.dumps(result, indent=1) + "\n")


if __name__ == "__main__":
    main()
