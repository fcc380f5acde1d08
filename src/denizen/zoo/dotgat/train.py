"""The training: epochs of prefetched batches, a cosine schedule, early stopping, saving and going on."""

import dataclasses
import math
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils.data import DataLoader, Sampler, TensorDataset

from denizen.errors import InputError
from denizen.run import choose_device
from denizen.tools import PrefetchLoader, windows
from denizen.zoo.dotgat.config import Settings
from denizen.zoo.dotgat.data import MOST_EVALUATED, Data, baselines, draw
from denizen.zoo.dotgat.folder import Folder
from denizen.zoo.dotgat.model import Answers, Judge, evaluate
from denizen.zoo.dotgat.step import Step

LOWEST_RATE = 1e-6
SOLVED, DIVERGED = 1e-5, 10.0
Report = Callable[[dict[str, Any]], None]


@dataclasses.dataclass(frozen=True, eq=False)
class Trained:
    """A finished training.

    Attributes:
        settings: what was trained.
        model: with the weights of the best epoch, on the CPU.
        metrics: a row for each epoch.
        results: measures on the test split, of the model and of the baselines.
        reason: why it ended.
        losses: of each step, in this session.
        folder: where it was saved; None for nowhere.
    """

    settings: Settings
    model: Answers
    metrics: list[dict[str, Any]]
    results: dict[str, Any]
    reason: str
    losses: list[float]
    folder: Path | None


class Shuffled(Sampler[list[int]]):
    """Batches of row numbers, shuffled by seed and epoch. Each process takes its part of every batch.

    The last, smaller batch of an epoch is left out: its rows come in others, and shapes stay the same.
    """

    def __init__(self, rows: int, settings: Settings, rank: int, world: int) -> None:
        self.rows, self.settings, self.rank, self.world, self.epoch = rows, settings, rank, world, 0

    def __len__(self) -> int:
        return self.rows // self.settings.batch

    def __iter__(self) -> Iterator[list[int]]:
        generator = torch.Generator().manual_seed(self.settings.seed * 1_000_003 + self.epoch)
        order, size = torch.randperm(self.rows, generator=generator).tolist(), self.settings.batch
        for first in range(0, len(self) * size, size):
            yield order[first + self.rank : first + size : self.world]


def train(
    settings: Settings, folder: Path | None = None, *, device: str | None = None, report: Report | None = None
) -> Trained:
    """Train agents at a task.

    Under torchrun with an initialised process group every process takes its part of each batch.

    Args:
        settings: everything that fixes the numbers.
        folder: where to save; it must not exist or be empty. None saves nothing.
        device: None takes CUDA where there is one.
        report: called with each epoch's row.

    Raises:
        InputError: a setting that cannot be.
        StorageError: the folder holds something, or cannot be written.
    """
    settings.check()
    data = draw(settings)
    training = _Training(settings, data, device)
    if folder is None or _rank() > 0:
        return training.run(report)
    training.folder = Folder.create(folder, settings, {**data.facts, **training.model.facts()})
    try:
        return training.run(report)
    finally:
        training.folder.release()


def resume(folder: Path, *, device: str | None = None, report: Report | None = None) -> Trained:
    """Go on with a training after its last whole epoch: the same numbers as if it had never stopped.

    Raises:
        DataError: there is none, or it is damaged.
    """
    kept = Folder.open(folder)
    if _rank() == 0:
        kept.hold()  # before anything is read of it: it may go on elsewhere
    try:
        training = _Training(kept.settings(), draw(kept.settings()), device)
        training.metrics = list(kept.manifest["metrics"])
        if kept.manifest["epochs"]:
            training.load(kept.load("last"))
        if kept.manifest["best"]:
            training.best_weights = kept.load("best")
        if _rank() == 0:
            training.folder = kept
        return training.run(report)
    finally:
        kept.release()


class _Training:
    def __init__(self, settings: Settings, data: Data, device: str | None) -> None:
        self.settings, self.data = settings, data
        self.folder: Folder | None = None
        self.metrics: list[dict[str, Any]] = []
        self.device, _ = choose_device(device, "denizen train dotgat")
        if self.device.type == "cuda" and self.device.index is not None:
            torch.cuda.set_device(self.device)  # what learns launches from many places
        world = _world()
        if settings.batch % world:
            raise InputError(f"batch={settings.batch}: expected a multiple of the {world} processes")
        torch.manual_seed(settings.seed)
        self.model = Answers(settings, data).to(self.device)
        self.judge = Judge(settings, data).to(self.device)
        wrapped: nn.Module = self.model
        if world > 1:
            ids = [self.device] if self.device.type == "cuda" else None
            wrapped = nn.parallel.DistributedDataParallel(self.model, device_ids=ids)
        self.step = Step(settings, wrapped, self.judge, self.device)
        torch.manual_seed(settings.seed + 1 + _rank())  # dropout differs between processes
        rows = TensorDataset(data.inputs["training"], data.targets["training"])
        self.order = Shuffled(len(rows), settings, _rank(), world)
        self.loader = PrefetchLoader(DataLoader(rows, batch_size=None, sampler=self.order), self.device)
        self.per_epoch = len(self.order) // settings.accumulate
        if not self.per_epoch:
            raise InputError(f"accumulate={settings.accumulate}: an epoch has only {len(self.order)} batches")
        self.epoch, self.best, self.since, self.losses = 0, math.inf, 0, []
        self.best_weights = self._weights()

    def run(self, report: Report | None) -> Trained:
        """Run the epochs that are missing. The caller holds the folder."""
        while not (reason := self._ended()):
            row = self._epoch()
            better = self._score(row)
            self.metrics.append(row)
            if better:
                self.best_weights = self._weights()
            if self.folder is not None:
                states = {"last": self.tensors()} | ({"best": self.best_weights} if better else {})
                self.folder.save(self.epoch, states, metrics=list(self.metrics))
            if report is not None:
                report(row)
        self.model.load_state_dict(self.best_weights)
        results = self._results()
        if self.folder is not None:
            self.folder.note(status="done", reason=reason, results=results)
        path = None if self.folder is None else self.folder.path
        return Trained(self.settings, self.model.cpu().eval(), self.metrics, results, reason, self.losses, path)

    def _epoch(self) -> dict[str, Any]:
        self.model.train()
        self.order.epoch = self.epoch
        if _rank():  # what is saved are the first process's generators; those of others begin anew with each epoch
            torch.manual_seed(self.settings.seed + 1 + _rank() + 1_000_003 * self.epoch)
        losses, total = [], self.settings.epochs * self.per_epoch
        for number, window in enumerate(windows(self.loader, self.settings.accumulate)):
            if number == self.per_epoch:
                break  # an incomplete window would be another step, of another shape
            done = (self.epoch * self.per_epoch + number) / total
            high = self.settings.learning_rate
            self.step.learning_rate.fill_(LOWEST_RATE + (high - LOWEST_RATE) * (1 + math.cos(math.pi * done)) / 2)
            losses.append(self.step([(batch[0], batch[1]) for batch in window]).clone())
        self.epoch += 1
        means = torch.stack(losses)
        if _world() > 1:  # every process has as many series as the others
            torch.distributed.all_reduce(means)
        steps = (means / _world()).tolist()  # the only read of an epoch
        self.losses += steps
        loss = sum(steps) / len(steps)
        row = {"epoch": self.epoch, "loss": loss, "first_loss": steps[0]}
        last = self.epoch == self.settings.epochs or loss < SOLVED  # what ends here is seen in validation
        if last or self.epoch % self.settings.validate_every == 0:
            row |= {f"validation_{name}": value for name, value in self._evaluate("validation").items()}
        return row

    def _evaluate(self, split: str, most: int = MOST_EVALUATED) -> dict[str, float]:
        inputs, targets = self.data.inputs[split][:most], self.data.targets[split][:most]
        return evaluate(self.model, self.judge, inputs, targets, self.settings.batch)

    def _score(self, row: dict[str, Any]) -> bool:
        """Whether this epoch is the best; keeps count of how long none was."""
        score = row.get("validation_loss")
        if score is None:
            return False
        better = score < self.best
        self.best, self.since = (score, 0) if better else (self.best, self.since + 1)
        return better

    def _ended(self) -> str:
        """Why the training ends here; empty where it goes on."""
        if not self.metrics:
            return ""
        loss, first = self.metrics[-1]["loss"], self.metrics[0]["first_loss"]
        if not math.isfinite(loss) or loss > DIVERGED * first:
            return f"the loss went from {first:.3g} to {loss:.3g}: lower the learning rate"
        if loss < SOLVED:
            return f"the loss fell below {SOLVED:g}"
        if self.settings.patience and self.since >= self.settings.patience:
            return f"{self.since} validations without a better one"
        return f"all {self.epoch} epochs are done" if self.epoch >= self.settings.epochs else ""

    def _results(self) -> dict[str, Any]:
        """On the whole test split."""
        return {"test": self._evaluate("test", len(self.data.targets["test"])), "baselines": baselines(self.data)}

    # --- state --------------------------------------------------------------------------------------------------------

    def _weights(self) -> dict[str, Tensor]:
        return {name: value.detach().clone() for name, value in self.model.state_dict().items()}

    def tensors(self) -> dict[str, Tensor]:
        """Everything that the next epoch depends on."""
        state = {f"model.{name}": value for name, value in self.model.state_dict().items()}
        for number, moments in self.step.optimizer.state_dict()["state"].items():
            state |= {f"optimizer.{number}.{name}": value for name, value in moments.items()}
        state |= {f"amp.{name}": torch.tensor(value) for name, value in self.step.amp.state_dict().items()}
        state["random.cpu"] = torch.get_rng_state()
        if self.device.type == "cuda":
            state["random.cuda"] = torch.cuda.get_rng_state(self.device)
        counts = torch.tensor([float(self.epoch), self.best, float(self.since)], dtype=torch.float64)
        return {**state, "counts": counts}

    def load(self, state: dict[str, Tensor]) -> None:
        """Take up what `tensors` made."""
        self.model.load_state_dict(_under("model.", state))
        plain = self.step.optimizer.state_dict()
        states: dict[int, dict[str, Tensor]] = {}
        for name, value in _under("optimizer.", state).items():
            number, _, leaf = name.partition(".")
            states.setdefault(int(number), {})[leaf] = value
        self.step.optimizer.load_state_dict({**plain, "state": states})
        for group in self.step.optimizer.param_groups:
            group["lr"] = self.step.learning_rate  # loading has put a copy in its place
        self.step.amp.load_state_dict({name: value.item() for name, value in _under("amp.", state).items()})
        torch.set_rng_state(state["random.cpu"])
        if self.device.type == "cuda" and "random.cuda" in state:
            torch.cuda.set_rng_state(state["random.cuda"], self.device)
        epoch, self.best, since = state["counts"].tolist()
        self.epoch, self.since = int(epoch), int(since)


def _under(prefix: str, state: dict[str, Tensor]) -> dict[str, Tensor]:
    return {name.removeprefix(prefix): value for name, value in state.items() if name.startswith(prefix)}


def _rank() -> int:
    return torch.distributed.get_rank() if torch.distributed.is_initialized() else 0


def _world() -> int:
    return torch.distributed.get_world_size() if torch.distributed.is_initialized() else 1


def load(folder: Path, *, best: bool = True) -> tuple[Answers, Settings, Data]:
    """The trained agents of a folder, on the CPU, with their settings and data.

    Raises:
        DataError: there are none, or they are damaged.
    """
    kept = Folder.open(folder)
    settings = kept.settings()
    data = draw(settings)
    model = Answers(settings, data)
    model.load_state_dict(kept.load("best") if best else _under("model.", kept.load("last")))
    return model.eval(), settings, data
