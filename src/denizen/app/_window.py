"""A window in which a world is watched, with pygame."""

import os
from collections.abc import Iterable
from typing import Any

from denizen.app._watch import on_canvas
from denizen.errors import InputError, need

KEYS = "space: pause, right: one step, up and down: faster and slower, Esc: close"
INVISIBLE = ("offscreen", "dummy", "evdev")  # drivers that SDL falls back to where there is no display
SIDE = 640  # pixels of the longer side, about


def show(frames: Iterable[tuple[Any, str]], speed: float, title: str) -> None:
    """Show pictures with captions until they end or the window is closed.

    Args:
        frames: (PIL image, caption) of each step.
        speed: steps a second.
        title: of the window.

    Raises:
        MissingExtra: pygame is not installed.
        InputError: there is no display.
    """
    os.environ.setdefault("PYGAME_HIDE_SUPPORT_PROMPT", "1")
    pygame: Any = need("pygame", "window", "show a window")
    try:
        pygame.display.init()
        driver = pygame.display.get_driver()
        if driver in INVISIBLE and driver not in _wanted():
            raise pygame.error(f"there is no display: SDL would draw by its driver {driver!r}, which nobody sees")
        _Window(pygame, speed).play(frames, title)
    except pygame.error as error:
        raise InputError(
            f"--window: no window can be opened here ({error}); leave it out to watch in the terminal, or give --gif"
        ) from error
    finally:
        pygame.display.quit()


def _wanted() -> list[str]:
    """Drivers of SDL that the environment asks for by name, as tests do."""
    return ",".join(os.environ.get(name, "") for name in ("SDL_VIDEODRIVER", "SDL_VIDEO_DRIVER")).split(",")


class _Window:
    def __init__(self, pygame: Any, speed: float) -> None:
        self._pygame, self._speed = pygame, speed
        self._paused = self._step = False

    def play(self, frames: Iterable[tuple[Any, str]], title: str) -> None:
        pygame, screen, room = self._pygame, None, (0, 0)
        for picture, caption in frames:
            # Lines of text are not all as long: the window grows with them, and does not jump.
            room = (max(room[0], picture.width), max(room[1], picture.height))
            image = on_canvas(picture, room)
            factor = max(1, SIDE // max(image.size))
            size = (image.width * factor, image.height * factor)
            if screen is None or screen.get_size() != size:
                screen = pygame.display.set_mode(size)
            shown = pygame.image.frombuffer(image.convert("RGB").tobytes(), image.size, "RGB")
            screen.blit(pygame.transform.scale(shown, size), (0, 0))
            pygame.display.set_caption(f"{title} | {caption} | {KEYS}")
            pygame.display.flip()
            if not self._wait():
                return

    def _wait(self) -> bool:
        """Until the next picture is due; whether there is to be one."""
        pygame, began = self._pygame, self._pygame.time.get_ticks()
        self._step = False
        while True:  # at any speed the window is asked once whether it was closed
            for event in pygame.event.get():
                if event.type == pygame.QUIT or (event.type == pygame.KEYDOWN and event.key == pygame.K_ESCAPE):
                    return False
                if event.type == pygame.KEYDOWN:
                    self._press(event.key)
            if self._step or not (self._paused or pygame.time.get_ticks() - began < 1000 / self._speed):
                return True
            pygame.time.wait(5)

    def _press(self, key: int) -> None:
        pygame = self._pygame
        if key == pygame.K_SPACE:
            self._paused = not self._paused
        elif key == pygame.K_RIGHT:
            self._paused = self._step = True
        elif key in (pygame.K_UP, pygame.K_DOWN):
            self._speed *= 2 if key == pygame.K_UP else 0.5
