"""`denizen doctor`: what is slow about a step, in a terminal, as JSON or as a page; exit codes for CI."""

import contextlib
import dataclasses
import os
import re
import runpy
import sys
from collections.abc import Callable
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say
from denizen.app._exit import DONE, FOUND, WRONG

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.perf import DoctorReport


@dataclasses.dataclass(frozen=True)
class Doctor:
    """`denizen doctor`."""

    about: ClassVar[
        str
    ] = """Find the lines of a PyTorch loop that keep the device waiting, and say what to write instead.

TARGET is a model or world (FILE.py:NAME or a name), or a function that builds a step and returns it:
  def make(device):            # or make()
      ...
      def step(): ...
      return step

It may also be a script, after --, that marks its step with `with dz.perf.region():`.

Without a GPU it simulates a device. Counts are then exact; the time that a GPU would take is not guessed.

exit code:
  0  nothing worth changing
  1  findings at --fail-on or above
  2  wrong usage, an error of the code, or a step that did not work on the device

examples:
  denizen doctor train.py:make
  denizen doctor train.py:make --html doctor.html --fail-on severe
  denizen doctor train.py:make --json > doctor.json
  denizen doctor train.py:make --checklist
  denizen doctor -- python train.py --epochs 1
  denizen doctor city.py:Epidemic
  denizen doctor --environment"""

    target: Annotated[Positional[tuple[str, ...]], arg(metavar="[TARGET]", help_behavior_hint="")] = ()
    """FILE.py:NAME, package.module:NAME, a name of `denizen models`, or -- and the words of a script."""
    steps: Annotated[int, arg(metavar="N")] = 12
    """Number of steps to count. What happens every k steps is found where k is below N."""
    device: Literal["auto", "cpu", "cuda", "simulated"] = "auto"
    """Device to build the step on. auto takes the GPU, else the simulated device."""
    json: FlagCreatePairsOff[bool] = False
    """Print only JSON."""
    html: Annotated[Path | None, arg(metavar="FILE.html", help_behavior_hint="")] = None
    """Also write the report as a web page."""
    fail_on: Literal["note", "warning", "severe", "never"] = "warning"
    """Findings of this level or above give exit code 1."""
    no_rank: FlagCreatePairsOff[bool] = False
    """Do not measure what the findings cost. This is quicker."""
    checklist: FlagCreatePairsOff[bool] = False
    """Also check nine points of training speed, and show the evidence for each."""
    environment: FlagCreatePairsOff[bool] = False
    """Also say which settings of this machine and of torch make loops slow."""

    def __call__(self, console: "Console") -> int:
        """Examine, and print."""
        from denizen import perf
        from denizen.app._failures import their_code
        from denizen.app._settings import within
        from denizen.errors import ConfigError

        within("--steps", self.steps, 4)
        if not self.target:
            if self.environment:
                return self._environment(console)
            raise ConfigError("denizen doctor needs TARGET, such as train.py:make; denizen doctor --help")
        with their_code():
            report = self._report()
        if self.html is not None:
            report.save_html(self.html)
        listed = perf.checklist(report) if self.checklist else None
        if self.json:
            give(_dumped(report, listed))
        else:
            console.print(report)
            if listed is not None:
                console.print(listed)
            if self.environment:
                self._environment(console)
            if self.html is not None:
                say(console, f"page  {self.html}")
        if report.elsewhere and self.fail_on != "never":
            return WRONG
        return FOUND if self.fail_on != "never" and report.above(self.fail_on) else DONE

    def _report(self) -> "DoctorReport":
        from denizen import perf
        from denizen.app._target import maker
        from denizen.perf.simulated import cuda_alias, gpu_or_simulated
        from denizen.perf.watch import SIMULATED

        device = None if self.device == "auto" else self.device
        script = _script(self.target)
        if script is not None:
            name = next((word for word in self.target if word.endswith(".py")), "script.py")
            return perf.examine_script(script, self.steps, device, name)
        import denizen.rl  # noqa: F401  # before torch's names are replaced, which annotations there evaluate

        where = gpu_or_simulated(device)
        # A module may ask for CUDA by name before anybody could hand it a device.
        with cuda_alias() if where.type == SIMULATED else contextlib.nullcontext():
            make = maker(self.target[0])
            return perf.doctor(make=make, device=str(where.type), steps=self.steps, rank=not self.no_rank)

    def _environment(self, console: "Console") -> int:
        import torch

        from denizen import perf
        from denizen.app._failures import their_code
        from denizen.app._target import maker

        if self.target and _script(self.target) is None:  # a step shows what settings cannot: what it really uses
            auto = "cuda" if torch.cuda.is_available() else "cpu"
            with their_code():
                step = perf.built(maker(self.target[0]), torch.device(auto if self.device != "cpu" else "cpu"))
                found = perf.environment(step)
        else:
            found = perf.environment(None)
        if self.json:
            give(found.to_json())
        else:
            say(console, found)
        return FOUND if self.fail_on in ("note", "warning") and found.to_change else DONE


def _dumped(report: "DoctorReport", listed: Any) -> str:
    import json

    return json.dumps(report.to_dict() | ({"checklist": listed.to_dict()} if listed is not None else {}), indent=2)


def _script(words: tuple[str, ...]) -> Callable[[], object] | None:
    """What runs a script with its words; None where the words name a function.

    Raises:
        ConfigError: the words are neither.
    """
    from denizen.errors import ConfigError

    rest = list(words)
    python = os.path.basename(rest[0]).startswith("python")
    rest = rest[1:] if python else rest
    while python and rest and rest[0].startswith("-") and rest[0] not in ("-m", "-c"):  # switches such as -u
        rest = rest[2:] if rest[0] in ("-W", "-X") else rest[1:]
    if python and rest[:1] == ["-m"] and len(rest) > 1:
        return lambda: _run(rest[1:], lambda: runpy.run_module(rest[1], run_name="__main__", alter_sys=True))
    if rest and rest[0].endswith(".py") and (python or len(words) > 1 or _marks(rest[0])):
        if not Path(rest[0]).is_file():
            raise ConfigError(f"there is no file {rest[0]}")
        return lambda: _run(rest, lambda: runpy.run_path(rest[0], run_name="__main__"))
    if python or len(words) > 1:
        raise ConfigError(
            f"{' '.join(words)!r}: expected FILE.py:NAME, package.module:NAME, or `-- python FILE.py` with its words"
        )
    return None


def _marks(file: str) -> bool:
    """Whether a script marks its step, and has no function that would build one."""
    text = Path(file).read_text(errors="replace") if Path(file).is_file() else ""
    return "region(" in text and re.search(r"\bmake\b", text) is None


def _run(words: list[str], run: Callable[[], object]) -> None:
    """With the script's words as `sys.argv`, and its folder first on the path."""
    kept_words, kept_path = sys.argv, list(sys.path)
    sys.argv = list(words)
    sys.path.insert(0, str(Path(words[0]).resolve().parent) if words[0].endswith(".py") else str(Path.cwd()))
    try:
        run()
    finally:
        sys.argv, sys.path[:] = kept_words, kept_path
