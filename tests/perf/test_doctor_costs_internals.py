"""What findings cost: estimates from counts and rates, and what is taken out of a step; by substitution."""

import dataclasses
import runpy
from pathlib import Path
from types import SimpleNamespace

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.perf._doctor.ablation import Tape, no_debugging, no_scaler
from denizen.perf._doctor.costs import LEAD, Trial, estimated
from denizen.perf._doctor.diagnosis import at
from denizen.perf._doctor.subject import Subject
from denizen.perf.watch._places import Place
from forked import end_of, fork

PLACE = Place("model.py", 3, "step")


def report(step=10e-3, findings=(), **roof):
    return SimpleNamespace(roofline=dz.perf.Roofline(50, 0, 0, 0, **roof), step_seconds=step, findings=findings)


@pytest.mark.parametrize(
    ("needless", "flops", "roof", "seconds"),
    [
        (2 * 10**9, 0, {"bandwidth": 1e12, "busy": 0.9, "launch": 5e-6}, 2e-3),
        (2 * 10**9, 0, {"bandwidth": 1e12}, 2e-3),  # on a CPU nobody waits for a device
        (2 * 10**9, 0, {"bandwidth": 1e12, "busy": 0.3, "launch": 5e-6}, None),  # the device is not waited for
        (20 * 10**9, 0, {"bandwidth": 1e12, "busy": 1.0, "launch": 100e-6}, 5e-3),  # launching still takes the rest
        (20 * 10**9, 0, {"bandwidth": 1e12}, 10e-3),  # no more than the step
        (10**9, 10**10, {"bandwidth": 1e12, "peak": 1e13, "peak64": 5e12, "busy": 0.9}, 2e-3),
        (10**9, 10**10, {"bandwidth": 1e12, "peak": 1e13, "peak64": 2e13, "busy": 0.9}, 1e-3),  # float64 is no slower
    ],
)
def test_bytes_that_need_not_be_moved(needless, flops, roof, seconds):
    one = dataclasses.replace(at("dtype-fp64", PLACE, 1, "every step", [], needless=needless), flops=flops)
    cost = estimated(one, report(**roof))
    assert (cost and cost.seconds) == (seconds and pytest.approx(seconds))
    assert cost is None or cost.how == "estimate"


def test_waits_that_cannot_be_taken_out_have_their_part_of_the_idle_time():
    one, other = (at(kind, PLACE, count, "every step", []) for kind, count in (("host-sync-item", 3), ("roundtrip", 1)))
    copy = at("h2d-index", PLACE, 1, "every step", [])
    seen = report(findings=[one, other, copy], idle={"host read": 4e-3, "copy": 1e-3}, busy=0.3)
    assert estimated(one, seen).seconds == pytest.approx(3e-3)
    assert estimated(copy, seen).seconds == pytest.approx(1e-3)
    assert estimated(at("eval-mode-missing", PLACE, 1, "every step", []), seen) is None
    assert estimated(one, report(findings=[one])) is None


def test_what_is_never_left_out_has_no_cost(tmp_path):
    """Gradients of functions, not of a module: nothing that the doctor wraps is called there."""
    file = tmp_path / "step.py"
    file.write_text("def step():\n    net(x)\n    torch.relu(w * x)\n")
    names = {"torch": torch, "net": nn.Linear(4, 4), "x": torch.ones(2, 4), "w": nn.Parameter(torch.ones(4))}
    exec(compile(file.read_text(), file, "exec"), names)
    by_module, by_function = (
        at("no-grad-missing", Place(str(file), line, "step"), 1, "every step", []) for line in (2, 3)
    )
    subject = Subject(names["step"], (), None, made=False)
    with Trial(subject, torch.device("cpu"), [by_module, by_function], 0.01) as trial:
        trial.gain([], [by_module])
        trial.gain([], [by_function])
        assert [trial.took(one) for one in (by_module, by_function)] == [True, False]


@pytest.mark.parametrize(
    ("kind", "line"), [("host-sync-explicit", "torch.cuda.synchronize()"), ("host-sync-print", "print(x)")]
)
def test_waits_and_prints_that_are_left_out_have_a_cost(kind, line, tmp_path, monkeypatch):
    done = []
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: done.append(1))
    monkeypatch.setattr("builtins.print", lambda *args: done.append(1))
    file = tmp_path / "step.py"
    file.write_text(f"def step():\n    {line}\n")
    names = {"torch": torch, "x": torch.ones(2)}
    exec(compile(file.read_text(), file, "exec"), names)
    one = at(kind, Place(str(file), 2, "step"), 1, "every step", [])
    with Trial(Subject(names["step"], (), None, made=False), torch.device("cpu"), [one], 0.01) as trial:
        done.clear()
        trial._seconds([one])
        assert trial.took(one)
    assert not done


def test_masks_become_places_on_the_side_without_them_only(tmp_path, monkeypatch):
    from denizen.perf._doctor import ablation

    file = tmp_path / "step.py"
    file.write_text("def step():\n    x[mask].sum()\n    x[other].sum()\n")
    names = {"x": torch.arange(6.0), "mask": torch.tensor([True, False] * 3), "other": torch.tensor([False, True] * 3)}
    exec(compile(file.read_text(), file, "exec"), names)
    made, places = [], ablation._places
    monkeypatch.setattr(ablation, "_places", lambda *args: made.append(1) or places(*args))
    one = at("host-sync-boolindex", Place(str(file), 2, "step"), 1, "every step", [])
    with Trial(Subject(names["step"], (), None, made=False), torch.device("cpu"), [one], 0.01) as trial:
        assert made  # recorded
        made.clear()
        trial.gain([], [one])
        assert trial.took(one)
    assert not made


def test_a_sample_is_timed_when_the_loop_runs(monkeypatch):
    """On CUDA by events, the first of which comes after some steps; by substitution."""
    calls = []

    class Event:
        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            calls.append("event")

        def elapsed_time(self, later):
            return 8.0

        def synchronize(self): ...

    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda device=None: calls.append("wait"))
    mark = calls.append  # the list itself would be taken for the step's state, and restored
    subject = Subject(lambda: mark("step"), (), None, made=False)
    with Trial(subject, torch.device("cuda"), [], 4e-3) as trial:
        calls.clear()
        assert trial._seconds([]) == pytest.approx(2e-3)  # 8 ms for 4 steps of 4 ms, which make a sample of 15 ms
    assert calls == ["wait", *["step"] * LEAD, "event", *["step"] * 4, "event", "wait"]


def test_a_scaler_that_is_taken_out_changes_no_step():
    net = nn.Linear(4, 1)
    optimizer, scaler = torch.optim.SGD(net.parameters(), 0.1), torch.amp.GradScaler("cpu", init_scale=1024.0)

    def step():
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(2, 4)).square().mean()).backward()
        scaler.unscale_(optimizer)
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        scaler.step(optimizer)
        scaler.update()
        return norm.item()

    start = {name: value.clone() for name, value in net.state_dict().items()}
    norm, after = step(), {name: value.clone() for name, value in net.state_dict().items()}
    net.load_state_dict(start)
    kept = scaler.get_scale()
    with no_scaler([scaler]):
        assert step() == pytest.approx(norm)
    assert scaler.get_scale() == kept
    torch.testing.assert_close(net.state_dict(), after)


def test_graphs_are_freed_where_they_are_not_kept(tmp_path):
    file = tmp_path / "step.py"
    file.write_text(
        "def step():\n    loss = w.square().sum()\n    loss.backward(retain_graph=True)\n    kept.append(loss)\n"
    )
    kept: list[torch.Tensor] = []
    names = {"w": nn.Parameter(torch.ones(3)), "kept": kept}
    exec(compile(file.read_text(), file, "exec"), names)
    one = at("graph-retention", Place(str(file), 3, "step"), 1, "every step", [])
    tape = Tape("cpu")
    with tape.installed(), tape.without([one]):
        names["step"]()
    assert tape.took(one)
    with pytest.raises(RuntimeError, match="second time"):
        kept[0].backward()


def test_deterministic_algorithms_that_only_warn_stay_so():
    torch.use_deterministic_algorithms(True, warn_only=True)
    try:
        with no_debugging():
            assert not torch.are_deterministic_algorithms_enabled()
        assert torch.are_deterministic_algorithms_enabled()
        assert torch.is_deterministic_algorithms_warn_only_enabled()
    finally:
        torch.use_deterministic_algorithms(False)


NEWER = Path(__file__).with_name("programs") / "newer_tf32.py"


def test_the_newer_switch_for_tf32_is_no_error(tmp_path):
    """Who sets it can read the older one no more; of the process, so in one of its own."""
    child = fork(lambda: runpy.run_path(str(NEWER)), tmp_path / "told.txt")
    assert not end_of(child), (tmp_path / "told.txt").read_text()
