"""Wolf-sheep on CUDA: a million places in one world, and 500 small worlds at once; under 40 s, checks first.

    python benchmarks/kinds_gpu.py [--device cpu --small] [--out RESULT.json]

Checks: the series of the small case have the same bits as on the CPU, and flows are changes of stocks. Times are of
compiled and captured steps, without set-up; ns are of a step and an animal alive on average.
"""

import argparse
import json
import sys
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import _cuda
import torch

import denizen as dz
from denizen.zoo.wolf_sheep import wolf_sheep

LARGE = {"regrow_steps": 10, "sheep_birth": 0.4, "wolf_birth": 0.2}
CASES = {  # name: (side, sheep, wolves, room of each, replicates, steps, options)
    "1M cells, 1 world": (1_000, 100_000, 50_000, 500_000, 1, 60, LARGE),
    "small, 500 worlds": (25, 60, 40, None, 500, 100, {}),
}


def check(device: str) -> None:
    """Series as on the CPU, and flows that are changes of stocks; ends the program otherwise."""
    born = {
        name: lambda events, name=name: events[name].sum() for name in ("graze/born", "graze/starved", "hunt/eaten")
    }
    runs = [dz.simulate(wolf_sheep(), 60, replicates=3, device=d, record=born, compile=False) for d in ("cpu", device)]
    for name in runs[0].series_names:
        if not torch.equal(runs[0][name].cpu(), runs[1][name].cpu()):
            sys.exit(f"check failed: {name} on {device} differs from the CPU")
    run = runs[1]
    change = run["graze/born"] - run["graze/starved"] - run["hunt/eaten"]
    if not torch.equal(run["sheep"].diff(dim=1), change[:, 1:]):
        sys.exit("check failed: flows of sheep are not the changes of their number")
    print(f"checked: 60 steps of the small case on {device} have the bits of the CPU; flows are changes of stocks")


def timed(device: str, case: tuple[Any, ...]) -> dict[str, float]:
    """Milliseconds a step, and ns an animal and step."""
    side, sheep, wolves, room, replicates, steps, options = case
    model = wolf_sheep(side=side, sheep=sheep, wolves=wolves, sheep_room=room, wolf_room=room, **options)
    began = time.perf_counter()
    run = dz.simulate(model, 20, replicates=replicates, device=device, compile=True)
    _wait(device)
    ready = time.perf_counter()
    run.extend(steps)
    _wait(device)
    seconds = time.perf_counter() - ready
    animals = float((run["sheep"] + run["wolves"])[:, 20:].double().mean()) * replicates
    return {
        "set-up s": ready - began,
        "ms/step": 1e3 * seconds / steps,
        "animals": animals,
        "ns/animal-step": 1e9 * seconds / steps / animals,
    }


def _wait(device: str) -> None:
    if device == "cuda":
        torch.cuda.synchronize()


def main() -> None:
    """Check, then time."""
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda")
    parser.add_argument("--small", action="store_true", help="only the small worlds, for a CPU")
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    began = time.perf_counter()
    check(args.device)
    rows = {}
    for name, case in CASES.items():
        if args.small and case[0] == 1_000:
            continue
        rows[name] = row = timed(args.device, case)
        print(f"{name:20}", "  ".join(f"{what} {value:,.4g}" for what, value in row.items()), flush=True)
    print(f"{time.perf_counter() - began:.0f} s in all")
    if args.out:
        args.out.write_text(json.dumps({"facts": _cuda.facts(args.device), "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
