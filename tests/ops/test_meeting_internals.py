"""Threads that share a step: they meet, and what one of them raises ends the others."""

import _thread
import os
import time
from functools import partial

import pytest

pytest.importorskip("numba")

from denizen.ops._cpu import over_parts
from denizen.ops._cpu_meeting import gate, leave, meet


def test_parts_meet_and_are_all_there() -> None:
    at, came = gate(), []

    def work(start: int, stop: int, part: int) -> None:
        came.append((start, stop, part))
        meet(at, 3)
        assert len(came) == 3

    over_parts(work, 10, 3, multiple=2)
    assert sorted(came) == [(0, 4, 0), (4, 8, 1), (8, 10, 2)]


@pytest.mark.parametrize("which", [0, 1])
def test_nobody_waits_for_one_who_failed(which: int) -> None:
    at = gate()

    def work(start: int, stop: int, part: int) -> None:
        if part == which:
            leave(at)
            raise IndexError("a place is out of range")
        meet(at, 2)

    with pytest.raises((IndexError, RuntimeError)):
        over_parts(work, 2, 2)


def test_nobody_waits_for_one_who_was_interrupted_before_it_began() -> None:
    at = gate()

    def work(start: int, stop: int, part: int) -> None:
        if part == 0:
            raise KeyboardInterrupt
        meet(at, 2)

    with pytest.raises(KeyboardInterrupt):
        over_parts(work, 2, 2, ended=partial(leave, at))


def test_an_interrupt_waits_for_all_parts() -> None:
    """They write into what the caller frees."""
    done = []

    def work(start: int, stop: int, part: int) -> None:
        if part:
            time.sleep(0.1)
            _thread.interrupt_main()
            time.sleep(0.1)
        done.append(part)

    with pytest.raises(KeyboardInterrupt):
        over_parts(work, 3, 3)
    assert sorted(done) == [0, 1, 2]


@pytest.mark.skipif(not hasattr(os, "fork"), reason="there is no fork")
@pytest.mark.filterwarnings("ignore:.*fork.*:DeprecationWarning")
def test_a_fork_has_threads_of_its_own() -> None:
    done: list[int] = []
    over_parts(lambda start, stop, part: done.append(part), 2, 2)
    child = os.fork()
    if child == 0:
        over_parts(lambda start, stop, part: done.append(part), 2, 2)
        os._exit(len(done))
    assert os.waitstatus_to_exitcode(os.waitpid(child, 0)[1]) == 4
