"""What a training on a busy machine is told."""

import os

import pytest
import torch

from denizen.app._train import crowded


@pytest.mark.parametrize(
    ("load", "threads", "told"), [(9.0, 4, True), (9.0, 1, False), (1.0, 4, False), (4.0, 4, False)]
)
def test_threads_that_wait_for_one_another_are_told(monkeypatch, load, threads, told):
    monkeypatch.setattr(os, "getloadavg", lambda: (load, 0.0, 0.0))
    monkeypatch.setattr(os, "cpu_count", lambda: 4)
    monkeypatch.setattr(torch, "get_num_threads", lambda: threads)
    message = "the machine is busy: load 9 on 4 cores, and 4 threads here wait for one another; with OMP_NUM_THREADS=1"
    assert crowded().startswith(message) if told else crowded() == ""
