"""denizen's engine and tools on the simulated device of budgets: no host read, no transfer, the bits of the CPU."""

import numpy as np
import pytest
import torch
from torch import nn
from torch.utils.data import DataLoader, TensorDataset

import denizen as dz
from denizen.population import Population
from denizen.tools import Accumulate, Amp, MetricsWriter, PrefetchLoader, Timers, warm_up, windows
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

pytestmark = pytest.mark.skipif(torch.cuda.is_available(), reason="the simulated device is for machines without CUDA")
AGENTS = 60


def ring():
    ids = torch.arange(AGENTS)
    return torch.cat([ids, ids]), torch.cat([(ids + 1) % AGENTS, (ids + 7) % AGENTS])


def graph():
    return dz.Graph.from_edges(*ring())


def city():
    rng = np.random.default_rng(0)
    stages = np.zeros(AGENTS, dtype=np.int8)
    stages[:5] = 1
    edges = tuple(ids.numpy().astype(np.int32) for ids in ring())
    columns = {"age": rng.integers(0, 6, AGENTS).astype(np.uint8), "disease_stages": stages}
    return Population(
        "test", AGENTS, columns, {"age": ["20-29", "30-39", "40-49", "50-64", "65+", "under 19"]}, {"0": edges}
    )


MODELS = {
    "sir": lambda: sir(graph()),
    "seir": lambda: seir(graph(), latent_phases=2),
    "covid": lambda: covid(city()),
    "covid with sampled deaths": lambda: covid(city(), sample_deaths=True),
}


@pytest.fixture
def guard():
    return dz.budget(host_reads=0, transfers=0)


@pytest.mark.parametrize("replicates", [1, 3])
@pytest.mark.parametrize("name", MODELS)
def test_between_the_first_and_the_last_step_nothing_is_read_and_nothing_moves(name, replicates, guard):
    run = dz.simulate(MODELS[name](), 2, replicates=replicates, device=guard.device)
    run_state = run._run_state
    with guard:
        run._take(run_state, 2, 6)
    assert guard.report.ops > 20
    run.extend(4)
    there = dz.simulate(MODELS[name](), 6, replicates=replicates, device="cpu")
    for series in there.series_names:
        assert torch.equal(run[series].cpu(), there[series]), series


@pytest.mark.parametrize("block", [None, 2])
@pytest.mark.parametrize(("name", "series", "wrt"), [("sir", "cases", "infect_rate"), ("covid", "daily_infected", "R")])
def test_a_gradient_reads_nothing_and_moves_nothing(name, series, wrt, block, guard):
    def made(device):
        return dz.run.Gradient(
            MODELS[name](),
            lambda s: s[series].sum(),
            5,
            wrt=[wrt],
            relax=dz.relax.StraightThrough(),
            device=device,
            checkpoint=block,
            optimizer=lambda params: torch.optim.SGD(params, lr=1e-5, maximize=True),
        )

    there, here = made("cpu"), made(guard.device)
    losses = [there() for _ in range(3)]
    assert torch.equal(here().cpu(), losses[0])
    with guard:
        for _ in range(2):
            last = here()
    assert guard.report.ops > 100
    assert torch.equal(last.cpu(), losses[2])
    torch.testing.assert_close(here.gradients[wrt].cpu(), there.gradients[wrt])


def test_snapshots_leave_through_pinned_memory(guard):
    kept = dz.run.Snapshots(every=1)
    run = dz.simulate(MODELS["sir"](), 2, replicates=2, device=guard.device, snapshots=kept)
    with guard:
        run._take(run._run_state, 2, 6, run._snapshots)
    run = dz.simulate(MODELS["sir"](), 6, replicates=2, device=guard.device, snapshots=kept)
    there = dz.simulate(MODELS["sir"](), 6, replicates=2, device="cpu", snapshots=kept)
    for name in there.snapshots:
        assert torch.equal(run.snapshots[name], there.snapshots[name]), name


def test_a_run_there_is_eager_and_has_no_kernels_to_count(guard):
    run = dz.simulate(MODELS["sir"](), 3, device=guard.device, compile=True)
    assert run.stats()["path"] == "eager"
    with pytest.raises(dz.errors.InputError, match="device='cpu'"):
        run.stats(count=True)
    with pytest.raises(dz.errors.InputError, match=r"dz\.budget"):
        run.plan(kernels=True)


def test_metrics_are_logged_without_a_read(guard, tmp_path):
    losses, rows = torch.arange(4.0, device=guard.device), []
    with MetricsWriter(tmp_path / "metrics.jsonl", rows.append) as metrics, guard:
        for step in guard.steps(4, warmup=0):
            metrics.log(step, {"loss": losses[step], "best": losses.argmax(), "rate": 0.1})
    assert rows == [{"step": step, "loss": float(step), "best": 3, "rate": 0.1} for step in range(4)]


@pytest.mark.parametrize("given", [None, torch.float16])
def test_a_loop_with_every_tool_is_within_the_budget(guard, given):
    device = guard.device
    data = TensorDataset(torch.randn(32, 4), torch.randn(32, 2))
    model = nn.Sequential(nn.Linear(4, 8), nn.ReLU(), nn.Linear(8, 2)).to(device)
    optimizer = torch.optim.Adam(model.parameters(), fused=True)
    scheduler = torch.optim.lr_scheduler.StepLR(optimizer, 2)
    amp, timers, rows = Amp(device, given), Timers(device), []
    accumulate = Accumulate(model, optimizer, scheduler=scheduler, amp=amp, max_norm=1.0)
    batches = PrefetchLoader(DataLoader(data, 4, shuffle=True), device)

    def loss_sum(batch):
        return nn.functional.mse_loss(model(batch[0]), batch[1], reduction="sum")

    first = next(windows(PrefetchLoader(DataLoader(data, 4), device), 2))
    with dz.budget(host_reads=0, transfers=0):
        warm_up(lambda: accumulate(first, loss_sum), state=[model, optimizer, scheduler], steps=2)
    with MetricsWriter(rows.append) as metrics, guard:
        for step, window in enumerate(guard.steps(windows(batches, 2))):
            with timers("step"):
                loss = accumulate(window, loss_sum)
            metrics.log(step, {"loss": loss})
    assert [row["step"] for row in rows] == [0, 1, 2, 3]
    assert timers.host_times()["step"].count == 4
