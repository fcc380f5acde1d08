"""`denizen watch`: a trained policy in its world, in the terminal, in a window, as a GIF or as an MP4."""

import dataclasses
import os
import shutil
import subprocess
import time
from collections.abc import Iterable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

import numpy as np
from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen import _tree
from denizen._printing import say
from denizen.app._settings import within
from denizen.app._train import OtherWorld, Pairs
from denizen.app._trained import make_room
from denizen.errors import InputError, need

if TYPE_CHECKING:
    from denizen._printing import Console

SCALE = 240  # pixels that a picture of a GIF has at least
KEYS = "space: pause, right: one step, up and down: faster and slower, Esc: close"
INVISIBLE = ("offscreen", "dummy", "evdev")  # drivers that SDL falls back to where there is no display
SIDE = 640  # pixels of the longer side, about
COLUMNS, BESIDE = 80, 24  # of text that a picture of pixels has about, and what is beside it at least


@dataclasses.dataclass(frozen=True)
class Watch:
    """`denizen watch`."""

    about: ClassVar[str] = """Watch a trained policy in its world.

examples:
  denizen watch runs/cartpole-ppo-20261128-120000
  denizen watch runs/breakout-ppo-20261128-120000 --gif breakout.gif --steps 300
  denizen watch runs/foraging-ppo-20261128-120000 --gif foraging.mp4 --brain
  denizen watch runs/fruits-grpo-20261128-120000 --window --greedy --world spawn_prob=0.9"""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder of one training."""
    target: OtherWorld = ""
    """Another world, or the file that the world of the training came from. A file runs only where you name it."""
    steps: Annotated[int, arg(metavar="N")] = 200
    """Number of steps to show."""
    gif: Annotated[Path | None, arg(metavar="FILE.gif|FILE.mp4", help_behavior_hint="")] = None
    """Write an animation instead of showing it. An MP4 needs the program ffmpeg or the extra film."""
    window: FlagCreatePairsOff[bool] = False
    """Show it in a window. Space pauses, right steps, up and down change the speed, Esc closes."""
    frames_per_second: Annotated[float, arg(metavar="N")] = 15.0
    """Number of steps shown in a second."""
    greedy: FlagCreatePairsOff[bool] = False
    """Take the likeliest actions instead of drawing them."""
    best: FlagCreatePairsOff[bool] = False
    """Watch the best policy instead of the last."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the world."""
    world: Pairs = ()
    """Options of the world that differ from those of the training, for example spawn_prob=0.9."""
    brain: FlagCreatePairsOff[bool] = False
    """Also show what the network sees, and which parts of it decide the action."""

    def __call__(self, console: "Console") -> int:
        """Play, and show."""
        from denizen.app import _trained
        from denizen.rl import play

        if self.window and self.gif is not None:
            raise InputError("--window and --gif: give one of the two")
        within("--steps", self.steps, 1)
        within("--seed", self.seed, 0)
        if self.gif is not None and self.gif.suffix not in (".gif", ".mp4"):
            raise InputError(f"--gif {self.gif}: expected a name that ends in .gif or .mp4")
        if self.gif is not None and self.gif.suffix == ".mp4":
            _ffmpeg()  # before anything is played
        if not self.frames_per_second > 0:
            raise InputError(f"--frames-per-second {self.frames_per_second}: expected a number above 0")
        saved = _trained.load(_trained.folders(self.run, "watch")[0], self.best, self.world, self.target, "watch")
        if saved.note:
            say(console, f"note: {saved.note}")
        frames = play(saved.env, saved.policy, self.steps, greedy=self.greedy, seed=self.seed, brain=self.brain)
        if self.gif is not None:
            _write(self.gif, [picture for picture, _ in frames], self.frames_per_second)
            say(console, f"{self.gif}: {self.steps} steps of {_trained.described(saved.manifest)}")
            return 0
        if self.window:
            image: Any = need("PIL.Image", "window", "show a window")
            pictures = ((_image(picture, image), caption) for picture, caption in frames)
            show_window(pictures, self.frames_per_second, _trained.described(saved.manifest))
            return 0
        _show(frames, 1 / self.frames_per_second, console)
        return 0


def _show(frames: Any, pause: float, console: "Console") -> None:
    from rich.console import Group
    from rich.live import Live
    from rich.text import Text

    try:
        with Live(console=console, auto_refresh=False) as live:
            for picture, caption in frames:
                told = Text(caption, no_wrap=True, overflow="ellipsis")
                live.update(Group(_shown(picture, console), told), refresh=True)
                time.sleep(pause if console.is_terminal else 0)
    finally:
        if not console.is_terminal:  # rich ends no line there, and what is told next may be why it ended
            console.print()


def _shown(picture: Any, console: "Console") -> Any:
    """A picture that fits the terminal, with what goes on in the network beside it where that is told."""
    from denizen._printing import Table

    if not isinstance(picture, tuple):
        return _text(picture, console, COLUMNS, console.width)
    world, (inputs, moved) = picture
    beside = Table.grid(padding=(0, 2))
    side = min(2 * BESIDE, max(1, (console.width - 6) // 3))  # of what is beside the world, at most
    parts = [_text(_enlarged(part), console, side, side, outlined=False) for part in _brain(inputs, moved)]
    beside.add_row(_text(world, console, COLUMNS - 2 * BESIDE, max(1, console.width - 2 * side - 6)), *parts)
    return beside


def _enlarged(pixels: Any) -> Any:
    """Pixels that are as wide as what stands beside a world."""
    factor = max(1, BESIDE // pixels.shape[1])
    return pixels.repeat_interleave(factor, 0).repeat_interleave(factor, 1)


def _text(picture: Any, console: "Console", columns: int, room: int, *, outlined: bool = True) -> Any:
    """A picture as text: lines as they are, pixels as half blocks.

    Args:
        picture: lines, or uint8 `[height, width, 3]`.
        console: where it is shown.
        columns: of text, about.
        room: columns that there are.
        outlined: where there are no colours, show what differs from the background.
    """
    from rich.text import Text

    # A line that does not fit loses its end: on the next one it would be a part of another line.
    text = Text(no_wrap=True, overflow="ellipsis")
    if not hasattr(picture, "shape"):
        return text.append("\n".join(picture))
    height, width = picture.shape[:2]
    step = max(1, width // columns, -(-width // room))
    if console.is_terminal:
        step = max(step, -(-height // (2 * max(1, console.height - 2))))  # below it is the caption
    pixels = _smaller(picture, step)
    outline, background = outlined and console.color_system is None, _background(pixels).tolist()
    rows = pixels.tolist()
    for upper, lower in zip(rows[::2], [*rows[1::2], rows[-1]], strict=False):
        for above, below in zip(upper, lower, strict=True):
            if outline:
                text.append(" ▀▄█"[(above != background) + 2 * (below != background)])
                continue
            style = f"rgb({above[0]},{above[1]},{above[2]}) on rgb({below[0]},{below[1]},{below[2]})"
            text.append("▀", style=style)
        text.append("\n")
    return text


def _background(picture: Any) -> Any:
    """The colour that most of a picture has."""
    colours, counts = picture.flatten(0, 1).unique(dim=0, return_counts=True)
    return colours[counts.argmax()]


def _smaller(picture: Any, step: int) -> Any:
    """A picture by one pixel of each square of `step`: the least like the background, so that nothing small is lost."""
    if step == 1:
        return picture
    background = _background(picture)
    height, width = (-(-size // step) for size in picture.shape[:2])
    whole = background.expand(height * step, width * step, 3).clone()
    whole[: picture.shape[0], : picture.shape[1]] = picture
    squares = whole.unflatten(1, (width, step)).unflatten(0, (height, step)).transpose(1, 2).flatten(2, 3)
    unlike = (squares.int() - background.int()).abs().sum(-1).argmax(-1)
    return squares.gather(2, unlike[..., None, None].expand(-1, -1, 1, 3))[:, :, 0]


def _write(path: Path, pictures: list[Any], speed: float) -> None:
    images = as_images(pictures)
    make_room(path, "--gif")
    if path.suffix == ".mp4":
        _film(path, images, speed)
        return
    images[0].save(path, save_all=True, append_images=images[1:], duration=1000 / speed, loop=0)


def as_images(pictures: list[Any], most: int | None = None) -> list[Any]:
    """Pictures of a world as images of one size.

    Args:
        pictures: lines of text, uint8 `[height, width, 3]`, or pairs with what goes on in the network.
        most: pixels of the longer side, at most; None: any.

    Raises:
        MissingExtra: the library for pictures is not installed.
    """
    image: Any = need("PIL.Image", "plot", "animations")
    images = [_image(picture, image) for picture in pictures]
    size = (max(one.width for one in images), max(one.height for one in images))
    images = [on_canvas(one, size) for one in images]  # lines of text are not all as long
    if most is not None and max(size) > most:
        for one in images:
            one.thumbnail((most, most))
    return by_number(images)


def by_number(images: list[Any]) -> list[Any]:
    """Images whose pixels are numbers of colours, as a GIF has them, where there are at most 256; else as given.

    Otherwise Pillow looks for the colours of each image, which takes most of the time of writing it.
    """
    number, found = np.full(1 << 24, -1, np.int16), list[int]()
    numbered = []
    for one in images:
        red, green, blue = np.moveaxis(np.asarray(one.convert("RGB"), np.uint32), -1, 0)
        colours = (red << 16) | (green << 8) | blue
        new = np.unique(colours[number[colours] < 0])
        if len(found) + len(new) > 256:
            return images
        number[new] = np.arange(len(found), len(found) + len(new))
        found += new.tolist()
        numbered.append(number[colours].astype(np.uint8))
    palette = [part for colour in found for part in (colour >> 16, colour >> 8 & 255, colour & 255)]
    image: Any = need("PIL.Image", "plot", "animations")
    made = [image.frombytes("P", one.shape[::-1], one.tobytes()) for one in numbered]
    for one in made:
        one.putpalette(palette)
    return made


def on_canvas(one: Any, size: tuple[int, int]) -> Any:
    """An image in the upper left corner of a white one of another size."""
    if one.size == size:
        return one
    made = need("PIL.Image", "plot", "animations").new("RGB", size, "white")
    made.paste(one, (0, 0))
    return made


def _ffmpeg() -> str:
    """The program ffmpeg: the machine's own, or the one that imageio-ffmpeg carries."""
    found = shutil.which("ffmpeg")
    if found is not None:
        return found
    carrier: Any = need("imageio_ffmpeg", "film", "write MP4 where the program ffmpeg is missing")
    try:
        return carrier.get_ffmpeg_exe()
    except RuntimeError as error:  # it has none for this machine
        raise InputError("MP4 needs the program ffmpeg; install it (apt install ffmpeg), or name a .gif") from error


def _film(path: Path, images: list[Any], speed: float) -> None:
    """An MP4 that browsers and slides play: H.264 with halved colours, which needs even sides."""
    width, height = images[0].size
    pixels = b"".join(one.convert("RGB").resize((width, height)).tobytes() for one in images)
    command = [_ffmpeg(), "-y", "-loglevel", "error", "-f", "rawvideo", "-pix_fmt", "rgb24", "-s", f"{width}x{height}"]
    command += ["-r", f"{speed:g}", "-i", "-", "-vf", "pad=ceil(iw/2)*2:ceil(ih/2)*2", "-pix_fmt", "yuv420p", str(path)]
    done = subprocess.run(command, input=pixels, capture_output=True, check=False)
    if done.returncode:
        raise InputError(f"--gif {path}: ffmpeg failed: {done.stderr.decode(errors='replace').strip()[-300:]}")


def _image(picture: Any, image: Any) -> Any:
    if isinstance(picture, tuple):  # the world, and what goes on in the network
        world, (inputs, moved) = picture
        return _beside([_image(one, image) for one in (world, *_brain(inputs, moved))], image)
    if not hasattr(picture, "shape"):
        return _lines(picture, image)
    made = image.fromarray(picture.cpu().numpy())
    factor = max(1, -(-SCALE // made.width))
    return made.resize((made.width * factor, made.height * factor), 0)


def _lines(lines: list[str], image: Any) -> Any:
    """Text in a font of fixed width, which comes with matplotlib."""
    fonts: Any = need("PIL.ImageFont", "plot", "animations")
    drawing: Any = need("PIL.ImageDraw", "plot", "animations")
    data: str = need("matplotlib", "plot", "animations").get_data_path()
    font = fonts.truetype(f"{data}/fonts/ttf/DejaVuSansMono.ttf", 13)
    made = image.new("RGB", (int(font.getlength("m") * max(map(len, lines))) + 8, 16 * len(lines) + 8), "white")
    for row, line in enumerate(lines):
        drawing.Draw(made).text((4, 4 + 16 * row), line, fill="black", font=font)
    return made


def _beside(images: list[Any], image: Any) -> Any:
    """Pictures side by side, on white."""
    made = image.new("RGB", (sum(i.width + 6 for i in images), max(i.height for i in images)), "white")
    left = 0
    for one in images:
        made.paste(one, (left, 0))
        left += one.width + 6
    return made


def _brain(inputs: Any, moved: Any) -> tuple[Any, Any]:
    """What is seen (each plane a share of the grey) and what of it matters (red): uint8 `[height, width, 3]` each."""
    import torch

    if not isinstance(inputs, torch.Tensor):  # of a tree the part that is most of a picture
        inputs, moved = max(
            zip(_tree.tensors(inputs), _tree.tensors(moved), strict=True), key=lambda pair: pair[0].dim()
        )
    flat = (-1, *inputs.shape[-2:]) if inputs.dim() in (2, 3) else (1, 1, -1)
    planes, weights = inputs.reshape(flat), moved.reshape(flat)
    if planes.shape[-1] > 4 * planes.shape[-2] and planes.shape[-2] == 1:  # a vector: bars are easier to see than dots
        planes, weights = planes.expand(-1, 4, -1), weights.expand(-1, 4, -1)
    seen, heat = _scaled(planes.abs().sum(0)), _scaled(weights.sum(0))
    grey = (255 * (1 - seen)).to(torch.uint8)[..., None].expand(-1, -1, 3)
    fade = (255 * (1 - heat)).to(torch.uint8)
    red = torch.stack([torch.full_like(fade, 255), fade, fade], -1)
    return grey, red


def _scaled(values: Any) -> Any:
    return values / values.max().clamp(min=1e-12)


# --- a window ---------------------------------------------------------------------------------------------------------


def show_window(frames: Iterable[tuple[Any, str]], speed: float, title: str) -> None:
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
