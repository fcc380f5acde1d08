"""The published script of AgentTorch, with its two import lines replaced, on the stand-in and on the real Astoria."""

import time

import pytest
import torch

from denizen.compat.agenttorch import DataLoader, Executor, LoadPopulation
from denizen.compat.agenttorch.models import covid
from denizen.compat.agenttorch.populations import astoria


def setup(model, population):
    t_loader_start = time.perf_counter()
    pop_loader = LoadPopulation(population)
    dl = DataLoader(model, pop_loader)
    simulation = Executor(model=model, data_loader=dl)
    t_loader_end = time.perf_counter()
    runner = simulation.runner
    t_init_start = time.perf_counter()
    runner.init()
    t_init_end = time.perf_counter()
    print(f"load {t_loader_end - t_loader_start:.2f} s, init {t_init_end - t_init_start:.2f} s")
    return runner


def simulate(runner):
    num_steps_per_episode = runner.config["simulation_metadata"]["num_steps_per_episode"]
    runner.step(num_steps_per_episode)
    traj = runner.state_trajectory[-1][-1]
    preds = traj["environment"]["daily_infected"]
    loss = preds.sum()
    loss.backward()
    return loss


def script():
    runner = setup(covid, astoria)
    learn_params = [(name, params) for (name, params) in runner.named_parameters()]
    # Ensure new tensor is on the same device as the runner
    device = runner.device
    new_tensor = torch.tensor([3.5, 4.2, 5.6], requires_grad=True, device=device)
    input_string = learn_params[0][0]
    input_string = "initializer.transition_function.0.new_transmission.learnable_args.R2"
    params_dict = {input_string: new_tensor}
    runner._set_parameters(params_dict)
    loss = simulate(runner)
    if hasattr(runner, "get_performance_stats"):
        stats = runner.get_performance_stats()
        print("\nPerformance Stats:")
        for key, value in stats.items():
            print(f"  {key}: {value}")
    return runner, new_tensor, loss, stats


@pytest.mark.parametrize("where", ["stand-in", pytest.param("real", marks=pytest.mark.real)])
def test_the_script_runs_and_every_week_has_a_gradient(where, request, monkeypatch, capsys):
    monkeypatch.delenv("DENIZEN_DATA", raising=False)
    if where == "real":
        monkeypatch.setenv("DENIZEN_DATA", str(request.getfixturevalue("data_root")))
    runner, tensor, loss, stats = script()
    assert where == "real" or "astoria: the synthetic stand-in" in capsys.readouterr().err
    assert tensor.grad.shape == (3,)
    assert torch.isfinite(tensor.grad).all()
    assert (tensor.grad > 0).all()
    assert runner.config["simulation_metadata"]["num_agents"] == 37_518
    assert stats["steps"] == 21
    assert loss.item() > 100  # spec, end of section 5: the original as shipped has no epidemic
    assert runner.state_trajectory[-1][-1]["environment"]["daily_infected"][20] > 5
    assert runner.named_parameters()[0][1] is tensor


@pytest.mark.cuda
def test_the_script_runs_on_cuda(monkeypatch):
    monkeypatch.delenv("DENIZEN_DEVICE")  # of conftest.py
    monkeypatch.delenv("DENIZEN_DATA", raising=False)
    runner, tensor, loss, stats = script()
    assert runner.device.type == tensor.grad.device.type == "cuda"
    assert (tensor.grad > 0).all()
    apart = Executor(covid, pop_loader=LoadPopulation(astoria), device="cpu").runner
    with torch.no_grad():
        apart.set_parameters({"R2": tensor.detach().cpu()})
    assert torch.equal(
        apart.forward()["daily_infected"].detach(),
        runner.state_trajectory[-1][-1]["environment"]["daily_infected"].detach().cpu(),
    )
    assert stats["launches_per_step"] > 0
    assert stats["peak_allocated_bytes"] > 0
    assert stats["host_reads"] == stats["host_device_bytes"] == 0
