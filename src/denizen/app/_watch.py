"""`denizen watch`: a trained policy in its world, in the terminal or as a GIF."""

import dataclasses
import time
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

if TYPE_CHECKING:
    from rich.console import Console

SCALE = 240  # pixels that a picture of a GIF has at least


@dataclasses.dataclass(frozen=True)
class Watch:
    """`denizen watch`."""

    about: ClassVar[str] = """Watch a trained policy in its world.

examples:
  denizen watch runs/cartpole-ppo-20261128-120000
  denizen watch runs/breakout-ppo-20261128-120000 --gif breakout.gif --steps 300"""

    run: Annotated[Positional[Path], arg(metavar="RUN")]
    """Run folder of one training."""
    steps: Annotated[int, arg(metavar="N")] = 200
    """Steps to show."""
    gif: Annotated[Path | None, arg(metavar="FILE.gif", help_behavior_hint="")] = None
    """Write an animation rather than show it in the terminal."""
    frames_per_second: Annotated[float, arg(metavar="N")] = 15.0
    """Speed."""
    greedy: FlagCreatePairsOff[bool] = False
    """Take the likeliest actions rather than draw them."""
    best: FlagCreatePairsOff[bool] = False
    """The best policy rather than the last."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Of the world."""

    def __call__(self, console: "Console") -> int:
        """Play, and show."""
        from denizen.app import _trained
        from denizen.rl._evaluate import play

        saved = _trained.load(_trained.folders(self.run)[0], self.best)
        frames = play(saved.env, saved.policy, self.steps, greedy=self.greedy, seed=self.seed)
        if self.gif is not None:
            _write(self.gif, [picture for picture, _ in frames], self.frames_per_second)
            console.print(f"{self.gif}: {self.steps} steps of {_trained.described(saved.manifest)}")
            return 0
        _show(frames, 1 / self.frames_per_second, console)
        return 0


def _show(frames: Any, pause: float, console: "Console") -> None:
    from rich.live import Live
    from rich.text import Text

    with Live(console=console, auto_refresh=False) as live:
        for picture, caption in frames:
            live.update(Text.assemble(_text(picture), "\n", caption), refresh=True)
            time.sleep(pause if console.is_terminal else 0)


def _text(picture: Any) -> Any:
    """A picture as text: lines as they are, pixels as coloured half blocks."""
    from rich.text import Text

    if not hasattr(picture, "shape"):
        return Text("\n".join(picture))
    text = Text()
    step = max(1, picture.shape[1] // 80)
    pixels = picture[::step, ::step].tolist()
    for upper, lower in zip(pixels[::2], [*pixels[1::2], pixels[-1]], strict=False):
        for above, below in zip(upper, lower, strict=True):
            text.append("▀", style=f"rgb({above[0]},{above[1]},{above[2]}) on rgb({below[0]},{below[1]},{below[2]})")
        text.append("\n")
    return text


def _write(path: Path, pictures: list[Any], speed: float) -> None:
    from denizen.errors import need

    image: Any = need("PIL.Image", "plot", "animations")
    images = [_image(picture, image) for picture in pictures]
    images[0].save(path, save_all=True, append_images=images[1:], duration=1000 / speed, loop=0)


def _image(picture: Any, image: Any) -> Any:
    if not hasattr(picture, "shape"):
        return _lines(picture, image)
    made = image.fromarray(picture.cpu().numpy())
    factor = max(1, -(-SCALE // made.width))
    return made.resize((made.width * factor, made.height * factor), 0)


def _lines(lines: list[str], image: Any) -> Any:
    """Text in a font of fixed width, which comes with matplotlib."""
    from denizen.errors import need

    fonts: Any = need("PIL.ImageFont", "plot", "animations")
    drawing: Any = need("PIL.ImageDraw", "plot", "animations")
    data: str = need("matplotlib", "plot", "animations").get_data_path()
    font = fonts.truetype(f"{data}/fonts/ttf/DejaVuSansMono.ttf", 13)
    made = image.new("RGB", (int(font.getlength("m") * max(map(len, lines))) + 8, 16 * len(lines) + 8), "white")
    for row, line in enumerate(lines):
        drawing.Draw(made).text((4, 4 + 16 * row), line, fill="black", font=font)
    return made
