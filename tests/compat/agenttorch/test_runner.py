"""The runner's calls, row by row of section 7 of the specification."""

import dataclasses

import pytest
import torch

import denizen as dz
from denizen.compat.agenttorch import DataLoader, Executor, LoadPopulation
from denizen.compat.agenttorch.models import covid
from denizen.errors import InputError

R2 = "initializer.transition_function.0.new_transmission.learnable_args.R2"


@pytest.fixture(scope="module")
def people():
    """A stand-in with enough seeds for an epidemic among few."""
    small = dz.population.synthetic(size=2000, networks=["0"])
    stages = small.columns["disease_stages"].copy()
    stages[:100] = 1
    return LoadPopulation(dataclasses.replace(small, columns={**small.columns, "disease_stages": stages}))


@pytest.fixture
def runner(people):
    return Executor(covid, pop_loader=people, device="cpu", seed=3).runner


def daily(runner):
    return runner.state_trajectory[-1][-1]["environment"]["daily_infected"]


def same(a, b):
    return all(torch.equal(a[name], b[name]) for name in a)


# --- time -------------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("splits", [(2, 2), (1, 3), (4, 0), (1, 1, 1, 1)])
def test_steps_go_on_where_they_stopped(people, splits):
    whole, parts = (Executor(covid, pop_loader=people, device="cpu").runner for _ in range(2))
    whole.step(4)
    for n in splits:
        parts.step(n)
    assert torch.equal(daily(whole), daily(parts))
    assert torch.equal(whole.run.state.exposed.value, parts.run.state.exposed.value)
    assert same(whole.state["agents"]["citizens"], parts.state["agents"]["citizens"])


def test_init_is_idempotent_and_reset_returns_to_the_start(runner):
    runner.init()
    first = runner.run
    runner.init()
    assert runner.run is first
    runner.step(5)
    series = daily(runner).detach().clone()
    values = dict(runner.named_parameters())
    for reset in (runner.reset, runner.reset_state):
        reset()
        assert runner.state["current_step"] == 0
        assert len(runner.state_trajectory) == 1
        assert all(values[name] is tensor for name, tensor in runner.named_parameters())
        runner.step(5)
        assert torch.equal(daily(runner), series)


def test_forward_and_step_from_params_are_functions_of_the_parameters(runner):
    R = torch.tensor([9.0, 9.0, 9.0], requires_grad=True)
    base = runner.forward(10)
    more = runner.step_from_params({"R2": R}, 10)
    assert base["daily_infected"].shape == more["daily_infected"].shape == (10,)
    assert torch.equal(more["daily_infected"], runner.forward(10)["daily_infected"])
    assert more["daily_infected"].sum() > base["daily_infected"].sum()
    (grad,) = torch.autograd.grad(more["daily_infected"].sum(), R)
    assert grad[0] > 0
    assert grad[1] > 0
    assert grad[2] == 0  # ten days do not reach the third week


def test_an_episode_of_other_length_has_its_weeks(people):
    ex = Executor(covid, pop_loader=people, device="cpu", steps=23)
    metadata = ex.runner.config["simulation_metadata"]
    assert (metadata["num_steps_per_episode"], metadata["NUM_WEEKS"]) == (23, 4)
    assert dict(ex.runner.named_parameters())[R2].shape == (4,)
    ex.execute()
    assert daily(ex.runner).shape == (23,)
    ex.execute()  # nothing is left of the episode
    assert ex.runner.state["current_step"] == 23


def test_more_steps_than_an_episode_grow_the_outputs_and_say_which_r_they_use(runner):
    runner.step(21)
    with pytest.warns(UserWarning, match="values for 21 days"):
        runner.step(2)
    assert daily(runner).shape == (23,)
    runner.step(1)  # said once


def test_execute_inits_if_needed(people):
    ex = Executor(covid, people, device="cpu")
    ex.execute(steps=2)
    ex.execute()
    assert ex.runner.state["current_step"] == 21


# --- parameters -------------------------------------------------------------------------------------------------------


def test_named_parameters_are_the_objects_that_the_simulation_reads(runner):
    names = [name.rpartition(".")[2] for name, _ in runner.named_parameters()]
    assert names == ["R2", "susceptibility", "infector", "isolation", "mortality"]
    optimizer = torch.optim.SGD([tensor for _, tensor in runner.named_parameters()], lr=1e-3)
    before = runner.forward()
    loss = before["daily_infected"].sum() + before["daily_deaths"].sum()
    loss.backward()
    assert all(tensor.grad is not None and tensor.grad.abs().sum() > 0 for _, tensor in runner.named_parameters())
    with torch.no_grad():
        for _, tensor in runner.named_parameters():
            tensor.grad.clamp_(-1, 1)
        dict(runner.named_parameters())[R2].grad.fill_(1000.0)
    optimizer.step()
    assert dict(runner.named_parameters())[R2].tolist() == pytest.approx([3.75] * 3)
    with torch.no_grad():
        for name, tensor in runner.named_parameters():
            if not name.endswith("R2"):
                tensor.clamp_(0, 1)
    assert runner.forward()["daily_infected"].sum() < before["daily_infected"].sum()


@pytest.mark.parametrize("name", [R2, "R2", "initializer.transition_function.0.new_transmission.calibrate_R2"])
def test_a_parameter_has_three_names(runner, name):
    base = torch.tensor(2.0, requires_grad=True)
    tensor = base.expand(3) * 2  # not a leaf: the graph is kept
    runner._set_parameters({name: tensor})
    assert dict(runner.named_parameters())[R2] is tensor
    runner.step(12)
    daily(runner).sum().backward()
    assert base.grad > 0
    assert type(runner)._set_parameters is type(runner).set_parameters


def test_a_parameter_set_on_the_way_counts_from_the_next_step(runner, people):
    runner.step(5)
    runner.set_parameters({"R2": torch.zeros(3)})
    runner.step(16)
    other = Executor(covid, pop_loader=people, device="cpu", seed=3).runner
    other.step(5)
    assert torch.equal(daily(runner)[:5], daily(other)[:5])
    assert daily(runner)[5:].sum() == 0


def test_a_policy_of_isolation_is_learnable(people):
    policy = torch.nn.Sequential(torch.nn.Linear(2, 1), torch.nn.Sigmoid())
    ex = Executor(covid, data_loader=DataLoader(covid, people, isolation=policy), device="cpu")
    runner = ex.runner
    named = {name.partition("learnable_args.")[2]: tensor for name, tensor in runner.named_parameters()}
    assert "isolation" not in named
    assert named["policy.0.weight"] is policy[0].weight
    own = runner.forward()["daily_infected"]
    own.sum().backward()
    assert policy[0].bias.grad < 0  # more isolation, fewer infections
    bias = torch.tensor([20.0], requires_grad=True)
    set_by_name = runner.step_from_params({"policy.0.bias": bias, "policy.0.weight": torch.zeros(1, 2)})[
        "daily_infected"
    ]
    assert set_by_name.sum() < own.sum()
    assert torch.autograd.grad(set_by_name.sum(), bias)[0].isfinite()
    with pytest.raises(InputError, match=r"expected \(1,\)"):
        runner.set_parameters({"policy.0.bias": torch.zeros(2)})


def test_unknown_names_list_the_valid_ones(runner):
    with pytest.raises(
        KeyError, match=r"unknown parameter 'R3'.*learnable_args\.R2 \(short: R2\).*mortality"
    ) as caught:
        runner.set_parameters({"mortality": torch.tensor(0.5), "R3": torch.zeros(3)})
    assert isinstance(caught.value, InputError)
    assert dict(runner.named_parameters())[runner.named_parameters()[-1][0]].item() == pytest.approx(
        0.12
    )  # all or none


@pytest.mark.parametrize(
    ("name", "tensor", "message"),
    [
        ("R2", torch.zeros(3, 1), r"shape \(3, 1\), expected \(3,\), one number for each week"),
        ("R2", torch.tensor(4.75), r"shape \(\), expected \(3,\)"),
        ("R2", torch.zeros(4), r"expected \(3,\)"),
        ("susceptibility", torch.zeros(9), r"expected \(6,\)"),
        ("R2", torch.tensor([1.0, -1.0, 1.0]), "at least 0"),
        ("mortality", torch.tensor(float("nan")), "finite"),
        ("R2", torch.tensor([3, 4, 5]), "floating-point"),
        ("R2", [3.0, 4.0, 5.0], "floating-point"),
    ],
)
def test_wrong_values_are_refused(runner, name, tensor, message):
    with pytest.raises(InputError, match=message):
        runner.set_parameters({name: tensor})


def test_one_parameter_under_two_names_is_refused(runner):
    with pytest.raises(InputError, match="another name"):
        runner.set_parameters({"R2": torch.ones(3), R2: torch.ones(3)})
    with pytest.raises(InputError, match="expected a mapping"):
        runner.set_parameters([("R2", torch.ones(3))])


# --- gradient or not --------------------------------------------------------------------------------------------------


def test_without_gradient_the_hard_run_gives_the_same_series(runner):
    relaxed = runner.forward()
    assert relaxed["daily_infected"].requires_grad
    with torch.no_grad():
        hard = runner.forward()
    assert not hard["daily_infected"].requires_grad
    assert "hard" in runner.get_performance_stats()["path"]
    assert all(torch.equal(relaxed[name], hard[name].to(relaxed[name].dtype)) for name in relaxed)
    with pytest.raises(InputError, match="call reset"):
        runner.step(1)


def test_relax_none_never_carries_a_gradient(people):
    out = Executor(covid, pop_loader=people, device="cpu", relax=None).runner.forward(8)
    assert not out["daily_infected"].requires_grad


# --- several at once, nothing on disk ---------------------------------------------------------------------------------


def test_simulations_of_one_process_do_not_touch_each_other(people):
    loader = DataLoader(covid, people)
    a, b, c = (Executor(covid, data_loader=loader, device="cpu", seed=seed).runner for seed in (0, 1, 0))
    symmetric = Executor(covid, data_loader=DataLoader(covid, people, symmetrize=True), device="cpu").runner
    for _ in range(3):
        for each in (a, b, c, symmetric):
            each.step(7)
    assert torch.equal(daily(a), daily(c))
    assert not torch.equal(daily(a), daily(b))
    assert daily(symmetric).sum() > daily(a).sum()
    a.set_parameters({"R2": torch.zeros(3)})
    assert dict(c.named_parameters())[R2][0] == 4.75


def test_nothing_is_written(people, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    ex = Executor(covid, pop_loader=people, device="cpu")
    ex.execute(3)
    with pytest.raises(InputError, match="cannot be written"):
        ex.runner.config["simulation_metadata"]["num_steps_per_episode"] = 3
    with pytest.raises(KeyError, match="simulation_metadata"):
        ex.runner.config["simulation_metadat"]
    assert list(tmp_path.iterdir()) == []


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({}, "either pop_loader= or data_loader="),
        ({"pop_loader": "synthetic:astoria:200", "record": ["stage"]}, "record has 'stage'"),
        ({"pop_loader": "synthetic:astoria:200", "steps": 0}, "steps=0"),
        ({"pop_loader": "synthetic:astoria:200", "every": True}, "every=True"),
        ({"data_loader": "synthetic:astoria:200"}, "data_loader is str"),
    ],
)
def test_wrong_arguments_of_executor(options, message):
    with pytest.raises(InputError, match=message):
        Executor(covid, device="cpu", **options)


def test_stats_have_times_rates_and_bytes(people):
    runner = Executor(covid, pop_loader=people, device="cpu", record=["daily_infected", "disease_stage"]).runner
    assert runner.get_performance_stats()["wall_seconds_per_step"] is None
    runner.step(6)
    stats = runner.get_performance_stats()
    assert stats["steps"] == stats["counted_after"] == 6
    assert stats["wall_seconds_per_step"] == pytest.approx(2 * stats["wall_seconds_per_substep"])
    assert stats["agents_per_second"] == pytest.approx(2000 / stats["wall_seconds_per_step"])
    assert stats["edges_per_second"] > stats["agents_per_second"]
    assert stats["host_device_bytes"] == stats["host_reads"] == 0
    assert stats["launches_per_step"] > 10
    assert stats["peak_allocated_bytes"] is None
    assert stats["seconds_load"] > 0
    assert set(runner.run.stats()) <= set(stats)
    assert stats["trajectory_bytes"] > 2000 * 13  # a byte for each agent, in 1 + 2 x 6 records
