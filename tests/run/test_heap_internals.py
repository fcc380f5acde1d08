"""Freed memory goes back to the system between chunks, where it has piled up."""

import pytest
import torch

import denizen as dz
from denizen.run import _machine, _run
from denizen.zoo.sir import sir

MIB, CPU = 1 << 20, torch.device("cpu")


@pytest.fixture
def heap(monkeypatch):
    """MiB held and free, and how often memory was given back: 100 MiB are left then."""
    state = {"held": 500, "trims": 0, "free": 1000}

    def trim(pad):
        state.update(held=100, trims=state["trims"] + 1)

    monkeypatch.setattr(_machine, "_kept", None)
    monkeypatch.setattr(_machine, "_trim", lambda: trim)
    monkeypatch.setattr(_machine, "_held", lambda: state["held"] * MIB)
    monkeypatch.setattr(_machine, "free_on_host", lambda: state["free"] * MIB)
    return state


def test_only_what_piles_up_is_given_back(heap):
    for held, agents, trims in [
        (500, 0, 0),
        (750, 0, 0),
        (760, 0, 1),
        (350, 0, 1),
        (410, MIB, 1),
        (480, 2 * MIB, 1),
        (480, 0, 2),
    ]:
        heap["held"] = held
        _machine.give_back(CPU, agents)
        assert heap["trims"] == trims


def test_where_much_is_free_it_does_not_matter(heap):
    heap["free"] = 8000
    for held, trims in ((500, 0), (2400, 0), (2600, 1)):
        heap["held"] = held
        _machine.give_back(CPU, 0)
        assert heap["trims"] == trims


def test_less_memory_is_where_it_counts_from(heap):
    for held in (3000, 200, 500):
        heap["held"] = held
        _machine.give_back(CPU, 0)
    assert heap["trims"] == 1


def test_not_for_a_gpu_nor_with_another_library(heap, monkeypatch):
    monkeypatch.setattr(_machine, "_kept", 0)
    heap["held"] = 9000
    _machine.give_back(torch.device("cuda"), 0)
    monkeypatch.setattr(_machine, "_trim", lambda: None)
    _machine.give_back(CPU, 0)
    assert heap["trims"] == 0


def test_runs_look_between_chunks(monkeypatch):
    seen = []
    monkeypatch.setattr(_run, "give_back", lambda device, agents: seen.append((device.type, agents)))
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(50, 4.0, seed=1))
    dz.simulate(sir(graph), 5, replicates=3, device="cpu")
    assert set(seen) == {("cpu", 150)}


def test_this_machine_can_be_asked():
    held = _machine._held()
    assert held is None or held > MIB
    trim = _machine._trim()
    assert trim is None or trim(0) in (0, 1)
