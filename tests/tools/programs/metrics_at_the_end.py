"""Processes that log to a slow file and end at once: as a script does, by `SystemExit`, and by an error.

Usage: python metrics_at_the_end.py FOLDER. Each is a fork, which imports nothing anew, and ends as Python ends.
"""

import os
import sys
import time

from denizen import tools


class Slow(tools.JsonLines):
    def write(self, row):
        time.sleep(0.01)
        super().write(row)


for ending in ("plain", "exit", "error"):  # noqa: B007 - a fork goes on with its own
    if os.fork() == 0:
        break
    os.wait()
else:
    sys.exit()

path = os.path.join(sys.argv[1], ending)
os.dup2(os.open(path + ".txt", os.O_CREAT | os.O_WRONLY), 2)
metrics = tools.MetricsWriter(Slow(path + ".jsonl"))
for step in range(20):
    metrics.log(step, {"a": step})
if ending == "exit":
    raise SystemExit(0)
if ending == "error":
    raise ZeroDivisionError
