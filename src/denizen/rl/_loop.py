"""`Loop`: update after update of a training, what is kept of it, whom it calls, and what ends it."""

import contextlib
import dataclasses
import math
import shlex
import time
import warnings
from collections.abc import Callable, Generator, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from denizen import _processes as processes
from denizen._atomic import uninterrupted
from denizen.errors import DataError, InputError, ModelError, expect_function
from denizen.rl._best_policy import BestPolicy, Patience
from denizen.rl._evaluate import Evaluation, Validation
from denizen.rl._from_gymnasium import later_seed
from denizen.rl._live import live_view
from denizen.rl._metrics import Times, measures_of
from denizen.rl._roles_training import RolesTraining
from denizen.rl._trained import Trained
from denizen.rl._training import Updates
from denizen.rl._training_folder import METRICS, TrainingFolder
from denizen.tools import JsonLines, MetricsWriter

LOSSES = ("policy_loss", "critic_loss", "q_loss")  # metrics that are no number once a training is lost
CHECKS = 100  # of several processes at whether to save, on which they must agree
OnSave = Callable[[Path, int], object]
OnValidation = Callable[[Any, int], object]  # an evaluation; of worlds with roles a dict of them


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """What to call; of several processes the first one does.

    Attributes:
        on_save: of (folder, updates done), after a save; None: nothing.
        on_validation: of (evaluation, updates done), after a validation; None: nothing.
    """

    on_save: OnSave | None = None
    on_validation: OnValidation | None = None

    def check(self, what: str, folder: object, validate_every: int | None) -> None:
        """Raise `InputError` where one cannot be called so, or never would be.

        Args:
            what: who asks, for messages.
            folder: of the training; None where none is kept.
            validate_every: updates between validations; None where there are none.
        """
        if self.on_save is not None:
            expect_function(f"{what}: on_save", self.on_save, "folder", "updates")
            if folder is None:
                raise InputError(f"{what}: on_save= without folder=; nothing would be saved, so pass folder= with it")
        if self.on_validation is not None:
            expect_function(f"{what}: on_validation", self.on_validation, "evaluation", "updates")
            if validate_every is None:
                raise InputError(f"{what}: on_validation= without validate_every=; say every how many updates")

    def saved(self, folder: Path, updates: int) -> None:
        """A save is on disk."""
        if self.on_save is not None and processes.rank() == 0:
            self.on_save(folder, updates)

    def validated(self, evaluation: Evaluation | dict[str, Evaluation], updates: int) -> None:
        """A validation has been taken note of."""
        if self.on_validation is not None and processes.rank() == 0:
            self.on_validation(evaluation, updates)


class Loop:
    """A training, what is kept of it, and where its metrics go."""

    _times: Times  # from the first update of this call on

    def __init__(
        self,
        training: Any,
        folder: TrainingFolder | None,
        validation: Validation,
        sinks: Sequence[Any],
        patience: Patience | None = None,
        save_every: float | None = None,
        callbacks: Callbacks | None = None,
    ) -> None:
        self._callbacks = callbacks or Callbacks()
        self.training, self.folder, self.validation = training, folder, validation
        self.best_policy = BestPolicy(training.policy, patience)
        self.rows: list[dict[str, Any]] = []
        self.evaluations: list[tuple[int, Evaluation | dict[str, Evaluation]]] = []
        self.done = 0 if folder is None else folder.manifest["updates"]
        if folder is not None:
            folder.every = save_every
        self._sinks = sinks
        self._faulty = self._over = False
        self._lost: int | None = None  # the update at which the loss became NaN

    def _shared(self) -> dict[str, Tensor]:
        """What the rest of the training depends on and all processes have alike."""
        return {**self.training.shared_tensors(), **self.best_policy.tensors()}

    def lengthen(self, total_steps: int) -> None:
        """Note that the training is to have so many steps of worlds."""
        assert self.folder is not None
        if self._over:
            raise InputError(
                f"resume: steps= of a training that its patience has ended, after {self.done:,} updates; train anew, "
                f"with more patience or none"
            )
        if processes.rank() == 0:
            self.folder.note(total_steps=int(total_steps))
            self.folder.log(f"now {total_steps:,} steps")

    def load(self) -> None:
        """Go on from the folder's last save."""
        assert self.folder is not None
        saved, own = self.folder.load("checkpoint"), self.training.own_tensors()
        mine = {**self._shared(), **processes.named(own)}
        if not set(mine) <= set(saved) or processes.of_how_many(saved, next(iter(own))) != processes.size():
            raise DataError(
                f"run folder {self.folder.path}: its checkpoint holds other tensors than this training has; go on with "
                f"as many processes as before"
            )
        with torch.no_grad():
            for name, tensor in mine.items():
                if saved[name].shape != tensor.shape:
                    raise DataError(
                        f"run folder {self.folder.path}: {name} has shape {tuple(saved[name].shape)} there, "
                        f"{tuple(tensor.shape)} now; another version of denizen wrote it: go on with that one, which "
                        f"its manifest.json names, or train anew"
                    )
                tensor.copy_(saved[name])
        self._over = self.best_policy.patience_over()
        if self.training.hosted is not None:
            self.training.hosted.seed = later_seed(self.training.hosted.seed, self.done)
            self.training.begin_anew()
        lacking = self.training.lacking()
        if lacking:
            warnings.warn(f"run folder {self.folder.path}: {lacking}", stacklevel=4)
            if processes.rank() == 0:
                self.folder.log(lacking)
        if processes.rank() > 0:
            return
        self.folder.trim_metrics()
        self.folder.log(f"resumed after update {self.folder.manifest['updates']}")

    def run(self, compile: bool | None, progress: bool) -> Trained:
        """All updates that are missing."""
        going = self.going(compile, progress)
        while True:
            try:
                next(going)
            except StopIteration as end:
                return end.value

    def going(self, compile: bool | None, progress: bool) -> Generator[None, None, Trained]:
        """The same, which stops once it is warmed up and after every update, so that several can take turns."""
        training, writes = self.training, processes.rank() == 0
        with self.folder.session() if self.folder is not None and writes else contextlib.nullcontext():
            if self.done == 0:
                self._save("running")  # from here on a kill leaves something to resume
            update = Updates(training, compile=compile)
            if self.done < training.num_updates:
                update.warm_up()
            yield
            began = time.perf_counter()
            try:
                yield from self._updates(update, progress)
                self._check()
                self._save("finished")
                self._restore()
            except BaseException as error:
                self._ended(error)
                raise
        return Trained(
            policy=training.policy,
            best_weights=self.best_policy.weights(),
            metrics=self.rows,
            updates=self.done,
            steps=self.done * training.algorithm.samples,
            seconds=time.perf_counter() - began,
            seconds_to_ready=update.seconds_to_ready,
            path=update.path,
            folder=None if self.folder is None else self.folder.path,
            evaluations=self.evaluations,
            stopped=self._over,
            host=None if training.hosted is None else training.hosted.cost(time.perf_counter() - began),
        )

    def _restore(self) -> None:
        """After the last save, which is of the last policy."""
        stall = self.best_policy.stall
        if stall is None:
            return
        if self._over and self.folder is not None and processes.rank() == 0:
            self.folder.log(f"stopped at update {self.done}: no better score since update {int(stall.since)}")
        if stall.patience.restore_best and self.done:
            self.training.policy.load_state_dict(self.best_policy.weights())

    def _updates(self, update: Updates, progress: bool) -> Generator[None]:
        training, samples = self.training, self.training.algorithm.samples
        show = progress and processes.rank() == 0
        env, missing = training.worlds.env, (training.num_updates - self.done) * samples
        shown = measures_of(env)
        if isinstance(training, RolesTraining):
            shown += [f"{party}/{metric}" for party in training.names() for metric in ("return_mean", "entropy")]
        view = live_view(missing, show, env._called, shown)
        with view as (advance, show_row), self._writer(show_row) as writer:
            while self.done < training.num_updates and not self._faulty and not self._over:
                with uninterrupted():  # Ctrl-C waits for the end of the update, where everything fits together
                    metrics = dict(update())
                    self.done += 1
                    self._judge(metrics)
                    writer.log(self.done, {"steps": self.done * samples, **metrics, **training.phases.metrics()})
                advance(samples)
                if self.evaluations and self.evaluations[-1][0] == self.done:
                    self._callbacks.validated(self.evaluations[-1][1], self.done)
                if self._checks_now():
                    writer.flush()
                    self._check()
                    self._save_if_due()
                    self._over = self.best_policy.patience_over()
                yield

    def _checks_now(self) -> bool:
        """Whether to look at what may end the training, and to save: as time goes by; of several processes, which must
        do so together, at fixed updates.
        """
        if processes.size() == 1:
            return self.folder is not None and self.folder.due()
        return self.done % max(1, self.training.num_updates // CHECKS) == 0

    def _save_if_due(self) -> None:
        """Save; of several processes, if the first one's clock says so."""
        if processes.size() > 1:
            due = torch.full_like(self.best_policy.score, float(self.folder is not None and self.folder.due()))
            if not bool(processes.total(due) > 0):
                return
        self._save("running")

    def _writer(self, show_row: Any) -> MetricsWriter:
        files = (
            [] if self.folder is None or processes.rank() > 0 else [JsonLines(self.folder.path / METRICS, append=True)]
        )
        self._times = Times(self.training.algorithm.samples, self.training.worlds.device)
        return MetricsWriter(self._take, show_row, *files, *self._sinks)

    def _take(self, row: dict[str, Any]) -> None:
        """Called by the writer's thread, an update or more late."""
        self._times.add_to(row)
        self.rows.append(row)
        scaled = self.training.algorithm.precision == "float16"  # there an overflow is skipped, and goes by
        if (
            self._lost is None
            and not scaled
            and any(math.isnan(value) for name, value in row.items() if name.rpartition("/")[2] in LOSSES)
        ):
            self._lost = row["step"]
        if processes.size() == 1:  # several stop together, where they save
            self._faulty = self._faulty or row.get("faulty", 0.0) > 0 or self._lost is not None
            self._over = self._over or row.get("patience_over", 0.0) > 0

    def _judge(self, metrics: dict[str, Tensor]) -> None:
        """Offer the policy as the best, by the mean return of training or of a validation."""
        best, updates = self.best_policy, self.training.updates
        if isinstance(self.training, RolesTraining):
            self._judge_roles(self.training, metrics)
            return
        if self.validation.every is None:
            metrics.update(best.follow(metrics["return_mean"], updates))
        elif self.validation.due(self.done, self.training.num_updates):
            evaluation = cast(Evaluation, self.validation(self.training.policy))
            self.evaluations.append((self.done, evaluation))
            metrics["validation_return"] = torch.full_like(best.score, evaluation.mean)
            metrics.update(best.offer(metrics["validation_return"], updates))
        metrics["best_score"] = torch.where(best.score.isinf(), torch.nan, best.score)

    def _judge_roles(self, training: RolesTraining, metrics: dict[str, Tensor]) -> None:
        """Note how each role does, and offer the policies as the best because they are the last."""
        best, updates = self.best_policy, training.updates
        if self.validation.due(self.done, training.num_updates):
            told = cast(dict[str, Evaluation], self.validation(training.policy))
            self.evaluations.append((self.done, told))
            for role, evaluation in told.items():
                metrics[f"{role}/validation_return"] = torch.full_like(best.score, evaluation.mean)
        best.offer(updates.to(torch.float32), updates)

    def _check(self) -> None:
        self.training.check()
        if self._lost is not None:
            raise ModelError(
                f"the loss is not a number from update {self._lost} on, and the policy with it; try a lower "
                f"learning_rate, and max_grad_norm=0.5"
            )
        if processes.size() > 1:
            faulty = (self.training.rollout.state.worlds.faults >= 0).any()
            if bool(processes.total(faulty.float()) > 0):
                raise ModelError("a check on the device failed in another process, which says where")

    def _save(self, status: str, error: str | None = None) -> None:
        own = self.training.own_tensors()
        tensors = {**self._shared(), **(processes.gathered(own) if processes.size() > 1 else own)}
        if self.folder is not None and processes.rank() == 0:
            states = {"checkpoint": tensors, "best": self.best_policy.saved()}
            self.folder.save(self.done, states, status=status, error=error)
            if self.done and status != "interrupted":
                self._callbacks.saved(self.folder.path, self.done)

    def _ended(self, error: BaseException) -> None:
        """After Ctrl-C everything is saved; after a fault the last save stands, since later states may be spoilt."""
        if self.folder is None or processes.rank() > 0:
            return
        text = f"{type(error).__name__}: {error}".strip(": ")
        if isinstance(error, KeyboardInterrupt) and processes.size() == 1:
            self._save("interrupted", text)
            error.folder, error.updates = self.folder.path, self.done  # type: ignore[attr-defined]  # for the CLI
        else:
            self.folder.mark("failed", text)
        manifest, path = self.folder.manifest, self.folder.path
        origin = (manifest["settings"] or {}).get("origin")  # of a world from a file, which is named again
        target = [f"{origin['file']}:{origin['name']}"] if origin else []
        how = shlex.join(["denizen", "resume", str(path), *target]) if manifest["settings"] else "dz.rl.resume"
        error.add_note(f"safe on disk: {manifest['updates']} updates, in {path}; go on with {how}")
