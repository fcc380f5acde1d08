"""How fast updates follow each other."""

import time
from collections import deque
from typing import Any

LAST = 4  # updates of the rate that follows closely
TIMES = ("seconds", "steps_per_second", "steps_per_second_of_4", "steps_per_second_overall")


class Times:
    """Adds times to the metrics of each update, as they arrive on the host."""

    def __init__(self, samples: int) -> None:
        """Args:
        samples: steps of worlds in an update.
        """
        self._samples, self._count = samples, 0
        self._began = time.perf_counter()
        self._arrived = deque([self._began], LAST + 1)

    def add_to(self, row: dict[str, Any]) -> None:
        """Add `seconds` since the first update began, and steps of worlds a second: of this update, of the last four,
        of all since then.
        """
        now, arrived, self._count = time.perf_counter(), self._arrived, self._count + 1
        arrived.append(now)
        rates = (1, arrived[-2]), (len(arrived) - 1, arrived[0]), (self._count, self._began)
        speeds = [updates * self._samples / max(now - since, 1e-9) for updates, since in rates]
        row.update(zip(TIMES, (now - self._began, *speeds), strict=True))
