"""Where the command `denizen` begins, outside the package, whose import takes most of the start: torch."""

import signal
import sys


def main() -> None:
    """`denizen.app.main`; Ctrl-C while it is being imported ends the process at once, without a traceback."""
    before = signal.getsignal(signal.SIGINT)
    if before is signal.default_int_handler:  # elsewhere, as under nohup, the signal is meant to be ignored
        signal.signal(signal.SIGINT, signal.SIG_DFL)
    from denizen.app import main as begin

    try:
        signal.signal(signal.SIGINT, before)
        begin()
    except KeyboardInterrupt:  # before the command has begun, or again while it ends
        sys.exit(130)
