"""Random mixing by groups: sums against a matrix product, final sizes against theory, and the engine's promises."""

import math

import numpy as np
import pytest
import torch
from hypothesis import given
from hypothesis import strategies as st

import denizen as dz
from denizen.errors import DataError, InputError, ModelError
from denizen.relax import MeanField
from denizen.space import Layers, Mixing
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

MATRIX = [[6.0, 2.0, 1.0], [2.0, 5.0, 2.0], [1.0, 2.0, 3.0]]
AGENTS = 600


def mixing(agents: int = AGENTS, matrix=MATRIX) -> Mixing:
    return Mixing(torch.arange(agents) % len(matrix), matrix)


@given(seed=st.integers(0, 99), groups=st.integers(1, 20), kind=st.sampled_from(["mask", "count", "real", "free"]))
def test_a_sum_is_the_matrix_times_shares(seed, groups, kind):
    gen = np.random.default_rng(seed)
    group, matrix = gen.integers(0, groups, 50), gen.uniform(0, 9, (groups, groups))
    values = gen.integers(0, 2 if kind == "mask" else 900, 50).astype(
        {"mask": np.int8, "count": np.int32}.get(kind, float)
    )
    size = np.maximum(np.bincount(group, minlength=groups), 1)
    expected = (matrix @ (np.bincount(group, values, groups) / size))[group]
    with torch.no_grad():
        got = Mixing(group, matrix).sum(torch.from_numpy(values), max=900.0 if kind == "real" else None)
    np.testing.assert_allclose(got.numpy(), expected, rtol=3e-7)
    soft = Mixing(group, matrix).sum(torch.from_numpy(values), max=900.0 if kind == "real" else None)
    np.testing.assert_allclose(soft.numpy(), expected, rtol=3e-7)


def test_who_receives_and_who_is_there():
    values, there = torch.ones(6, dtype=torch.int8), torch.tensor([1, 1, 0, 1, 0, 1], dtype=torch.int8)
    two = Mixing([0, 0, 0, 0, 1, 1], [[3.0, 0.0], [0.0, 1.0]])
    assert two.sum(values, where=there).tolist() == [3, 3, 0, 3, 0, 1]
    assert (
        two.sum(values * torch.tensor([1, 0, 1, 0, 1, 0], dtype=torch.int8), alive=there).tolist() == [1] * 4 + [0] * 2
    )
    assert two.sum(torch.full((6,), 2.0), max=1.0).isnan().all()


def test_layers_know_who_is_there():
    values, there = torch.ones(4, dtype=torch.int8), torch.tensor([1, 1, 0, 1], dtype=torch.int8)
    town, home = Mixing([0, 0, 0, 0], 3.0), dz.Graph.from_edges([2, 1], [0, 0], 4)
    layers = Layers({"home": home, "town": town})
    ill = values * torch.tensor([1, 0, 1, 0], dtype=torch.int8)
    assert layers.sum(ill, alive=there).tolist() == [1, 1, 1, 1]  # a third of those who are there; nobody at home
    assert torch.equal(layers.sum(ill, alive=there), home.sum(ill * there) + town.sum(ill, alive=there))
    with pytest.raises(ModelError, match=r"Layers.sum: alive is \(3,\), expected a mask \(4,\)"):
        layers.sum(ill, alive=there[:3])


def final_sizes(reproduction: np.ndarray, seeds: float) -> np.ndarray:
    """Shares ever infected by group, z_i = 1 - (1 - seeds) exp(-sum_j K_ij z_j): Diekmann and Heesterbeek (2000)."""
    z = np.full(len(reproduction), 0.5)
    for _ in range(10_000):
        z = 1 - (1 - seeds) * np.exp(-reproduction @ z)
    return z


def test_final_sizes_by_group():
    """Fixed or random durations alike: what counts is the mean time spent infectious."""
    agents, days, rate = 12_000, 4.0, 0.09
    for phases in (1, 4):
        model = sir(mixing(agents), infect_rate=rate, infectious_days=days, infectious_phases=phases)
        run = dz.simulate(model, 110, replicates=6, seed=phases, compile=False)
        state = run.state.stage.value != 0
        got = torch.stack([state[:, g::3].double().mean(dim=1) for g in range(3)], dim=1)
        spread = got.std(dim=0) / math.sqrt(len(got))
        expected = torch.from_numpy(final_sizes(rate * days * np.array(MATRIX), 0.01))
        assert ((got.mean(dim=0) - expected).abs() < 4.5 * spread + 2e-3).all(), (got.mean(dim=0), expected)


def test_equal_groups_are_one_group():
    """A matrix with equal entries mixes as one group does: the same epidemic, z = 1 - (1 - rho) exp(-R0 z)."""
    agents, groups = 900, 4
    one = dz.simulate(sir(Mixing(torch.zeros(agents, dtype=torch.int8), 8.0)), 40, replicates=2, compile=False)
    many = dz.simulate(sir(mixing(agents, [[2.0] * groups] * groups)), 40, replicates=2, compile=False)
    assert torch.equal(one["cases"], many["cases"])


def test_a_layer_of_mixing():
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(AGENTS, 4.0, seed=1))
    layers = Layers({"home": graph, "town": mixing()}, strength={"town": 0.5})
    ill = (torch.arange(AGENTS) % 7 == 0).to(torch.int8)
    assert torch.equal(layers.sum(ill), graph.sum(ill) + 0.5 * mixing().sum(ill))
    assert "mixing of 3" in repr(layers)
    shut = dz.model.Scale(target="contacts.town", factor=0.0, when=dz.model.During(0))
    run = dz.simulate(seir(layers), 10, interventions=[shut], compile=False)
    assert torch.equal(run["cases"], dz.simulate(seir(graph), 10, compile=False)["cases"])


def test_promises(tmp_path):
    """Replicate i alone, another order of agents, resumed: the same epidemic."""
    model, order = sir(mixing()), torch.randperm(AGENTS, generator=torch.Generator().manual_seed(1))
    run = dz.simulate(model, 12, replicates=3, seed=2, compile=False)
    assert torch.equal(dz.simulate(model, 12, worlds=[2], seed=2, compile=False)["cases"], run["cases"][2:])
    moved = model.replace(contacts=model.contacts.renumber(order))
    assert torch.equal(dz.simulate(moved, 12, replicates=3, seed=2, ids=order, compile=False)["cases"], run["cases"])
    dz.simulate(model, 7, replicates=3, seed=2, compile=False, out=tmp_path / "run")
    later = dz.run.resume(tmp_path / "run", sir(mixing()), 5)
    assert torch.equal(later["cases"], run["cases"])


def test_gradients_reach_the_matrix():
    """Slopes of a mean-field epidemic against differences."""
    ill = (torch.arange(AGENTS) % 7 == 0).to(torch.float32).requires_grad_()
    rates = torch.tensor(MATRIX, requires_grad=True)
    weight = torch.arange(AGENTS) / AGENTS
    (mixing().with_matrix(rates).sum(ill) * weight).sum().backward()
    share = torch.stack([ill[g::3].mean() for g in range(3)])
    assert torch.allclose(rates.grad, torch.stack([weight[g::3].sum() * share for g in range(3)]), rtol=1e-5)
    back = sum(weight[g::3].sum() * torch.tensor(MATRIX)[g] for g in range(3)) / (AGENTS / 3)
    assert torch.allclose(ill.grad, back[torch.arange(AGENTS) % 3], rtol=1e-5)
    run = dz.simulate(sir(mixing(90)), 5, relax=MeanField(), compile=False)
    assert 0 < float(run["cases"].sum()) < 90


def test_contacts_that_are_mutual():
    lopsided = Mixing([0, 0, 0, 1], [[1.0, 2.0], [3.0, 0.0]])
    assert lopsided.imbalance == 0.5
    mutual = lopsided.balanced()
    assert mutual.imbalance == 0.0
    assert mutual.matrix.tolist() == [[1.0, 1.5], [4.5, 0.0]]


def test_a_matrix_from_a_file(tmp_path):
    plain, named = tmp_path / "plain.csv", tmp_path / "named.csv"
    plain.write_text("1,2\n3,4\n")
    named.write_text('"","0-17","18+"\n"0-17",1,2\n"18+",3,4\n')
    for path in (plain, named):
        assert Mixing.from_file(path, [0, 1]).matrix.tolist() == [[1.0, 2.0], [3.0, 4.0]]
    for text, told in {
        "1,2\n3\n": "line 2",
        "1,x\n3,4\n": "line 1, column 2: 'x'",
        "1,2\n3,-4\n": "line 2, column 2: '-4'",
        "": "0 rows",
    }.items():
        plain.write_text(text)
        with pytest.raises(DataError, match=told):
            Mixing.from_file(plain, [0, 1])
    with pytest.raises(DataError, match="cannot be read"):
        Mixing.from_file(tmp_path / "none.csv", [0])


@pytest.mark.parametrize(
    ("group", "matrix", "told"),
    [
        ([0, 2], [[1.0, 1.0], [1.0, 1.0]], r"group\[1\]=2, expected 0 to 1"),
        ([0, -1], 1.0, r"group\[1\]=-1"),
        ([0.5], 1.0, "whole numbers"),
        ([[0]], 1.0, "whole numbers"),
        ([0], [[1.0, 2.0]], "square"),
        ([0, 1], [[1.0, -2.0], [0.0, 0.0]], r"matrix\[0, 1\]=-2"),
        ([0], [[math.nan]], r"matrix\[0, 0\]=nan"),
        ([0], "much", "no array"),
    ],
)
def test_bad_input(group, matrix, told):
    with pytest.raises(InputError, match=told):
        Mixing(group, matrix)


def test_bad_sums():
    with pytest.raises(ModelError, match=r"values is torch.float32 \(3,\), expected numbers \(600,\)"):
        mixing().sum(torch.ones(3))
    with pytest.raises(ModelError, match="expected one"):
        mixing().sum(torch.ones(AGENTS), where=torch.ones(AGENTS), needed=torch.ones(AGENTS))
    with pytest.raises(InputError, match="expected a tensor"):
        mixing().with_matrix(torch.ones(2, 2))
    with pytest.raises(InputError, match="different numbers of agents"):
        Layers({"a": mixing(), "b": mixing(30)})
