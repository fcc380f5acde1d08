"""Times of one thing that was timed often: their median and spread."""

import dataclasses
import statistics
from collections import deque


@dataclasses.dataclass(frozen=True)
class Timing:
    """Milliseconds of a part of a loop.

    Attributes:
        count: how often it was timed.
        median: of the last `keep` times.
        low: a tenth of them lies below.
        high: a tenth of them lies above.
        total: of all times.
    """

    count: int
    median: float
    low: float
    high: float
    total: float

    @classmethod
    def of(cls, times: "deque[float] | list[float]", count: int, total: float) -> "Timing":
        """From the times that were kept."""
        cuts = statistics.quantiles(times, n=10, method="inclusive") if len(times) > 1 else [times[0]] * 9
        return cls(count, statistics.median(times), cuts[0], cuts[-1], total)
