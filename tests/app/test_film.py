"""`denizen watch --gif FILE.mp4`: frames go to ffmpeg; without it the way out is told before anything is played."""

import sys


def test_without_ffmpeg_the_way_out_is_told(denizen, monkeypatch, tmp_path):
    monkeypatch.setenv("PATH", str(tmp_path))
    monkeypatch.setitem(sys.modules, "imageio_ffmpeg", None)
    code, _, err = denizen("watch", "run", "--gif", "game.mp4")
    assert code == 2
    assert "pip install 'denizen[film]'" in " ".join(err.split())
