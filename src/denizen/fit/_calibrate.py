"""`calibrate`: checks the arguments, searches, and hands the fit over."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import torch

from denizen._arguments import switch, whole
from denizen._printing import progress as progress_bar
from denizen.errors import InputError
from denizen.fit._experiment import Experiment, Simulator
from denizen.fit._fit import Fit, of_solution
from denizen.fit._gauss_newton import GaussNewton
from denizen.fit._method import Iteration, Method, Tell
from denizen.fit._parameters import of_model, of_priors
from denizen.fit._target import Target, as_targets
from denizen.model import Env, Intervention, Model
from denizen.rng import MAX_SEED


def calibrate(
    model: Model | Simulator,
    targets: Mapping[str, Any],
    *,
    priors: Mapping[str, Any] | Sequence[str] | None = None,
    method: Method | None = None,
    steps: int | None = None,
    replicates: int = 16,
    holdout: int = 0,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    device: torch.device | str | None = None,
    progress: bool = True,
) -> Fit:
    """Fit parameters of a model to observed series, with intervals that a model's own randomness is part of.

    Args:
        model: its present values are where the search begins. Or a function of (theta `[B, P]`, numbers of B worlds)
            that gives series `[B, steps]`, by name or one for all; alike numbers must give alike random draws.
        targets: what was observed, by name of the series: an array with one value a step, or a `dz.fit.Target`.
        priors: names of the parameters to fit, or distributions of torch (None: flat) by name. None fits all that the
            model declares learnable. A parameter without a prior is flat between its bounds in transformed units: the
            logarithm for one bound, the logit for two. A function needs a distribution for each parameter.
        method: how to search; None: `dz.fit.GaussNewton()`.
        steps: simulated in each run; None: until the last window of the targets ends.
        replicates: worlds of the last iterations.
        holdout: last values of each target that are kept back, for `Fit.score`.
        seed: of the simulated worlds. Fits of other seeds differ by the noise of their worlds.
        interventions: as for `dz.simulate`.
        device: as for `dz.simulate`.
        progress: show what is going on.

    Returns:
        A `Fit`: ``fit.model`` is the fitted model, ``print(fit)`` the estimates.

    Raises:
        InputError: for an argument that does not fit, or where nothing depends on a parameter.
    """
    if isinstance(model, Env) or not (isinstance(model, Model) or (callable(model) and not isinstance(model, type))):
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"of type {type(model).__name__}"
        raise InputError(
            f"calibrate: model is {kind}, expected an object of a dz.Model that steps by itself, or a function"
        )
    given = as_targets("calibrate", targets)
    parameters = of_model("calibrate", model, priors) if isinstance(model, Model) else of_priors("calibrate", priors)
    method = GaussNewton() if method is None else method
    if isinstance(method, type) or not callable(getattr(method, "solve", None)):
        raise InputError(f"calibrate: method={method!r}, expected an object such as dz.fit.GaussNewton()")
    whole("calibrate", "replicates", replicates, 2)
    whole("calibrate", "holdout", holdout, 0)
    whole("calibrate", "seed", seed, 0, MAX_SEED)
    switch("calibrate", "progress", progress)
    fitted = {name: _without_last("calibrate", name, target, holdout) for name, target in given.items()}
    experiment = Experiment(
        model,
        parameters,
        fitted,
        steps=_steps("calibrate", steps, given),
        seed=seed,
        device=device,
        interventions=interventions,
    )
    if len(experiment.observed) < len(parameters.labels):
        raise InputError(
            f"calibrate: {len(experiment.observed)} observed numbers for {len(parameters.labels)} to fit, expected at "
            f"least as many; name fewer parameters in priors"
        )
    with _told(progress) as tell:
        solution = method.solve(experiment, replicates, tell)
    held_out = {name: given[name].values[len(fitted[name].values) :] for name in given} if holdout else {}
    return of_solution(model, experiment, solution, held_out)


def _without_last(caller: str, name: str, target: Target, holdout: int) -> Target:
    if holdout >= len(target.values):
        raise InputError(
            f"{caller}: holdout={holdout} leaves nothing of targets[{name!r}], which has {len(target.values)} values"
        )
    return target.until(len(target.values) - holdout) if holdout else target


def _steps(caller: str, steps: int | None, targets: Mapping[str, Target]) -> int:
    name, last = max(((name, target.last) for name, target in targets.items()), key=lambda one: one[1])
    if steps is None:
        return last
    if whole(caller, "steps", steps, 1) < last:
        raise InputError(f"{caller}: targets[{name!r}] reaches to step {last}, beyond steps={steps}; leave steps out")
    return steps


@contextmanager
def _told(show: bool) -> Iterator[Tell]:
    if not show:
        yield lambda iteration: None
        return
    with progress_bar() as bar:
        task = bar.add_task("calibrate", total=None, rate="")

        def tell(iteration: Iteration) -> None:
            bar.update(
                task,
                description=f"calibrate: iteration {iteration.number + 1}, {iteration.shown}",
                rate=f"{iteration.runs:,} runs",
            )

        yield tell
