"""Gradients of the COVID run against central differences under common random numbers (specification, section 4)."""

import dataclasses

import pytest
import torch

import denizen as dz
from denizen.compat.agenttorch import DataLoader, Executor, LoadPopulation
from denizen.compat.agenttorch.models import covid
from denizen.zoo.covid import covid as build

SOFT, SMOOTH = dz.relax.StraightThrough(), dz.relax.MeanField()


@pytest.fixture(scope="module")
def people():
    small = dz.population.synthetic(size=2000, networks=["0"])
    stages = small.columns["disease_stages"].copy()
    stages[:100] = 1
    return dataclasses.replace(small, columns={**small.columns, "disease_stages": stages})


def runner(people, relax, **options):
    loader = DataLoader(covid, LoadPopulation(people), **options)
    return Executor(covid, data_loader=loader, device="cpu", relax=relax).runner


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(
    ("name", "place", "series"),
    [
        ("R2", 0, "daily_infected"),
        ("R2", 1, "daily_infected"),
        ("R2", 2, "daily_infected"),
        ("susceptibility", 2, "daily_infected"),
        ("infector", 1, "daily_infected"),
        ("isolation", 3, "daily_infected"),
        ("mortality", (), "daily_deaths"),
    ],
)
def test_smooth_gradients_equal_central_differences(people, reference, name, place, series):
    run = runner(people, SMOOTH, reference=reference, isolation=0.1)
    value = next(tensor for full, tensor in run.named_parameters() if full.endswith(f".{name}"))
    weights = torch.linspace(0.5, 1.5, 21, dtype=torch.float64)  # not only the plain sum

    def objective(tensor):
        return (run.step_from_params({name: tensor})[series].double() * weights).sum()

    (grad,) = torch.autograd.grad(objective(value), value)
    step = 0.02 * max(float(value.detach().max()), 1.0)  # smaller ones drown in the rounding of float32 sums
    direction = torch.zeros_like(value)
    direction[place] = 1.0

    def difference(step):
        high, low = (objective((value + sign * step * direction).detach()).item() for sign in (1, -1))
        return (high - low) / (2 * step)

    # Richardson's extrapolation: by itself either difference is up to 1.5e-3 off, by its third derivative.
    expected = (4 * difference(step) - difference(2 * step)) / 3
    assert grad[place].item() == pytest.approx(expected, rel=1e-3)


def test_the_gradient_flows_through_time(people):
    """Week 1's R moves the last day's infections; and nobody is infected twice, which bounds the effect."""
    run = runner(people, SOFT)
    R2 = run.named_parameters()[0][1]
    daily = run.forward()["daily_infected"]
    (last_day,) = torch.autograd.grad(daily[20], R2, retain_graph=True)
    (first_week,) = torch.autograd.grad(daily[:7].sum(), R2)
    assert last_day[0] > 0
    assert first_week[0] > 0
    assert first_week[1:].abs().sum() == 0


@pytest.mark.slow
@pytest.mark.real
@pytest.mark.parametrize(
    ("reference", "low", "high", "week", "truth", "ratio"),
    [
        (True, 12.825, 15.675, None, (312, 60), (1.6, 2.2)),
        (True, 10.0, 18.5, 0, (80, 25), (2.5, 4.2)),
        (False, 4.275, 5.225, None, (182, 30), (1.1, 1.5)),
    ],
)
def test_bias_is_what_the_guide_says(data_root, reference, low, high, week, truth, ratio):
    """Bounds around the measured table of docs/guides/gradients.md: a change of the estimator must change the guide."""
    model = build(dz.population.load(data_root / "astoria", networks=["0"]), reference=reference)
    ends = []
    for value in (low, high):
        R = model.R.clone()
        R[slice(None) if week is None else week] = value
        ends.append(dz.simulate(model.replace(R=R), 21, replicates=20)["daily_infected"].double().sum(dim=1).mean())
    slope = ((ends[1] - ends[0]) / (high - low)).item()
    assert slope == pytest.approx(truth[0], abs=truth[1])
    grads = []
    for world in range(10):
        R = model.R.clone().requires_grad_()
        run = dz.simulate(model.replace(R=R), 21, worlds=[world], relax=SOFT)
        (grad,) = torch.autograd.grad(run["daily_infected"].sum(), R)
        grads.append(grad.sum() if week is None else grad[week])
    assert ratio[0] < torch.stack(grads).mean().item() / slope < ratio[1]
