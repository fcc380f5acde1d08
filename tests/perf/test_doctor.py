"""The doctor's report, ranking, restoring, regions, checklist and command line."""

import functools
import json
import runpy
import shutil
from pathlib import Path

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.errors import InputError

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
