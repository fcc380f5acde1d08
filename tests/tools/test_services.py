"""Sinks for TensorBoard and Weights & Biases, with stand-ins for both: neither is needed to develop denizen."""

import math
import sys
from types import ModuleType

import pytest
import torch

import denizen as dz
from denizen.tools import MetricsWriter, TensorBoard, WeightsAndBiases


class Board:
    """Stands for SummaryWriter."""

    def __init__(self, folder):
        self.folder, self.scalars, self.ended = folder, [], False

    def add_scalar(self, name, value, step):
        self.scalars.append((name, value, step))

    def flush(self):
        pass

    def close(self):
        self.ended = True


class Run:
    """Stands for a run of wandb."""

    def __init__(self, **init):
        self.init, self.rows, self.ended = init, [], False

    def log(self, row, step):
        self.rows.append((row, step))

    def finish(self):
        self.ended = True


@pytest.fixture
def services(monkeypatch):
    board, writers, wandb = ModuleType("tensorboard"), ModuleType("torch.utils.tensorboard"), ModuleType("wandb")
    writers.SummaryWriter, wandb.init = Board, Run
    for module in (board, writers, wandb):
        monkeypatch.setitem(sys.modules, module.__name__, module)


def test_rows_reach_tensorboard(services, tmp_path):
    sink = TensorBoard(tmp_path / "board")
    with MetricsWriter(sink) as metrics:
        metrics.log(1, {"loss": torch.tensor(0.5), "rate": math.nan})
        metrics.log(2, {"loss": torch.tensor(0.25), "rate": 0.1})
    assert sink._writer.scalars == [("loss", 0.5, 1), ("loss", 0.25, 2), ("rate", 0.1, 2)]
    assert sink._writer.ended


def test_rows_reach_weights_and_biases(services):
    sink = WeightsAndBiases(project="poles", mode="offline")
    with MetricsWriter(sink) as metrics:
        metrics.log(7, {"loss": torch.tensor(0.5)})
    assert sink._run.init == {"project": "poles", "mode": "offline"}
    assert sink._run.rows == [({"loss": 0.5}, 7)]
    assert sink._run.ended


@pytest.mark.parametrize(("name", "make"), [("tensorboard", lambda: TensorBoard("x")), ("wandb", WeightsAndBiases)])
def test_what_is_missing_is_named(monkeypatch, name, make):
    monkeypatch.setitem(sys.modules, name, None)
    with pytest.raises(dz.errors.MissingExtra, match=rf"denizen\[{name}\]"):
        make()
