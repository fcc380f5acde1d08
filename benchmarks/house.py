"""How large the source is, and how many of its files a reader enters who follows one job.

    python benchmarks/house.py [--source src]

Counts, without times: files and lines, private imports across packages, places that raise, and for three jobs the files
of denizen whose functions run and the pairs of files that call one another, under `sys.setprofile`. Run it before and
after a refactoring; `--source` takes the `src` of another checkout.
"""

import argparse
import ast
import os
import statistics
import subprocess
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path

JOBS = {
    "run covid": """
from denizen.app import main
sys.argv = ["denizen", "run", "covid", "--steps", "5", "--out", "run", "--device", "cpu"]
job = main
""",
    "train CartPole": """
import denizen as dz
from denizen.zoo.cartpole import CartPole
def job():
    env = CartPole()
    dz.train(env, dz.rl.mlp(env), dz.PPO(num_envs=8, num_steps=16), total_steps=512, device="cpu", progress=False)
""",
    "doctor": """
import torch, denizen as dz
layer = torch.nn.Linear(8, 8)
def step():
    return layer(torch.ones(4, 8)).sum().item()
def job():
    dz.doctor(step)
""",
}
HEAD = """
import contextlib, io, os, sys, threading
entered, calls = set(), set()
root = os.path.join(os.environ["HOUSE"], "denizen") + os.sep
def listen(frame, event, arg):
    if event == "call":
        file = frame.f_code.co_filename
        if file.startswith(root) and frame.f_code.co_flags & 1:  # a function, not the body of a module or class
            back = frame.f_back
            while back is not None and not back.f_code.co_filename.startswith(root):
                back = back.f_back
            if back is not None and not back.f_code.co_flags & 1:
                return  # called by an import
            entered.add(file)
            if back is not None and back.f_code.co_filename != file:
                calls.add((back.f_code.co_filename, file))
"""
TAIL = """
threading.setprofile(listen)
sys.setprofile(listen)
try:
    with contextlib.redirect_stdout(io.StringIO()), contextlib.redirect_stderr(io.StringIO()):
        job()
except SystemExit as end:
    assert not end.code, end.code
finally:
    sys.setprofile(None)
print(len(entered), len(calls))
if os.environ.get("HOUSE_FILES"):
    print(*sorted(file.removeprefix(root) for file in entered), sep="\\n")
"""


def main() -> None:
    options = argparse.ArgumentParser(description=__doc__)
    options.add_argument("--source", type=Path, default=Path(__file__).resolve().parents[1] / "src")
    options.add_argument("--files", action="store_true", help="also print the files that each job enters")
    given = options.parse_args()
    source = given.source.resolve()
    for name, value in size(source / "denizen"):
        print(f"{name:<44}{value:>10,}")
    for name, program in JOBS.items():
        print(f"{name:<44}{follow(source, program, given.files)}")


def size(package: Path) -> Iterator[tuple[str, float]]:
    """What stands in the files."""
    texts = {path: path.read_text() for path in sorted(package.rglob("*.py"))}
    trees = {path: ast.parse(text) for path, text in texts.items()}
    functions = [
        node.end_lineno - node.lineno + 1
        for tree in trees.values()
        for node in ast.walk(tree)
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.end_lineno
    ]
    lines = [text.count("\n") for text in texts.values()]
    yield "files", len(lines)
    yield "lines", sum(lines)
    yield "lines of the median file", statistics.median(lines)
    yield "functions", len(functions)
    yield "lines of the median function", statistics.median(functions)
    yield (
        "private imports across packages",
        sum(across(path.relative_to(package), tree) for path, tree in trees.items()),
    )
    yield "places that raise", sum(isinstance(node, ast.Raise) for tree in trees.values() for node in ast.walk(tree))


def across(path: Path, tree: ast.Module) -> int:
    """Names of private modules of other packages that a module imports; the ground floor is everybody's."""
    home = path.parts[0]
    count = 0
    for node in ast.walk(tree):
        if isinstance(node, ast.ImportFrom) and node.module and node.module.startswith("denizen."):
            parts = node.module.split(".")[1:]
            if parts[0] == home or (len(parts) == 1 and parts[0] != "_watch"):
                names = [name.name for name in node.names if parts[0] != home and not name.name.startswith("__")]
                count += sum(name.startswith("_") for name in names)  # `__version__` is public
            elif any(part.startswith("_") for part in parts):
                count += 1
            else:
                count += sum(name.name.startswith("_") for name in node.names)
    return count


def follow(source: Path, program: str, files: bool) -> str:
    """Files entered by a job, and pairs of files where one calls the other."""
    env = os.environ | {
        "PYTHONPATH": str(source),
        "HOUSE": str(source),
        "OMP_NUM_THREADS": "1",
        "DENIZEN_DEVICE": "cpu",
    }
    env |= {"HOUSE_FILES": "1"} if files else {}
    with tempfile.TemporaryDirectory() as folder:
        done = subprocess.run(
            [sys.executable, "-c", HEAD + program + TAIL], cwd=folder, env=env, capture_output=True, text=True
        )
    if done.returncode:
        return "failed: " + done.stderr.strip().splitlines()[-1]
    first, *rest = done.stdout.splitlines()
    entered, calls = first.split()
    return "\n    ".join([f"{entered:>6} files {calls:>6} pairs", *rest])


if __name__ == "__main__":
    main()
