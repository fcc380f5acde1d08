"""What a calibration begins with: its arguments, checked, and the experiment that they make."""

import dataclasses
from collections.abc import Mapping, Sequence
from typing import Any, NoReturn

import numpy as np
import torch

from denizen._arguments import whole
from denizen.errors import InputError
from denizen.fit._experiment import Experiment, Simulator
from denizen.fit._from_priors import of_model, of_priors
from denizen.fit._target import Calendar, Target, as_targets, dated
from denizen.model import Env, Intervention, Model, Param, check_not_set, interventions_of
from denizen.rng import MAX_SEED


class Absent:
    """The parameters of a model that is not there, as a folder has them."""

    def __init__(self, facts: Mapping[str, Any]) -> None:
        """Args: facts: of the model, as the manifest has them."""
        self.num_agents, self.time_unit = facts.get("agents", 0), facts.get("time_unit", "step")
        params: Mapping[str, Mapping[str, Any]] = facts.get("params", {})
        self.params = {}
        for name, told in params.items():
            shape = tuple(told["shape"])
            self.params[name] = Param(told["low"], told["high"], "", told["learnable"], "", shape, "")
            value = torch.tensor(told["value"], dtype=torch.float64).reshape(shape).float()
            setattr(self, name, value)

    def __call__(self, theta: Any, worlds: Any) -> NoReturn:
        raise InputError("this fit was read without its model; dz.fit.Fit.load(path, model=…) simulates")


@dataclasses.dataclass(frozen=True)
class Setup:
    """A calibration before its search.

    Attributes:
        model: as it was given.
        given: the other arguments that fix the numbers, by name.
        experiment: what is simulated.
        held_out: by target, the last values, which are kept back; empty where there are none.
        replicates: worlds of the last iterations.
    """

    model: Any
    given: dict[str, Any]
    experiment: Experiment
    held_out: dict[str, np.ndarray]
    replicates: int


def set_up(
    caller: str,
    model: Model | Simulator | Absent,
    targets: Mapping[str, Any],
    *,
    priors: Any,
    method: Any,
    steps: int | None,
    replicates: int,
    holdout: int,
    start: Any = None,
    seed: int,
    interventions: Sequence[Intervention],
    device: torch.device | str | None,
) -> Setup:
    """Check the arguments of `calibrate`.

    Raises:
        InputError: one does not fit.
    """
    if isinstance(model, Env) or not (isinstance(model, Model) or (callable(model) and not isinstance(model, type))):
        kind = f"the class {model.__name__}" if isinstance(model, type) else f"of type {type(model).__name__}"
        raise InputError(
            f"{caller}: model is {kind}, expected an object of a dz.Model that steps by itself, or a function"
        )
    plain = as_targets(caller, targets)
    given = dated(caller, plain, start, getattr(model, "time_unit", "step"))
    reach = _steps(caller, steps, given)
    if isinstance(model, Model) or (isinstance(model, Absent) and model.params):
        parameters = of_model(caller, model, priors, given, reach)  # type: ignore[arg-type]
    else:
        parameters = of_priors(caller, priors, given)
    names = {part.name for part in parameters.parts}
    if isinstance(model, Model):
        more = interventions if isinstance(interventions, list | tuple) else ()
        check_not_set(caller, "is to be fitted", names, interventions_of(caller, model, more))
    if isinstance(method, type) or not callable(getattr(method, "solve", None)):
        raise InputError(f"{caller}: method={method!r}, expected an object such as dz.fit.GaussNewton()")
    whole(caller, "replicates", replicates, 2)
    whole(caller, "holdout", holdout, 0)
    whole(caller, "seed", seed, 0, MAX_SEED)
    fitted = {name: _without_last(caller, name, target, holdout) for name, target in given.items()}
    experiment = Experiment(
        model,  # type: ignore[arg-type]
        parameters,
        fitted,
        steps=reach,
        seed=seed,
        device=device,
        interventions=interventions,
        calendar=Calendar.of(caller, plain, start, model),
    )
    if len(experiment.observed) < len(parameters.labels):
        raise InputError(
            f"{caller}: {len(experiment.observed)} observed numbers for {len(parameters.labels)} to fit, expected at "
            f"least as many; name fewer parameters in priors"
        )
    arguments = {
        "targets": plain,
        "priors": priors,
        "method": method,
        "steps": steps,
        "replicates": replicates,
        "holdout": holdout,
        "start": start,
        "seed": seed,
        "interventions": interventions,
    }
    held_out = {name: given[name].values[len(fitted[name].values) :] for name in given} if holdout else {}
    return Setup(model, arguments, experiment, held_out, replicates)


def _without_last(caller: str, name: str, target: Target, holdout: int) -> Target:
    if holdout >= len(target.values):
        raise InputError(
            f"{caller}: holdout={holdout} leaves nothing of targets[{name!r}], which has {len(target.values)} values"
        )
    if not holdout:
        return target
    rest = target.until(len(target.values) - holdout)
    if np.isnan(rest.values).all():
        raise InputError(
            f"{caller}: holdout={holdout} leaves nothing but gaps of targets[{name!r}]; hold back fewer values, or "
            f"leave the target out"
        )
    return rest


def _steps(caller: str, steps: int | None, targets: Mapping[str, Target]) -> int:
    name, last = max(((name, target.last) for name, target in targets.items()), key=lambda one: one[1])
    if steps is None:
        return last
    if whole(caller, "steps", steps, 1) < last:
        raise InputError(f"{caller}: targets[{name!r}] reaches to step {last}, beyond steps={steps}; leave steps out")
    return steps
