"""Traffic: cars are kept, and flow as theory says: exactly without dawdling, and for slow cars with it."""

import pytest
import torch

import denizen as dz
from denizen.errors import InputError
from denizen.zoo.traffic import flow_of_slow_cars, flow_without_dawdling, traffic


def driven(model, steps, **options):
    return dz.simulate(model, steps, compile=False, device="cpu", **options)


@pytest.mark.parametrize("max_speed", [1, 5])
def test_without_dawdling_the_flow_is_exact(max_speed):
    densities = [0.0, 0.05, 0.15, 1 / 6, 0.2, 0.5, 0.9, 1.0]
    model = traffic(roads=3, cells=60, dawdle=0.0, max_speed=max_speed)
    run = driven(model, 120, replicates=8, params={"density": densities})
    for flow, density in zip(run["flow"][:, -1].tolist(), densities, strict=True):
        cars = round(density * 60)
        assert flow == pytest.approx(flow_without_dawdling(cars / 60, max_speed), abs=1e-6)
    cars = run.state.car.reshape(8, 3, 60).sum(2)
    assert cars.tolist() == [[round(density * 60)] * 3 for density in densities]
    assert not (run.state.speed * (1 - run.state.car)).any()


def test_the_flow_of_slow_cars():
    """On long roads; the bound is four standard deviations of the means of eight replicates."""
    densities, replicates = [0.2, 0.5, 0.7], 8
    model = traffic(roads=3, cells=300, max_speed=1, dawdle=0.4)
    run = driven(
        model, 300, replicates=3 * replicates, params={"density": torch.tensor(densities).repeat_interleave(replicates)}
    )
    flows = run["flow"][:, 150:].double().mean(1).reshape(3, replicates)
    for flow, density in zip(flows, densities, strict=True):
        error = float(flow.std()) / replicates**0.5
        assert error < 1e-3
        assert abs(float(flow.mean()) - flow_of_slow_cars(density, 0.4)) < 4 * error


def test_cars_follow_the_four_rules():
    """One road by hand, without chance: a car at full speed brakes behind one that stands."""
    model = traffic(roads=3, cells=12, dawdle=0.0, max_speed=3, density=2 / 12)
    run = driven(model, 1, seed=1)
    before = run.state
    run.extend(1)
    for road in range(3):
        at = [int(cell) % 12 for cell in before.car[0].reshape(3, 12)[road].nonzero()]
        speeds = {cell: int(before.speed[0].reshape(3, 12)[road, cell]) for cell in at}
        expected = {}
        for cell in at:
            gap = min((other - cell) % 12 for other in at if other != cell) - 1
            speed = min(speeds[cell] + 1, 3, gap)
            expected[(cell + speed) % 12] = speed
        row = run.state.speed[0].reshape(3, 12)[road]
        assert {int(cell): int(row[cell]) for cell in run.state.car[0].reshape(3, 12)[road].nonzero()} == expected


def test_more_dawdling_more_jams():
    run = driven(traffic(roads=4, cells=60), 60, replicates=3, params={"dawdle": [0.0, 0.25, 0.5]})
    flow, standing = (run[name][:, 30:].double().mean(1) for name in ("flow", "standing"))
    assert (flow.diff() < 0).all()
    assert (standing.diff() > 0).all()


def test_wrong_arguments():
    for wrong, told in (
        ({"max_speed": 0}, "max_speed=0"),
        ({"cells": 4}, "cells=4"),
        ({"densty": 0.1}, "density"),
        ({"dawdle": -0.1}, "dawdle"),
    ):
        with pytest.raises(InputError, match=told):
            traffic(**wrong)


def test_a_run_of_cells_goes_on_from_its_folder(tmp_path):
    model = traffic(roads=3, cells=20)
    whole, begun = driven(model, 12, replicates=2), driven(model, 5, replicates=2, out=tmp_path / "run")
    del begun
    later = dz.run.resume(tmp_path / "run", model).extend(7)
    assert torch.equal(whole["flow"], later["flow"])
    assert torch.equal(whole.state.speed, later.state.speed)
    assert torch.equal(driven(model, 12, worlds=[1])["flow"][0], whole["flow"][1])
