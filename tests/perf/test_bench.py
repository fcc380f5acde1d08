"""Benchmarks: what is counted and told; times are only there, never asserted."""

import contextlib
import dataclasses
import io
import json

import pytest
import torch
from rich.console import Console
from torch import nn

from denizen import perf
from denizen.errors import DataError, InputError

FAST = {"rounds": 5, "warm_up": 2}


@pytest.fixture(autouse=True)
def _short_rounds(inside):
    """Times are not what is tested, so that a round may be as short as it likes."""
    inside.short_rounds(1e-4)


class Net(nn.Module):
    def __init__(self, width=16):
        super().__init__()
        self.first, self.second = nn.Linear(width, width), nn.Linear(width, 4)

    def forward(self, x):
        return self.second(self.first(x).relu())


def training(net=Net, fused=False, amp=False, branch=False, compiled=False):
    """A maker of an update, with the faults of seed 001."""

    def make(batch_size, device):
        model = net().to(device)
        optimizer = torch.optim.Adam(
            model.parameters(), fused=True if fused else None, foreach=False if not fused else None
        )
        x = torch.randn(batch_size, 16, device=device)

        def loss_of(x):
            y = model(x)
            if branch and y.sum() > 1e9:
                y = y * 2
            return y.square().mean()

        forward = torch.compile(loss_of, backend="eager", dynamic=False) if compiled else loss_of

        def step():
            optimizer.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16) if amp else contextlib.nullcontext():
                loss = forward(x)
            loss.backward()
            optimizer.step()
            return loss

        return step

    return make


def test_a_step_is_told_by_phases_for_each_batch_size_and_variant():
    report = perf.bench(training(), batch=[2, 4], variants=["eager", "bf16"], device="cpu", **FAST)
    assert [case.key for case in report.cases] == [f"A, batch {n}, {way}" for n in (2, 4) for way in ("eager", "bf16")]
    for case in report.cases:
        assert set(case.phases) == {"forward", "backward", "optimizer"}
        assert case.step.low <= case.step.median <= case.step.high
        assert case.samples_per_second > 0
        assert case.peak_bytes > 0
        assert sum(case.counts["phases"].values()) == case.counts["ops"]
    eager, low = report.cases[:2]
    assert eager.counts["matmuls"] == {"float32": 5}
    assert low.counts["matmuls"] == {"bfloat16": 5}
    ratio = report.ratios[0]
    assert (ratio.of, ratio.to) == ("A, batch 2, bf16", "A, batch 2, eager")


def test_counts_are_the_same_every_time_and_nothing_is_worse():
    first, second = (perf.bench(training(), batch=4, device="cpu", **FAST) for _ in range(2))
    assert first.cases[0].counts == second.cases[0].counts
    assert second.against(first) == []


# torch's compiler hides this one by a filter of its own, which errors overrule
@pytest.mark.filterwarnings("ignore:The .grad attribute of a Tensor that is not a leaf")
def test_the_regression_hunt_names_each_of_the_three_causes():
    good = {"fused": True, "amp": True, "compiled": True}
    before = perf.bench(training(**good), batch=4, device="cpu", **FAST)
    assert before.cases[0].counts["graphs"] == 1

    def found(**change):
        after = perf.bench(training(**{**good, **change}), batch=4, device="cpu", **FAST)
        return {worse.what: str(worse) for worse in after.against(before)}

    assert "mixed precision (AMP) or TF32 is off" in found(amp=False)["matmuls"]
    branch = found(branch=True)
    assert "graphs 1 -> 2: torch.compile makes more graphs: a branch" in branch["graphs"]
    assert "host_reads" in branch
    assert "matmuls" not in branch
    unfused = found(fused=False)
    assert "one that is not fused: pass fused=True" in unfused["operations of the optimizer"]
    assert "matmuls" not in unfused
    assert "graphs" not in unfused
    every = found(amp=False, branch=True, fused=False)
    assert {"matmuls", "graphs", "operations of the optimizer"} <= set(every)


class Joined(Net):
    """The same, with its activation written otherwise."""

    def forward(self, x):
        return self.second(torch.clamp(self.first(x), min=0))


class Wrong(Net):
    def forward(self, x):
        return self.second(self.first(x).tanh())


def test_two_implementations_are_compared_before_their_speed_counts():
    report = perf.bench(training(), versus=training(Joined), batch=4, device="cpu", **FAST)
    (ratio,) = report.ratios
    assert (ratio.of, ratio.to) == ("B, batch 4, eager", "A, batch 4, eager")
    assert ratio.low <= ratio.value <= ratio.high
    assert ratio.valid
    assert ratio.verdict == "bit-equal"
    wrong = perf.bench(training(), versus=training(Wrong), batch=4, device="cpu", **FAST)
    assert not wrong.valid
    assert str(wrong.ratios[0]).startswith("INVALID: B, batch 4, eager takes")
    assert "first difference: the step's result, step 1" in str(wrong.ratios[0])
    worse = wrong.against(report)
    assert "verdict" in [one.what for one in worse]


def test_a_comparison_without_a_verdict_is_invalid():
    report = perf.bench(lambda: lambda: None, versus=lambda: lambda: None, device="cpu", **FAST)
    assert not report.valid
    assert "pass verdict=" in report.ratios[0].why
    verdict = perf.equivalent(torch.exp, lambda x: x.exp(), torch.ones(3))
    report = perf.bench(lambda: lambda: None, versus=lambda: lambda: None, verdict=verdict, device="cpu", **FAST)
    assert report.valid


def test_weights_are_mapped_for_the_verdict():
    class Renamed(nn.Module):
        def __init__(self):
            super().__init__()
            self.zweit, self.erst = nn.Linear(16, 4), nn.Linear(16, 16)

        def forward(self, x):
            return self.zweit(self.erst(x).relu())

    def weights(state):
        names = {"first": "erst", "second": "zweit"}
        return {f"{names[key.partition('.')[0]]}.{key.partition('.')[2]}": tensor for key, tensor in state.items()}

    assert perf.bench(training(), versus=training(Renamed), weights=weights, batch=4, device="cpu", **FAST).valid
    report = perf.bench(training(), versus=training(Renamed), batch=4, device="cpu", **FAST)
    assert "a and b have other weights" in report.ratios[0].why


def test_a_slower_ratio_in_one_run_is_a_regression_and_a_time_is_none():
    report = perf.bench(training(), versus=training(Joined), batch=4, device="cpu", **FAST)
    data = json.loads(report.to_json())
    data["ratios"][0] |= {"value": 0.01, "low": 0.009, "high": 0.011}
    for case in data["cases"]:
        case["step"] |= {"median": 1e-9}
    earlier = _read(data)
    assert [worse.what for worse in report.against(earlier)] == ["ratio"]


def test_results_come_back_from_files(tmp_path):
    report = perf.bench(training(), batch=4, device="cpu", **FAST)
    (tmp_path / "r.json").write_text(report.to_json())
    assert perf.BenchReport.read(tmp_path / "r.json") == report
    (tmp_path / "no.json").write_text("{}")
    with pytest.raises(DataError, match="no result of denizen bench"):
        perf.BenchReport.read(tmp_path / "no.json")
    with pytest.raises(DataError, match="cannot be read"):
        perf.BenchReport.read(tmp_path / "absent.json")
    other = perf.bench(training(), batch=8, device="cpu", **FAST)
    with pytest.raises(DataError, match="no case in common"):
        other.against(report)


def _read(data):
    import tempfile

    with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
        json.dump(data, file)
        file.flush()
        return perf.BenchReport.read(file.name)


def test_running_out_of_memory_ends_a_case_alone():
    def make(batch_size):
        def step():
            if batch_size > 4:
                raise torch.OutOfMemoryError("CUDA out of memory")
            return torch.ones(batch_size).sum()

        return step

    report = perf.bench(make, batch=[4, 8], device="cpu", **FAST)
    assert [case.failure for case in report.cases] == ["", "out of memory"]
    console = Console(width=120, record=True, file=io.StringIO())
    console.print(report)
    assert "out of memory" in console.export_text()
    long = dataclasses.replace(report.cases[0], name="some.package.with.makers:fast")
    console = Console(width=80, record=True, file=io.StringIO())
    console.print(dataclasses.replace(report, cases=[long]))
    cells = [line.split()[0] for line in console.export_text().splitlines() if line.strip()]
    assert "some.package.with.makers:fast" in "".join(cells)


def test_recompilations_are_counted():
    def make():
        scale = torch.compile(lambda x, n: x * n, backend="eager", dynamic=False)
        count = [0]

        def step():
            count[0] += 1
            scale(torch.ones(3), float(count[0]))

        return step

    assert perf.bench(make, device="cpu", **FAST).cases[0].counts["recompiles"] == 1


def test_containers_of_torch_are_compiled_too():
    def make():
        model = nn.Sequential(nn.Linear(4, 4), nn.ReLU())
        x = torch.ones(2, 4)
        return lambda: model(x)

    cases = perf.bench(make, variants=["eager", "compile:eager"], device="cpu", **FAST).cases
    assert [case.counts["graphs"] for case in cases] == [0, 1]


def test_random_numbers_go_on_as_before():
    drawn = torch.get_rng_state()
    perf.bench(training(), batch=2, device="cpu", **FAST)
    assert torch.equal(drawn, torch.get_rng_state())


@pytest.mark.parametrize(
    ("given", "words"),
    [
        ({"batch": [0]}, r"batch=0"),
        ({"batch": None}, "needs a batch size"),
        ({"variants": ["fast"], "batch": 2}, "no such word as 'fast'"),
        ({"variants": ["compile:fast"], "batch": 2}, "no such mode or backend as 'fast'"),
        ({"variants": [], "batch": 2}, "at least one"),
        ({"rounds": 2, "batch": 2}, "rounds=2"),
    ],
)
def test_wrong_arguments_are_told(given, words):
    with pytest.raises(InputError, match=words):
        perf.bench(training(), device="cpu", **given)


def test_makers_that_do_not_fit_are_told():
    with pytest.raises(InputError, match="takes no batch size"):
        perf.bench(lambda: lambda: None, batch=[2], device="cpu")
    with pytest.raises(InputError, match="returned int; expected a function"):
        perf.bench(lambda: 3, device="cpu")


def test_a_plot_is_drawn(tmp_path):
    report = perf.bench(training(), batch=[2, 4], device="cpu", **FAST)
    report.plot(tmp_path / "p.png")
    assert (tmp_path / "p.png").stat().st_size > 1000


@pytest.mark.cuda
@pytest.mark.filterwarnings("ignore:TensorFloat32")  # inductor's advice, to whoever compiles first
def test_kernels_are_counted_on_cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    report = perf.bench(training(fused=True), batch=64, variants=["eager", "bf16", "compile"], **FAST)
    assert all(case.counts["kernels"] > 0 for case in report.cases)
    assert report.cases[2].counts["kernels"] <= report.cases[0].counts["kernels"]
    assert report.facts["card"]


def test_a_switch_of_a_variant_is_one_or_none():
    assert perf.Variant(tf32=True).tf32 is True
    with pytest.raises(InputError, match="Variant: tf32='no', expected True or False, or None"):
        perf.Variant(tf32="no")
