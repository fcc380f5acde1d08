"""Several strains or diseases at once: who can still catch what, and which one it is; tables `[agents, strains]`."""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError, ModelError
from denizen.rng import Rng
from denizen.space import Structure

_LEAST = 1e-30  # a hazard below which which strain it is does not matter: nothing ever happens


@dataclasses.dataclass(frozen=True, eq=False)
class CrossImmunity(Structure):
    """By how much having had a strain lowers the hazard of each strain.

    Several infections of the past act independently: what one lets through, the next lowers again.

    Attributes:
        matrix: `[strains, strains]` from 0 to 1: row i, column j is by how much having had strain i lowers the hazard
            of strain j; 1 is full protection. Numbers, or a parameter of the model:
            ``CrossImmunity(self.protection)``.

    Examples:
        >>> shared = CrossImmunity([[1.0, 0.5], [0.2, 1.0]])
        >>> shared.factor(torch.tensor([[0, 0], [1, 0], [1, 1]], dtype=torch.int8))
        tensor([[1.0000, 1.0000],
                [0.0000, 0.5000],
                [0.0000, 0.0000]])
    """

    matrix: Any

    def __post_init__(self) -> None:
        given = self.matrix
        try:
            matrix = given if isinstance(given, Tensor) else torch.as_tensor(given, dtype=torch.float32)
        except (TypeError, ValueError, RuntimeError) as error:
            raise InputError(f"CrossImmunity: matrix={given!r}, expected rows of numbers") from error
        if matrix.dim() != 2 or matrix.shape[0] != matrix.shape[1] or not matrix.numel():
            raise InputError(
                f"CrossImmunity: matrix has shape {tuple(matrix.shape)}, expected a square one with a row and a column "
                f"for each strain"
            )
        if not isinstance(given, Tensor):  # bounds of a parameter are its own
            bad = ~((matrix >= 0) & (matrix <= 1))
            if bool(bad.any()):
                row, column = bad.nonzero()[0].tolist()
                raise InputError(
                    f"CrossImmunity: matrix[{row}][{column}]={float(matrix[row, column]):g}, expected a number from 0 "
                    f"(no protection) to 1 (full)"
                )
        object.__setattr__(self, "matrix", matrix)

    @property
    def num_strains(self) -> int:
        """Number of strains."""
        return self.matrix.shape[0]

    def factor(self, had: Tensor) -> Tensor:
        """What multiplies the hazard of each strain: float32 `[agents, strains]`, from 0 to 1.

        Args:
            had: mask `[agents, strains]` of what everybody is immune from, or shares of a relaxed run.
        """
        _table("CrossImmunity.factor", "had", had, strains=self.num_strains)
        out = torch.ones(had.shape, dtype=torch.float32, device=had.device)
        for strain in range(self.num_strains):
            out = out * (1 - had[:, strain, None] * self.matrix[strain])
        return out


def compete(rng: Rng, name: str, hazards: Tensor, *, where: Tensor | None = None) -> Tensor:
    """At most one of several things that happen at rates happens to each agent: competing hazards.

    First whether anything happens, with probability 1 - exp(-(h₁ + h₂ + …) dt); then which, with probabilities
    proportional to the hazards. This is exact at any dt where hazards stay as they are within the step, and no strain
    goes before another one.

    Args:
        rng: of the step.
        name: of the stream.
        hazards: `[agents, strains]`, per unit of time, not negative.
        where: mask `[agents]` of those to whom it can happen, as for `rng.event`.

    Returns:
        mask `[agents, strains]`, at most one 1 in a row; shares in a relaxed run.
    """
    _table("compete", "hazards", hazards, agents=rng._num)
    rests = [hazards[:, -1]]  # of a strain and all after it, so that the last one that has a hazard gets the rest
    for strain in range(hazards.shape[1] - 2, -1, -1):
        rests.insert(0, hazards[:, strain] + rests[0])
    left = rng.event(name, rests[0], where=where)
    out, scope = [], rng[name]
    for strain in range(hazards.shape[1] - 1):
        share = hazards[:, strain] / rests[strain].clamp(min=_LEAST)
        this = left * scope.bernoulli(f"strain {strain}", share, where=left)
        out.append(this)
        left = left - this
    return torch.stack([*out, left], dim=1)


def independent(rng: Rng, name: str, hazards: Tensor, *, where: Tensor | None = None) -> Tensor:
    """Each of several things that happen at rates happens or not, whatever the others do: coinfections, recoveries.

    Args:
        rng: of the step.
        name: of the streams.
        hazards: `[agents, strains]`, per unit of time, not negative.
        where: mask `[agents]` or `[agents, strains]` of those to whom it can happen, as for `rng.event`.

    Returns:
        mask `[agents, strains]`; shares in a relaxed run.
    """
    _table("independent", "hazards", hazards, agents=rng._num)
    scope, out = rng[name], []
    for strain in range(hazards.shape[1]):
        mask = where if where is None or where.dim() == 1 else where[:, strain]
        out.append(scope.event(f"strain {strain}", hazards[:, strain], where=mask))
    return torch.stack(out, dim=1)


def sums(contacts: Any, values: Tensor, **options: Any) -> Tensor:
    """Sums over contacts for each strain: `[agents, strains]`.

    Args:
        contacts: a `Graph`, `Layers` or `Mixing`.
        values: `[agents, strains]`, for example who sheds which strain.
        **options: of `contacts.sum`.
    """
    _table("sums", "values", values, agents=contacts.num_agents)
    columns = [contacts.sum(values[:, strain].contiguous(), **options) for strain in range(values.shape[1])]
    return torch.stack(columns, dim=1)


def _table(caller: str, name: str, value: Any, agents: int | None = None, strains: int | None = None) -> None:
    """Refuse what has no row for each agent or no column for each strain."""
    good = isinstance(value, Tensor) and value.dim() == 2 and value.shape[1] > 0
    if good and agents in (None, value.shape[0]) and strains in (None, value.shape[1]):
        return
    got = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"is {type(value).__name__} {value!r}"
    wanted = f"({agents or 'agents'}, {strains or 'strains'})"
    raise ModelError(f"{caller}: {name} {got}, expected {wanted}: a row for each agent, a column for each strain")
