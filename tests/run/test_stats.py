"""Counts of steps, taken on copies: what they say of each model, and that the run does not notice."""

import pytest
import torch
from tests.run.played import Played
from torch import Tensor

import denizen as dz
from denizen.model import Ask, During
from denizen.perf.watch import allocations, counting, sync_warnings
from denizen.relax import MeanField
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

PEOPLE = dz.population.synthetic("astoria", 601)
GRAPH = dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 8.0, seed=1))
ZOO = {
    "seir": seir(GRAPH, seed_share=0.1),
    "sir": sir(GRAPH, seed_share=0.1),
    "covid": covid(PEOPLE, symmetrize=True, R=20.0),
    "covid-deaths": covid(PEOPLE, symmetrize=True, sample_deaths=True, isolation=0.2, R=20.0),
}
# Kernels of a step on a GPU, at most.
LAUNCHES = {"seir": 5, "sir": 5, "covid": 8, "covid-deaths": 10}
models = pytest.mark.parametrize("name", ZOO)


def bits(run: dz.run.Run) -> list[Tensor]:
    return [*(tensor.clone() for tensor in run._run_state.tensors()), *(run[name].clone() for name in run.series_names)]


def same(a: list[Tensor], b: list[Tensor]) -> bool:
    return len(a) == len(b) and all(torch.equal(x, y) for x, y in zip(a, b, strict=True))


def test_records_are_bytes_that_a_step_must_move():
    record = {"mine": lambda now: torch.zeros(1000)}
    needed = [
        dz.simulate(ZOO["sir"], 5, record=more).stats(count=True)["bytes_needed_per_step"] for more in ({}, record)
    ]
    assert needed[1] - needed[0] == 4000


@models
@pytest.mark.parametrize("replicates", [1, 3])
def test_counts_of_the_zoo(name, replicates):
    run = dz.simulate(ZOO[name], 8, replicates=replicates, seed=3)
    stats = run.stats(count=True)
    assert stats["host_reads"] == stats["transfers_to_device"] == stats["transfers_to_host"] == 0
    assert stats["graphs"] == stats["recompiles"] == 0
    assert (stats["counted_after"], stats["counted_steps"]) == (8, 4)
    assert stats["launches_per_step"] == stats["torch_ops_per_step"] + stats["vectorised_ops_per_step"]
    assert stats["launches_per_step"] < 90
    assert stats["fallback_ops_per_step"] == 0
    assert stats["vectorised_ops_per_step"] >= 5
    assert 0 < stats["busy_share"] <= 1
    assert 0 < stats["active_fraction"] < 1
    assert 0 < stats["at_risk_fraction"] < 1
    assert 0 < stats["changed_fraction"] < 1
    assert 2 * stats["state_bytes"] <= stats["bytes_needed_per_step"] < stats["bytes_moved_per_step"]
    assert stats["copy_share"] > 0
    assert stats["device_mallocs"] is stats["pool_reuse"] is None


@models
def test_counting_changes_no_bit(name):
    plain = dz.simulate(ZOO[name], 12, replicates=2, seed=5)
    counted = dz.simulate(ZOO[name], 5, replicates=2, seed=5)
    before = bits(counted)
    counted.stats(count=True)
    counted.plan(kernels=True)
    assert same(before, bits(counted))
    assert counted.steps == 5
    assert same(bits(plain), bits(counted.extend(7)))


def test_the_same_keys_always():
    run = dz.simulate(ZOO["seir"], 2, relax=MeanField())
    keys = list(run.stats())
    assert keys == list(run.stats(count=True)) == list(dz.simulate(ZOO["sir"], 0).stats())


def test_phases_and_looks():
    run = dz.simulate(ZOO["sir"], 40, snapshots=dz.run.Snapshots(every=10))
    stats = run.stats()
    phases = ["load", "init", "compile", "capture", "steps", "snapshot"]
    assert all(stats[f"seconds_{phase}"] >= 0 for phase in phases)
    assert stats["seconds_snapshot"] > 0
    assert stats["looks"] >= 3  # after init, after the first step, after each chunk


@models
def test_longer_chunks_read_no_more(name, inside):
    """Beside the steps there is the look at the end of a chunk, the same for any length."""
    inside.patient_chunks()  # chunks of 32 steps, however slow the machine
    run = dz.simulate(ZOO[name], 6, seed=3)
    reads = []
    for steps in (4, 16):
        looks = run.stats()["looks"]
        with counting(torch.device("cpu")) as counts:
            run.extend(steps)
        assert run.stats()["looks"] == looks + 1
        reads.append(counts.host_reads.total())
    assert reads[0] == reads[1]


# --- what counts as what ----------------------------------------------------------------------------------------------


class Reader(dz.Model):
    """Reads on the host in every step, which an eager run survives."""

    num_agents: int = 6

    class State(dz.State):
        value: Tensor = dz.count("agents")

    def init(self, rng: dz.rng.Rng) -> "Reader.State":
        return Reader.State(value=torch.arange(6, dtype=torch.int32))

    def step(self, now: "Reader.State", rng: dz.rng.Rng) -> "Reader.State":
        more = 1 if int(now.value.sum()) > 0 else 0
        last = now.value[-1:]
        return now.replace(value=torch.cat([now.value[:-1], last + more]))


def test_a_host_read_in_each_step_is_counted_and_one_of_six_agents_changes():
    stats = dz.simulate(Reader(), 3).stats(count=True)
    assert stats["host_reads"] == stats["counted_steps"]
    assert stats["changed_fraction"] == pytest.approx(1 / 6)
    assert stats["active_fraction"] is stats["at_risk_fraction"] is None  # no contacts
    assert stats["vectorised_ops_per_step"] == 0


def test_reference_ops_are_fallbacks():
    with dz.ops.reference_only():
        stats = dz.simulate(ZOO["sir"], 3).stats(count=True)
    assert stats["vectorised_ops_per_step"] == 0
    assert stats["fallback_ops_per_step"] >= 5


def test_active_and_at_risk_are_the_shares_of_senders_and_receivers():
    run = dz.simulate(ZOO["sir"], 6, replicates=2, seed=1)
    stage = run.state.stage
    shares = [float(stage.is_(level).float().mean()) for level in ("infected", "susceptible")]
    stats = run.stats(count=True)  # over two steps from here
    assert stats["active_fraction"] == pytest.approx(shares[0], abs=0.1)
    assert stats["at_risk_fraction"] == pytest.approx(shares[1], abs=0.15)


def test_who_answers_on_the_host_is_not_asked_for_counting():
    asked = []
    ask = Ask(
        target="isolation", groups=tuple("abcdef"), answer=lambda group, step: asked.append(step) or 0.1, when=During(2)
    )
    run = dz.simulate(ZOO["covid"], 4, interventions=[ask])
    before = list(asked)
    run.stats(count=True)
    assert asked == before


def test_a_relaxed_run_keeps_its_graph():
    rate = torch.tensor(0.3, requires_grad=True)
    run = dz.simulate(ZOO["sir"].replace(infect_rate=rate), 5, relax=MeanField())
    stats = run.stats(count=True)
    assert stats["host_reads"] == 0
    run.extend(2)
    run["cases"].sum().backward()
    assert rate.grad is not None
    assert float(rate.grad) != 0


# --- compiled ---------------------------------------------------------------------------------------------------------


@pytest.mark.compile
@models
def test_one_graph_and_no_recompiles(eager_backend, name):
    run = dz.simulate(ZOO[name], 10, replicates=2, compile=True)
    stats = run.stats(count=True)
    assert stats["path"] == "compiled"
    assert (stats["graphs"], stats["recompiles"], stats["host_reads"]) == (1, 0, 0)
    assert stats["launches_per_step"] is stats["busy_share"] is stats["allocations_per_step"] is None
    assert stats["vectorised_ops_per_step"] >= 5
    run.extend(20)
    stats = run.stats(count=True)
    assert (stats["graphs"], stats["recompiles"]) == (1, 0)
    assert "before it was compiled" in str(run.plan(kernels=True))


@pytest.mark.compile
def test_a_python_number_that_changes_is_a_recompile_that_counts(eager_backend):
    factor = [1.0]
    run = dz.simulate(ZOO["sir"], 6, compile=True, record={"mine": lambda now: factor[0] * now.time.value})
    assert (run.stats()["graphs"], run.stats()["recompiles"]) == (1, 0)
    factor[0] = 2.0
    run.extend(3)
    assert (run.stats()["graphs"], run.stats()["recompiles"]) == (2, 1)
    assert run["mine"].tolist() == [[1.0, 2.0, 3.0, 4.0, 5.0, 6.0, 14.0, 16.0, 18.0]]


@pytest.mark.compile
def test_threads_that_a_run_sets_for_itself_compile_nothing_anew(monkeypatch, eager_backend):
    """Small populations step in one thread, whatever torch is set to; torch compiles anew where that changes."""
    torch.set_num_threads(2)
    try:
        run = dz.simulate(ZOO["sir"], 10, compile=True)
    finally:
        torch.set_num_threads(1)
    assert (run.stats()["path"], run.stats()["graphs"], run.stats()["recompiles"]) == ("compiled", 1, 0)


# --- plans ------------------------------------------------------------------------------------------------------------


def test_the_plan_lists_a_step_in_order():
    run = dz.simulate(ZOO["sir"], 3)
    text = str(run.plan(kernels=True))
    assert "operations of a step, in order" in text
    assert text.index("denizen::sum_counts") < text.index("denizen::draw_among")
    assert "operations of a step" not in str(run.plan())
    assert "run.plan(kernels=True) lists" in str(run.plan())
    assert "run.extend(1) first" in str(dz.simulate(ZOO["sir"], 0).plan(kernels=True))


@models
def test_a_captured_run_is_counted_without_a_gpu(name, monkeypatch):
    plain = dz.simulate(ZOO[name], 30, replicates=2, seed=5)
    run = dz.simulate(ZOO[name], 5, replicates=2, seed=5)
    run._capture, run._path = Played(run), "captured"
    before = bits(run)
    stats = run.stats(count=True)
    assert same(before, bits(run))
    assert stats["launches_per_step"] is stats["busy_share"] is None
    eager = dz.simulate(ZOO[name], 5, replicates=2, seed=5).stats(count=True)
    assert stats["bytes_needed_per_step"] == eager["bytes_needed_per_step"]
    assert 2 * stats["state_bytes"] < stats["bytes_moved_per_step"] < eager["bytes_moved_per_step"]
    run.extend(25)
    assert same(bits(run), bits(plain))


# --- on a GPU ---------------------------------------------------------------------------------------------------------


@pytest.mark.cuda
@models
def test_counts_of_the_zoo_on_a_gpu(name):
    run = dz.simulate(ZOO[name], 80, replicates=1, seed=3, device="cuda", compile=True)
    stats = run.stats(count=True)
    print(name, stats)
    print(run.plan(kernels=True))
    assert stats["path"] == "captured"
    assert stats["host_reads"] == 0
    assert stats["transfers_to_host"] == stats["transfers_to_device"] == 0
    assert stats["allocations_per_step"] == 0
    assert stats["device_mallocs"] == 0
    assert stats["recompiles"] == 0
    assert stats["graphs"] <= 2  # the step, and what a chunk makes of its records
    assert stats["launches_per_step"] <= LAUNCHES[name]
    assert 0 < stats["busy_share"] < 1.2
    assert torch.cuda.get_sync_debug_mode() == 0


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["seir", "covid-deaths"])  # each compiles, and time on a GPU is dear
@pytest.mark.parametrize("compiled", [False, True])
def test_counting_changes_no_bit_on_a_gpu(name, compiled):
    plain = dz.simulate(ZOO[name], 60, replicates=2, seed=5, device="cuda", compile=compiled)
    counted = dz.simulate(ZOO[name], 25, replicates=2, seed=5, device="cuda", compile=compiled)
    before = bits(counted)
    keys = list(counted.stats(count=True))
    counted.plan(kernels=True)
    assert same(before, bits(counted))
    assert same(bits(plain), bits(counted.extend(35)))
    assert keys == list(dz.simulate(ZOO[name], 1).stats())


@pytest.mark.cuda
@pytest.mark.parametrize("name", ["seir", "covid-deaths"])  # each compiles, and time on a GPU is dear
def test_longer_chunks_wait_and_allocate_no_more_on_a_gpu(name, inside):
    inside.patient_chunks()
    run = dz.simulate(ZOO[name], 80, seed=3, device="cuda", compile=True)
    seen = []
    for steps in (64, 256):
        run.extend(steps)  # graphs are captured, blocks are in the pool
        torch.cuda.synchronize()
        with sync_warnings() as waits, allocations(run.device) as memory:
            run.extend(steps)
        seen.append((len(waits), memory.device_mallocs))
    assert seen[0] == seen[1]
    assert seen[1][1] == 0
