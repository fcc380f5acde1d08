"""`denizen profile`: some steps of a loop, or a saved trace."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import give, say

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.perf import ProfileReport


@dataclasses.dataclass(frozen=True)
class Profile:
    """`denizen profile`."""

    about: ClassVar[str] = """Profile some steps of a loop: how busy the device is, why it waits, operators and memory.

TARGET is a model or world (FILE.py:NAME or a name), or a function that builds a step and returns it:
  def make(device):            # or make()
      ...
      def step(): ...
      return step

It may also be a saved trace, FILE.json or FILE.json.gz, which is read.

exit code:
  0  done
  2  wrong usage, an error of the code, or nothing was recorded

examples:
  denizen profile train.py:make
  denizen profile train.py:make --save-traces --plot profile.png
  denizen profile train.py:make --cpu --json > profile.json
  denizen profile traces/host_123.456.pt.trace.json.gz"""

    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """FILE.py:NAME, package.module:NAME, a name of `denizen models`, or a saved trace."""
    save_traces: FlagCreatePairsOff[bool] = False
    """Keep the trace. Perfetto, chrome://tracing and TensorBoard read it."""
    trace_dir: Annotated[Path, arg(metavar="FOLDER")] = Path("traces")
    """Folder for --save-traces."""
    cpu: FlagCreatePairsOff[bool] = False
    """Profile the CPU alone, even where there is a GPU."""
    steps: Annotated[int, arg(metavar="N")] = 5
    """Number of steps to record."""
    warm_up: Annotated[int, arg(metavar="N")] = 2
    """Number of steps under the profiler before those."""
    stacks: FlagCreatePairsOff[bool] = False
    """Also record Python functions. This makes operators slower."""
    json: FlagCreatePairsOff[bool] = False
    """Print only JSON."""
    plot: Annotated[Path | None, arg(metavar="FILE.png", help_behavior_hint="")] = None
    """Also draw the profile."""

    def __call__(self, console: "Console") -> int:
        """Profile, and print."""
        from denizen.app._exit import DONE, WRONG
        from denizen.app._failures import their_code

        with their_code():
            report = self._report()
        if self.json:
            give(report.to_json())
        else:
            say(console, report)
        if self.plot is not None:
            report.plot(self.plot)
        return DONE if report.window else WRONG  # where nothing was recorded there is nothing to tell

    def _report(self) -> "ProfileReport":
        import torch

        from denizen import perf
        from denizen.app._settings import within
        from denizen.app._target import maker

        within("--steps", self.steps, 1)
        within("--warm-up", self.warm_up, 1)
        if self.target.endswith((".json", ".json.gz")):
            return perf.ProfileReport.of(perf.read_trace(self.target), kept=Path(self.target))
        device = torch.device("cuda" if torch.cuda.is_available() and not self.cpu else "cpu")
        step = perf.built(maker(self.target), device)
        folder = self.trace_dir if self.save_traces else None
        return perf.profile(
            step, trace_dir=folder, warm_up=self.warm_up, active=self.steps, stacks=self.stacks, device=device
        )
