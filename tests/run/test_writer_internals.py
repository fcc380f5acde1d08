"""The thread that writes snapshots: what it does to the others."""

import contextlib
import sys

import pytest
import torch

from denizen.run._ring import Ring
from denizen.run._snapshots import Kept
from denizen.run._writer import SWITCH, Writer


def writer():
    return Writer(Ring(torch.device("cpu"), [((3,), torch.int8)], 2), Kept())


@pytest.fixture
def interval():
    before = sys.getswitchinterval()
    yield before
    sys.setswitchinterval(before)


def test_whoever_steps_waits_briefly_while_it_is_at_work(interval):
    with writer().at_work():
        assert sys.getswitchinterval() == pytest.approx(SWITCH, abs=2e-6)
    assert sys.getswitchinterval() == interval


def test_several_at_work_put_back_what_was_before_the_first(interval):
    first, second = writer().at_work(), writer().at_work()
    first.__enter__()
    second.__enter__()
    first.__exit__(None, None, None)
    assert sys.getswitchinterval() == pytest.approx(SWITCH, abs=2e-6)
    second.__exit__(None, None, None)
    assert sys.getswitchinterval() == interval


def test_a_failure_puts_it_back(interval):
    with contextlib.suppress(ValueError), writer().at_work():
        raise ValueError
    assert sys.getswitchinterval() == interval


def test_a_shorter_one_stays(interval):
    sys.setswitchinterval(1e-4)
    with writer().at_work():
        assert sys.getswitchinterval() == pytest.approx(1e-4, abs=2e-6)
