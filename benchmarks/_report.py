"""What the numbers were measured on, how they are condensed, and how they are shown."""

import datetime
import json
import os
import platform
import statistics
import subprocess
from pathlib import Path

ROOT = Path(__file__).resolve().parent.parent


def now():
    return datetime.datetime.now(datetime.UTC).isoformat(timespec="seconds")


def machine():
    """Processor, cores and memory."""
    lines = Path("/proc/cpuinfo").read_text().splitlines() if Path("/proc/cpuinfo").is_file() else []
    model = next(
        (line.split(":", 1)[1].strip() for line in lines if line.startswith("model name")), platform.processor()
    )
    memory = os.sysconf("SC_PAGE_SIZE") * os.sysconf("SC_PHYS_PAGES") / 2**30
    return {"processor": model, "cores": os.cpu_count(), "memory_gib": round(memory, 1), "system": platform.platform()}


def commit():
    """The commit, with "+changes" where src/ differs from it."""

    def git(*words):
        try:
            return subprocess.run(["git", *words], cwd=ROOT, capture_output=True, text=True, check=False).stdout.strip()
        except OSError:  # no git here
            return ""

    return git("rev-parse", "--short", "HEAD") + ("+changes" if git("status", "--porcelain", "--", "src") else "")


def load_average():
    return [round(x, 2) for x in os.getloadavg()]


def spread(samples):
    """Minimum and median."""
    return {"min": min(samples), "median": statistics.median(samples), "runs": len(samples)}


def timing(answers, per):
    """CPU and wall milliseconds of one unit (a step), from the answers of a contestant."""
    return {kind: spread([1e3 * a[kind] / per for a in answers]) for kind in ("cpu", "wall")}


def ratio(ours, theirs, kind="cpu"):
    """How many times faster ours is: median over rounds that ran side by side, and the ratio of the minima."""
    pairs = [b[kind] / a[kind] for a, b in zip(ours, theirs, strict=False)]
    best = min(b[kind] for b in theirs) / min(a[kind] for a in ours)
    return {"median": statistics.median(pairs), "of_minima": best, "rounds": len(pairs)}


def line_fit(xs, ys):
    """Least squares: intercept, slope, R^2."""
    mx, my = statistics.fmean(xs), statistics.fmean(ys)
    sxx = sum((x - mx) ** 2 for x in xs)
    slope = sum((x - mx) * (y - my) for x, y in zip(xs, ys, strict=True)) / sxx
    intercept = my - slope * mx
    rest = sum((y - intercept - slope * x) ** 2 for x, y in zip(xs, ys, strict=True))
    total = sum((y - my) ** 2 for y in ys)
    return {"intercept": intercept, "slope": slope, "r2": 1 - rest / total if total else 1.0}


def table(title, head, rows):
    """A Markdown table, aligned so that it reads well in a terminal too."""
    cells = [[str(c) for c in head], *[[str(c) for c in row] for row in rows]]
    width = [max(len(row[k]) for row in cells) for k in range(len(head))]
    lines = ["| " + " | ".join(c.ljust(w) for c, w in zip(row, width, strict=True)) + " |" for row in cells]
    lines.insert(1, "|" + "|".join("-" * (w + 2) for w in width) + "|")
    return f"### {title}\n\n" + "\n".join(lines) + "\n"


def show(value, digits=3):
    """A number with three significant digits and no exponent."""
    if value == 0 or value is None:
        return "-" if value is None else "0"
    magnitude = abs(value)
    decimals = max(0, digits - 1 - int(f"{magnitude:e}".split("e")[1]))
    return f"{value:,.{decimals}f}"


def save(path, section, result):
    """Put a section into a result file; sections measured earlier stay, each with its own date, commit and load."""
    everything = json.loads(path.read_text()) if path.is_file() else {}
    everything["machine"] = machine()
    everything[section] = result
    path.parent.mkdir(parents=True, exist_ok=True)
    path.write_text(json.dumps(everything, indent=1) + "\n")
    return everything
