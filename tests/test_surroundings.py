"""What conftest.py promises to every test."""

import signal
import subprocess
import sys

import pytest


def test_an_interrupt_arrives_also_where_the_parent_ignores_it(interruptible):
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)  # as the shell leaves it for `nohup … &`
    try:
        with interruptible():
            with pytest.raises(KeyboardInterrupt):
                signal.raise_signal(signal.SIGINT)
            child = "import signal; print(signal.getsignal(signal.SIGINT) is signal.default_int_handler)"
            told = subprocess.run([sys.executable, "-c", child], capture_output=True, text=True, check=True)
            assert told.stdout == "True\n"
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)
    with interruptible():  # a handler of the test's own stays
        assert signal.getsignal(signal.SIGINT) is before
