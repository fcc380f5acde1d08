"""The window of `denizen watch --window`, without a display."""

import sys

import pytest
from PIL import Image

from denizen.app import _watch
from denizen.errors import InputError, MissingExtra

pygame = pytest.importorskip("pygame")


@pytest.fixture
def dummy(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "dummy")


def pictures(seen):
    for step in range(6):
        seen.append(step)
        yield Image.new("RGB", (16, 8), "red"), f"step {step}"


def test_every_picture_is_shown_scaled_with_its_caption(dummy, monkeypatch):
    shown, flip = [], pygame.display.flip

    def flipped():
        flip()
        screen = pygame.display.get_surface()
        shown.append((screen.get_size(), tuple(screen.get_at((5, 5)))[:3], pygame.display.get_caption()[0]))

    monkeypatch.setattr(pygame.display, "flip", flipped)
    _watch.show_window(pictures([]), 1000.0, "a world")
    assert len(shown) == 6
    assert {one[:2] for one in shown} == {((640, 320), (255, 0, 0))}
    assert shown[2][2].startswith("a world | step 2 | space: pause")


@pytest.mark.parametrize(("end", "speed"), [("escape", 1000.0), ("close", 1000.0), ("close", float("inf"))])
def test_a_closed_window_ends_it(dummy, end, speed):
    seen = []

    def pressed():
        for picture in pictures(seen):
            if len(seen) == 3:
                event = {"escape": (pygame.KEYDOWN, {"key": pygame.K_ESCAPE}), "close": (pygame.QUIT, {})}[end]
                pygame.event.post(pygame.event.Event(event[0], **event[1]))
            yield picture

    _watch.show_window(pressed(), speed, "a world")
    assert seen == [0, 1, 2]


def test_keys_pause_step_and_change_the_speed(dummy):
    window = _watch._Window(pygame, 8.0)
    for key in (pygame.K_UP, pygame.K_UP, pygame.K_DOWN):
        window._press(key)
    assert window._speed == 16
    pygame.display.init()
    try:
        window._press(pygame.K_SPACE)
        for key in (pygame.K_RIGHT, pygame.K_SPACE):
            pygame.event.post(pygame.event.Event(pygame.KEYDOWN, key=key))
        assert window._wait()  # paused, so only a key can have ended it
        assert not window._paused
    finally:
        pygame.display.quit()


def test_a_missing_extra_is_named(monkeypatch):
    monkeypatch.setitem(sys.modules, "pygame", None)
    with pytest.raises(MissingExtra, match=r"pip install 'denizen\[window\]'"):
        _watch.show_window([], 10.0, "a world")


@pytest.mark.parametrize("driver", _watch.INVISIBLE)
def test_a_window_that_nobody_sees_is_told(monkeypatch, driver):
    """Without a display SDL may draw into memory and say nothing."""
    for name in ("SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER"):
        monkeypatch.delenv(name, raising=False)
    monkeypatch.setattr(pygame.display, "init", lambda: None)
    monkeypatch.setattr(pygame.display, "get_driver", lambda: driver)
    seen = []
    with pytest.raises(InputError, match="nobody sees"):
        _watch.show_window(pictures(seen), 1000.0, "a world")
    assert seen == []


def test_a_window_grows_with_lines_and_does_not_shrink(dummy, monkeypatch):
    sizes, flip = [], pygame.display.flip

    def flipped():
        flip()
        sizes.append(pygame.display.get_surface().get_size())

    monkeypatch.setattr(pygame.display, "flip", flipped)
    frames = [(Image.new("RGB", (width, 400), "red"), "") for width in (400, 500, 420)]
    _watch.show_window(iter(frames), 1000.0, "a world")
    assert sizes == [(400, 400), (500, 400), (500, 400)]


def test_no_display_is_told(monkeypatch):
    monkeypatch.setenv("SDL_VIDEODRIVER", "nothing")
    with pytest.raises(InputError, match="no window can be opened here"):
        _watch.show_window([], 10.0, "a world")
