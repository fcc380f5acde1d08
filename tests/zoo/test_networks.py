"""Epidemics on networks: attack rates by generating functions, transmissibility, thresholds, layers, percolation.

Expected values are computed from the formulae of shared/spec/simulation_references.md, sections 2 and 4, for the
degree sequence at hand. Seeds are part of the formulae, so no outbreak has to be called large or small.
"""

import math

import numpy as np
import pytest
import torch

import denizen as dz
from denizen.space.generators import configuration_model, erdos_renyi, grid, random_in_neighbours
from denizen.zoo.seir import seir
from denizen.zoo.sir import SIR, sir


def per_step(b: float) -> float:
    """The daily hazard whose probability in one step is b."""
    return -math.log1p(-b)


def transmissibility(b: float, ticks: float, fixed: bool) -> float:
    q = 1 / ticks
    return 1 - (1 - b) ** ticks if fixed else b / (1 - (1 - b) * (1 - q))


def directed_attack(mean_degree: float, T: float, seeds: float) -> float:
    """z = 1 - (1 - seeds) exp(-T c z): in-neighbours Poisson with mean c."""
    z = 1.0
    for _ in range(5000):
        z = 1 - (1 - seeds) * math.exp(-T * mean_degree * z)
    return z


def attack(degrees: np.ndarray, T: float, seeds: float) -> float:
    """Newman's generating functions, seeds included: u is the chance that a neighbour's other contacts spare it."""
    share = np.bincount(degrees) / degrees.size
    k = np.arange(share.size)
    excess = share * k / (share @ k)
    u = 0.0
    for _ in range(5000):
        u = (1 - seeds) * float(excess[1:] @ (1 - T + T * u) ** k[:-1])
    return 1 - (1 - seeds) * float(share @ (1 - T + T * u) ** k)


@pytest.mark.parametrize(("degree", "expected"), [(10, 0.777560), (7.27, 0.522859)])
def test_the_formulae_give_the_listed_numbers(degree, expected):
    T = transmissibility(0.03, 7, fixed=True)
    assert pytest.approx(0.192017, abs=1e-6) == T
    assert transmissibility(0.03, 7, fixed=False) == pytest.approx(0.177966, abs=1e-6)
    assert directed_attack(degree, T, 0.01) == pytest.approx(expected, abs=1e-6)
    degrees = np.random.default_rng(0).poisson(10, 200_000)  # Poisson degrees turn one formula into the other
    assert attack(degrees, T, 0.01) == pytest.approx(directed_attack(10, T, 0.01), abs=2e-3)


def attacked(theory, model, steps: int, seed: int, worlds: int = 1) -> torch.Tensor:
    """Share ever infected, of an epidemic that is over."""
    run = theory.simulate(model, steps, replicates=worlds, seed=seed)
    stage = run.state.stage
    last = len(stage.levels) - 1
    assert float(((stage.value > 0) & (stage.value < last)).float().mean(dim=1).max()) < 0.001
    return (stage.value == last).float().mean(dim=1)


VECTORS = [
    (10.0, 0.03, 5, 7, True, 150),
    (10.0, 0.03, 1, 7, True, 110),
    (7.27, 0.03, 5, 7, True, 250),
    (6.0, 0.11, 2, 4, True, 110),
    (10.0, 0.03, 2, 7, False, 160),
]


@pytest.mark.parametrize(("degree", "b", "latent", "ticks", "fixed", "steps"), VECTORS)
def test_attack_rate_of_a_directed_random_graph(theory, degree, b, latent, ticks, fixed, steps):
    """The main test vector and others; the latent period must not matter."""
    check_directed(theory, degree, b, latent, ticks, fixed, steps, num=12_000, graphs=8)


@pytest.mark.slow
@pytest.mark.parametrize(("degree", "b", "latent", "ticks", "fixed", "steps"), VECTORS)
def test_attack_rate_of_a_directed_random_graph_at_length(theory, degree, b, latent, ticks, fixed, steps):
    check_directed(theory, degree, b, latent, ticks, fixed, steps + 60, num=50_000, graphs=30)


def check_directed(theory, degree, b, latent, ticks, fixed, steps, num, graphs):
    sample = []
    for seed in range(graphs):
        model = seir(
            random_in_neighbours(num, degree, seed=seed),
            infect_rate=per_step(b),
            latent_days=latent,
            infectious_days=ticks,
            latent_phases=latent,
            infectious_phases=ticks if fixed else 1,
        )
        sample.append(attacked(theory, model, steps, seed))
    expected = directed_attack(degree, transmissibility(b, ticks, fixed), 0.01)
    law = "fixed" if fixed else "geometric"
    setting = f"{num:,} agents, {degree:g} in-neighbours, b {b}, latent {latent}, infectious {ticks} {law}"
    theory.mean(setting, torch.cat(sample), expected)


LAWS = {
    "everybody 5": lambda rng, num: np.full(num, 5),
    "Poisson 6": lambda rng, num: rng.poisson(6, num),
    "1 or 12": lambda rng, num: np.where(rng.random(num) < 0.7, 1, 12),
    "negative binomial": lambda rng, num: 1 + rng.negative_binomial(1.3, 0.2, num),
}


def degree_sequence(law: str, num: int, seed: int) -> np.ndarray:
    degrees = LAWS[law](np.random.default_rng(seed), num)
    degrees[0] += degrees.sum() % 2
    return degrees


@pytest.mark.parametrize("law", LAWS)
@pytest.mark.parametrize(("b", "ticks", "fixed"), [(0.09, 5, True), (0.13, 3, False)])
def test_attack_rate_by_generating_functions(theory, law, b, ticks, fixed):
    """Undirected configuration model. With random durations the attack rate still goes by the mean of T."""
    num, T = 10_000, transmissibility(b, ticks, fixed)
    errors, expected = [], []
    for seed in range(8):
        degrees = degree_sequence(law, num, seed)
        model = sir(
            configuration_model(degrees, seed=seed),
            infect_rate=per_step(b),
            infectious_days=ticks,
            infectious_phases=ticks if fixed else 1,
            seed_share=0.02,
        )
        expected.append(attack(degrees, T, 0.02))
        errors.append(float(attacked(theory, model, 130, seed)) - expected[-1])
    middle = sum(expected) / len(expected)
    setting = f"degrees {law}, T {T:.4f} ({'fixed' if fixed else 'geometric'} {ticks})"
    theory.mean(setting, torch.tensor(errors) + middle, middle, bias=10 / num)


@pytest.mark.parametrize("factor", [0.6, 1.6])
def test_threshold(theory, factor):
    """Below T_c = <k> / (<k^2> - <k>) an outbreak stays near its seeds, above it takes a share of all."""
    num, ticks, seeds = 20_000, 2, 0.002
    degrees = degree_sequence("negative binomial", num, 3)
    threshold = degrees.mean() / ((degrees**2).mean() - degrees.mean())
    T = factor * threshold
    model = sir(
        configuration_model(degrees, seed=3),
        infect_rate=per_step(1 - (1 - T) ** (1 / ticks)),
        infectious_days=ticks,
        infectious_phases=ticks,
        seed_share=seeds,
    )
    sample = attacked(theory, model, 110, 1, worlds=12)
    assert float(sample.max()) < 0.02 if factor < 1 else float(sample.min()) > 0.1
    theory.mean(f"T {factor} T_c, T_c {threshold:.4f}", sample, attack(degrees, T, seeds), bias=10 / num)


class Pairs(SIR):
    """The first half of the agents is infected at the start; each has one contact in the second half."""

    def init(self, rng):
        first = (torch.arange(self.num_agents) < self.num_agents // 2).to(torch.int8)
        susceptible = dz.model.Stage(0 * first, ("susceptible", *self.phases, "recovered"))
        return type(super().init(rng))(stage=susceptible.move(first, "infected", source="susceptible"))


@pytest.mark.parametrize(("b", "ticks", "phases"), [(0.03, 7, 7), (0.03, 7, 1), (0.25, 3, 3), (0.25, 3, 1)])
def test_transmissibility(theory, b, ticks, phases):
    half = 40_000
    graph = dz.Graph.from_edges(np.arange(half), np.arange(half, 2 * half), 2 * half)
    model = Pairs(graph, infect_rate=per_step(b), infectious_days=float(ticks), infectious_phases=phases)
    run = theory.simulate(model, 8 * ticks + 20, seed=9)
    hits = int((run.state.stage.value[0, half:] != 0).sum())
    law = "fixed" if phases > 1 else "geometric"
    theory.share(f"b {b}, {ticks} steps {law}", hits, half, transmissibility(b, ticks, fixed=phases > 1))


class Redrawn(SIR):
    """Ten contacts of each agent, drawn anew from all in each step."""

    def step(self, now, rng):
        stage = now.stage
        sick = stage.is_(*self.phases)
        met = rng.on("contacts", 10 * self.num_agents).integers("meet", 0, self.num_agents)
        caught = rng.event("catch", self.infect_rate * sick[met].reshape(-1, 10).sum(dim=1) * stage.is_("susceptible"))
        caught = rng.record("caught", caught)
        healed = rng.bernoulli("heal", sick * (len(self.phases) * now.time.dt / self.infectious_days))
        return now.replace(stage=stage.advance(healed, *self.phases).advance(caught, "susceptible"))


def test_static_against_redrawn_contacts(theory):
    """A kept contact is wasted on those it has infected: R0 is c (1 - (1 - b)^D) kept and c b D redrawn."""
    num, degree, b, ticks, seeds = 4_000, 10, 0.03, 6, 0.02
    static, redrawn = [], []
    for seed in range(10):
        values = {"infect_rate": per_step(b), "infectious_days": ticks, "seed_share": seeds, "infectious_phases": ticks}
        static.append(attacked(theory, sir(random_in_neighbours(num, degree, seed=seed), **values), 90, seed))
        empty = dz.Graph.from_edges([0], [1], num)
        redrawn.append(attacked(theory, Redrawn(empty, **{**values, "infectious_days": float(ticks)}), 90, seed))
    kept, anew = torch.cat(static), torch.cat(redrawn)
    theory.mean("kept", kept, directed_attack(degree, transmissibility(b, ticks, True), seeds))
    theory.mean("redrawn", anew, directed_attack(degree, b * ticks, seeds), bias=1e-3)  # of the same agent met twice
    gap = anew.mean() - kept.mean()
    assert float(gap) > 4 * float((kept.var() / 10 + anew.var() / 10).sqrt())


def test_giant_component_of_a_random_graph(theory):
    """S = 1 - exp(-c S): who a certain infection reaches from 1 % seeds."""
    degree, sample = 1.7, []
    for seed in range(8):
        model = sir(erdos_renyi(10_000, degree, seed=seed), infect_rate=60.0, infectious_days=1, seed_share=0.01)
        sample.append(attacked(theory, model, 60, seed))
    theory.mean(f"mean degree {degree}, 1 % seeds", torch.cat(sample), directed_attack(degree, 1.0, 0.01))


@pytest.mark.parametrize(("T", "large"), [(0.42, False), (0.58, True)])
def test_bond_percolation_on_the_square_lattice(theory, T, large):
    """The threshold is 1/2: one row of seeds reaches the far side above it and not below."""
    side = 100
    edges = grid(side, side)

    class Row(SIR):
        def init(self, rng):
            seeds = (torch.arange(side * side) < side).to(torch.int8)
            return type(super().init(rng))(stage=seeds)

    model = Row(dz.Graph.from_edges(edges), infect_rate=per_step(T), infectious_days=1.0)
    run = theory.simulate(model, 260, replicates=6, seed=2)
    far = (run.state.stage.value[:, -side:] == 2).sum(dim=1)
    assert (far > 0.3 * side).all() if large else (far == 0).all()


LAYERS = {"home": 0.3, "school": 0.125, "street": 0.0625}


def test_layers_share_escape_and_attribution(theory):
    """Escaping all layers is the product of escaping each, in any order; the blame splits as the hazards do."""
    num, contacts = 60_000, {"home": 1, "school": 2, "street": 4}
    graphs = {}
    for offset, name in enumerate(LAYERS):
        target = np.repeat(np.arange(num), contacts[name])
        graphs[name] = dz.Graph.from_edges((target + 1 + offset) % num, target, num, duplicates="keep")
    hazards = {name: LAYERS[name] * contacts[name] for name in LAYERS}

    class Blame(dz.State):
        hit: torch.Tensor = dz.mask("agents")
        layer: torch.Tensor = dz.count("agents", max=3)

    class Caught(dz.Model):
        layers: dz.space.Layers

        def init(self, rng):
            nobody = torch.zeros(num, dtype=torch.int8)
            return Blame(hit=nobody, layer=nobody)

        def step(self, now, rng):
            everybody = torch.ones_like(now.hit)
            each = [LAYERS[name] * self.layers[name].sum(everybody) for name in LAYERS]
            hit = rng.event("catch", self.layers.sum(everybody))
            return now.replace(hit=hit, layer=hit * rng.categorical("blame", torch.stack(each, dim=1)))

    for order in (tuple(LAYERS), tuple(reversed(LAYERS))):
        layers = dz.space.Layers({name: graphs[name] for name in order}, strength={n: LAYERS[n] for n in order})
        state = theory.simulate(Caught(layers), 1, seed=6).state
        hit, layer = state.hit[0] == 1, state.layer[0]
        escape = math.prod(math.exp(-h) for h in hazards.values())
        theory.share(f"infected through {', '.join(order)}", int(hit.sum()), num, 1 - escape)
        for place, name in enumerate(LAYERS):
            blamed = int((layer[hit] == place).sum())
            theory.share(f"blamed on {name}", blamed, int(hit.sum()), hazards[name] / sum(hazards.values()))
