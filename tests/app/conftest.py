"""What tests of the command line share."""

import signal

import pytest

from inside import Inside


@pytest.fixture
def denizen(monkeypatch, command_line, tmp_path):
    """Run a command in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)

    yield command_line
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="session", autouse=True)
def _short_films():
    """Each training ends with a film of its policy: here of a few steps."""
    with pytest.MonkeyPatch.context() as patched:
        Inside(patched).short_films(6)
        yield
