"""How much a method may simulate: runs, and seconds of the clock, looked at before each launch."""

import time

from denizen._arguments import number, whole
from denizen.fit._experiment import Experiment

OVER = "The budget was over"


class Budget:
    """What is left of the runs and seconds of a search.

    Attributes:
        over: whether a launch did not fit any more.
    """

    def __init__(self, experiment: Experiment, runs: int, seconds: float | None) -> None:
        """The clock starts.

        Args:
            experiment: counts its runs.
            runs: most of them, from here.
            seconds: most of them; None: any number.
        """
        self._experiment, self._first, self._runs, self._seconds = experiment, experiment.runs, runs, seconds
        self._began = time.monotonic()
        self.over, self._ended = False, (0, 0.0)

    @property
    def used(self) -> int:
        """Runs."""
        return self._experiment.runs - self._first

    @property
    def left(self) -> int:
        """Runs."""
        return self._runs - self.used

    def room(self, rows: int, least: int | None = None) -> int:
        """How many of the `rows` of a launch may run: all, fewer but at least `least`, or 0, and then it is over.

        Args:
            rows: wanted.
            least: fewest that are of use; None: all or nothing.
        """
        late = self._seconds is not None and time.monotonic() - self._began >= self._seconds
        left = 0 if late else min(rows, self.left)
        if left >= (rows if least is None else least):
            return left
        self.over = True
        self._ended = self.used, time.monotonic() - self._began
        return 0

    def notes(self) -> tuple[str, ...]:
        """What a fit says of it."""
        if not self.over:
            return ()
        runs, seconds = self._ended  # what came after, such as a polish, is not of the budget
        used, most = f"{runs:,} runs", f"{self._runs:,} runs"
        if self._seconds is not None:  # else a fit says nothing of time, so that the same seed says the same
            used += f", {seconds:.0f} s"
            most += f" or {self._seconds:g} s"
        return (f"{OVER} before the search was done ({used}; at most {most}); what it had found is kept.",)


def check_budget(caller: str, runs: int, seconds: float | None) -> None:
    """Of a method's settings.

    Raises:
        InputError: none at all.
    """
    whole(caller, "runs", runs, 1)
    if seconds is not None:
        number(caller, "seconds", seconds, above=0, hint=", or None for no limit")
