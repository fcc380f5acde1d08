"""`denizen bench` and `denizen equivalent` as people use them."""

import json
import signal
import sys
from pathlib import Path

import pytest


@pytest.fixture(autouse=True)
def _short_rounds(inside):
    """Times are not what is tested, so that a round may be as short as it likes."""
    inside.short_rounds(1e-4)


SCRIPT = (Path(__file__).with_name("programs") / "bench_script.py").read_text()


@pytest.fixture
def denizen(monkeypatch, command_line, tmp_path):
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "140")
    monkeypatch.setattr(sys, "path", [*sys.path])
    (tmp_path / "script.py").write_text(SCRIPT)
    before = signal.getsignal(signal.SIGTERM)

    yield command_line
    sys.modules.pop("script", None)
    signal.signal(signal.SIGTERM, before)


QUICK = ("--rounds", "5", "--device", "cpu")


def test_bench_prints_a_table_writes_json_and_a_plot(denizen):
    code, out, _ = denizen("bench", "script.py:make", "--batch", "2,4", "--plot", "p.png", *QUICK)
    assert code == 0, out
    assert "a step" not in out
    for words in ("script.py, batch 2,", "samples/s", "fwd", "bwd", "opt", "launches"):
        assert words in out
    assert Path("p.png").is_file()
    code, out, _ = denizen("bench", "script.py:make", "--batch", "2", "--json", *QUICK)
    assert json.loads(out)["cases"][0]["batch"] == 2


def test_against_an_earlier_result(denizen):
    _, out, _ = denizen("bench", "script.py:make", "--batch", "2", "--json", *QUICK)
    Path("before.json").write_text(out)
    code, out, _ = denizen("bench", "script.py:make", "--batch", "2", "--against", "before.json", *QUICK)
    assert code == 0, out
    assert "nothing is worse than in before.json" in out
    Path("script.py").write_text(SCRIPT.replace("return loss.item() if more else loss", "return loss.item()"))
    code, out, _ = denizen("bench", "script.py:make", "--batch", "2", "--against", "before.json", *QUICK)
    assert code == 1
    assert "WORSE script.py, batch 2, eager: host_reads 0 -> 1: the host waits for the device more often" in out


def test_versus_is_valid_only_with_a_passed_verdict(denizen):
    words = ("--batch", "4", "--weights", "script.py:weights", *QUICK)
    code, out, _ = denizen("bench", "script.py:make", "--versus", "script.py:joined", *words)
    assert code == 0, out
    assert "INVALID" not in out
    code, out, _ = denizen("bench", "script.py:make", "--versus", "script.py:wrong", *words)
    assert code == 1
    assert "INVALID: script.py:wrong, batch 4, eager takes" in out


def test_statements(denizen):
    code, out, _ = denizen("bench", "--setup", "x = torch.ones(9)", "--stmt", "x + x", "--versus", "2 * x", *QUICK)
    assert code == 0, out
    assert "2 * x, eager takes" in out
    code, _, err = denizen("bench", "--stmt", "x +", *QUICK)
    assert code == 2
    assert "--stmt is no Python" in err


@pytest.mark.parametrize(
    ("words", "told"),
    [
        (("bench",), "takes a TARGET such as a.py:make, or --stmt CODE"),
        (("bench", "script.py:make"), "needs a batch size"),
        (("bench", "script.py:make", "--batch", "two"), "--batch two: expected numbers"),
        (("bench", "script.py:mke", "--batch", "2"), "did you mean 'make'"),
        (("bench", "script.py:make", "--setup", "1"), "--setup goes with --stmt"),
        (("bench", "script.py:make", "--batch", "2", "--against", "no.json"), "no.json cannot be read"),
        (("equivalent", "script.py:Net", "script.py:Joined"), "needs a batch"),
        (("equivalent", "script.py:Net", "script.py:Joined", "--shape", "a"), "--shape a: expected numbers"),
        (("equivalent", "script.py:Net", "script.py:Joined", "--shape", "4,8"), "a and b have other weights"),
    ],
)
def test_wrong_words_are_told(denizen, words, told):
    code, _, err = denizen(*words)
    assert code == 2
    assert told in err


def test_equivalent_tells_where_they_first_differ(denizen):
    words = ("--inputs", "script.py:batch", "--weights", "script.py:weights")
    code, out, _ = denizen("equivalent", "script.py:Net", "script.py:Joined", *words)
    assert code == 0, out
    assert out.startswith(("within tolerance", "bit-equal"))
    code, out, _ = denizen("equivalent", "script.py:Net", "script.py:Wrong", *words)
    assert code == 1
    assert "first difference: output, before training" in out
    code, out, _ = denizen("equivalent", "script.py:Net", "script.py:Wrong", "--shape", "4,8", *words[2:], "--json")
    assert json.loads(out)["first"]["name"] == "output"
