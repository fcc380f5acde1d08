"""The SIR model: builder, bounds, chunks and batches, gradients. Theory is in test_theory.py and test_networks.py."""

import networkx
import pytest
import torch

import denizen as dz
from denizen.errors import DataError, InputError
from denizen.population import synthetic
from denizen.relax import MeanField, StraightThrough
from denizen.space.generators import random_in_neighbours
from denizen.zoo.seir import SEIR, seir
from denizen.zoo.sir import SIR, sir

CONTACTS = random_in_neighbours(800, 8, seed=0)
BUILDERS = pytest.mark.parametrize("build", [sir, seir])


@BUILDERS
def test_builders_take_graphs_edge_lists_and_populations(build):
    kind = {sir: SIR, seir: SEIR}[build]
    population = synthetic("astoria", size=500)
    directed, mutual = build(population), build(population, symmetrize=True)
    assert mutual.contacts.num_edges == 2 * directed.contacts.num_edges
    for model in (build(CONTACTS), build(dz.Graph.from_edges(CONTACTS)), directed, build(population, network="1")):
        assert isinstance(model, kind)
        assert dz.simulate(model, 5)["cases"].shape == (1, 5)
    with pytest.raises(DataError, match="network"):
        build(population, network="school")


@BUILDERS
def test_layers_of_contacts(build):
    """Two halves of the contacts make the same epidemic as the whole; a closed one is as if it were not there."""
    whole = dz.Graph.from_edges(CONTACTS)
    ends, early = (CONTACTS.source, CONTACTS.target), CONTACTS.target < 400
    halves = {n: dz.Graph.from_edges(*(e[k] for e in ends), 800) for n, k in (("one", early), ("two", ~early))}
    layers = dz.space.Layers(halves)
    assert torch.equal(dz.simulate(build(layers), 20)["cases"], dz.simulate(build(whole), 20)["cases"])
    closed = dz.model.Scale(target="contacts.two", factor=0.0, when=dz.model.During(0))
    shut = dz.simulate(build(layers), 20, interventions=[closed])
    assert torch.equal(shut["cases"], dz.simulate(build(halves["one"]), 20)["cases"])


@BUILDERS
@pytest.mark.parametrize("contacts", [None, "city", [(0, 1)], 3])
def test_wrong_contacts_are_refused(build, contacts):
    with pytest.raises(InputError, match="contacts"):
        build(contacts)


@BUILDERS
@pytest.mark.parametrize(
    "arguments",
    [
        {"infect_rat": 0.1},
        {"infect_rate": -1.0},
        {"infect_rate": float("nan")},
        {"infectious_days": 0.0},
        {"infectious_phases": 0},
        {"infectious_phases": 1.5},
        {"infectious_phases": 1000},
        {"seed_share": 1.5},
    ],
)
def test_wrong_values_are_refused(build, arguments):
    with pytest.raises(InputError):
        build(CONTACTS, **arguments)


@BUILDERS
def test_more_phases_than_steps_are_refused(build):
    with pytest.raises(InputError, match=r"infectious_days=3 .*4 phases.* infectious_phases"):
        dz.simulate(build(CONTACTS, infectious_days=3.0, infectious_phases=4), 40)


@BUILDERS
@pytest.mark.parametrize("phases", [1, 5])
def test_without_transmission_there_are_no_cases(build, phases):
    run = dz.simulate(build(CONTACTS, infect_rate=0.0, infectious_phases=phases), 20, replicates=3)
    assert int(run["cases"].sum()) == 0


@BUILDERS
@pytest.mark.parametrize("phases", [1, 5])
def test_batches_and_chunks(build, phases):
    model = build(CONTACTS, infectious_phases=phases)
    batch, alone = dz.simulate(model, 40, replicates=3, seed=5), dz.simulate(model, 13, worlds=[2], seed=5)
    alone.extend(1).extend(26)
    for name in ("cases", "recovered"):
        assert torch.equal(batch[name][2], alone[name][0])


@BUILDERS
def test_parameters_of_each_replicate(build):
    rates = [0.0, 0.05, 0.4]
    run = dz.simulate(build(CONTACTS), 15, replicates=3, params={"infect_rate": rates})
    for world, rate in enumerate(rates):
        alone = dz.simulate(build(CONTACTS, infect_rate=rate), 15, worlds=[world])
        assert torch.equal(run["cases"][world], alone["cases"][0])


@BUILDERS
@pytest.mark.parametrize("phases", [1, 5])
def test_straight_through_runs_equal_hard_ones(build, phases):
    model = build(CONTACTS, infectious_phases=phases)
    hard, soft = dz.simulate(model, 25), dz.simulate(model, 25, relax=StraightThrough())
    for name in ("cases", "recovered"):
        assert torch.allclose(soft[name], hard[name].float(), atol=1e-2)


@BUILDERS
@pytest.mark.parametrize("name", ["infect_rate", "infectious_days"])
@pytest.mark.parametrize("phases", [1, 3])
def test_gradient_of_the_mean_field_is_that_of_differences(build, name, phases):
    """d(cases in 20 days) / d(parameter), through time."""

    def cases(value: torch.Tensor) -> torch.Tensor:
        model = build(CONTACTS, infectious_phases=phases, seed_share=0.02).with_values({name: value})
        return dz.simulate(model, 20, relax=MeanField())["cases"].sum()

    value = torch.tensor({"infect_rate": 0.06, "infectious_days": 5.0}[name], requires_grad=True)
    (slope,) = torch.autograd.grad(cases(value), value)
    step = 0.01 * float(value.detach())
    with torch.no_grad():
        difference = (cases(value + step) - cases(value - step)) / (2 * step)
    assert float(slope) == pytest.approx(float(difference), rel=1e-3)


@pytest.mark.slow
@pytest.mark.compile
@pytest.mark.filterwarnings("ignore:.*script_method.*:DeprecationWarning")  # torch's own, when inductor is first loaded
@BUILDERS
@pytest.mark.parametrize("path", ["native", "compiled"])
def test_compiled_equals_eager(build, path, inside):
    if path == "compiled":
        inside.without_native()
    model = build(CONTACTS, infectious_phases=3)
    eager, compiled = (dz.simulate(model, 6, replicates=2, compile=choice) for choice in (False, True))
    assert compiled.stats()["path"] == path
    assert torch.equal(eager.state.stage.value, compiled.state.stage.value)


@BUILDERS
def test_contacts_of_other_packages_are_told_how(build):
    line = networkx.path_graph(4)
    with pytest.raises(InputError, match=r"contacts is networkx.Graph, expected .*; write dz.Graph.from_networkx\("):
        build(line)
    with pytest.raises(InputError, match=r"contacts is scipy.csr_.*; write dz.Graph.from_scipy\("):
        build(networkx.to_scipy_sparse_array(line, format="csr"))
    with pytest.raises(InputError, match=r"contacts is list, expected a dz.Graph, .*an edge list .*population$"):
        build([[0, 1], [1, 2]])
    assert build(dz.Graph.from_networkx(line)).num_agents == 4


@BUILDERS
def test_the_cells_of_a_grid_as_agents(build):
    """The same epidemic as on the graph of the same neighbours."""
    grid = dz.space.Grid((12, 15), torus=False, radius=2)
    on_grid, on_graph = (dz.simulate(build(contacts), 25, replicates=2) for contacts in (grid, grid.graph()))
    assert int(on_grid["cases"].sum()) > 0
    assert torch.equal(on_grid["cases"], on_graph["cases"])
