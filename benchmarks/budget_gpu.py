"""What looking costs: an operation and a step under a budget, and the doctor's total time.

    python benchmarks/budget_gpu.py [--device cuda|simulated] [--rounds 5] [--out FILE.json]

Rows: an addition to one element, a read (`item`) and a step of a small network, each plain and within a `dz.budget`
that allows it: least of the rounds, in microseconds, with a wait for the device at both ends. Then the seconds that the
doctor takes for that step, with and without measuring costs; the first call of a process loads torch's compiler. About
15 s.
"""

import argparse
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _report import commit, machine, now
from torch import nn

import denizen as dz

TIMES = {"addition": 2000, "read": 300, "step": 50}


def network(device):
    """A step without faults."""
    torch.manual_seed(0)
    model = nn.Sequential(nn.Linear(64, 256), nn.ReLU(), nn.Linear(256, 64)).to(device)
    optimizer, x = torch.optim.SGD(model.parameters(), 0.01), torch.randn(128, 64, device=device)

    def step():
        optimizer.zero_grad()
        model(x).square().mean().backward()
        optimizer.step()

    return step


def works(device):
    """What is timed, by name."""
    one = torch.ones(1, device=device)
    return {"addition": lambda: one.add(1), "read": one.item, "step": network(device)}


def micros(work, times, rounds):
    """Least of the rounds, for one call."""
    best = float("inf")
    for _ in range(rounds):
        wait()
        began = time.perf_counter()
        for _ in range(times):
            work()
        wait()
        best = min(best, time.perf_counter() - began)
    return 1e6 * best / times


def wait():
    if torch.cuda.is_available():
        torch.cuda.synchronize()


def overheads(device, rounds):
    """Microseconds of each work, plain and watched."""
    guard = dz.budget(host_reads=10**9, transfers=10**9, device=device)
    rows = []
    plain_device = torch.device("cpu") if guard.device.type not in ("cuda", "cpu") else guard.device
    plain = {name: micros(work, TIMES[name], rounds) for name, work in works(plain_device).items()}
    with guard:
        watched = {name: micros(work, TIMES[name] // 5, rounds) for name, work in works(guard.device).items()}
    for name, value in plain.items():
        rows.append({"what": name, "plain_us": value, "budget_us": watched[name]})
        print(f"{name:10} {value:9.1f} us plain, {watched[name]:9.1f} us in a budget", flush=True)
    return rows


def doctors(device):
    """Seconds of the doctor for the step."""
    out = {}
    for name, rank in (("first call", False), ("without costs", False), ("with costs", True)):
        out[name] = dz.doctor(make=network, device=device, rank=rank).seconds
        print(f"doctor, {name}: {out[name]:.2f} s", flush=True)
    return out


def main():
    words = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    words.add_argument("--device", default="cuda" if torch.cuda.is_available() else "simulated")
    words.add_argument("--rounds", type=int, default=5)
    words.add_argument("--out", type=Path)
    given = words.parse_args()
    facts = {"at": now(), "commit": commit(), "machine": machine(), "torch": torch.__version__, "device": given.device}
    facts |= {"overheads": overheads(given.device, given.rounds), "doctor_seconds": doctors(given.device)}
    if given.device == "cuda":
        facts["gpu"] = torch.cuda.get_device_name()
    if given.out:
        given.out.write_text(json.dumps(facts, indent=1) + "\n")


if __name__ == "__main__":
    main()
