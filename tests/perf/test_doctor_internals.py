"""Parts of the doctor: periods, trials without a finding, estimates, passes, scripts."""

import dataclasses
import runpy
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import denizen as dz
from denizen.errors import ConfigError
from denizen.perf import Diagnosis
from denizen.perf._doctor import ablation
from denizen.perf._doctor.costs import Trial, estimated, interval
from denizen.perf._doctor.diagnosis import at, lowered, period_of
from denizen.perf._doctor.doctor import Examination, _by_launches, _run
from denizen.perf._doctor.operations import Op
from denizen.perf._doctor.passes import Profiled, Timed, throughout
from denizen.perf._doctor.region import examine_script
from denizen.perf._doctor.subject import Subject
from denizen.perf.watch._places import Place

from .test_doctor import clean

PROGRAMS = Path(__file__).with_name("programs")
places = runpy.run_path(str(Path(__file__).with_name("marked.py")))["places"]


def test_periods_and_levels():
    assert period_of([0, 1, 2], range(3)) == "every step"
    assert period_of([0, 4, 8], range(12)) == "every 4 steps"
    assert period_of([3], range(12)) == "once"
    assert period_of([1, 2, 7], range(12)) == "irregular"
    assert lowered("warning", "every 3 steps") == "warning"
    assert lowered("warning", "every 10 steps") == lowered("warning", "once") == "note"


class SlowReads(TorchFunctionMode):
    def __torch_function__(self, func, types, args=(), kwargs=None):
        if func is torch.Tensor.item:
            time.sleep(0.03)
        return func(*args, **(kwargs or {}))


@pytest.fixture
def slow_reads():
    with SlowReads():
        yield


def waiting(monkeypatch):
    file = PROGRAMS / "waits.py"
    lines = places(file)
    monkeypatch.setattr(torch.cuda, "synchronize", lambda *_: time.sleep(0.015))
    names = {}
    exec(compile(file.read_text(), file, "exec"), names)

    def finding(kind, line):
        return Diagnosis(kind, str(file), line, "step", "", 1, "every step", "warning", (), "")

    return names, [finding("host-sync-item", lines["read"]), finding("host-sync-explicit", lines["wait"])]


@pytest.mark.usefixtures("slow_reads")
def test_gain_is_what_the_step_saves_without_the_finding(monkeypatch):
    names, found = waiting(monkeypatch)
    subject = Subject(names["step"], (), None, made=False)
    with Trial(subject, torch.device("cpu"), found, 0.05) as trial:
        read, wait = trial.gain([], found[:1]), trial.gain([], found[1:])
        both, rest = trial.gain([], found), trial.gain(found[:1], found)
    # Sleeping takes at least so long, so these are bounds and no timing of work.
    assert read.seconds > 0.01
    assert wait.seconds > 0.005
    assert both.seconds > 0.015
    assert read.low > 0
    assert rest.seconds < read.seconds


@pytest.mark.usefixtures("slow_reads")
def test_recorded_values_keep_the_course_of_a_step(monkeypatch):
    names, found = waiting(monkeypatch)
    subject = Subject(names["step"], (), None, made=False)
    with Trial(subject, torch.device("cpu"), found, 0.005) as trial:
        trial._kept.restore()
        trial._tape.rewind()
        names["seen"].clear()
        trial._take(1)
        plain = list(names["seen"])
        trial._kept.restore()
        trial._tape.rewind()
        names["seen"].clear()
        with trial._tape.without(found):
            trial._take(1)
        assert names["seen"] == plain


def test_what_cannot_be_taken_out_gets_no_cost(monkeypatch):
    names, found = waiting(monkeypatch)
    untouched = places(PROGRAMS / "waits.py")["nothing"]  # reads nothing that is wrapped
    elsewhere = dataclasses.replace(found[0], line=untouched)
    subject = Subject(names["step"], (), None, made=False)
    with Trial(subject, torch.device("cpu"), [*found, elsewhere], 0.05) as trial:
        assert [trial.touches(one) for one in (*found, elsewhere)] == [True, True, False]


def test_interval_over_pairs():
    gain = interval([0.01] * 12)
    assert gain.low == gain.high == gain.seconds == 0.01
    noisy = interval(list(np.linspace(-1, 1, 12)))
    assert noisy.low < 0 < noisy.high


def looping(steps=1000):
    device = dz.budget(device="simulated").device
    net = nn.Linear(4, 2).to(device)
    for _ in range(steps):
        x = torch.ones(8, 4).to(device)
        with dz.perf.region():
            net.zero_grad()
            net(x).sum().backward()


def test_a_region_is_examined_with_what_lies_between():
    report = examine_script(looping, device="simulated")
    assert [one.kind for one in report.faults] == ["h2d-fresh"]
    assert report.faults[0].code == "x = torch.ones(8, 4).to(device)"
    assert report.faults[0].period == "every step"


def test_scripts_without_steps_are_told_what_to_do():
    with pytest.raises(ConfigError, match="marks no step"):
        examine_script(lambda: None, device="simulated")
    with pytest.raises(ConfigError, match=r"did 4 steps; \d+ are needed"):
        examine_script(lambda: looping(4), device="simulated")


def test_the_profile_pass_by_the_operators_of_the_cpu():
    """On CUDA kernels stand where operators of the host stand here."""
    device = torch.device("cpu")
    examined = Examination.of(device, 4)
    examined.profiled = Profiled(5, device=device)
    subject = Subject(clean(device), (), None, made=False)
    with throughout(device) as compiler:
        examined.compiler = compiler
        for stage in examined.passes:
            _run(stage, subject, examined)
    roof = examined.report().roofline
    assert roof.launches > 0
    assert roof.busy > 0
    assert sum(roof.idle.values()) >= 0
    assert roof.bandwidth > 0
    assert roof.by_ops > 0


def test_a_script_with_torch_func_is_run_again_without_hooks():
    runs = []

    def script():
        runs.append(1)
        w = torch.ones(3, device=dz.budget(device="simulated").device)
        for _ in range(100):
            with dz.perf.region():
                torch.func.grad(lambda v: (v**2).sum())(w)

    assert examine_script(script, device="simulated").ok
    assert len(runs) == 2


def test_modules_look_for_no_line_where_nothing_of_theirs_is_taken_out(monkeypatch):
    """It would slow one side of a comparison only."""
    looked = []
    monkeypatch.setattr(ablation, "_line", looked.append)
    tape, net = ablation.Tape("cpu"), nn.Identity()
    read, graph = (
        at(kind, Place("model.py", 3, "step"), 1, "every step", []) for kind in ("host-sync-item", "no-grad-missing")
    )
    with tape.installed([net]):
        for one, times in ((read, 0), (graph, 1)):
            with tape.without([one]):
                net(torch.ones(1))
            assert len(looked) == times


@pytest.mark.parametrize(
    ("idle", "busy", "seconds"),
    [
        ({"launch-bound": 3e-3, "host work": 1e-3}, 0.2, 6e-3 * 0.8),  # 400 of 500 launches
        ({"host read": 1e-3}, 0.2, 400 * 8e-6),
        ({"launch-bound": 1e-3}, 0.9, None),
        ({}, None, 400 * 8e-6),
    ],
)
def test_a_loop_is_estimated_by_its_part_of_what_launching_takes(idle, busy, seconds):
    place = Place("model.py", 3, "step")
    one = at("launch-bound", place, 400, "every step", [])
    roof = dz.perf.Roofline(500, 0, 0, 0, launch=8e-6, busy=busy, idle=idle)
    cost = estimated(one, SimpleNamespace(roofline=roof, step_seconds=10e-3))
    assert (cost and cost.seconds) == (seconds and pytest.approx(seconds))


def test_a_step_bound_by_launches_without_a_loop_is_a_note():
    ops = [Op(step, "aten::add", "aten::add", Place(__file__, 1, "step"), "") for step in (0, 1)]
    roof = dz.perf.Roofline(2, 0, 0, 0, busy=0.1, launch_bound=True)
    (one,) = _by_launches(roof, ops)
    assert (one.kind, one.level, one.count) == ("launch-bound", "note", 1)
    assert _by_launches(dz.perf.Roofline(2, 0, 0, 0, busy=0.9, launch_bound=False), ops) == []


def test_steps_on_cuda_are_timed_by_events(monkeypatch):
    """By substitution: a clock of whole seconds."""

    class Event:
        now = 0

        def __init__(self, enable_timing):
            assert enable_timing

        def record(self):
            Event.now += 1
            self.at = Event.now

        def elapsed_time(self, later):
            return 1e3 * (later.at - self.at)

    waits = []
    monkeypatch.setattr(torch.cuda, "Event", Event)
    monkeypatch.setattr(torch.cuda, "synchronize", waits.append)
    timed = Timed(4, device=torch.device("cuda"))
    with timed.open():
        for _ in range(4):
            timed.begin()
            timed.end()
        assert waits == []  # nothing waits between steps
    assert timed.times == [1.0] * 4
    assert timed.step == 1.0
    assert len(timed.host) == 4
    assert len(waits) == 1


def test_a_step_that_cannot_be_repeated_leaves_nothing_behind():
    item, count = torch.Tensor.item, [0]

    def step():
        count.append(1)
        if len(count) > 4:
            raise ValueError("once more")

    subject = Subject(step, (), None, made=False)
    with pytest.raises(ValueError, match="once more"), Trial(subject, torch.device("cpu"), [], 0.001):
        pass
    assert torch.Tensor.item is item
