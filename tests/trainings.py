"""What the folder of a training holds, read as any user may read it; and what happens in the midst of a training."""

import hashlib
import json
import os
import signal
from collections.abc import Callable
from pathlib import Path
from typing import Any

import pytest
import torch
from safetensors.torch import load_file, save

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


def rewrite_checkpoint(folder: Path, change: Callable[[dict[str, torch.Tensor]], None]) -> None:
    """Change the tensors of a folder's last save, which stays a whole one."""
    manifest = read_manifest(folder)
    file = folder / manifest["checkpoint"]["file"]
    tensors = load_file(file)
    change(tensors)
    data = save(tensors)
    file.write_bytes(data)
    manifest["checkpoint"] |= {"size": len(data), "digest": hashlib.blake2b(data, digest_size=16).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


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


def judged_while_learning(training: Any, monkeypatch: pytest.MonkeyPatch) -> torch.Tensor:
    """Learn from a rollout, each step of which is shown once: how likely its action was then, in logs, `[steps, rows]`.

    Steps are told apart by what was observed.
    """
    fields, plain = training.rollout.fields, training.policy.with_value
    looks, action = fields["observation"].flatten(0, 1), fields["action"].flatten(0, 1)
    places = {tuple(look.tolist()): place for place, look in enumerate(looks)}
    assert len(places) == len(looks)
    found = torch.full((len(looks),), torch.nan)

    def with_value(observation: Any, *given: Any, **more: Any) -> Any:
        judged, value = plain(observation, *given, **more)
        rows = [places[tuple(look.tolist())] for look in observation]
        assert found[rows].isnan().all()
        found[rows] = judged.actions.log_prob(action[rows]).detach()
        return judged, value

    with monkeypatch.context() as patched:
        patched.setattr(training.policy, "with_value", with_value)
        training.algorithm.learn(training)
    assert not found.isnan().any()
    return found.view(fields["log_prob"].shape)
