"""Which device a run takes and says so; a run that stops on one device goes on on another."""

import contextlib
import json

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.run import Snapshots, resume
from denizen.zoo.cartpole import CartPole
from denizen.zoo.sir import SIR


def model():
    ring = torch.arange(200)
    return SIR(dz.Graph.from_edges(ring, (ring + 1) % 200, 200, directed=False), infect_rate=0.3, seed_share=0.05)


@pytest.fixture
def no_cuda(monkeypatch):
    monkeypatch.setattr(torch.cuda, "is_available", lambda: False)


@pytest.fixture(autouse=True)
def _nothing_set(monkeypatch):
    monkeypatch.delenv("DENIZEN_DEVICE", raising=False)


def test_without_cuda_it_is_the_cpu(no_cuda):
    run = dz.simulate(model(), 1)
    assert run.device == torch.device("cpu")
    assert run.stats()["device_reason"] == "torch sees no CUDA device"
    assert "cpu (torch sees no CUDA device)" in str(run.plan())
    assert "cpu (as asked)" in str(dz.simulate(model(), 0, device="cpu").plan())


@pytest.mark.parametrize(
    ("value", "words"),
    [("gpu", "is not a device"), ("mps", "expected 'cpu' or 'cuda'"), ("cuda", "sees no CUDA device here")],
)
def test_a_wrong_environment_is_named(no_cuda, monkeypatch, value, words):
    monkeypatch.setenv("DENIZEN_DEVICE", value)
    with pytest.raises(InputError, match=f"environment variable DENIZEN_DEVICE='{value}'.*{words}"):
        dz.simulate(model(), 1)
    assert dz.simulate(model(), 1, device="cpu").steps == 1


def made_on_cuda(path):
    """A folder of a run on the CPU that says it was made on CUDA: the files are the same."""
    manifest = json.loads((path / "manifest.json").read_text())
    manifest["setup"]["device"] = "cuda"
    (path / "manifest.json").write_text(json.dumps(manifest))


def test_a_run_made_on_cuda_goes_on_on_the_cpu(tmp_path, no_cuda, monkeypatch):
    whole = dz.simulate(model(), 20, replicates=2, snapshots=Snapshots(4))
    dz.simulate(model(), 9, replicates=2, snapshots=Snapshots(4), out=tmp_path / "r")
    made_on_cuda(tmp_path / "r")
    with pytest.raises(InputError, match="device='cpu' goes on on the CPU"):
        resume(tmp_path / "r", model(), 4)
    resume(tmp_path / "r", model(), 4, device="cpu")
    assert json.loads((tmp_path / "r" / "manifest.json").read_text())["setup"]["device"] == "cpu"
    made_on_cuda(tmp_path / "r")
    monkeypatch.setenv("DENIZEN_DEVICE", "cpu")
    resumed = resume(tmp_path / "r", model(), 7)
    assert all(torch.equal(whole[name], resumed[name]) for name in whole.series_names)
    assert all(torch.equal(whole.snapshots[name], resumed.snapshots[name]) for name in whole.snapshots)


@pytest.mark.cuda
@pytest.mark.parametrize(("first", "second"), [("cuda", "cpu"), ("cpu", "cuda")])
def test_a_folder_goes_from_one_device_to_another(tmp_path, first, second):
    pytest.importorskip("zarr")
    whole = dz.simulate(model(), 60, replicates=2, snapshots=Snapshots(4), device="cpu")
    dz.simulate(model(), 31, replicates=2, snapshots=Snapshots(4), out=tmp_path / "r", device=first)
    resumed = resume(tmp_path / "r", model(), 29, device=second)
    assert resumed.device.type == second
    assert all(torch.equal(whole[name], resumed[name].cpu()) for name in whole.series_names)
    assert all(torch.equal(whole.snapshots[name], resumed.snapshots[name]) for name in whole.snapshots)


def test_work_is_launched_on_the_device_of_the_run(monkeypatch):
    """Triton and graphs take the current device, which is not the run's where another one was asked for."""
    run, entered = dz.simulate(model(), 1), []

    @contextlib.contextmanager
    def there(device):
        entered.append(device)
        yield

    monkeypatch.setattr(torch.cuda, "device", there)
    run.extend(1)
    assert entered == []
    monkeypatch.setattr(dz.run.Run, "_device", torch.device("cuda:1"))
    run.extend(1)
    run.plan()
    run.stats()
    assert entered == [torch.device("cuda:1")] * 3
    assert run.steps == 3


@pytest.mark.cuda
@pytest.mark.parametrize("compiled", [False, True])
def test_a_second_gpu(compiled):
    if torch.cuda.device_count() < 2:
        pytest.skip("one GPU")
    host = dz.simulate(model(), 80, replicates=2, device="cpu")
    one = dz.simulate(model(), 40, replicates=2, device="cuda:1", compile=compiled)
    other = dz.simulate(model(), 80, replicates=2, device="cuda:0", compile=compiled)
    one.extend(40)
    assert torch.cuda.current_device() == 0
    assert one.stats(count=True)["host_reads"] == 0
    for run in (one, other):
        assert all(torch.equal(host[name], run[name].cpu()) for name in host.series_names)
    slope = dz.run.Gradient(
        model(),
        lambda series: series["cases"].mean(),
        10,
        wrt=["infect_rate"],
        relax=dz.relax.MeanField(),
        device="cuda:1",
        compile=compiled,
    )
    losses = [float(slope()) for _ in range(3)]
    assert losses[0] == losses[1] == losses[2]
    assert slope.gradients["infect_rate"].device == torch.device("cuda:1")
    try:
        found = dz.rl.Worlds(CartPole(), 64, device="cuda:1")
        found.reset()
        assert found.step(torch.ones(64, dtype=torch.int64, device="cuda:1")).reward.device.index == 1
        found.check()
    finally:
        torch.cuda.set_device(0)


@pytest.mark.cuda
def test_cuda_by_itself():
    run = dz.simulate(model(), 2)
    assert (run.device.type, run.stats()["device_reason"]) == ("cuda", "torch sees it")
