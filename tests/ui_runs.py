"""Run folders for tests of the page, and the page itself on a port of its own."""

import contextlib
import hashlib
import json
import shutil
import threading
import time
from collections.abc import Iterator, Sequence
from pathlib import Path

import numpy as np
import torch
from safetensors.torch import save
from torch import Tensor

import denizen as dz
from denizen.run import Snapshots

STORED = Path(__file__).parent / "data" / "folders_2026_11"


class Town(dz.State):
    ill: Tensor = dz.mask("agents")
    stage: Tensor = dz.stage("agents", levels=("well", "ill", "immune"))
    wealth: Tensor = dz.real("agents")


class Village(dz.Model):
    """Agents who fall ill by chance; a step may take its time."""

    agents: int = 30
    chance: Tensor = dz.param(0.05, low=0.0, high=1.0)
    pause: float = 0.0

    @property
    def num_agents(self) -> int:
        return self.agents

    def init(self, rng) -> Town:
        codes = torch.zeros(self.agents, dtype=torch.int8)
        return Town(ill=torch.zeros_like(codes), stage=codes, wealth=torch.arange(float(self.agents)))

    def step(self, now: Town, rng) -> Town:
        if self.pause:
            time.sleep(self.pause)
        caught = rng.event("catch", self.chance) * (1 - now.ill)
        moved = now.stage.move(caught, "ill", source="well")
        return now.replace(ill=now.ill + caught, stage=moved, wealth=now.wealth * 0.9)

    @dz.series
    def cases(self, before: Town, now: Town) -> Tensor:
        """New cases in the step."""
        return (now.ill - before.ill).sum()

    @dz.series
    def wealth_left(self, now: Town) -> Tensor:
        """What all have."""
        return now.wealth.sum()


def simulated(folder: Path, steps: int = 12, replicates: int = 3, seed: int = 0, every: int | None = 2, **model):
    """A run in a folder."""
    snapshots = Snapshots(every) if every else None
    village = Village(**model)
    return dz.simulate(
        village, steps, replicates=replicates, seed=seed, out=folder, snapshots=snapshots, progress=False
    )


def lengthened(folder: Path, steps: int, parts: int = 40) -> None:
    """Give a run so many steps of other numbers, in files as a long run writes them."""
    manifest = json.loads((folder / "manifest.json").read_text())
    worlds, each = len(manifest["setup"]["worlds"]), steps // parts
    drawn = np.random.default_rng(0)
    for old in folder.glob("metrics/*"):
        old.unlink()
    listed = []
    for k in range(parts):
        series = {}
        for entry in manifest["series"]:
            values = torch.from_numpy(drawn.standard_normal((worlds, each)).cumsum(1))
            series[entry["name"]] = (1000 * values).to(getattr(torch, entry["dtype"])).contiguous()
        name, data = f"metrics/part-{k:05d}.safetensors", save(series)
        (folder / name).write_bytes(data)
        part = {"file": name, "first": k * each + 1, "last": (k + 1) * each, "size": len(data)}
        listed.append({**part, "digest": hashlib.blake2b(data, digest_size=16).hexdigest()})
    manifest["checkpoint"] |= {"first": steps, "last": steps}
    manifest |= {"metrics": listed, "steps": steps, "wanted": steps, "snapshots": None}
    (folder / "manifest.json").write_text(json.dumps(manifest))


def many(root: Path, count: int) -> None:
    """So many finished runs: one, and its manifest again."""
    simulated(root / "run-0000", 2, every=None)
    told = json.loads((root / "run-0000" / "manifest.json").read_text())
    for k in range(1, count):
        folder = root / f"run-{k:04d}"
        folder.mkdir()
        told["created"] = f"2026-11-{1 + k % 28:02d}T{k % 24:02d}:00:00Z"
        told["setup"]["seed"] = k
        (folder / "manifest.json").write_text(json.dumps(told))


def trained(folder: Path, which: str = "training_ppo") -> Path:
    """A training in a folder."""
    return Path(shutil.copytree(STORED / which, folder))


@contextlib.contextmanager
def served(folders: Sequence[Path]) -> Iterator[str]:
    """The address of the page over some folders."""
    import uvicorn

    from denizen.ui import make_app

    server = uvicorn.Server(uvicorn.Config(make_app(folders), port=0, log_level="warning", lifespan="off"))
    thread = threading.Thread(target=server.run, daemon=True)
    thread.start()
    while not server.started:
        assert thread.is_alive()
        time.sleep(0.02)
    try:
        yield f"http://127.0.0.1:{server.servers[0].sockets[0].getsockname()[1]}"
    finally:
        server.should_exit = True
        thread.join()
