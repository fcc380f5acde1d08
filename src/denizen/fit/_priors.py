"""What may stand in `priors` beside a distribution: one number for all entries, one for each, changes in time."""

import dataclasses
import inspect
import re
from collections.abc import Sequence
from typing import Any

import torch
from torch.distributions import Dirichlet, Distribution, TransformedDistribution

from denizen._arguments import number, whole
from denizen.errors import InputError

Prior = Distribution | None


@dataclasses.dataclass(frozen=True)
class Shared:
    """One number for all entries of a vector.

    Attributes:
        prior: of it; None: flat.
    """

    prior: Prior = None

    def __post_init__(self) -> None:
        check_prior("Shared", "prior", self.prior)


@dataclasses.dataclass(frozen=True)
class PerGroup:
    """Each entry of a vector by itself.

    Attributes:
        priors: for each entry a distribution, None (flat), or a number at which it is held.
    """

    priors: Sequence[Any]

    def __post_init__(self) -> None:
        if isinstance(self.priors, str) or not isinstance(self.priors, Sequence) or not len(self.priors):
            raise InputError(
                f"PerGroup: priors={self.priors!r}, expected a list: a distribution, None or a number for each entry"
            )
        for k, prior in enumerate(self.priors):
            if isinstance(prior, int | float) and not isinstance(prior, bool):
                number("PerGroup", f"priors[{k}]", prior)
            else:
                check_prior("PerGroup", f"priors[{k}]", prior, ", or a number at which it is held")
        if all(isinstance(prior, int | float) for prior in self.priors):
            raise InputError(f"PerGroup: priors={self.priors!r} holds every entry, so there is nothing to fit")


@dataclasses.dataclass(frozen=True)
class Shares:
    """The entries of a vector are shares: above 0, and together 1.

    A search moves on the logarithms of the others over the last one, so K shares are K - 1 numbers.

    Attributes:
        prior: a `torch.distributions.Dirichlet` of as many entries, which may also stand in priors by itself; None:
            flat in transformed units.
    """

    prior: Dirichlet | None = None

    def __post_init__(self) -> None:
        given = self.prior
        if given is not None and (not isinstance(given, Dirichlet) or given.batch_shape):
            raise InputError(
                f"Shares: prior={given!r}, expected a torch.distributions.Dirichlet of one vector, or None"
            )
        if given is not None and not bool((given.concentration > 0).all() & given.concentration.isfinite().all()):
            told = given.concentration.tolist()
            raise InputError(f"Shares: prior has concentration {told}, expected finite numbers above 0")


@dataclasses.dataclass(frozen=True)
class Walk:
    """A random walk: each entry is the one before it plus a normal step, in transformed units.

    Attributes:
        sd: of a step; 0.2 on the logarithm of a rate is a change of about a fifth.
        first: prior of the first entry; None: flat.
    """

    sd: float
    first: Prior = None

    def __post_init__(self) -> None:
        number("Walk", "sd", self.sd, above=0)
        check_prior("Walk", "first", self.first)


@dataclasses.dataclass(frozen=True)
class Steps:
    """A parameter that changes in time: constant for `every` steps, the last value holds on.

    Attributes:
        every: steps of a value.
        prior: of each value by itself (None: flat), or a `Walk` from one to the next.
    """

    every: int = 7
    prior: Prior | Walk = None

    def __post_init__(self) -> None:
        whole("Steps", "every", self.every, 1)
        if not isinstance(self.prior, Walk):
            check_prior("Steps", "prior", self.prior, ", or dz.fit.Walk(sd)")


def check_prior(caller: str, name: str, prior: Any, more: str = "") -> None:
    """Raise `InputError` where something is neither a distribution of one number nor None."""
    if prior is not None:
        check_distribution(caller, name, prior, f"a torch distribution of one number, or None{more}")


def check_distribution(
    caller: str, name: str, given: Any, expected: str = "a torch distribution of one number"
) -> None:
    """Raise `InputError` where something is no distribution of one number, or one of arguments that cannot be.

    torch's own checks of arguments are off for the whole process once anything was compiled.
    """
    if not isinstance(given, Distribution) or given.batch_shape or given.event_shape:
        raise InputError(f"{caller}: {name}={given!r}, expected {expected}")
    while isinstance(given, TransformedDistribution) and not arguments(given):
        given = given.base_dist
    if found := arguments(given):
        try:
            type(given)(**found, validate_args=True)
        except ValueError as error:
            told = ", ".join(f"{key}={float(value):g}" for key, value in found.items())
            why = re.search(r"parameter (\w+) .* the constraint (\w+(?:\([^)]*\))?)", str(error), re.S)
            wanted = f"expected {why[1]} {why[2]}" if why else str(error).splitlines()[0]
            raise InputError(f"{caller}: {name} is {type(given).__name__}({told}); {wanted}") from error


def arguments(distribution: Distribution) -> dict[str, Any]:
    """What a distribution of torch was made with, by name; empty where these alone do not make it again."""
    cls = type(distribution)
    if getattr(torch.distributions, cls.__name__, None) is not cls:
        return {}
    takes = inspect.signature(cls).parameters
    names = [name for name in distribution.arg_constraints if name in takes]  # pyrefly: ignore
    if "probs" in names and "logits" in names:
        names.remove("logits")
    lacking = [n for n, a in takes.items() if a.default is a.empty and n not in names]
    return {} if lacking else {name: getattr(distribution, name) for name in names}
