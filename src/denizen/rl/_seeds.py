"""`train_seeds`: trainings of several seeds that take turns, on CUDA each on a stream of its own."""

import contextlib
from collections.abc import Callable, Generator, Mapping, Sequence
from pathlib import Path
from typing import Any

import torch
from torch import nn

from denizen import _processes as processes
from denizen._arguments import whole
from denizen._run_folder import check_free
from denizen.errors import InputError, expect_function
from denizen.model import Env
from denizen.rl._best_policy import Patience
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._live import live_view
from denizen.rl._loop import Loop
from denizen.rl._policy import Policy
from denizen.rl._train import Algorithm, new_loop
from denizen.rl._trained import Trained
from denizen.rl._worlds import named
from denizen.rng import MAX_SEED

AT_ONCE = 16  # torch has 32 streams, which others use as well


def train_seeds(
    env: Env,
    policy: Callable[[int], Policy | Mapping[str, Policy]],
    algorithm: Algorithm,
    total_steps: int,
    *,
    seeds: Sequence[int],
    device: torch.device | str | None = None,
    folder: Path | str | None = None,
    validate_every: int | None = None,
    validation: Mapping[str, Any] | None = None,
    params: dict[str, Any] | None = None,
    compile: bool | None = None,
    progress: bool = True,
    settings: Mapping[str, Any] | None = None,
    patience: Patience | None = None,
) -> list[Trained]:
    """Train a policy with several seeds at once; each result is the one that `train` gives with that seed.

    ```python
    results = dz.rl.train_seeds(env, lambda seed: dz.rl.mlp(env, seed=seed), dz.PPO(), 500_000, seeds=range(5))
    ```

    The trainings take turns, update by update. On CUDA each has a stream and a captured graph of its own, so that their
    kernels run beside each other: small worlds leave most of a GPU idle. What they compile is shared through inductor's
    cache. Memory is needed for all of them.

    Args:
        env: the environment.
        policy: makes the policy of a seed, or of an environment with roles those by role.
        algorithm: with its settings, as `train` takes it.
        total_steps: steps of worlds of each training.
        seeds: of worlds, actions and shuffles; at most 16, all different.
        device: as `train` takes it.
        folder: each training keeps ``seed-N`` within it; None: nothing is written.
        validate_every: as `train` takes it.
        validation: as `train` takes it.
        params: as `train` takes them.
        compile: as `train` takes it.
        progress: show a bar, of all of them together.
        settings: kept in the manifests.
        patience: ends each training by itself.

    Returns:
        One result for each seed, in their order; the `seconds` of each are those of all.

    Raises:
        InputError: an argument does not fit, or there are several processes.
        StorageError: a training's folder holds something already; then no training begins.
    """
    if not isinstance(seeds, Sequence):
        raise InputError(f"train_seeds: seeds={seeds!r}, expected a list of whole numbers")
    seeds = [whole("train_seeds", f"seeds[{place}]", seed, 0, MAX_SEED) for place, seed in enumerate(seeds)]
    if not 1 <= len(seeds) <= AT_ONCE or len(set(seeds)) < len(seeds):
        raise InputError(f"train_seeds: seeds={seeds}, expected 1 to {AT_ONCE} different ones")
    if processes.size() > 1:
        raise InputError("train_seeds: there are several processes; train one seed after the other with dz.train")
    if isinstance(policy, nn.Module) or not callable(policy):
        raise InputError(
            f"train_seeds: policy is {named(policy)}, expected a function that makes the policy of a seed, such as "
            f"lambda seed: dz.rl.mlp(env, seed=seed)"
        )
    expect_function("train_seeds: policy", policy, "seed")
    if isinstance(env, FromGymnasium):
        raise InputError("train_seeds: env is a FromGymnasium, which steps one training; call dz.train for each seed")
    policies = [policy(seed) for seed in seeds]
    learnt = [_learnt(one) for one in policies]
    if len(set().union(*learnt)) < sum(map(len, learnt)):
        raise InputError("train_seeds: policy gave the same object for two seeds; make a new one in each call")
    folders = [None if folder is None else Path(folder) / f"seed-{seed}" for seed in seeds]
    for one in folders:  # all of them before any is made
        if one is not None:
            check_free(one)
    loops: list[Loop] = []
    try:
        for seed, made, kept in zip(seeds, policies, folders, strict=True):
            loops.append(
                new_loop(
                    env,
                    made,
                    algorithm,
                    total_steps,
                    seed=seed,
                    device=device,
                    folder=kept,
                    validate_every=validate_every,
                    validation=validation,
                    params=params,
                    compile=compile,
                    settings=settings,
                    patience=patience,
                )
            )
        missing = len(seeds) * loops[0].training.num_updates * algorithm.samples
        with live_view(missing, progress, f"{type(env).__name__}, {len(seeds)} seeds") as (advance, _):
            return _in_turn(
                [loop.going(compile, False) for loop in loops],
                loops[0].training.worlds.device,
                lambda: advance(algorithm.samples),
            )
    finally:
        for loop in loops:  # also those that had no turn
            if loop.folder is not None:
                loop.folder.release()


def _learnt(policy: Any) -> set[int]:
    """Which parameters of a policy, or of the policies of all roles, are learnt: by their ids."""
    modules = policy.values() if isinstance(policy, Mapping) else [policy]
    held = [module.parameters() for module in modules if isinstance(module, nn.Module)]
    return {id(weight) for weights in held for weight in weights if weight.requires_grad}


def _in_turn(
    trainings: list[Generator[None, None, Trained]], device: torch.device, advance: Callable[[], None]
) -> list[Trained]:
    """Run all to their ends; where one fails or Ctrl-C comes, the others end the same way, saved where they save."""
    streams = [_stream(device) for _ in trainings]
    results: dict[int, Trained] = {}
    going = dict(enumerate(trainings))
    warm = False
    try:
        while going:
            for number, training in list(going.items()):
                try:
                    with streams[number]():
                        next(training)
                except StopIteration as end:
                    results[number] = end.value
                    del going[number]
                else:
                    if warm:
                        advance()
            warm = True
    except BaseException as error:
        for number, training in going.items():
            with contextlib.suppress(BaseException), streams[number]():
                training.throw(error)
        raise
    if device.type == "cuda":
        torch.cuda.synchronize(device)
    return [results[number] for number in range(len(trainings))]


def _stream(device: torch.device) -> Callable[[], contextlib.AbstractContextManager[Any]]:
    """What makes a context in which work goes to a stream of its own, behind what is under way now."""
    if device.type != "cuda":
        return contextlib.nullcontext
    own = torch.cuda.Stream(device)
    own.wait_stream(torch.cuda.current_stream(device))
    return lambda: torch.cuda.stream(own)
