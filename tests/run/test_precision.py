"""Fields in 16 bits: stored narrow, computed with in float32, and only where curves do not move."""

from pathlib import Path
from typing import Any

import pytest
import torch
from tests.run.played import one_graph
from torch import Tensor

import denizen as dz
from denizen import ops
from denizen.errors import InputError, ModelError
from denizen.relax import MeanField, StraightThrough
from denizen.run import Precision, check_precision
from denizen.space import Space
from denizen.zoo.covid import covid
from denizen.zoo.sir import SIR
from inside import Inside

HALVES = [torch.float16, torch.bfloat16]


class Households(dz.State):
    wealth: Tensor = dz.real("agents")
    poor: Tensor = dz.mask("agents")


class Economy(dz.Model):
    """Wealth walks at random; whoever falls below 1 counts as poor."""

    num_agents: int = 400
    drift: Tensor = dz.param(0.0)
    start: Tensor = dz.param(2.0)
    luck: Tensor = dz.param(0.05)

    def init(self, rng: dz.rng.Rng) -> Households:
        wealth = self.start * rng.uniform("wealth", 0.5, 1.5)
        return Households(wealth=wealth, poor=torch.zeros_like(wealth, dtype=torch.int8))

    def step(self, now: Households, rng: dz.rng.Rng) -> Households:
        assert now.wealth.dtype == torch.float32
        wealth = now.wealth * (1 + rng.normal("luck", 0.0, self.luck)) + self.drift
        return now.replace(wealth=wealth, poor=(wealth < 1).to(torch.int8))

    @dz.series
    def poor(self, now: Households) -> Tensor:
        return now.poor.sum()

    @dz.series
    def total(self, now: Households) -> Tensor:
        return now.wealth.sum()


@pytest.mark.parametrize("dtype", HALVES)
def test_both_types_are_stored_and_shown(dtype: torch.dtype) -> None:
    run = dz.simulate(Economy(), 12, replicates=2, precision={"wealth": dtype}, device="cpu")
    assert run.state.wealth.dtype == dtype
    assert run.state.poor.dtype == torch.int8
    assert str(dtype).removeprefix("torch.") in str(run.plan())
    wide = dz.simulate(Economy(), 12, replicates=2, device="cpu")
    assert wide.state.wealth.dtype == torch.float32
    assert not torch.equal(wide["total"], run["total"])
    torch.testing.assert_close(wide["total"], run["total"], rtol=2e-3, atol=0.0)
    assert torch.equal(run["total"][:, -1], run.state.wealth.float().sum(dim=1))  # series see what is stored


class Pair(dz.State):
    half: Tensor = dz.real("agents")
    brain: Tensor = dz.real("agents")


class Walks(dz.Model):
    """Each narrow field is seen by a level, by a flow and by the step after."""

    num_agents: int = 100

    def init(self, rng: dz.rng.Rng) -> Pair:
        return Pair(half=rng.normal("half"), brain=rng.normal("brain"))

    def step(self, now: Pair, rng: dz.rng.Rng) -> Pair:
        return now.replace(half=0.9 * now.half + rng.uniform("up"), brain=now.half + 0.9 * now.brain)

    @dz.series
    def seen(self, now: Pair) -> Tensor:
        return torch.stack([now.half, now.brain])

    @dz.series
    def moved(self, before: Pair, now: Pair) -> Tensor:
        return torch.stack([now.half - before.half, now.brain - before.brain])


@pytest.mark.slow
@pytest.mark.compile
def test_compiled_series_see_what_is_stored(inside: Inside) -> None:
    """Inductor dropped the rounding to 16 bits: series were off by up to half a step of the narrow numbers."""
    inside.without_native()
    narrow = {"half": torch.float16, "brain": torch.bfloat16}
    loose = Precision(narrow, Walks, None, 8)  # compared elsewhere
    run = dz.simulate(Walks(), 8, replicates=2, precision=loose, device="cpu", compile=True)
    assert run.stats()["path"] == "compiled"
    seen = run["seen"]
    for k, (name, dtype) in enumerate(narrow.items()):
        assert torch.equal(seen[:, -1, k], getattr(run.state, name).to(torch.float32))
        assert torch.equal(seen[:, :, k], seen[:, :, k].to(dtype).to(torch.float32))
    assert torch.equal(run["moved"][:, 1:], seen[:, 1:] - seen[:, :-1])


@pytest.mark.compile
def test_what_is_kept_in_16_bits_is_computed_with_so_too() -> None:
    """As an action is stored and judged in one compiled step: inductor drops the rounding of a plain cast."""

    def both(mean: Tensor, noise: Tensor) -> list[Tensor]:
        kept = [ops.rounded(mean + 0.01 * noise, dtype) for dtype in HALVES]
        return [*kept, *[(one - mean) ** 2 for one in kept]]

    mean, noise = torch.linspace(-2, 2, 200), torch.linspace(1, 3, 200)
    with torch.no_grad():
        *kept, first, second = one_graph(both, "inductor")(mean, noise)
    for one, off, dtype in zip(kept, (first, second), HALVES, strict=True):
        assert torch.equal(one, (mean + 0.01 * noise).to(dtype))
        torch.testing.assert_close(off, (one.to(torch.float32) - mean) ** 2, rtol=1e-4, atol=0)


def test_rounding_within_vmap_looks_at_bits_outside_of_it(monkeypatch):
    """Torch 2.11 has no rule for it within."""
    view = torch.Tensor.view

    def checked(self, *shape):
        assert not (isinstance(shape[0], torch.dtype) and torch._C._functorch.is_batchedtensor(self))
        return view(self, *shape)

    monkeypatch.setattr(torch.Tensor, "view", checked)
    numbers = torch.randn(3, 4, 50, generator=torch.Generator().manual_seed(1))
    for axes in ((0, 1), (1, 0), (2, 1)):
        with torch.no_grad():
            by_bits, cast = (
                torch.vmap(torch.vmap(way, axes[1]), axes[0])(numbers)
                for way in (lambda x: ops.rounded(x, torch.bfloat16), lambda x: x.to(torch.bfloat16))
            )
        assert torch.equal(by_bits, cast)


def test_what_moves_a_curve_is_refused() -> None:
    """From 300 on a bfloat16 cannot grow by 0.5 a step: its neighbours are 2 apart."""
    growing = Economy(drift=0.5, start=300.0, luck=0.0)
    with pytest.raises(InputError, match=r"the mean curve of 'total' moves by .* at step \d+, and 16 pairs of worlds"):
        dz.simulate(growing, 40, precision={"wealth": torch.bfloat16}, device="cpu", record={"spread": spread})
    found = check_precision(growing, {"wealth": torch.float16}, 10, device="cpu")
    assert found.shifts["total"][0] <= found.shifts["total"][1]
    assert "wealth: float16" in repr(found)


def spread(now: Any) -> Tensor:
    return now.wealth.std()


def test_what_does_not_fit_is_refused() -> None:
    with pytest.raises(InputError, match=r"is refused: .*wealth \(real\) is out of range"):
        dz.simulate(Economy(start=70_000.0), 3, precision={"wealth": torch.float16}, device="cpu")


class AtTheSide(dz.State):
    at: Tensor = dz.real("agents", "xy")


class Still(dz.Model):
    """Nobody moves, close to the side of a torus that no float16 is just below."""

    num_agents: int = 4

    def init(self, rng: dz.rng.Rng) -> AtTheSide:
        return AtTheSide(at=torch.full((4, 2), 99.915))

    def step(self, now: AtTheSide, rng: dz.rng.Rng) -> AtTheSide:
        Space((99.92, 99.92)).near(now.at, 5.0, rng)
        return now.replace(at=now.at * 1.0)


def test_positions_rounded_past_a_side_are_told() -> None:
    dz.simulate(Still(), 3)
    with pytest.raises((InputError, ModelError), match="stored in 16 bits by precision= are rounded, also past a side"):
        dz.simulate(Still(), 3, precision={"at": torch.float16})


def test_checked_once_for_many_runs() -> None:
    found = check_precision(Economy(), {"wealth": torch.float16}, 8, replicates=4, device="cpu")
    run = dz.simulate(Economy(drift=0.01), 8, precision=found, seed=7, device="cpu")
    assert run.state.wealth.dtype == torch.float16
    with pytest.raises(InputError, match="checked over 8 steps and steps=9"):
        dz.simulate(Economy(), 9, precision=found, device="cpu")
    with pytest.raises(InputError, match=r"was checked for Economy with relax=None"):
        dz.simulate(Economy(), 8, precision=found, relax=MeanField(), device="cpu")


@pytest.mark.parametrize(
    ("precision", "message"),
    [
        ({"weal": torch.float16}, "'wealth'"),
        ({"poor": torch.float16}, "'poor' is a mask, stored in 8 bits already"),
        ({"wealth": torch.float64}, r"expected torch.float16 or torch.bfloat16"),
        ({"wealth": "half"}, r"expected torch.float16 or torch.bfloat16"),
        ({}, "expected dtypes by field"),
        ("half", "expected dtypes by field"),
    ],
)
def test_wrong_choices(precision: Any, message: str) -> None:
    with pytest.raises(InputError, match=message):
        dz.simulate(Economy(), 2, precision=precision, device="cpu")
    with pytest.raises(InputError, match="replicates=1"):
        check_precision(Economy(), {"wealth": torch.float16}, 2, replicates=1)


def sir() -> SIR:
    return SIR(dz.Graph.from_edges(dz.space.generators.erdos_renyi(200, 8.0, seed=1)), seed_share=0.1)


@pytest.mark.parametrize("dtype", HALVES)
def test_shares_of_a_relaxed_run(dtype: torch.dtype) -> None:
    """0 and 1 are exact in 16 bits, and a history's columns that only grow older are handed on as they are."""
    model = covid(dz.population.synthetic("astoria", 600), R=30.0)
    plain = dz.simulate(model, 8, relax=StraightThrough(), device="cpu")
    found = Precision({"exposed": dtype}, type(model), StraightThrough(), 9)
    run = dz.simulate(model, 8, relax=StraightThrough(), precision=found, device="cpu")
    assert torch.equal(plain["daily_infected"], run["daily_infected"])
    assert {column.dtype for column in run.state.exposed.tensors()} == {dtype}
    before = run.state.exposed.tensors()
    after = run.extend(1).state.exposed.tensors()
    assert after[3].data_ptr() == before[2].data_ptr()


@pytest.mark.parametrize("dtype", HALVES)
def test_gradients_pass_through_narrow_stages(dtype: torch.dtype) -> None:
    slopes = []
    for precision in (None, Precision({"stage": dtype}, SIR, MeanField(), 8)):
        rate = torch.tensor(0.05, requires_grad=True)
        run = dz.simulate(
            sir().with_values({"infect_rate": rate}), 8, relax=MeanField(), precision=precision, device="cpu"
        )
        slopes.append(torch.autograd.grad(run["cases"].sum(), rate)[0])
    torch.testing.assert_close(slopes[1], slopes[0], rtol=0.02, atol=0.0)
    assert slopes[0] != slopes[1]


@pytest.mark.parametrize("dtype", HALVES)
def test_whole_shares_of_a_stage_are_in_range(dtype: torch.dtype) -> None:
    """Above 1 bfloat16 goes on with 1.0078: a bound of 1.001 rounds to 1."""
    found = check_precision(sir(), {"stage": dtype}, 6, replicates=2, relax=StraightThrough(), device="cpu")
    assert all(shift == 0 for shift, _ in found.shifts.values())
    for share, faulty in ((1.0, False), (1.1, True), (-0.1, True)):
        stage = dz.model.Stage(torch.tensor([[share, 0.0]]).to(dtype), ("s", "i"))
        assert bool(stage.fault()) == faulty


def test_other_parameters_are_compared_first() -> None:
    """What holds for the model's own parameters need not hold for those of the run."""
    drift = {"drift": [0.5] * 16}
    calm = Economy(start=300.0, luck=0.001)
    dz.simulate(calm, 30, precision={"wealth": torch.bfloat16}, device="cpu")
    with pytest.raises(InputError, match=r"check_precision\(model, .*params=…"):
        dz.simulate(calm, 30, replicates=16, params=drift, precision={"wealth": torch.bfloat16}, device="cpu")
    with pytest.raises(InputError, match="'total' moves"):
        check_precision(calm, {"wealth": torch.bfloat16}, 30, replicates=16, params=drift, device="cpu")
    with pytest.raises(InputError, match="unknown argument 'param'; did you mean 'params'"):
        check_precision(calm, {"wealth": torch.bfloat16}, 30, param=drift)


@pytest.mark.parametrize("given", [{"wealth": torch.float16}, Precision({"wealth": torch.float16}, Economy, None, 6)])
def test_steps_that_were_not_compared_are_refused(tmp_path: Path, given: Any) -> None:
    run = dz.simulate(Economy(), 6 if isinstance(given, dict) else 4, precision=given, device="cpu", out=tmp_path / "a")
    run.extend(6 - run.steps)
    with pytest.raises(InputError, match=r"extend: steps=1: fields in 16 bits were compared over 6 steps, .* have 7"):
        run.extend(1)
    assert run.steps == 6
    with pytest.raises(InputError, match="compared over 6 steps"):
        dz.run.resume(tmp_path / "a", Economy(), 2, device="cpu")


def test_narrow_runs_resume_in_their_precision(tmp_path: Path) -> None:
    found = Precision({"wealth": torch.bfloat16}, Economy, None, 9)
    whole = dz.simulate(Economy(), 9, replicates=2, precision=found, device="cpu")
    dz.simulate(Economy(), 4, replicates=2, precision=found, device="cpu", out=tmp_path / "run")
    again = dz.run.resume(tmp_path / "run", Economy(), 5)
    assert again.state.wealth.dtype == torch.bfloat16
    assert torch.equal(whole["total"], again["total"])


@pytest.mark.cuda
@pytest.mark.parametrize("dtype", HALVES)
def test_on_cuda(dtype: torch.dtype) -> None:
    found = Precision({"wealth": dtype}, Economy, None, 40)
    host = dz.simulate(Economy(), 40, replicates=2, precision=found, device="cpu")
    run = dz.simulate(Economy(), 40, replicates=2, precision=found, device="cuda", compile=True)
    assert run.state.wealth.dtype == dtype
    torch.testing.assert_close(run["total"].cpu(), host["total"], rtol=1e-2, atol=0.0)
