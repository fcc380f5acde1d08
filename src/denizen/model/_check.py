"""`check`: proves in seconds, on the CPU, that a model keeps the author's rules, or names the lines that break them.

Runs the model's own init and a few steps: watched, again, batched, compiled and relaxed. It reads no source code, so
what a model does not execute within these steps is not judged.
"""

import dataclasses
import time
from collections.abc import Sequence
from typing import Any

from denizen._arguments import number, whole
from denizen._notebook import InNotebook
from denizen.errors import InputError, ModelError
from denizen.model._check_env import EnvProbes
from denizen.model._check_globals import kept
from denizen.model._check_rules import Finding, Probes
from denizen.model._env import Env
from denizen.model._interventions import Intervention, interventions_of
from denizen.model._model import Model
from denizen.model._when import Clock
from denizen.rng import MAX_SEED


@dataclasses.dataclass(frozen=True)
class Report(InNotebook):
    """What a check found.

    Attributes:
        model: name of the model's class.
        findings: broken rules, in the order in which they were met; empty where all hold.
        proved: what was shown, in sentences.
        skipped: what could not be judged, and why.
        notes: what breaks no rule and may still not say what it seems to.
        seconds: time taken.
    """

    model: str
    findings: tuple[Finding, ...]
    proved: tuple[str, ...]
    skipped: tuple[str, ...]
    notes: tuple[str, ...]
    seconds: float

    @property
    def ok(self) -> bool:
        """Whether nothing was found."""
        return not self.findings

    def raise_if_bad(self) -> None:
        """Raise a `ModelError` with the report where a rule is broken."""
        if not self.ok:
            raise ModelError(str(self))

    def __str__(self) -> str:
        count = len(self.findings)
        verdict = "all rules hold" if self.ok else f"{count} finding{'' if count == 1 else 's'}"
        lines = [f"check of {self.model}: {verdict} ({self.seconds:.1f} s)"]
        lines += [str(finding) for finding in self.findings]
        lines += [f"  proved   {sentence}" for sentence in self.proved]
        lines += [f"  skipped  {sentence}" for sentence in self.skipped]
        lines += [f"  note     {sentence}" for sentence in self.notes]
        return "\n".join(lines)

    __repr__ = __str__


def check(
    model: Model,
    *,
    steps: int = 3,
    seed: int = 0,
    start: Any = None,
    interventions: Sequence[Intervention] = (),
    gradient: bool = True,
    dt: bool | float = False,
    until: float = 20.0,
) -> Report:
    """Check that a model keeps the author's rules.

    The rules: fixed shapes and dtypes, no value read on the host, random numbers only from `rng`, no stream used twice,
    no writes in place, masks not wrapping around in int8, nothing global changed, the same result twice, worlds batched
    by vmap equal worlds alone, one compiled graph, nothing that depends on who is not `alive`, and no integer on a path
    that needs a gradient. An `Env` is driven with random actions; its observations, rewards, ends, resets and pictures
    are judged too, gradients are not.

    What is noted breaks no rule: a flow of (before, now) that is a difference of levels counts whatever moves agents
    within a step; see `rng.record`.

    Args:
        model: the model or environment; a small population finds as much as a large one, in less time.
        steps: steps to run, at least 2.
        seed: of the random numbers.
        start: the day of the first step, as for `simulate`; interventions with dates need it.
        interventions: as they would be given to `simulate`; an environment takes none.
        gradient: whether learnable parameters should be reachable by gradients under `relax=`; False for a model that
            will never be calibrated.
        dt: True runs up to 64 worlds with steps of 1, 1/2 and 1/4 as well, and names the series that part beyond noise
            and beyond what a scheme that converges would show, with the ratio, and the line or field that goes by the
            step where one is found; a number is the longest of the steps, in the model's `time_unit`.
        until: time that these worlds run, in the model's `time_unit`.

    Returns:
        A `Report` to print; ``report.ok``, ``report.findings``. A broken model is reported and never raises.

    Raises:
        InputError: for an argument that does not fit.

    Examples:
        >>> from denizen.space import Graph
        >>> from denizen.zoo.sir import SIR
        >>> check(SIR(Graph.from_edges([0, 1, 2], [1, 2, 0]))).ok
        True
    """
    if not isinstance(model, Model):
        wanted = "an instance, with its parameters and graphs: check(MyModel(…))"
        raise InputError(f"check: model is {model!r}, expected {wanted if isinstance(model, type) else 'a dz.Model'}")
    steps, seed = whole("check", "steps", steps, 2), whole("check", "seed", seed, 0, MAX_SEED)
    if isinstance(model, Env) and interventions:
        raise InputError("check: interventions are for models that are simulated; an environment takes none")
    longest = 1.0 if dt is True else number("check", "dt", dt, above=0) if dt else None
    until = number("check", "until", until, above=0)
    if isinstance(model, Env) and longest:
        raise InputError("check: dt= is for models that are simulated; a step of an environment is an action")
    clock = Clock.of("check", model.time_unit, 1.0, start)
    for intervention in interventions_of("check", model, interventions):
        intervention.timed(clock)
    began = time.perf_counter()
    with kept():
        if isinstance(model, Env):
            probes, gradient = EnvProbes(model.to("cpu"), steps, seed), False
        else:
            probes = Probes(model.to("cpu"), steps, seed, tuple(interventions), clock)
        probes.all(gradient)
        if longest and isinstance(probes, Probes):
            probes.lengths(longest, until)
    findings, proved, skipped = tuple(probes.findings), tuple(probes.proved), tuple(probes.skipped)
    name, seconds = type(model).__name__, time.perf_counter() - began
    return Report(name, findings, proved, skipped, tuple(probes.notes), seconds)
