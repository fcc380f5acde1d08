"""`train`: the loop around an algorithm, with progress, metrics, checkpoints, validation and resume.

train
  Loop             update after update: metrics, saves, validations, the best policy
    Updates        an update as it is, compiled, or captured as one CUDA graph
      PPO, SAC, …  the algorithm: its `update` changes a `Training` in place
        Rollout    the policy acts in the worlds; what happened is in buffers
          Worlds   step, end and begin anew
"""

import contextlib
import dataclasses
import math
import shlex
import time
import warnings
from collections.abc import Generator, Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch
from torch import Tensor

from denizen._arguments import json_values, number, path, switch, whole
from denizen._atomic import uninterrupted
from denizen._notebook import InNotebook
from denizen.errors import DataError, InputError, ModelError
from denizen.model import Env
from denizen.rl import _processes as processes
from denizen.rl._best_policy import BestPolicy, Patience
from denizen.rl._callbacks import Callbacks, OnSave, OnValidation
from denizen.rl._curriculum import described
from denizen.rl._distributions import Gaussian
from denizen.rl._dqn import DQN
from denizen.rl._evaluate import Evaluation, Validation
from denizen.rl._from_gymnasium import Foreign, FromGymnasium, later_seed
from denizen.rl._grpo import GRPO
from denizen.rl._live import live_view
from denizen.rl._metrics import Times, measures_of
from denizen.rl._policy import Policy
from denizen.rl._ppo import PPO
from denizen.rl._sac import SAC
from denizen.rl._td3 import TD3
from denizen.rl._training_folder import METRICS, TrainingFolder, create_together, difference
from denizen.rl._updates import Updates
from denizen.rl._worlds import named
from denizen.run import choose_device
from denizen.run._fingerprint import describe, differences, fingerprint
from denizen.tools import JsonLines, MetricsWriter

Algorithm = PPO | GRPO | SAC | TD3 | DQN
LOSSES = ("policy_loss", "critic_loss", "q_loss")  # metrics that are no number once a training is lost
CHECKS = 100  # of several processes at whether to save, on which they must agree


@dataclasses.dataclass(frozen=True)
class Trained(InNotebook):
    """What a training came to.

    Attributes:
        policy: as it was at the end, on its device.
        best_weights: state dict of the policy at its highest score, on the device.
        metrics: one row for each update of this call.
        updates: done in all.
        steps: of worlds, in all.
        seconds: of this call's updates.
        seconds_to_ready: that compiling, capture and warm-up took before.
        path: ``"eager"``, ``"compiled"`` or ``"captured"``.
        folder: the run folder; None where none was kept.
        evaluations: (update, evaluation) of each validation.
        stopped: patience ended the training before its time.
        host: of environments on the host: what stepping them cost; None: the worlds were on the device.
    """

    policy: Policy = dataclasses.field(repr=False)
    best_weights: dict[str, Tensor] = dataclasses.field(repr=False)
    metrics: list[dict[str, Any]] = dataclasses.field(repr=False)
    updates: int
    steps: int
    seconds: float
    seconds_to_ready: float
    path: str
    folder: Path | None
    evaluations: list[tuple[int, Evaluation]]
    stopped: bool = False
    host: str | None = None

    @property
    def steps_per_second(self) -> float:
        """Steps of worlds a second, warm-up left out."""
        return len(self.metrics) * (self.steps / max(self.updates, 1)) / max(self.seconds, 1e-9)

    def plot(self, path: Path | str | None = None) -> Any:
        """Mean return of the lives that ended in each update of this call, over steps of worlds.

        Args:
            path: file to write, for example ``"training.png"``; None writes none.

        Returns:
            The matplotlib figure.

        Raises:
            MissingExtra: matplotlib is not installed.
            StorageError: the file cannot be written.
        """
        from denizen import _figures

        made = _figures.figure(6.4, 3.6)
        axis = made.subplots()
        rows = [(row["steps"], row["return_mean"]) for row in self.metrics if row.get("return_mean") is not None]
        steps, returns = zip(*rows, strict=True) if rows else ((), ())
        axis.plot(steps, returns, color=_figures.colour(0), linewidth=1.5, marker="o" if len(rows) == 1 else None)
        _figures.plain_axis(axis)
        _figures.titled(axis, "Return", "steps of worlds", "mean return of lives that ended")
        _figures.thousands(axis)
        if path is not None:
            _figures.save_figure(made, path)
        return made

    def _printed(self) -> str:
        speed = f"{self.steps_per_second:,.0f} a second, {self.path}"
        early = ", ended early by its patience" if self.stopped else ""
        saved = "" if self.folder is None else f"\nsaved in {self.folder}"
        host = "" if self.host is None else f"\n{self.host}"
        return f"{self.updates:,} updates, {self.steps:,} steps of worlds, {speed}{early}{host}{saved}"

    def __getitem__(self, name: str) -> list[Any]:
        """A metric over the updates of this call."""
        known = self.metrics[0] if self.metrics else {}
        if name not in known:
            raise InputError(f"no metric {name!r}; there are {', '.join(known)}")
        return [row[name] for row in self.metrics]


def train(
    env: Env | FromGymnasium,
    policy: Policy,
    algorithm: Algorithm,
    total_steps: int,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: Path | str | None = None,
    validate_every: int | None = None,
    validation: Mapping[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    compile: bool | None = None,
    sinks: Sequence[Any] = (),
    progress: bool = True,
    settings: Mapping[str, Any] | None = None,
    patience: Patience | None = None,
    save_every: float | None = None,
    on_save: OnSave | None = None,
    on_validation: OnValidation | None = None,
) -> Trained:
    """Train a policy in an environment.

    ```python
    env = CartPole()
    result = dz.train(env, dz.rl.mlp(env), dz.PPO(num_envs=64), total_steps=500_000, folder="runs/pole")
    ```

    Args:
        env: the environment; or environments of Gymnasium, which PPO alone takes, and which it steps on the host.
        policy: learns in place.
        algorithm: `PPO`, `GRPO`, `rl.SAC`, `rl.TD3` or `rl.DQN`, with its settings.
        total_steps: steps of worlds, rounded up to whole updates.
        seed: of worlds, actions and shuffles.
        device: None: CUDA where there is a device that works, else the CPU.
        folder: run folder to write, which must be new or empty; None: nothing is written.
        validate_every: updates between evaluations on separate worlds, whose mean return then tells the best policy;
            None: the mean return of training, smoothed, does.
        validation: arguments of `evaluate`: num_envs, max_steps, greedy, seed, and another env than the training's.
        params: parameters that differ between worlds, each with a leading axis of them, or change with the training: a
            `Linear` or an `Earned`. Validation goes by the environment's own.
        compile: False: eager; True: compiled, and captured on CUDA; None: on CUDA, and on a CPU in long trainings.
        sinks: where metrics go as well: see `denizen.tools.MetricsWriter`.
        progress: show a bar.
        settings: kept in the manifest; JSON values.
        patience: end early where the score that tells the best policy stops rising; None: never.
        save_every: seconds between saves to the folder; 0: after each update; None: 20, and more where saving takes
            over 2 % of the time. Several processes save together, at most 100 times.
        on_save: called with (folder, updates done) after each save but the first and that of Ctrl-C. What it raises
            ends the training, whose folder goes on from there.
        on_validation: called with (evaluation, updates done) after each validation, likewise.

    Raises:
        InputError: an argument does not fit.
        ModelError: a check on the device failed: NaN rewards or observations, actions out of range.
        StorageError: the folder cannot be written.
    """
    loop = new_loop(
        env,
        policy,
        algorithm,
        total_steps,
        seed=seed,
        device=device,
        folder=folder,
        validate_every=validate_every,
        validation=validation,
        params=params,
        compile=compile,
        sinks=sinks,
        settings=settings,
        patience=patience,
        save_every=save_every,
        callbacks=Callbacks(on_save, on_validation),
    )
    return loop.run(compile, progress)


def new_loop(
    env: Env | FromGymnasium,
    policy: Policy,
    algorithm: Algorithm,
    total_steps: int,
    *,
    seed: int = 0,
    device: torch.device | str | None = None,
    folder: Path | str | None = None,
    validate_every: int | None = None,
    validation: Mapping[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    compile: bool | None = None,
    sinks: Sequence[Any] = (),
    settings: Mapping[str, Any] | None = None,
    patience: Patience | None = None,
    save_every: float | None = None,
    callbacks: Callbacks | None = None,
) -> "Loop":
    """A training before its first update, and its folder; arguments as `train` takes them."""
    _check_algorithm(algorithm, "train")
    _check_hosted(env, algorithm, "train")
    _check_kept(folder, settings)
    if folder is None and save_every is not None:
        raise InputError(f"train: save_every={save_every!r} is of saves to a folder; pass folder= with it")
    save_every = _pace("train", save_every)
    _check_options(compile, sinks, patience)
    device = choose_device(device, "train")[0]
    training = cast(Any, algorithm).init(env, policy, total_steps=total_steps, seed=seed, device=device, params=params)
    validated = Validation(validate_every, validation, training.worlds.env, policy)
    if callbacks is not None:
        callbacks.check("train", folder, validated.every)
    facts = {
        "env": fingerprint(training.worlds.env),
        "algorithm": describe(algorithm),
        "policy": _shapes(policy),
        "seed": training.seed,
        "total_steps": int(total_steps),
        "device": training.worlds.device.type,
        "compile": compile,
        "validate_every": validated.every,
        "validation": validated.facts(),
        "samples": algorithm.samples,
        "patience": None if patience is None else dataclasses.asdict(patience),
        "params": described(params),
    }
    kept = None if folder is None else create_together(folder, facts, settings, training.worlds.device)
    return Loop(training, kept, validated, sinks, patience, save_every, callbacks)


def resume(
    folder: Path | str,
    env: Env | FromGymnasium,
    policy: Policy,
    algorithm: Algorithm,
    *,
    steps: int | None = None,
    device: torch.device | str | None = None,
    params: dict[str, Any] | None = None,
    validation_env: Env | None = None,
    sinks: Sequence[Any] = (),
    progress: bool = True,
    save_every: float | None = None,
    on_save: OnSave | None = None,
    on_validation: OnValidation | None = None,
) -> Trained:
    """Go on with a training, bit for bit as if it had never stopped (on the same kind of device).

    With `steps` it becomes longer. Schedules, such as an annealed learning rate, go by the new length from here on. So
    where nothing follows a schedule, the training equals one that was begun that long. The state of environments of
    Gymnasium is not kept: they begin anew, and a warning says so.

    Args:
        folder: of the training.
        env: as it was.
        policy: of the same shape; its weights are replaced.
        algorithm: as it was.
        steps: of worlds beyond those that the training has, rounded up to whole updates; None: what is missing of them.
        device: None: the kind it ran on, where there is one.
        params: as they were.
        validation_env: that of the validation, where it had one of its own.
        sinks: as `train` takes them.
        progress: show a bar.
        save_every: as `train` takes it.
        on_save: as `train` takes it.
        on_validation: as `train` takes it.

    Raises:
        DataError: the folder holds no training, or it is damaged.
        InputError: environment, policy or algorithm differ from those of the training; or `steps` of one whose patience
            has ended it.
    """
    _check_algorithm(algorithm, "resume")
    _check_hosted(env, algorithm, "resume")
    if steps is not None:
        whole("resume", "steps", steps, 1, hint=", or None for those that are missing")
    save_every = _pace("resume", save_every)
    kept = TrainingFolder.open(path("resume", "folder", folder, "the path of a training"))
    if processes.rank() == 0:
        kept.hold()  # before anything is read of it: it may go on elsewhere
    try:
        return _resumed(
            kept,
            env,
            policy,
            algorithm,
            steps,
            device,
            params,
            validation_env,
            sinks,
            progress,
            save_every,
            Callbacks(on_save, on_validation),
        )
    finally:
        kept.release()


def _resumed(
    kept: TrainingFolder,
    env: Env | FromGymnasium,
    policy: Policy,
    algorithm: Algorithm,
    steps: int | None,
    device: torch.device | str | None,
    params: dict[str, Any] | None,
    validation_env: Env | None,
    sinks: Sequence[Any],
    progress: bool,
    save_every: float | None,
    callbacks: Callbacks,
) -> Trained:
    known = kept.manifest
    if device is None and (known["device"] == "cpu" or torch.cuda.is_available()):
        device = known["device"]
    device = choose_device(device, "resume")[0]
    total = known["total_steps"]
    if steps is not None:  # beyond whole updates, which may be more than was asked for
        total = -(-total // algorithm.samples) * algorithm.samples + steps
    training = cast(Any, algorithm).init(
        env, policy, total_steps=total, seed=known["seed"], device=device, params=params
    )
    now = {"algorithm": describe(algorithm), "policy": _shapes(policy), "params": described(params)}
    differing = {"env": "; ".join(differences(known["env"], fingerprint(training.worlds.env)))}
    differing.update({name: difference(known.get(name, value), value) for name, value in now.items()})
    for name, found in differing.items():
        if found:
            raise InputError(f"resume: the {name} differs from that of the training in {kept.path}; {found}")
    patience = Patience(**known["patience"]) if known.get("patience") else None
    validated = Validation.again(known, validation_env, training.worlds.env, policy)
    callbacks.check("resume", kept, validated.every)
    loop = Loop(training, kept, validated, sinks, patience, save_every, callbacks)
    loop.load()
    if steps is not None:
        loop.lengthen(total)
    return loop.run(known["compile"], progress)


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
        self.evaluations: list[tuple[int, Evaluation]] = []
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
        name = env.name if isinstance(env, Foreign) else type(env).__name__
        view = live_view(missing, show, name, measures_of(env))
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
        if self._lost is None and not scaled and any(math.isnan(row.get(name, 0.0)) for name in LOSSES):
            self._lost = row["step"]
        if processes.size() == 1:  # several stop together, where they save
            self._faulty = self._faulty or row.get("faulty", 0.0) > 0 or self._lost is not None
            self._over = self._over or row.get("patience_over", 0.0) > 0

    def _judge(self, metrics: dict[str, Tensor]) -> None:
        """Offer the policy as the best, by the mean return of training or of a validation."""
        best, updates = self.best_policy, self.training.updates
        if self.validation.every is None:
            metrics.update(best.follow(metrics["return_mean"], updates))
        elif self.validation.due(self.done, self.training.num_updates):
            evaluation = self.validation(self.training.policy)
            self.evaluations.append((self.done, evaluation))
            metrics["validation_return"] = torch.full_like(best.score, evaluation.mean)
            metrics.update(best.offer(metrics["validation_return"], updates))
        metrics["best_score"] = torch.where(best.score.isinf(), torch.nan, best.score)

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


def _check_hosted(env: Any, algorithm: Any, what: str) -> None:
    if isinstance(env, FromGymnasium) and not isinstance(algorithm, PPO):
        raise InputError(f"{what}: algorithm is {named(algorithm)}, and in a FromGymnasium dz.PPO(…) alone trains")


def _check_algorithm(algorithm: Any, what: str) -> None:
    if not isinstance(algorithm, Algorithm):
        raise InputError(
            f"{what}: algorithm is {named(algorithm)}, expected dz.PPO(…), dz.GRPO(…), dz.rl.SAC(…), dz.rl.TD3(…) or "
            f"dz.rl.DQN(…)"
        )


def _check_options(compile: Any, sinks: Any, patience: Any) -> None:
    """Raise `InputError` where one of these arguments of `train` is of no kind that it takes."""
    if compile is not None:
        switch("train", "compile", compile, hint=" or None")
    if not isinstance(sinks, Sequence) or isinstance(sinks, str):
        raise InputError(f"train: sinks={sinks!r}, expected a list of sinks")
    if patience is not None and not isinstance(patience, Patience):
        raise InputError(f"train: patience={patience!r}, expected a dz.rl.Patience(updates=…), or None")


def _pace(what: str, save_every: Any) -> float | None:
    """Seconds between saves; raises `InputError` where they are none."""
    return None if save_every is None else number(what, "save_every", save_every, 0, hint=" (seconds), or None")


def _check_kept(folder: Any, settings: Any) -> None:
    """Raise `InputError` where this is no name of a folder, or nothing that its manifest could keep."""
    if folder is not None:
        path("train", "folder", folder, "the path of a folder, or None to write nothing")
    if settings is not None:
        json_values("train", "settings", settings)


def _shapes(policy: Policy) -> dict[str, str]:
    shapes = {name: f"{tensor.dtype}{list(tensor.shape)}" for name, tensor in policy.state_dict().items()}
    kind: Any = getattr(policy, "distribution", Gaussian)
    return shapes if kind is Gaussian else {**shapes, "distribution": kind.__name__}  # folders before it tell none
