"""What the doctor predicts a fault costs, against what a step gains when the fault is mended by hand.

    python benchmarks/doctor_gpu.py [--device cuda|cpu] [--rounds 7] [--steps 20] [--only WORDS] [--out FILE.json]
                                    [--seconds 110]

Each case is a step with one fault and the same step mended. The doctor examines the faulty one; its cost for that kind
(measured A/B, or an estimate) is the prediction. Then both steps are timed in turn, `--rounds` times `--steps` steps,
with one wait for the device at the end of each: the saving is the median of faulty less mended. Reported for each case
of _doctor_cases.py: step, predicted and measured saving with the 95 % interval of the medians, their ratio, whether the
kind and the line were right, and whether the mended step passes. On the CPU only what costs there is run; it shows that
the script works, no more.

Cases run in a process of their own, which goes on with the next one after an error and is started again after a crash:
then the case has a line that says so. Each line is printed, and written to FILE.json, as soon as it is there. After
`--seconds` no further case begins; the slow ones are the last.
"""

import argparse
import contextlib
import faulthandler
import io
import json
import statistics
import subprocess
import sys
import tempfile
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import numpy as np
import torch
from _doctor_cases import CASES, ON_CPU, blamed
from _report import commit, machine, now

import denizen as dz


def seconds(step, steps, device):
    wait(device)
    began = time.perf_counter()
    for _ in range(steps):
        step()
    wait(device)
    return (time.perf_counter() - began) / steps


def wait(device):
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def saving(faulty, mended, rounds, steps, device):
    pairs = []
    for step in (faulty, mended):
        seconds(step, 5, device)
    for k in range(rounds):
        if k % 2:
            b, a = seconds(mended, steps, device), seconds(faulty, steps, device)
        else:
            a, b = seconds(faulty, steps, device), seconds(mended, steps, device)
        pairs.append((a, b))
    gains = np.array([a - b for a, b in pairs])
    drawn = np.median(gains[np.random.default_rng(0).integers(0, len(gains), (2000, len(gains)))], axis=1)
    low, high = np.quantile(drawn, [0.025, 0.975])
    return statistics.median(a for a, _ in pairs), float(np.median(gains)), float(low), float(high)


def measured(name, rounds, steps, device):
    kind, faulty, mended = CASES[name]
    with contextlib.redirect_stdout(io.StringIO()):
        report, after = dz.doctor(make=faulty, device=device), dz.doctor(make=mended, device=device, rank=False)
    found = [one for one in report.findings if one.kind == kind]
    cost = found[0].cost if found else None
    step, gain, low, high = saving(faulty(device), mended(device), rounds, steps, device)
    return {
        "case": name,
        "kind": kind,
        "step_ms": 1e3 * step,
        "measured_ms": 1e3 * gain,
        "low_ms": 1e3 * low,
        "high_ms": 1e3 * high,
        "predicted_ms": None if cost is None else 1e3 * cost.seconds,
        "predicted_low_ms": None if cost is None else 1e3 * cost.low,
        "predicted_high_ms": None if cost is None else 1e3 * cost.high,
        "how": "" if cost is None else cost.how,
        "ratio": None if cost is None or gain <= 0 else cost.seconds / gain,
        "level": found[0].level if found else "",
        "right_line": any((one.file, one.line) == blamed(faulty) for one in found),
        "others": sorted({one.kind for one in report.faults} - {kind}),
        "mended_passes": after.ok,
        "doctor_seconds": report.seconds,
        "notes": report.notes,
    }


HEAD = (
    "| case | kind | step ms | predicted ms (95 %) | how | saved ms (95 %) | ratio | level | line | others | mended |",
)
HEAD += ("|---|---|---|---|---|---|---|---|---|---|---|",)


def lines_of(rows):
    lines = []
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['case']} | {CASES[row['case']][0]} | {row['error']} | | | | | | | | |")
            continue
        guess = "-" if row["predicted_ms"] is None else f"{row['predicted_ms']:.3f}"
        if row["how"] == "measured A/B":
            guess += f" ({row['predicted_low_ms']:.3f} to {row['predicted_high_ms']:.3f})"
        saved = f"{row['measured_ms']:.3f} ({row['low_ms']:.3f} to {row['high_ms']:.3f})"
        ratio = "-" if row["ratio"] is None or row["low_ms"] <= 0 else f"{row['ratio']:.2f}"
        line, passes = "right" if row["right_line"] else "WRONG", "passes" if row["mended_passes"] else "FAILS"
        told = f"{row['level'] or '-'} | {line} | {', '.join(row['others']) or '-'} | {passes}"
        lines.append(
            f"| {row['case']} | {row['kind']} | {row['step_ms']:.3f} | {guess} | {row['how'] or '-'} | {saved} | "
            f"{ratio} | {told} |"
        )
    return lines


def summary(rows):
    """How many cases have a prediction, and how near it is where mending saved something."""
    ended = [row for row in rows if "error" not in row]
    saving = [row for row in ended if row["low_ms"] > 0]
    ratios = [row["ratio"] for row in saving if row["ratio"] is not None]
    near, middle = sum(0.5 <= ratio <= 2 for ratio in ratios), statistics.median(ratios) if ratios else 0
    nothing = [row for row in ended if row["low_ms"] <= 0]
    told = [row for row in nothing if row["how"] == "measured A/B" and row["predicted_low_ms"] <= 0]
    seconds = [row["doctor_seconds"] for row in ended]
    return [
        f"{len(ended)} of {len(rows)} cases ended; kind and line right in {sum(row['right_line'] for row in ended)}, "
        f"{sum(row['mended_passes'] for row in ended)} pass when mended, {sum(bool(row['others']) for row in ended)} "
        "with another kind beside it",
        f"mending saves time in {len(saving)}, of which {len(ratios)} have a predicted saving; it is within a factor "
        f"of 2 in {near}, median ratio {middle:.2f}",
        f"mending saves nothing that can be measured in {len(nothing)}; the doctor measured none in {len(told)}",
        f"the doctor took {statistics.median(seconds) if seconds else 0:.1f} s (median), {sum(seconds):.0f} s in all",
    ]


def work(given, device, names):
    """Run cases one after another; a row for each goes to the file, after a mark that it was begun."""
    faulthandler.enable()
    ends = time.monotonic() + given.seconds
    for name in names:
        if time.monotonic() > ends:
            row = {"case": name, "error": "left out: the time was over"}
        else:
            with given.work.open("a") as file:
                print(json.dumps({"case": name, "begun": True}), file=file)
            try:
                row = measured(name, given.rounds, given.steps, device)
            except Exception as error:
                row = {"case": name, "error": f"{type(error).__name__}: {error}".partition("\n")[0][:200]}
        with given.work.open("a") as file:
            print(json.dumps(row), file=file)
        print(*lines_of([row]), flush=True)


def rows_in(path):
    """Rows of the cases that ended, and the case that was begun and did not."""
    read = [json.loads(line) for line in path.read_text().splitlines()] if path.is_file() else []
    rows = [row for row in read if "begun" not in row]
    begun = [row["case"] for row in read if "begun" in row]
    return rows, begun[-1] if begun and begun[-1] not in [row["case"] for row in rows] else None


def supervise(given, names, path):
    """Have a process run the cases, and another one go on where it crashed."""
    ends, rows = time.monotonic() + given.seconds, []
    print(*HEAD, sep="\n", flush=True)
    while left := [name for name in names if name not in [row["case"] for row in rows]]:
        seconds = max(0.0, ends - time.monotonic())
        words = ["--device", given.device, "--rounds", given.rounds, "--steps", given.steps, "--seconds", seconds]
        words += ["--work", path, "--cases", *left]
        child = subprocess.Popen([sys.executable, __file__, *map(str, words)])
        while child.poll() is None:
            time.sleep(0.2)
            rows, _ = rows_in(path)
            save(given, rows)
        rows, crashed = rows_in(path)
        if crashed is not None or child.returncode:
            crashed = crashed or next((name for name in left if name not in [row["case"] for row in rows]), None)
            if crashed is None:
                break
            row = {"case": crashed, "error": f"crashed: the process ended with {child.returncode}"}
            with path.open("a") as file:
                print(json.dumps(row), file=file)
            rows.append(row)
            print(*lines_of([row]), flush=True)
        save(given, rows)
    return rows


def save(given, rows):
    if given.out:
        facts = {"at": now(), "commit": given.commit, "machine": machine(), "torch": torch.__version__}
        if given.device.startswith("cuda"):
            facts["gpu"] = torch.cuda.get_device_name(given.device)
        given.out.write_text(json.dumps(facts | {"rows": rows}, indent=1) + "\n")


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "cpu")
    words.add_argument("--rounds", type=int, default=7)
    words.add_argument("--steps", type=int, default=20)
    words.add_argument("--seconds", type=float, default=110.0)
    words.add_argument("--only", default="")
    words.add_argument("--out", type=Path)
    words.add_argument("--work", type=Path, help=argparse.SUPPRESS)
    words.add_argument("--cases", nargs="*", help=argparse.SUPPRESS)
    given = words.parse_args()
    device = torch.device(given.device)
    if given.work:
        work(given, device, given.cases)
        return
    given.commit = commit()
    names = [name for name in CASES if given.only in name and (device.type == "cuda" or name in ON_CPU)]
    with tempfile.TemporaryDirectory() as folder:
        rows = supervise(given, names, Path(folder, "rows"))
    print("", f"{given.device}, torch {torch.__version__}", *summary(rows), sep="\n")


if __name__ == "__main__":
    main()
