"""What an experiment is asked for, and its folder. The same command goes on in the same folder."""

import contextlib
import dataclasses
import json
from collections.abc import Callable, Iterator, Mapping
from pathlib import Path
from typing import Any

from denizen.errors import ConfigError, StorageError

NAME = "experiment.json"


@dataclasses.dataclass(frozen=True, kw_only=True)
class Plan:
    """What an experiment is asked for.

    Attributes:
        modes: what is trained; empty: all that the experiment has.
        steps: of each training, such as 5M; None: as each world has them.
        seeds: trainings of each.
        worlds: of each evaluation.
        budget: steps of each evaluation, at most.
        set: settings of the algorithm, as `denizen train --set` takes them.
        world: options of the world, likewise.
        policy: options of the policy, likewise.
        out: folder of the experiment.
        device: where to run; None: as `dz.train` chooses.
        quiet: no bars.
        build: (settings, seed) -> what is trained; its `train` and `resume` are those of `dz.rl` for it.
        load: (folder, options of the world in place of those of the training) -> `env`, and `policy` as trained.
    """

    modes: tuple[str, ...]
    steps: str | None
    seeds: int
    worlds: int
    budget: int
    set: Mapping[str, str]
    world: Mapping[str, str]
    policy: Mapping[str, str]
    out: Path
    device: str | None
    quiet: bool
    build: Callable[[dict[str, Any], int], Any]
    load: Callable[[Path, Mapping[str, str]], Any]

    def train(self, settings: dict[str, Any], seed: int, folder: Path, **options: Any) -> None:
        """Train into a folder, or go on there. Nothing happens where the training is finished.

        Args:
            settings: as `build` takes them.
            seed: of the training.
            folder: of the training.
            **options: what else `dz.train` takes.
        """
        from denizen.rl import read_manifest

        known = read_manifest(folder) if (folder / "manifest.json").exists() else None
        if known is not None and known["status"] == "finished":
            return
        made, show = self.build(settings, seed), not self.quiet
        if known is not None and known["checkpoint"] is not None:
            made.resume(folder, device=self.device, progress=show)
            return
        made.train(seed=seed, device=self.device, folder=folder, progress=show, settings=settings, **options)

    def surroundings(self) -> dict[str, str]:
        """What a reader of any report needs to know beside the experiment's own facts."""
        import torch

        from denizen._run_folder import commit, versions

        card = torch.cuda.get_device_name() if torch.cuda.is_available() and self.device != "cpu" else "CPU"
        used = {name: versions()[name] for name in ("denizen", "torch")}
        return {"hardware": card, "commit": commit() or "unknown", **used}


@contextlib.contextmanager
def held(out: Path, facts: dict[str, Any]) -> Iterator[None]:
    """The folder of an experiment, made where it is missing and held while the block runs.

    Args:
        out: the folder.
        facts: what the experiment is, as JSON; they must stay as they are.

    Raises:
        ConfigError: the folder holds another experiment, or something else.
        StorageError: it cannot be written, or another process writes to it.
    """
    from denizen._atomic import locked

    begun(out, facts)
    try:
        out.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"--out {out} cannot be written: {error.strerror or error}") from error
    with locked(out):
        begin(out, facts)
        yield


def begin(out: Path, facts: dict[str, Any]) -> None:
    """Write down what an experiment is, or make sure that the folder holds the same one. The caller holds the folder.

    Raises:
        ConfigError: the folder holds another one.
    """
    from denizen._atomic import write_atomic

    if not begun(out, facts):
        out.mkdir(parents=True, exist_ok=True)
        write_atomic(out / NAME, json.dumps(facts, indent=1).encode() + b"\n")


def begun(out: Path, facts: dict[str, Any]) -> bool:
    """Whether a folder holds this experiment; False where it holds none.

    Raises:
        ConfigError: it holds something else.
    """
    from denizen.rl._settings import present

    file = out / NAME
    try:
        names = {path.name for path in out.iterdir()} if out.exists() else set()
    except OSError as error:
        raise ConfigError(f"--out {out} cannot be read: {error.strerror}") from error
    if not names - {NAME, ".lock"}:  # a wrong flag had ended it at once
        return False
    if NAME not in names:
        raise ConfigError(f"{out} holds something else than an experiment; choose another --out")
    try:
        known = json.loads(file.read_text())
    except (OSError, ValueError) as error:
        raise ConfigError(f"{file} cannot be read: {error}") from error
    if not isinstance(known, dict):
        raise ConfigError(f"{file} holds no experiment; choose another --out")
    if isinstance(known.get("set"), list):
        known["set"] = [present(str(text)) for text in known["set"]]
    for name, value in facts.items():
        if known.get(name) != value:
            raise ConfigError(
                f"{out} holds an experiment with {name} {known.get(name)}, not {value}; choose another --out"
            )
    return True
