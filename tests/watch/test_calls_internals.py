"""Hearing of single Python functions: by Python's monitors where there are any (3.12), else by a profiler."""

import sys
import threading

import pytest

from denizen.perf.watch import _calls
from denizen.perf.watch._calls import function_traced


def asked(number):
    return number + 1


def other(number):
    return number + 1


@pytest.fixture(params=["as it is", "without monitors"])
def heard(request, monkeypatch):
    if request.param == "without monitors":
        monkeypatch.setattr(_calls, "_MONITORING", None)
    told = []

    def listener(frame):
        told.append((threading.current_thread().name, frame.f_code.co_name, frame.f_locals["number"]))

    told_with = told, listener
    return told_with


def test_calls_are_heard_within_the_block_and_of_one_function(heard):
    told, listener = heard
    before = sys.getprofile()
    asked(1)
    with function_traced(asked.__code__, listener):
        assert (asked(2), other(3)) == (3, 4)
    asked(4)
    assert [number for _, _, number in told] == [2]
    assert sys.getprofile() is before


def test_threads_that_start_within_are_heard(heard):
    told, listener = heard
    with function_traced(asked.__code__, listener):
        thread = threading.Thread(target=asked, args=(5,), name="beside")
        thread.start()
        thread.join()
    assert told == [("beside", "asked", 5)]


def test_two_functions_at_once_and_an_error_within(heard):
    told, listener = heard

    def block():
        with function_traced(asked.__code__, listener):
            with function_traced(other.__code__, listener):
                asked(1)
                other(2)
            other(3)
            asked(4)
            raise ZeroDivisionError

    with pytest.raises(ZeroDivisionError):
        block()
    asked(5)
    assert [number for _, _, number in told] == [1, 2, 4]


@pytest.mark.skipif(sys.version_info < (3, 12), reason="Python has monitors from 3.12 on")
def test_one_listener_in_nested_blocks_hears_once_and_threads_from_before_are_heard(heard):
    told, listener = heard
    if _calls._MONITORING is None:
        pytest.skip("a profiler hears in each block, and of threads that start within")
    begin, done = threading.Event(), threading.Event()

    def work():
        begin.wait(10)
        asked(1)
        done.set()

    thread = threading.Thread(target=work)
    thread.start()
    with function_traced(asked.__code__, listener), function_traced(asked.__code__, listener):
        begin.set()
        assert done.wait(10)
    thread.join()
    asked(2)
    assert [number for _, _, number in told] == [1]
    assert sys.monitoring.get_tool(3) is None
