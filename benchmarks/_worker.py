"""One contestant in one process: requests and answers as JSON lines, so that contestants of different environments
can take turns in one run of the benchmark. Standard library only; imported by the benchmark and by every contestant.

A contestant calls `serve(setup, run)`. Times are taken in the contestant, around the work alone: process CPU time of
all its threads, and wall time. While one works the others wait for input and use no CPU.
"""

import json
import os
import resource
import subprocess
import sys
import time
from pathlib import Path

HERE = Path(__file__).resolve().parent


def serve(setup, run, versions):
    """Answer requests until input ends.

    Args:
        setup: called with the request's keywords; prepares what `run` repeats (graph, compilation).
        run: called with the request's keywords; returns (work, finish): `work()` is timed, `finish(result)` reads the
            answer out of what it returned, as a dictionary for JSON.
        versions: names and versions of what is compared.
    """
    replies = os.fdopen(os.dup(1), "w")
    os.dup2(2, 1)  # whatever a library prints goes to the log, not between the answers
    print(json.dumps({"versions": {"python": sys.version.split()[0], **versions}}), file=replies, flush=True)
    for line in sys.stdin:
        request = json.loads(line)
        began, cpu_began = time.perf_counter(), time.process_time()
        if request.pop("do") == "setup":
            answer = setup(**request) or {}
            cpu, wall = time.process_time() - cpu_began, time.perf_counter() - began
        else:
            work, finish = run(**request)
            began, cpu_began = time.perf_counter(), time.process_time()
            result = work()
            cpu, wall = time.process_time() - cpu_began, time.perf_counter() - began
            answer = finish(result)
        peak = resource.getrusage(resource.RUSAGE_SELF).ru_maxrss / 1024
        print(json.dumps({**answer, "cpu": cpu, "wall": wall, "peak_mib": peak}), file=replies, flush=True)


class Worker:
    """The benchmark's end of a contestant."""

    def __init__(self, name, python, script, log, env=None):
        self.name, self.log = name, log
        self._out = log.open("a")
        self._process = subprocess.Popen(
            [str(python), str(HERE / script)],
            stdin=subprocess.PIPE,
            stdout=subprocess.PIPE,
            stderr=self._out,
            text=True,
            cwd=HERE,
            env={**os.environ, "PYTHONPATH": str(HERE), **(env or {})},
        )
        self.versions = self._answer()["versions"]

    def ask(self, do, **request):
        self._process.stdin.write(json.dumps({"do": do, **request}) + "\n")
        self._process.stdin.flush()
        return self._answer()

    def _answer(self):
        line = self._process.stdout.readline()
        while line and not line.startswith("{"):  # greetings that a library prints when it is imported
            line = self._process.stdout.readline()
        if not line:
            tail = self.log.read_text().strip().splitlines()[-3:]
            raise RuntimeError(f"{self.name} stopped: {' | '.join(tail)}")
        return json.loads(line)

    def close(self):
        self._process.stdin.close()
        try:
            self._process.wait(timeout=60)
        except subprocess.TimeoutExpired:  # it has answered; what it still tidies up is nobody's
            self._process.kill()
            self._process.wait()
        self._out.close()
