"""What tests of the command line share."""

import signal
import sys

import pytest

from denizen import app


@pytest.fixture
def denizen(monkeypatch, capsys, tmp_path):
    """Run a command in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)

    def call(*words):
        monkeypatch.setattr(sys, "argv", ["denizen", *map(str, words)])
        capsys.readouterr()
        with pytest.raises(SystemExit) as stop:
            app.main()
        out, err = capsys.readouterr()
        return stop.value.code or 0, out, err

    yield call
    signal.signal(signal.SIGTERM, before)
