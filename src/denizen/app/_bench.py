"""`denizen bench`: time a step and count what it does; two side by side; against an earlier result."""

import contextlib
import dataclasses
import linecache
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say
from denizen.app._settings import whole, within
from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.perf import BenchReport


@dataclasses.dataclass(frozen=True)
class Bench:
    """`denizen bench`."""

    about: ClassVar[
        str
    ] = """Time a step: its forward, backward and optimizer parts, memory and launches, by batch size and variant.

TARGET is a model or world (FILE.py:NAME or a name), or a function that builds a step and returns it:
  def make(batch_size, device):            # or either, or neither
      ...
      def step(): ...
      return step

Variants are words joined by +: eager compile compile:MODE compile:BACKEND bf16 fp16 tf32 fp32.

exit code:
  0  done
  1  something is worse than in --against, or --versus compares steps that do not give the same
  2  wrong usage, an error of the code, or nothing could be measured

examples:
  denizen bench train.py:make --batch 8,16,32,64 --variants eager,compile,bf16
  denizen bench train.py:make --versus faster.py:make --batch 32
  denizen bench train.py:make --json > before.json
  denizen bench train.py:make --against before.json
  denizen bench cartpole --batch 64,1024
  denizen bench --setup "x = torch.randn(1000, 1000)" --stmt "x @ x" """

    target: Annotated[Positional[str], arg(metavar="[TARGET]", help_behavior_hint="")] = ""
    """FILE.py:NAME, package.module:NAME or a name of `denizen models`."""
    versus: Annotated[str | None, arg(metavar="TARGET", help_behavior_hint="")] = None
    """Another target to compare with; with --stmt, another statement."""
    batch: Annotated[str | None, arg(metavar="N,N,…", help_behavior_hint="(default: the target's own)")] = None
    """Batch sizes to time. For a model it is the number of replicates, for a world the number of worlds."""
    variants: Annotated[str, arg(metavar="WORD,WORD,…")] = "eager"
    """Ways to run the step."""
    stmt: Annotated[str | None, arg(metavar="CODE", help_behavior_hint="")] = None
    """A statement to time in place of TARGET. torch is imported for it."""
    setup: Annotated[str, arg(metavar="CODE", help_behavior_hint="")] = ""
    """Code that runs once before the statement."""
    weights: Annotated[str | None, arg(metavar="TARGET", help_behavior_hint="(default: by name or order)")] = None
    """Function that turns the state dict of TARGET into that of --versus."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on."""
    rounds: Annotated[int, arg(metavar="N")] = 20
    """Number of rounds. Times are medians over them."""
    json: FlagCreatePairsOff[bool] = False
    """Print only JSON."""
    plot: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """Also draw the times."""
    against: Annotated[Path | None, arg(metavar="RESULT.json", help_behavior_hint="")] = None
    """An earlier result, from --json. What is worse now is told."""

    def __call__(self, console: "Console") -> int:
        """Measure, print, compare."""
        from denizen import perf
        from denizen._printing import Console
        from denizen.app._exit import DONE, FOUND, WRONG
        from denizen.app._failures import their_code

        earlier = perf.BenchReport.read(self.against) if self.against is not None else None
        with their_code():
            report = self._report()
        if self.plot is not None:
            report.plot(self.plot)
        worse = report.against(earlier) if earlier is not None else []
        if self.json:
            give(report.to_json())
        else:
            console.print(report)
        tell = Console(stderr=True) if self.json else console
        for regression in worse:
            say(tell, (f"WORSE {regression}", "bold red"))
        if earlier is not None and not worse:
            say(tell, f"nothing is worse than in {self.against}")
        if worse or not report.valid:
            return FOUND
        compared = self.versus is None or report.ratios
        return DONE if compared and not all(case.failure for case in report.cases) else WRONG

    def _report(self) -> "BenchReport":
        from denizen import perf
        from denizen.app._target import function, maker

        if bool(self.target) == (self.stmt is not None):
            raise ConfigError("denizen bench takes a TARGET such as a.py:make, or --stmt CODE; denizen bench --help")
        if self.setup and self.stmt is None:
            raise ConfigError("--setup goes with --stmt")
        within("--rounds", self.rounds, 5)
        load: Callable[[str], Any] = maker if self.stmt is None else self._statement
        first = self.target or self.stmt or ""
        versus = self.versus
        return perf.bench(
            load(first),
            versus=None if versus is None else load(versus),
            batch=_numbers(self.batch),
            variants=[word for word in self.variants.split(",") if word],
            weights=None if self.weights is None else function(self.weights, "weights"),
            device=None if self.device == "auto" else self.device,
            rounds=self.rounds,
            names=_names(first, versus),
        )

    def _statement(self, text: str) -> Callable[[], Callable[[], Any]]:
        try:
            setup, code = compile(self.setup, "--setup", "exec"), compile(text, "--stmt", "exec")
            with contextlib.suppress(SyntaxError):
                code = compile(text, "--stmt", "eval")  # an expression: what it gives is compared
        except SyntaxError as error:
            raise ConfigError(f"{error.filename} is no Python: {error.msg}: {(error.text or '').strip()}") from error
        for name, said in (("--setup", self.setup), ("--stmt", text)):  # so that tracebacks show its lines
            linecache.cache[name] = len(said), None, said.splitlines(keepends=True), name

        def make() -> Callable[[], Any]:
            import torch

            names: dict[str, Any] = {"torch": torch}
            exec(setup, names)  # noqa: S102  # the user's own words
            return lambda: eval(code, names)  # noqa: S307

        return make


def _names(first: str, second: str | None) -> tuple[str, str]:
    """Short names of both, without commas, which part keys."""
    names = [word.rpartition("/")[2].removesuffix(":make").replace(",", ";") for word in (first, second or "")]
    return ("A", "B") if names[0] == names[1] else (names[0], names[1])


def _numbers(text: str | None) -> list[int] | None:
    if text is None:
        return None
    try:
        return [whole(word.strip()) for word in text.split(",")]
    except ValueError as error:
        raise ConfigError(f"--batch {text}: expected numbers joined by commas, such as 8,16,32,64") from error
