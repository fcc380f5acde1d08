"""Two processes of one program, as torchrun starts them, but forked from one that has imported everything.

Usage: python ranks.py -m MODULE WORDS… or python ranks.py SCRIPT WORDS…

Under torchrun torch is imported three times, which takes longer than what is tested.
"""

import contextlib
import os
import runpy
import socket
import sys
import warnings
from pathlib import Path
from types import SimpleNamespace

import torch.distributed  # noqa: F401  # imported, not used: forks have what their parent has

import denizen.app
import denizen.rl  # noqa: F401

with contextlib.suppress(ImportError):
    import numba  # noqa: F401

COUNT = 2


def rank(number: int, port: int, words: list[str]) -> None:
    os.environ.update(RANK=str(number), LOCAL_RANK=str(number), WORLD_SIZE=str(COUNT), LOCAL_WORLD_SIZE=str(COUNT))
    os.environ.update(MASTER_ADDR="127.0.0.1", MASTER_PORT=str(port))
    sys.argv = words[1:] if words[0] == "-m" else words
    if words[0] == "-m":
        runpy.run_module(words[1], run_name="__main__", alter_sys=True)
    else:
        runpy.run_path(words[0], run_name="__main__")


def forked(number: int, port: int, words: list[str]) -> int:
    child = os.fork()
    if child:
        return child
    code = 1
    try:
        rank(number, port, words)
        code = 0
    except SystemExit as stop:
        code = stop.code if isinstance(stop.code, int) else int(stop.code is not None)
    except BaseException:
        sys.excepthook(*sys.exc_info())  # torch's, which says whose it is
    finally:
        sys.stdout.flush()
        sys.stderr.flush()
        os._exit(code)


def call(folder: Path, words: list[str]) -> SimpleNamespace:
    """The same as a fork of this process, in a folder: exit code, output and errors."""
    files = [folder.parent / f"{folder.name}-{name}.txt" for name in ("out", "err")]
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")
        child = os.fork()
    if not child:
        code = 1
        try:
            for number, file in enumerate(files, 1):
                os.dup2(os.open(file, os.O_WRONLY | os.O_CREAT | os.O_TRUNC), number)
            sys.stdout, sys.stderr = (open(number, "w", closefd=False) for number in (1, 2))  # noqa: SIM115
            os.chdir(folder)
            code = main(words)
        finally:
            os._exit(code)
    code = os.waitstatus_to_exitcode(os.waitpid(child, 0)[1])
    out, err = (file.read_text() for file in files)
    return SimpleNamespace(returncode=code, stdout=out, stderr=err)


def main(words: list[str]) -> int:
    with socket.socket() as free:
        free.bind(("127.0.0.1", 0))
        port = free.getsockname()[1]
    children = [forked(number, port, words) for number in range(COUNT)]
    # Each to its own end, also where another fails: the first may still have to write what both have done.
    codes = [os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) for child in children]
    return int(any(codes))


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
