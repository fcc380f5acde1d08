"""A command that leaves a thread behind, files that are open, and something to be called at the end."""

import atexit
import gzip
import sys
import threading
import time
from pathlib import Path
from typing import Any

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

from denizen import app

left: list[Any] = []


def main() -> None:
    for folder in map(Path, sys.argv[1:]):
        makers = {"text": Path.open, "packed": gzip.open}
        left.extend(make(folder / name, "wt") for name, make in makers.items())
        left.append(Path.open(folder / "bytes", "wb"))
        for file in left:
            file.write(b"a line\n" if file is left[-1] else "a line\n")
    atexit.register(print, "at the end")
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
    sys.exit(3)


app.main = main
app.process()
