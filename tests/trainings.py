"""What the folder of a training holds, read as any user may read it."""

import json
from pathlib import Path
from typing import Any

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
