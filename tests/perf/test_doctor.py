"""The doctor's report, ranking, restoring, regions, checklist and command line."""

import dataclasses
import functools
import json
import runpy
import shutil
import time
from pathlib import Path
from types import SimpleNamespace

import numpy as np
import pytest
import torch
from torch import nn
from torch.overrides import TorchFunctionMode

import denizen as dz
from denizen.errors import ConfigError, InputError
from denizen.perf import Diagnosis
from denizen.perf._doctor.costs import Trial, estimated, interval
from denizen.perf._doctor.diagnosis import at, lowered, period_of
from denizen.perf._doctor.region import examine_script
from denizen.perf._doctor.subject import Subject
from denizen.perf.watch._places import Place

PROGRAMS = Path(__file__).with_name("programs")
places = runpy.run_path(str(Path(__file__).with_name("marked.py")))["places"]
READ = places(PROGRAMS / "train.py")["read"]


def reading(device):
    net = nn.Linear(4, 2).to(device)

    def step():
        net.zero_grad()
        loss = net(torch.ones(8, 4, device=device)).sum()
        loss.backward()
        return loss.item()

    return step


def clean(device):
    net = nn.Linear(4, 2).to(device)

    def step():
        net.zero_grad()
        net(torch.ones(8, 4, device=device)).sum().backward()

    return step


def test_report_names_the_line_and_says_what_to_write():
    report = dz.doctor(make=reading)
    (one,) = report.faults
    assert one.kind == "host-sync-item"
    assert one.code == "return loss.item()"
    assert (one.count, one.period, one.level) == (1, "every step", "warning")
    assert not report.ok
    text = str(report)
    assert "would cost on a GPU" in text
    assert one.where in text
    assert "ms a step" not in text  # no times of a stand-in
    assert report.step_seconds is None
    assert report.host_seconds == []
    assert report.counts["host_reads"] == 1


def test_nothing_worth_changing_is_said():
    report = dz.doctor(make=clean)
    assert report.ok
    assert report.faults == []
    assert str(report).startswith("nothing worth changing")
    assert report.roofline.launches == report.counts["ops"]
    assert report.roofline.bandwidth is None


def test_json_and_page(tmp_path):
    report = dz.doctor(make=reading)
    report.save_json(tmp_path / "r.json")
    told = json.loads((tmp_path / "r.json").read_text())
    assert told["findings"][0]["kind"] == "host-sync-item"
    assert told["findings"][0]["cost"] is None
    report.save_html(tmp_path / "r.html")
    page = (tmp_path / "r.html").read_text()
    assert "host-sync-item" in page
    assert "<script" not in page
    with pytest.raises(dz.errors.StorageError, match="could not be written"):
        report.save_html(tmp_path / "no" / "r.html")


def test_a_step_is_undone():
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))
    optimizer = torch.optim.Adam(net.parameters())

    def step():
        optimizer.zero_grad()
        net(torch.randn(8, 4)).mean().backward()
        optimizer.step()

    step()
    before = [value.clone() for value in net.state_dict().values()]
    drawn, steps = torch.get_rng_state(), optimizer.state[net[0].weight]["step"].item()
    report = dz.doctor(step)
    assert report.device.type == "cpu"
    assert report.step_seconds > 0
    assert all(torch.equal(a, b) for a, b in zip(before, net.state_dict().values(), strict=True))
    assert torch.equal(torch.get_rng_state(), drawn)
    assert optimizer.state[net[0].weight]["step"].item() == steps
    assert any("pass make=" in note for note in report.notes)


def test_a_step_on_the_simulated_device_is_known_as_one():
    report = dz.doctor(reading(dz.budget(device="simulated").device))
    assert report.device.type == "simulated"
    assert [one.kind for one in report.faults] == ["host-sync-item"]


def test_arguments_and_numbers_are_passed(capsys):
    def told(*words):  # lists that a step changes are put back
        print(*words)

    dz.doctor(lambda a, b: told(a, b), 1, 2, rank=False)
    assert set(capsys.readouterr().out.splitlines()) == {"1 2"}
    dz.doctor(lambda number: told(number), rank=False)
    lines = capsys.readouterr().out.splitlines()
    assert lines == [str(number) for number in range(len(lines))]
    assert len(lines) > 20


def test_a_function_of_a_device_builds_the_step():
    assert dz.doctor(reading).faults[0].kind == "host-sync-item"


@pytest.mark.parametrize(
    ("call", "words"),
    [
        (lambda: dz.doctor(), "takes a step, or make="),
        (lambda: dz.doctor(clean, make=clean), "takes a step, or make="),
        (lambda: dz.doctor(make=clean, steps=1), "steps=1.*at least 4"),
        (lambda: dz.doctor(make=clean, device="tpu"), "'tpu'"),
        (lambda: dz.doctor(lambda: None, device="cpu"), "is for make="),
        (lambda: dz.doctor(make=lambda device: 3), "returned int"),
        (lambda: dz.doctor(5), "step=5"),
    ],
)
def test_wrong_use_is_refused(call, words):
    with pytest.raises(InputError, match=words):
        call()


def test_a_step_of_which_nothing_runs_is_refused():
    def train():
        while True:
            yield torch.ones(3).sum()

    async def later():
        torch.ones(3).sum()

    with pytest.raises(InputError, match=r"gives a generator.*next"):
        dz.doctor(train)
    with pytest.raises(InputError, match="gives a coroutine"):
        dz.doctor(later)


def test_an_error_of_the_step_passes_through():
    def make(device):
        def step():
            raise KeyError("mine")

        return step

    with pytest.raises(KeyError, match="mine"):
        dz.doctor(make=make)


def test_data_that_come_to_an_end():
    batches = iter([torch.ones(2)] * 5)
    with pytest.raises(InputError, match="ran out of data after 5 steps"):
        dz.doctor(lambda: next(batches))

    def make(device):
        data = iter([torch.ones(2)] * 9)
        return lambda: next(data).to(device).sum().item()

    assert {one.kind for one in dz.doctor(make=make).faults} == {"h2d-fresh", "host-sync-item"}


def test_periods_and_levels():
    assert period_of([0, 1, 2], range(3)) == "every step"
    assert period_of([0, 4, 8], range(12)) == "every 4 steps"
    assert period_of([3], range(12)) == "once"
    assert period_of([1, 2, 7], range(12)) == "irregular"
    assert lowered("warning", "every 3 steps") == "warning"
    assert lowered("warning", "every 10 steps") == lowered("warning", "once") == "note"


def test_first_calls_are_no_fault():
    def make(device):
        kept = {}

        def step():
            if not kept:
                kept["scale"] = float(torch.ones(3, device=device).sum())
            with dz.perf.allow("log"):
                torch.ones(2, device=device).sum().item()

        return step

    report = dz.doctor(make=make)
    assert report.ok
    assert [one.reason for one in report.once] == ["log"]


def test_periodic_reads_cost_little():
    def make(device):
        x = torch.ones(3, device=device)

        def step(i):
            if i % 3 == 0:
                x.sum().item()

        return step

    (one,) = dz.doctor(make=make).findings
    assert one.period == "every 3 steps"


def test_a_file_that_was_edited_is_read_again(tmp_path):
    file, once = tmp_path / "edited.py", "def step():\n    x.mul(2)\n    x.mul(2)\n"
    loop = "def step():\n    for _ in range(20):\n        x.mul(2)  # longer, so that its size differs\n"
    for source, kinds in ((once, []), (loop, ["launch-bound"])):
        file.write_text(source)

        def make(device, source=source):
            names = {"x": torch.ones(3, device=device)}
            exec(compile(source, file, "exec"), names)
            return names["step"]

        assert [one.kind for one in dz.doctor(make=make).faults] == kinds


# --- ranking, by substitution: what waits on a GPU sleeps here --------------------------------------------------------


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


def test_costs_are_measured_where_the_device_can_be_timed():
    def make(device):
        net = nn.Linear(4, 1).to(device)

        def step():
            net.zero_grad()
            with torch.autograd.detect_anomaly(check_nan=False):
                for _ in range(5):
                    net(torch.ones(8, 4, device=device)).mean().backward()

        return step

    with pytest.warns(UserWarning, match="Anomaly"):
        report = dz.doctor(make=make, device="cpu")
    (one,) = report.faults
    assert one.kind == "debug-left-on"
    assert one.cost is None or one.cost.how == "measured A/B"
    assert torch.is_anomaly_enabled() is False


# --- marked regions, checklist, command line --------------------------------------------------------------------------


def test_a_region_does_nothing_without_the_doctor():
    calls = []
    with dz.perf.region():
        calls.append(1)
    dz.perf.region()(lambda: calls.append(2))()
    assert calls == [1, 2]


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


def test_checklist_has_nine_points_with_evidence():
    points = dz.perf.checklist(dz.doctor(make=reading)).points
    assert len(points) == 9
    assert all(point.evidence for point in points)
    states = {point.title: point.state for point in points}
    assert states["no waiting for values"] == "change"
    assert states["the device is the bottleneck"] == "not seen"
    text = str(dz.perf.checklist(dz.doctor(make=clean)))
    assert text.count("\n") >= 8


@pytest.fixture
def denizen(monkeypatch, command_line, tmp_path):
    monkeypatch.chdir(tmp_path)

    shutil.copy(PROGRAMS / "train.py", "train.py")
    return functools.partial(command_line, "doctor")


def test_exit_codes(denizen):
    assert denizen("train.py:good", "--device", "simulated")[0] == 0
    code, out, _ = denizen("train.py:make", "--device", "simulated")
    assert code == 1
    assert f"train.py:{READ}" in out
    assert "noise" not in out
    assert denizen("train.py:make", "--device", "simulated", "--fail-on", "severe")[0] == 0
    code, _, err = denizen("train.py:nope")
    assert code == 2
    assert "did you mean" in err or "valid" in err
    assert denizen()[0] == 2
    assert denizen("--", "python", "gone.py")[0] == 2
    code, _, err = denizen("train.py:bad", "--device", "simulated")
    assert code == 2
    assert "ZeroDivisionError" in err


def test_json_page_and_script(denizen, tmp_path):
    code, out, _ = denizen("train.py:make", "--device", "simulated", "--json", "--html", "page.html", "--checklist")
    told = json.loads(out)
    assert (code, told["findings"][0]["line"], len(told["checklist"])) == (1, READ, 9)
    assert "host-sync-item" in (tmp_path / "page.html").read_text()
    code, out, _ = denizen("--device", "simulated", "--", "python", "train.py", "--lr", "3")
    assert code == 1
    assert f"train.py:{READ}" in out


@pytest.mark.cuda
@pytest.mark.skipif(not torch.cuda.is_available(), reason="needs a CUDA device")
def test_on_a_gpu():
    report = dz.doctor(make=reading)
    assert report.device.type == "cuda"
    assert report.step_seconds > 0
    assert 0 <= report.roofline.busy <= 1
    assert report.roofline.launches > 0
    assert [one.kind for one in report.findings] == ["host-sync-item"]
    assert report.findings[0].cost is None or report.findings[0].cost.how == "measured A/B"
    assert dz.doctor(make=clean).ok


def test_the_profile_pass_by_the_operators_of_the_cpu():
    """On CUDA kernels stand where operators of the host stand here."""
    from denizen.perf._doctor.doctor import Examination, _run
    from denizen.perf._doctor.passes import Profiled, throughout

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


def by_name():
    device = torch.device("cuda" if torch.cuda.is_available() else "cpu")
    net = nn.Linear(4, 2).cuda()
    optimizer = torch.optim.Adam(net.parameters())
    scaler = torch.amp.GradScaler("cuda")
    draws = torch.Generator(device=device).manual_seed(0)
    torch.cuda.manual_seed_all(0)

    def step():
        x = torch.ones(8, 4).to(device)
        noise = torch.randn(8, 4, device="cuda", generator=draws)
        with torch.autocast("cuda", torch.bfloat16):
            loss = net(x + noise).sum()
        optimizer.zero_grad()
        scaler.scale(loss).backward()
        scaler.step(optimizer)
        scaler.update()

    return step


@pytest.mark.skipif(torch.cuda.is_available(), reason="there is CUDA")
def test_code_that_asks_for_cuda_by_name_gets_the_simulated_device():
    report = dz.doctor(make=by_name)
    assert report.device.type == "simulated"
    assert {one.kind: one.code for one in report.faults} == {
        "h2d-fresh": "x = torch.ones(8, 4).to(device)",
        "host-sync-scaler": "scaler.step(optimizer)",
    }
    assert report.facts.autocast
    assert not torch.cuda.is_available()


def test_a_maker_without_a_device_may_build_for_the_cpu():
    def make():
        x = torch.ones(3)
        return lambda: x.sum().item()

    report = dz.doctor(make=make, device=None if not torch.cuda.is_available() else "cpu")
    assert report.device.type == "cpu"
    assert report.ok


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
    from denizen.perf._doctor import ablation

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
    from denizen.perf._doctor.doctor import _by_launches
    from denizen.perf._doctor.operations import Op

    ops = [Op(step, "aten::add", "aten::add", Place(__file__, 1, "step"), "") for step in (0, 1)]
    roof = dz.perf.Roofline(2, 0, 0, 0, busy=0.1, launch_bound=True)
    (one,) = _by_launches(roof, ops)
    assert (one.kind, one.level, one.count) == ("launch-bound", "note", 1)
    assert _by_launches(dz.perf.Roofline(2, 0, 0, 0, busy=0.9, launch_bound=False), ops) == []


def test_steps_on_cuda_are_timed_by_events(monkeypatch):
    """By substitution: a clock of whole seconds."""
    from denizen.perf._doctor.passes import Timed

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
