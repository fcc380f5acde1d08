"""`train` and `resume`: a training from its arguments, or from its folder.

train
  Loop             update after update: metrics, saves, validations, the best policy
    Updates        an update as it is, compiled, or captured as one CUDA graph
      PPO, SAC, …  the algorithm: its `update` changes a `Training` in place
        Rollout    the policy acts in the worlds; what happened is in buffers
          Worlds   step, end and begin anew
"""

import dataclasses
from collections.abc import Mapping, Sequence
from pathlib import Path
from typing import Any, cast

import torch

from denizen import _processes as processes
from denizen._arguments import json_values, number, path, switch, whole
from denizen._fingerprint import describe, differences, fingerprint
from denizen.errors import InputError
from denizen.model import Env
from denizen.rl._best_policy import Patience
from denizen.rl._curriculum import described
from denizen.rl._distributions import Gaussian
from denizen.rl._dqn import DQN
from denizen.rl._evaluate import Validation
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._grpo import GRPO
from denizen.rl._loop import Callbacks, Loop, OnSave, OnValidation
from denizen.rl._policy import Policy
from denizen.rl._ppo import PPO
from denizen.rl._roles import Policies
from denizen.rl._roles_training import RolesTraining
from denizen.rl._sac import SAC
from denizen.rl._td3 import TD3
from denizen.rl._trained import Trained
from denizen.rl._training_folder import TrainingFolder, create_together, difference
from denizen.rl._worlds import named
from denizen.run import choose_device

Algorithm = PPO | GRPO | SAC | TD3 | DQN


def train(
    env: Env | FromGymnasium,
    policy: Policy | Mapping[str, Policy] | Policies,
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
        env: the environment; or environments of Gymnasium, which are stepped on the host, and which GRPO does not take.
        policy: learns in place; of an environment with roles one for each, ``{"predator": …, "prey": …}``, which PPO
            alone trains. One for several roles learns from all their actors; one whose weights are frozen acts only.
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
    policy: Policy | Mapping[str, Policy] | Policies,
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
) -> Loop:
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
    validated = Validation(validate_every, validation, training.worlds.env, training.policy)
    if patience is not None and isinstance(training, RolesTraining):
        raise InputError(
            f"train: patience={patience!r}: no score ranks the policies of several roles together; leave it out"
        )
    if callbacks is not None:
        callbacks.check("train", folder, validated.every)
    facts = {
        "env": fingerprint(training.worlds.env),
        "algorithm": describe(algorithm),
        "policy": _shapes(training.policy),
        "network": _modules(training.policy),
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
    policy: Policy | Mapping[str, Policy] | Policies,
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
        policy: of the same modules, or policies by role; their weights are replaced.
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
    policy: Policy | Mapping[str, Policy] | Policies,
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
    now: dict[str, Any] = {
        "algorithm": describe(algorithm),
        "policy": _shapes(training.policy),
        "network": _modules(training.policy),  # folders before it tell none
        "params": described(params),
    }
    differing = {"env": "; ".join(differences(known["env"], fingerprint(training.worlds.env)))}
    differing.update({name: difference(known.get(name, value), value) for name, value in now.items()})
    for name, found in differing.items():
        if found:
            raise InputError(f"resume: the {name} differs from that of the training in {kept.path}; {found}")
    patience = Patience(**known["patience"]) if known.get("patience") else None
    validated = Validation.again(known, validation_env, training.worlds.env, training.policy)
    callbacks.check("resume", kept, validated.every)
    loop = Loop(training, kept, validated, sinks, patience, save_every, callbacks)
    loop.load()
    if steps is not None:
        loop.lengthen(total)
    return loop.run(known["compile"], progress)


def _check_hosted(env: Any, algorithm: Any, what: str) -> None:
    if isinstance(env, FromGymnasium) and isinstance(algorithm, GRPO):
        raise InputError(
            f"{what}: algorithm is GRPO, whose groups of worlds begin alike and live once in a rollout, and a "
            f"FromGymnasium begins each life anew by itself; take dz.PPO(…), or write a dz.Env"
        )


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


def _shapes(policy: Any) -> dict[str, str]:
    shapes = {name: f"{tensor.dtype}{list(tensor.shape)}" for name, tensor in policy.state_dict().items()}
    kind: Any = getattr(policy, "distribution", Gaussian)
    return shapes if kind is Gaussian else {**shapes, "distribution": kind.__name__}  # folders before it tell none


def _modules(policy: torch.nn.Module) -> dict[str, str]:
    """What shapes of weights do not tell: kinds of modules, settings of denizen's own, roles that share a policy, and
    which weights stay as they are.
    """
    kinds = {}
    for name, one in policy.named_modules():
        ours = type(one).__module__.startswith("denizen.")
        kinds[name or "policy"] = type(one).__name__ + (f"({one.extra_repr()})" if ours and one.extra_repr() else "")
    frozen = {name: "frozen" for name, weight in policy.named_parameters() if not weight.requires_grad}
    return kinds | frozen
