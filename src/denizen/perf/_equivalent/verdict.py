"""What a comparison of two implementations found, as data and as text."""

import dataclasses
import json
import math
from collections.abc import Collection
from typing import Any

from denizen.perf._equivalent.compare import BIT_EQUAL, DIFFERENT, STATISTICALLY, WITHIN, Compared

MOST = 8  # rows of the table
DTYPES = (
    "where another precision is meant, have b give back the dtype of a (`.float()`) and say how near it should come: "
    "tolerances={torch.float32: (0.02, 0.02)}"
)
ORDER = (BIT_EQUAL, WITHIN, STATISTICALLY, DIFFERENT)


@dataclasses.dataclass
class Verdict:
    """Whether two implementations compute the same; print it.

    Attributes:
        mapping: how the weights were taken over.
        compared: every tensor, in the order in which it was compared.
        notes: what else was seen.
        steps: of training, or calls, that were done; those after the first difference are not.
        module: the first inner module, known by its name in both, whose output differs.
        seed: of random numbers.
        distribution: outcome over many seeds; None where it was not asked for, or needed.
    """

    mapping: str = ""
    compared: list[Compared] = dataclasses.field(default_factory=list)
    notes: list[str] = dataclasses.field(default_factory=list)
    steps: int = 0
    module: str = ""
    seed: int = 0
    distribution: Compared | None = None

    @property
    def level(self) -> str:
        """``"bit-equal"``, ``"within tolerance"``, ``"statistically equal"`` or ``"different"``.

        That of the worst tensor; of the distributions where tensors differ and many seeds were tried.
        """
        worst = ORDER[max((ORDER.index(one.level) for one in self.compared), default=0)]
        return worst if worst != DIFFERENT or self.distribution is None else self.distribution.level

    @property
    def passed(self) -> bool:
        """Whether the candidate may take the reference's place unseen: never by statistics alone."""
        return bool(self.compared) and self.level in (BIT_EQUAL, WITHIN)

    @property
    def differences(self) -> list[Compared]:
        """Tensors that differ, the first one first."""
        return [one for one in self.compared if one.level == DIFFERENT]

    @property
    def first(self) -> Compared | None:
        """Where they first differ."""
        return next(iter(self.differences), None)

    def add(self, found: Compared, missing: Collection[str] = (), name: str = "") -> None:
        """Take a tensor in; a gradient that is None in the candidate is said to be."""
        if found.level == DIFFERENT and name in missing:
            found = dataclasses.replace(found, why="no gradient (None) in b")
        self.compared.append(found)
        if found.level == DIFFERENT and found.why.startswith("dtype "):
            self.note(DTYPES)

    def differs(self, step: int, name: str, why: str) -> None:
        """Something that is no tensor differs."""
        self.compared.append(Compared(name, step, DIFFERENT, why=why))

    def note(self, text: str) -> None:
        """Say something once."""
        if text not in self.notes:
            self.notes.append(text)

    def to_dict(self) -> dict[str, Any]:
        """For JSON; numbers that are not finite are None."""
        first = None if self.first is None else _plain(self.first)
        head = {"level": self.level, "passed": self.passed, "steps": self.steps, "seed": self.seed, "first": first}
        tail: dict[str, Any] = {"module": self.module, "mapping": self.mapping, "notes": self.notes}
        tail["distribution"] = None if self.distribution is None else _plain(self.distribution)
        return head | tail | {"compared": [_plain(one) for one in self.compared]}

    def to_json(self) -> str:
        """`to_dict` as text."""
        return json.dumps(self.to_dict(), indent=2)

    def __str__(self) -> str:
        first = self.first
        lines = [f"{self.level}: {len(self.compared):,} tensors compared, {self.steps} steps"]
        lines += [f"weights: {self.mapping}"] if self.mapping else []
        lines += [f"{self.distribution.name}: {self.distribution.why}"] if self.distribution is not None else []
        if first is not None:
            lines += [f"first difference: {first.name}, {_when(first.step)}: {_numbers(first)}"]
            lines += [f"first module whose output differs: {self.module}"] if self.module else []
            lines += [f"  also {one.name}, {_when(one.step)}: {_numbers(one)}" for one in self.differences[1:MOST]]
            rest = len(self.differences) - MOST
            lines += [f"  and {rest} more (verdict.differences)"] if rest > 0 else []
        elif self.level == WITHIN:
            worst = max(self.compared, key=lambda one: one.relative_norm)
            lines += [f"largest difference: {worst.name}, {_when(worst.step)}: {_numbers(worst)}"]
        return "\n".join([*lines, *(f"note: {note}" for note in self.notes)])


def _when(step: int) -> str:
    return f"step {step}" if step else "before training"


def _numbers(one: Compared) -> str:
    if not one.max_error and not one.share_outside:
        return one.why or "equal"
    text = f"max error {one.max_error:.2g}, relative {one.max_relative:.2g} (norm {one.relative_norm:.2g})"
    text += f", {100 * one.share_outside:.3g} % outside" if one.level == DIFFERENT else ""
    return f"{text}; {one.why}" if one.why else text


def _plain(one: Compared) -> dict[str, Any]:
    items = dataclasses.asdict(one).items()
    return {key: None if isinstance(value, float) and not math.isfinite(value) else value for key, value in items}
