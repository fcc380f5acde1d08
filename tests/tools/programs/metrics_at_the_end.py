"""Logs to a slow file and ends at once, in the way that a word says."""

import sys
import time

from denizen import tools


class Slow(tools.JsonLines):
    def write(self, row):
        time.sleep(0.01)
        super().write(row)


path, ending = sys.argv[1:]
metrics = tools.MetricsWriter(Slow(path))
for step in range(20):
    metrics.log(step, {"a": step})
if ending == "exit":
    raise SystemExit(0)
if ending == "error":
    raise ZeroDivisionError
