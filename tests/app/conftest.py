"""What tests of the command line share."""

import base64
import signal
from pathlib import Path

import pytest
from matplotlib.backends.backend_agg import FigureCanvasAgg

from inside import Inside

DRAWN = FigureCanvasAgg.print_png
PIXEL = base64.b64decode("iVBORw0KGgoAAAANSUhEUgAAAAEAAAABCAAAAAA6fptVAAAACklEQVR4nGP4DwABAQEAsTj2FAAAAABJRU5ErkJggg==")


@pytest.fixture
def denizen(monkeypatch, command_line, tmp_path):
    """Run a command in a folder of its own: (exit code, stdout, stderr)."""
    monkeypatch.chdir(tmp_path)
    monkeypatch.setenv("COLUMNS", "200")
    before = signal.getsignal(signal.SIGTERM)

    yield command_line
    signal.signal(signal.SIGTERM, before)


@pytest.fixture(scope="module", autouse=True)
def _quick_to_look_at():
    """Each run ends with a picture, which takes more than the run: here of one pixel. Films have a few steps."""

    def one_pixel(canvas, place, *, metadata=None, pil_kwargs=None, **_):
        if "draw" in vars(canvas.figure):  # matplotlib asks for what would draw, to fit a figure's size to it
            DRAWN(canvas, place, metadata=metadata, pil_kwargs=pil_kwargs)
        elif hasattr(place, "write"):
            place.write(PIXEL)
        else:
            Path(place).write_bytes(PIXEL)

    with pytest.MonkeyPatch.context() as patched:
        patched.setattr(FigureCanvasAgg, "print_png", one_pixel)
        Inside(patched).short_films(6)
        yield


@pytest.fixture
def pictures(monkeypatch):
    """Pictures are drawn, for tests that look at them."""
    monkeypatch.setattr(FigureCanvasAgg, "print_png", DRAWN)
