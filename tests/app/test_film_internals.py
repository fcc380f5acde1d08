"""Frames of a film go to ffmpeg in order."""

import subprocess
import sys
import types

import numpy as np
import pytest
import torch
from PIL import Image

from denizen.app import _watch
from denizen.errors import InputError


@pytest.fixture
def ffmpeg(tmp_path, monkeypatch):
    """A stand-in that keeps its arguments and its input; makes it fail where the name says so."""
    program = tmp_path / "bin" / "ffmpeg"
    program.parent.mkdir()
    program.write_text(
        f"#!{sys.executable}\nimport sys, pathlib\ndata = sys.stdin.buffer.read()\n"
        "if 'bad' in sys.argv[-1]: sys.exit('no such codec')\n"
        "pathlib.Path(sys.argv[-1]).write_bytes(data)\nprint(*sys.argv)\n"
    )
    program.chmod(0o755)
    monkeypatch.setenv("PATH", str(program.parent))


def test_every_frame_goes_to_ffmpeg_in_order(tmp_path, ffmpeg):
    pictures = [torch.full((10, 5, 3), number, dtype=torch.uint8) for number in range(4)]
    _watch._write(tmp_path / "game.mp4", pictures, 15.0)
    pixels = torch.frombuffer(bytearray((tmp_path / "game.mp4").read_bytes()), dtype=torch.uint8).reshape(4, -1)
    assert [row.unique().tolist() for row in pixels] == [[0], [1], [2], [3]]
    assert pixels.shape[1] == 240 * 480 * 3
    with pytest.raises(InputError, match="ffmpeg failed: no such codec"):
        _watch._write(tmp_path / "bad.mp4", pictures, 15.0)


def test_the_programs_own_place_comes_first_then_the_extras(ffmpeg, monkeypatch, tmp_path):
    carrier = types.ModuleType("imageio_ffmpeg")
    carrier.get_ffmpeg_exe = lambda: "carried"
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", carrier)
    assert _watch._ffmpeg() == str(tmp_path / "bin/ffmpeg")
    monkeypatch.setenv("PATH", str(tmp_path))
    assert _watch._ffmpeg() == "carried"

    def none():
        raise RuntimeError

    carrier.get_ffmpeg_exe = none
    with pytest.raises(InputError, match="install it"):
        _watch._ffmpeg()


def test_what_the_extra_carries_writes_a_film(monkeypatch, tmp_path):
    carrier = pytest.importorskip("imageio_ffmpeg")
    monkeypatch.setenv("PATH", str(tmp_path))
    pictures = [torch.full((7, 5, 3), 20 * number, dtype=torch.uint8) for number in range(6)]
    _watch._write(tmp_path / "game.mp4", pictures, 15.0)
    done = subprocess.run([carrier.get_ffmpeg_exe(), "-i", tmp_path / "game.mp4"], capture_output=True, text=True)
    assert "Video: h264" in done.stderr
    assert "yuv420p" in done.stderr


@pytest.mark.parametrize("colours", [5, 256, 257])
def test_few_colours_are_written_as_they_are(colours, tmp_path):
    rng = np.random.default_rng(0)
    shades = rng.choice(1 << 24, colours, replace=False)
    frames = [torch.tensor(shades[rng.permutation(400) % colours].reshape(20, 20)) for _ in range(3)]
    pictures = [torch.stack([one >> 16, one >> 8 & 255, one & 255], dim=-1).to(torch.uint8) for one in frames]
    assert {one.mode for one in _watch.as_images(pictures)} == {"P" if colours <= 256 else "RGB"}
    _watch._write(tmp_path / "a.gif", pictures, 10.0)
    with Image.open(tmp_path / "a.gif") as gif:
        for number, picture in enumerate(pictures):
            gif.seek(number)
            seen = np.asarray(gif.convert("RGB"))[::12, ::12]
            assert colours == 257 or np.array_equal(seen, picture.numpy())
