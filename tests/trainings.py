"""What the folder of a training holds, read as any user may read it; and Ctrl-C in the midst of a training."""

import json
import os
import signal
from pathlib import Path
from typing import Any

import pytest

import denizen as dz

TIMES = {
    "seconds",
    "steps_per_second",
    "steps_per_second_of_4",
    "steps_per_second_overall",
    "rollout_seconds",
    "learning_seconds",
    "gpu_utilisation",
    "gpu_memory_gib",
    "gpu_power",
}  # metrics that differ from run to run


def read_manifest(folder: Path) -> dict[str, Any]:
    """Its manifest."""
    return json.loads((folder / "manifest.json").read_text())


def read_metrics(folder: Path) -> list[dict[str, Any]]:
    """Its metrics, one row for an update."""
    return [json.loads(line) for line in (folder / "metrics.jsonl").read_text().splitlines()]


def interrupt_after(updates: int, monkeypatch: pytest.MonkeyPatch, seed: int | None = None) -> None:
    """Have Ctrl-C pressed in the update of this number, at least the second; of the training with this seed."""
    plain = dz.PPO.update

    def update(algorithm: Any, training: Any) -> Any:
        done = int(training.updates)
        metrics = plain(algorithm, training)
        if done == updates - 1 and seed in (None, training.seed):
            os.kill(os.getpid(), signal.SIGINT)
        return metrics

    monkeypatch.setattr(dz.PPO, "update", update)
