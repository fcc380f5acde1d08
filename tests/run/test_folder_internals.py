"""Helpers of run folders: an interrupt that waits for a save."""

import signal

import pytest

from denizen import _atomic


def test_an_interrupt_waits_for_a_save():
    done = []

    def write():
        with _atomic.uninterrupted():
            signal.raise_signal(signal.SIGINT)
            done.append("written")

    with pytest.raises(KeyboardInterrupt):
        write()
    assert done == ["written"]
