"""`denizen hello`: a small town with and without a lockdown, from nothing to a picture in seconds."""

import contextlib
import dataclasses
import errno
import os
import shlex
import webbrowser
from collections.abc import Generator
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, arg

from denizen._printing import give, say
from denizen.app._exit import DONE
from denizen.app._folders import run_folder
from denizen.app._report import NAME, tell
from denizen.app._settings import within
from denizen.errors import ConfigError, StorageError

if TYPE_CHECKING:
    from torch import Tensor

    from denizen._printing import Console
    from denizen._results import Difference
    from denizen.report import Page
    from denizen.run import Run

DAY, FACTOR, DEGREE = 20, 0.3, 10  # of the lockdown, what it leaves of contacts' risk, contacts of a person
NOTHING, LOCKDOWN = "nothing", "lockdown"
PIECE = 5  # days between two looks at the curves
SAID = 15  # days between two lines, where there is no terminal
MOST = 2**32 - 1

PYTHON = """import denizen as dz
from denizen.model import During, Scale
from denizen.space.generators import erdos_renyi
from denizen.zoo.seir import seir

town = seir(erdos_renyi({agents}, mean_degree={degree}, seed={seed}))
lockdown = Scale(target="infect_rate", factor={factor}, when=During({day}, {steps}), name="lockdown")
nothing = dz.simulate(town, {steps}, replicates={replicates}, seed={seed})
closed = dz.simulate(town, {steps}, replicates={replicates}, seed={seed}, interventions=[lockdown])
print(closed.compare(nothing)["cases"])  # mean of the paired differences, where 90 % of them lie, and more"""


@dataclasses.dataclass(frozen=True)
class Hello:
    """`denizen hello`."""

    about: ClassVar[
        str
    ] = """See an epidemic in a small town, with and without a lockdown, and get a page of what came out.

Both runs draw the same random numbers: until day 20 they are the same.

examples:
  denizen hello
  denizen hello --open
  denizen hello --agents 20000 --replicates 50"""

    agents: Annotated[int, arg(metavar="N")] = 5000
    """Number of people, at least 100."""
    replicates: Annotated[int, arg(metavar="N")] = 20
    """Number of pairs of runs, at least 2. They differ in their random numbers."""
    steps: Annotated[int, arg(metavar="N")] = 90
    """Number of days, at least 21."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the random numbers. The same seed gives the same numbers."""
    out: Annotated[Path | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/hello-DATE-TIME)")] = None
    """Folder for the page and the two runs. It must be new or empty."""
    open: FlagCreatePairsOff[bool] = False
    """Open the page in a browser."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the page."""

    def __call__(self, console: "Console") -> int:
        """Run both, draw them, write the page."""
        for name, low in (("agents", 100), ("replicates", 2), ("steps", DAY + 1), ("seed", 0)):
            within(f"--{name}", getattr(self, name), low, MOST)
        with run_folder(self.out, "hello") as folder, _whole(folder, self.command()):
            nothing, lockdown = self._simulate(console)
            nothing.save(folder / NOTHING)
            lockdown.save(folder / LOCKDOWN)
            page = _page(self, nothing, lockdown).write(folder / NAME).resolve()
        say(console, (_headline(_gain(nothing, lockdown)), "bold"))
        tell(page, console)
        say(console, f"both runs   {folder / NOTHING} and {folder / LOCKDOWN}, for denizen show and denizen compare")
        say(console, "next        denizen run covid, a city of 37,518; denizen models, what else there is")
        if console.quiet:
            give(page)
        if self.open and not webbrowser.open(page.as_uri()):
            say(console, "no browser was found; open the page by hand")
        return DONE

    def command(self) -> str:
        """What to type to get the same again."""
        names = ("agents", "replicates", "steps", "seed")
        return shlex.join(["denizen", "hello", *(word for n in names for word in (f"--{n}", str(getattr(self, n))))])

    def _simulate(self, console: "Console") -> "tuple[Run, Run]":
        """Both runs, a few days at a time each, and their curves on the console."""
        from denizen import run
        from denizen.model import During, Scale
        from denizen.space.generators import erdos_renyi
        from denizen.zoo.seir import seir

        town = seir(erdos_renyi(self.agents, mean_degree=DEGREE, seed=self.seed))
        acts = [Scale(target="infect_rate", factor=FACTOR, when=During(DAY, self.steps), name=LOCKDOWN)]
        say(
            console,
            ("hello", "bold"),
            f": {self.agents:,} people who meet {DEGREE} others each, {self.steps} days × {self.replicates} "
            f"replicates, seed {self.seed}, on the CPU",
        )
        pair = [
            run.simulate(
                town,
                0,
                replicates=self.replicates,
                seed=self.seed,
                device="cpu",
                interventions=interventions,
                compile=False,  # seconds of compiling would not pay
            )
            for interventions in ([], acts)
        ]
        with _watched(console, self) as show:
            while pair[0].steps < self.steps:
                for one in pair:
                    one.extend(min(PIECE, self.steps - one.steps))
                show(*pair)
        return pair[0], pair[1]


@contextlib.contextmanager
def _whole(folder: Path, command: str) -> Generator[None]:
    """A folder that takes both runs and the page, which are written at the end; removed where nothing came to it.

    Raises:
        ConfigError: it holds something already.
        StorageError: it cannot be written.
    """
    if folder.exists() and (not folder.is_dir() or any(folder.iterdir())):
        raise ConfigError(f"--out {folder}: it is there and not empty; choose another folder")
    new = not folder.exists()
    try:
        folder.mkdir(parents=True, exist_ok=True)
        if not os.access(folder, os.W_OK):
            raise PermissionError(errno.EACCES, os.strerror(errno.EACCES))
        yield
    except BaseException as error:
        if new:
            with contextlib.suppress(OSError):
                folder.rmdir()  # fails where it holds something
        if isinstance(error, KeyboardInterrupt):
            error.go_on = f"begin anew with: {command}"  # type: ignore[attr-defined]
        if isinstance(error, OSError):
            cause = error.__cause__ if isinstance(error.__cause__, OSError) else error
            raise StorageError(
                f"{folder} could not be written: {cause.strerror or cause}; choose another place with --out FOLDER"
            ) from error
        raise


@contextlib.contextmanager
def _watched(console: "Console", hello: Hello) -> Generator[Any]:
    """A function to call with both runs as they go on: curves in a terminal, lines elsewhere."""
    if console.quiet:
        yield lambda nothing, lockdown: None
        return
    what = f"ill people, median of {hello.replicates} replicates"
    if not console.is_terminal or console.is_dumb_terminal:

        def tell(nothing: "Run", lockdown: "Run") -> None:
            if nothing.steps % SAID == 0 or nothing.steps == hello.steps:
                ill = [f"{name} {_medians(one)[-1]:,.0f}" for name, one in ((NOTHING, nothing), (LOCKDOWN, lockdown))]
                say(console, f"day {nothing.steps:>3}: {', '.join(ill)} {what}")

        yield tell
        return
    from rich.live import Live

    from denizen.app._terminal import Curves

    def draw(nothing: "Run", lockdown: "Run") -> None:
        curves = {NOTHING: _medians(nothing), LOCKDOWN: _medians(lockdown)}
        live.update(Curves(curves, hello.steps, "day", (DAY, f"lockdown, day {DAY}")), refresh=True)

    say(console, what)
    with Live(console=console, auto_refresh=False) as live:
        yield draw


def _medians(one: "Run") -> list[float]:
    """Ill people at the end of each day, median over replicates."""
    return one["infectious"].double().quantile(0.5, dim=0).tolist()


def _avoided(nothing: "Run", lockdown: "Run") -> "Tensor":
    """Cases that the lockdown avoids until the end of each day, float64 `[replicates, days]`."""
    return (nothing["cases"] - lockdown["cases"]).double().cumsum(dim=1)


def _band(values: "Tensor") -> tuple[Any, Any, Any]:
    """Median, 5 and 95 % over the first axis."""
    import torch

    low, middle, high = torch.quantile(values.double(), torch.tensor([0.05, 0.5, 0.95], dtype=torch.float64), dim=0)
    return middle.numpy(), low.numpy(), high.numpy()


def _gain(nothing: "Run", lockdown: "Run") -> "Difference":
    """Of all cases: without the lockdown minus with it."""
    return lockdown.compare(nothing, names=(LOCKDOWN, NOTHING))["cases"]


def _headline(gain: "Difference") -> str:
    return f"The lockdown avoids {gain.difference:,.0f} cases (5–95 %: {gain.low:,.0f} to {gain.high:,.0f})"


def _page(hello: Hello, nothing: "Run", lockdown: "Run") -> "Page":
    """The report."""
    import numpy as np

    from denizen._run_folder import commit, versions
    from denizen.report import Curve, Page

    days = np.arange(1, hello.steps + 1)
    pair = {NOTHING: nothing, LOCKDOWN: lockdown}
    gain, many = _gain(nothing, lockdown), f"{hello.replicates} replicates"
    page = Page(
        f"A town of {hello.agents:,}, with and without a lockdown",
        f"{hello.steps} days, {many} of each, SEIR on a random network",
    )
    page.headline(
        _headline(gain),
        f"Mean of the paired differences of {many}, and what holds 90 % of them; the mean itself lies between "
        f"{gain.mean_low:,.0f} and {gain.mean_high:,.0f} with 90 % confidence. A pair draws the same random numbers "
        f"with and without the lockdown: until day {DAY} both are the same to the last case.",
    )
    mark: dict[float, str] = {DAY: "lockdown"}
    for title, series, y_label in (("Ill people", "infectious", "people"), ("New cases", "cases", "cases per day")):
        curves = [Curve(name, *_band(one[series])) for name, one in pair.items()]
        page.curves(
            title,
            days,
            curves,
            x_label="day",
            y_label=y_label,
            marks=mark,
            about="Median over replicates; the band holds the middle 90 % of them.",
        )
    page.curves(
        "Cases avoided so far",
        days,
        [Curve("avoided", *_band(_avoided(nothing, lockdown)), colour=2)],
        x_label="day",
        y_label="cases",
        marks=mark,
        about="Difference of each pair of replicates: median, and the band that holds the middle 90 %.",
    )
    rows = []
    for name, one in pair.items():
        ill = one["infectious"]
        measures = one["cases"].sum(dim=1), ill.amax(dim=1), ill.argmax(dim=1) + 1
        rows.append([name, *(tuple(float(value) for value in _band(measure)) for measure in measures)])
    page.table("Totals and peaks", ["scenario", "cases", "most ill at once", "on day"], rows, "Median (middle 90 %).")
    page.settings(
        {
            "model": "SEIR: susceptible, exposed, infectious, recovered",
            "people": hello.agents,
            "contacts of each": f"{DEGREE} on average, drawn at random",
            "parameters": {name: f"{getattr(nothing.model, name).item():g}" for name in nothing.model.params},
            "lockdown": f"from day {DAY}, leaves {FACTOR:g} of infect_rate",
            "days": hello.steps,
            "replicates": hello.replicates,
            "seed": hello.seed,
            "device": str(nothing.device),
        }
    )
    page.settings({**versions(), "commit": commit()}, "Versions")
    page.section("The same again").command(hello.command())
    python = PYTHON.format(**dataclasses.asdict(hello), degree=DEGREE, day=DAY, factor=FACTOR)
    page.section("The same in Python").command(python)
    return page
