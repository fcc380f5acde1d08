"""`denizen ui`: a local page over folders of runs."""

import contextlib
import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, ClassVar

from tyro.conf import Positional, arg

from denizen._printing import say
from denizen.app._exit import DONE
from denizen.app._folders import RUNS
from denizen.app._settings import within
from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen._printing import Console


@dataclasses.dataclass(frozen=True)
class UI:
    """`denizen ui`."""

    about: ClassVar[str] = """Look at runs in a browser, also while they go on: curves, comparisons, agents, films.

The page only reads. Other machines need --host, and the token in its address.

examples:
  denizen ui                                all runs in runs/
  denizen ui runs/covid-20261128-120000     one of them
  denizen ui sweeps ~/trainings --port 9000
  denizen ui --host 0.0.0.0                 for other machines, with a token"""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="[RUNS]", help_behavior_hint="(default: runs)")] = ()
    """Folders that hold run folders, or run folders."""
    host: Annotated[str, arg(metavar="ADDRESS")] = "127.0.0.1"
    """Address to listen on."""
    port: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 8421, or the next that is free)")] = None
    """Port to listen on."""

    def __call__(self, console: "Console") -> int:
        """Serve until Ctrl-C."""
        from denizen.ui import serve

        within("--port", self.port, 0, 65535)
        for folder in self.runs:
            if not folder.is_dir():
                raise ConfigError(f"RUNS: there is no folder {folder}; give a folder that holds run folders")
        if not self.runs and not RUNS.is_dir():
            raise ConfigError(
                f"RUNS: there is no folder {RUNS} here, as a first run makes it: denizen run covid; or name another one"
            )

        def ready(address: str) -> None:
            say(console, "open ", (address, f"link {address}"), "   (Ctrl-C ends it)")

        with contextlib.suppress(KeyboardInterrupt):  # how it is meant to end
            serve(self.runs or (RUNS,), self.host, self.port, ready)
        return DONE
