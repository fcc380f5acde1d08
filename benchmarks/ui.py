"""The page of `denizen ui`: when a long run is painted, what a million agents take, and what a live view costs a run.

    python benchmarks/ui.py [--steps 100000] [--replicates 8] [--seconds 20]

Paints are of an empty browser context, from the navigation to the first chart, with the server's caches cold and then
warm. The cost is the processor time that the server takes while a page watches a run, as a share of a core and of what
the run takes in that time, which is less than a core where others use the machine.
"""

import argparse
import json
import os
import statistics
import subprocess
import sys
import tempfile
import time
import urllib.request
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "tests"))

RUN = """
import sys
from ui_runs import simulated
simulated(sys.argv[1], 10_000_000, 4, every=None, agents=2_000)
"""
SERVE = """
import sys
from denizen.ui import serve
serve([sys.argv[1]], port=0, ready=lambda address: print(address, flush=True))
"""
TICK = os.sysconf("SC_CLK_TCK")


def paints(root: Path, steps: int, replicates: int, times: int) -> dict[str, list[float]]:
    """Milliseconds to the first chart of a long run, by whether the server has read it before."""
    from playwright.sync_api import sync_playwright

    from ui_runs import lengthened, served, simulated

    simulated(root / "long", 2, replicates, every=None)
    lengthened(root / "long", steps)
    found: dict[str, list[float]] = {"cold": [], "warm": []}
    with sync_playwright() as driver:
        browser = driver.chromium.launch(executable_path="/usr/bin/chromium")
        for _ in range(times):
            with served([root]) as address:
                for kind in ("cold", "warm"):
                    context = browser.new_context()
                    page = context.new_page()
                    page.goto(f"{address}/#/run/0%3Along")
                    page.wait_for_selector("body[data-drawn=curves]")
                    found[kind].append(page.evaluate("performance.getEntriesByName('drawn')[0].startTime"))
                    context.close()
        browser.close()
    return found


def million(root: Path) -> dict[str, float]:
    """A snapshot of a million agents: milliseconds of the answer, and bytes of it."""
    from ui_runs import served, simulated

    simulated(root / "million", 2, 1, every=1, agents=1_000_000)
    with served([root]) as address:
        for place in (0, 1, 2):
            began = time.perf_counter()
            path = f"{address}/api/agents?id=0%3Amillion&field=stage&place={place}"
            size = len(urllib.request.urlopen(path).read())
        return {"milliseconds": 1e3 * (time.perf_counter() - began), "bytes": size}


def cpu(pid: int) -> float:
    """Seconds of the processor that a process has taken."""
    fields = Path(f"/proc/{pid}/stat").read_text().rpartition(")")[2].split()
    return (int(fields[11]) + int(fields[12])) / TICK


def watched(root: Path, seconds: float) -> dict[str, float]:
    """What the server takes while a page watches a run, by what the run takes."""
    os.environ["PYTHONPATH"] = os.pathsep.join([*sys.path[:1], os.environ.get("PYTHONPATH", "")])
    folder = root / "going"
    run = subprocess.Popen([sys.executable, "-c", RUN, str(folder)])
    server = subprocess.Popen([sys.executable, "-c", SERVE, str(root)], stdout=subprocess.PIPE, text=True)
    try:
        address = server.stdout.readline().strip().rstrip("/")
        while not list(folder.glob("metrics/*")):
            time.sleep(0.1)
        have, began, before = "-", time.monotonic(), (cpu(server.pid), cpu(run.pid))
        while time.monotonic() - began < seconds:
            time.sleep(1)  # as the page does
            path = f"{address}/api/curves?id=0%3Agoing&have={have}&width=800"
            have = json.loads(urllib.request.urlopen(path).read())["runs"][0]["version"]
            urllib.request.urlopen(f"{address}/api/run?id=0%3Agoing").read()
        took = cpu(server.pid) - before[0], cpu(run.pid) - before[1]
        wall = time.monotonic() - began
        return {"of_a_core": took[0] / wall, "of_the_run": took[0] / took[1], "run_got_of_a_core": took[1] / wall}
    finally:
        for process in (run, server):
            process.kill()
            process.wait()
        server.stdout.close()


def main() -> None:
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--steps", type=int, default=100_000)
    parser.add_argument("--replicates", type=int, default=8)
    parser.add_argument("--times", type=int, default=5)
    parser.add_argument("--seconds", type=float, default=20)
    given = parser.parse_args()
    with tempfile.TemporaryDirectory() as folder:
        root = Path(folder)
        (root / "a").mkdir()
        for kind, found in paints(root / "a", given.steps, given.replicates, given.times).items():
            print(f"first chart of {given.steps:,} steps × {given.replicates}, {kind}: ", end="")
            print(f"{statistics.median(found):.0f} ms (least {min(found):.0f}, of {len(found)})")
        (root / "b").mkdir()
        print("a million agents:", {name: round(value) for name, value in million(root / "b").items()})
        (root / "c").mkdir()
        print("live:", {name: round(value, 4) for name, value in watched(root / "c", given.seconds).items()})
    print(f"load {os.getloadavg()[0]:.1f} on {os.cpu_count()} cores")


if __name__ == "__main__":
    main()
