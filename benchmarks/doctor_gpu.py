"""What the doctor predicts a fault costs, against what a step gains when the fault is mended by hand.

    python benchmarks/doctor_gpu.py [--device cuda|cpu] [--rounds 5] [--steps 30] [--only WORDS] [--out FILE.json]
                                    [--seconds 110]

Each case is a step with one fault and the same step mended. The doctor examines the faulty one; its cost for that kind
(measured A/B, or an estimate) is the prediction. Then both steps are timed in turn, `--rounds` times `--steps` steps,
with one wait for the device at the end of each: the saving is the median of faulty less mended. Reported for each case:
step, predicted and measured saving with the 95 % interval of the medians, whether the kind and the line were right, and
whether the mended step passes. On the CPU only what costs there is run; it shows that the script works, no more.

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
from _report import commit, machine, now
from torch import nn

import denizen as dz

WIDTH, LAYERS, BATCH = 256, 6, 256


def net(device, layers=LAYERS):
    torch.manual_seed(0)
    return nn.Sequential(*[m for _ in range(layers) for m in (nn.Linear(WIDTH, WIDTH), nn.ReLU())]).to(device)


def train(model, optimizer, x):
    loss = model(x).square().mean()
    optimizer.zero_grad()
    loss.backward()
    optimizer.step()
    return loss


def base(device, **options):
    model = net(device)
    return model, torch.optim.Adam(model.parameters(), **options), torch.randn(BATCH, WIDTH, device=device)


def plain(device):
    model, optimizer, x = base(device)

    def step():
        train(model, optimizer, x)

    return step


def item(device):
    model, optimizer, x = base(device)
    total = [0.0]

    def step():
        loss = train(model, optimizer, x)
        total[0] = loss.item()  # FAULT

    return step


def nan_guard(device):
    model, optimizer, x = base(device)

    def step():
        loss = train(model, optimizer, x)
        if torch.isnan(loss):  # FAULT
            raise RuntimeError("diverged")

    return step


def synchronise(device):
    model, optimizer, x = base(device)

    def step():
        train(model, optimizer, x)
        torch.cuda.synchronize()  # FAULT

    return step


def fresh(device):
    model, optimizer, _ = base(device)

    def step():
        x = torch.zeros(BATCH, WIDTH).to(device)  # FAULT
        train(model, optimizer, x)

    return step


def fresh_mended(device):
    model, optimizer, _ = base(device)

    def step():
        train(model, optimizer, torch.zeros(BATCH, WIDTH, device=device))

    return step


def metrics(device):
    model, optimizer, x = base(device)
    seen = {}

    def step():
        train(model, optimizer, x)
        seen["mean"] = float(x.cpu().numpy().mean())  # FAULT

    return step


def mask(device):
    model, optimizer, x = base(device)
    chosen = torch.arange(BATCH, device=device) % 2 == 0

    def step():
        loss = model(x)[chosen].square().mean()  # FAULT
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def mask_mended(device):
    model, optimizer, x = base(device)
    weight = (torch.arange(BATCH, device=device) % 2 == 0).float()[:, None]

    def step():
        loss = (model(x).square() * weight).sum() / (weight.sum() * WIDTH)
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()

    return step


def host_index(device):
    model, optimizer, x = base(device)
    order = torch.randperm(BATCH)

    def step():
        rows = x[order]  # FAULT
        train(model, optimizer, rows)

    return step


def host_index_mended(device):
    model, optimizer, x = base(device)
    order = torch.randperm(BATCH).to(device)

    def step():
        train(model, optimizer, x[order])

    return step


def unfused(device):
    model, optimizer, x = base(device, foreach=False)

    def step():
        loss = model(x).square().mean()
        optimizer.zero_grad()
        loss.backward()
        optimizer.step()  # FAULT

    return step


def unfused_mended(device):
    model, optimizer, x = base(device, foreach=True)

    def step():
        train(model, optimizer, x)

    return step


def memset(device):
    model, optimizer, x = base(device)

    def step():
        loss = model(x).square().mean()
        optimizer.zero_grad(set_to_none=False)  # FAULT
        loss.backward()
        optimizer.step()

    return step


def fp32(device):
    a, b = torch.randn(4096, 4096, device=device), torch.randn(4096, 4096, device=device)

    def step():
        torch.mm(a, b)  # FAULT

    return step


def fp32_mended(device):
    a, b = torch.randn(4096, 4096, device=device), torch.randn(4096, 4096, device=device)

    def step():
        before = torch.get_float32_matmul_precision()
        torch.set_float32_matmul_precision("high")
        torch.mm(a, b)
        torch.set_float32_matmul_precision(before)

    return step


def anomaly(device):
    model, optimizer, x = base(device)

    def step():
        with torch.autograd.detect_anomaly():  # FAULT
            train(model, optimizer, x)

    return step


def no_grad(device):
    model, optimizer, x = base(device)

    def step():
        train(model, optimizer, x)
        model(x)  # FAULT

    return step


def no_grad_mended(device):
    model, optimizer, x = base(device)

    def step():
        train(model, optimizer, x)
        with torch.no_grad():
            model(x)

    return step


def agents(device):
    x, w = torch.rand(200, device=device), torch.rand(200, device=device)

    def step():
        out = torch.zeros(200, device=device)
        for k in range(200):
            out[k] = x[k] * w[k]  # FAULT
        return out

    return step


def agents_mended(device):
    x, w = torch.rand(200, device=device), torch.rand(200, device=device)

    def step():
        return x * w

    return step


def clone(device):
    x = torch.rand(1 << 24, device=device)

    def step():
        return x.clone().mul(2)  # FAULT

    return step


def clone_mended(device):
    x = torch.rand(1 << 24, device=device)

    def step():
        return x.mul(2)

    return step


def late_wait(device):
    """Work for much longer than its launches: the wait at the end costs almost nothing, and should be told so."""
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)
    seen = {}

    def step():
        y = a
        for _ in range(8):
            y = (a @ y) * 0.01
        seen["y"] = y.mean().item()  # FAULT

    return step


def late_wait_mended(device):
    a = torch.randn(4096, 4096, device=device, dtype=torch.bfloat16)

    def step():
        y = a
        for _ in range(8):
            y = (a @ y) * 0.01
        y.mean()

    return step


CASES = {
    "item": ("host-sync-item", item, plain),
    "if isnan": ("host-sync-bool", nan_guard, plain),
    "synchronize": ("host-sync-explicit", synchronise, plain),
    "fresh host tensor": ("h2d-fresh", fresh, fresh_mended),
    "metrics to NumPy": ("host-sync-copy", metrics, plain),
    "mask as index": ("host-sync-boolindex", mask, mask_mended),
    "index of the host": ("h2d-index", host_index, host_index_mended),
    "optimizer in a loop": ("optimizer-unfused", unfused, unfused_mended),
    "gradients filled": ("grad-memset", memset, plain),
    "float32 products": ("dtype-fp32", fp32, fp32_mended),
    "evaluation with a graph": ("no-grad-missing", no_grad, no_grad_mended),
    "a clone for nothing": ("alloc-churn", clone, clone_mended),
    "a wait at the end of long work": ("host-sync-item", late_wait, late_wait_mended),
    "anomaly detection": ("debug-left-on", anomaly, plain),
    "a loop over agents": ("launch-bound", agents, agents_mended),
}
ON_CPU = (
    "gradients filled",
    "anomaly detection",
    "evaluation with a graph",
    "a loop over agents",
)


def line_of(make):
    source = Path(__file__).read_text().splitlines()
    start = make.__code__.co_firstlineno
    return next(number for number in range(start, len(source) + 1) if source[number - 1].endswith("# FAULT"))


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
        "case": name, "kind": kind, "step_ms": 1e3 * step, "measured_ms": 1e3 * gain, "low_ms": 1e3 * low,
        "high_ms": 1e3 * high, "predicted_ms": None if cost is None else 1e3 * cost.seconds,
        "predicted_low_ms": None if cost is None else 1e3 * cost.low,
        "predicted_high_ms": None if cost is None else 1e3 * cost.high, "how": "" if cost is None else cost.how,
        "level": found[0].level if found else "", "right_line": bool(found) and found[0].line == line_of(faulty),
        "others": sorted({one.kind for one in report.faults} - {kind}), "mended_passes": after.ok,
        "doctor_seconds": report.seconds,
    }  # fmt: skip


HEAD = ("| case | kind | step ms | predicted ms | how | saved ms (95 %) | level | line | others | mended passes |",)
HEAD += ("|---|---|---|---|---|---|---|---|---|---|",)


def lines_of(rows):
    lines = []
    for row in rows:
        if "error" in row:
            lines.append(f"| {row['case']} | {CASES[row['case']][0]} | {row['error']} | | | | | | | |")
            continue
        guess = "-" if row["predicted_ms"] is None else f"{row['predicted_ms']:.3f}"
        saved = f"{row['measured_ms']:.3f} ({row['low_ms']:.3f} to {row['high_ms']:.3f})"
        line, passes = "right" if row["right_line"] else "WRONG", "yes" if row["mended_passes"] else "NO"
        lines.append(
            f"| {row['case']} | {row['kind']} | {row['step_ms']:.3f} | {guess} | {row['how'] or '-'} | {saved} | "
            f"{row['level'] or '-'} | {line} | {', '.join(row['others']) or '-'} | {passes} |"
        )
    return lines


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
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--steps", type=int, default=30)
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
    ended = [row for row in rows if "error" not in row]
    right = [row for row in ended if row["right_line"]]
    passing = [row for row in ended if row["mended_passes"]]
    print(f"\n{len(names)} cases on {given.device}, torch {torch.__version__}: {len(ended)} ended, "
          f"{len(right)} with the right kind and line, {len(passing)} pass when mended")  # fmt: skip


if __name__ == "__main__":
    main()
