"""A command that leaves a thread behind, and something to be called at the end."""

import atexit
import sys
import threading
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[3] / "src"))

from denizen import app


def main() -> None:
    atexit.register(print, "at the end")
    threading.Thread(target=lambda: (time.sleep(0.2), print("a thread"))).start()
    sys.exit(3)


app.main = main
app.process()
