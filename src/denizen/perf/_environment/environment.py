"""What of a machine and its torch makes loops fast or slow: each setting with its evidence and what to change."""

import dataclasses
import json
from collections.abc import Callable
from typing import Any

from denizen.errors import expect_function

OK, NOTE, CHANGE = "ok", "note", "change"


@dataclasses.dataclass(frozen=True)
class Fact:
    """One setting.

    Attributes:
        name: such as ``"TF32 in matrix products"``.
        value: what it is.
        level: ``"ok"``, ``"note"`` or ``"change"``.
        evidence: what was read or measured.
        advice: what to change; "" where nothing.
    """

    name: str
    value: str
    level: str
    evidence: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Environment:
    """What was found; print it.

    Attributes:
        facts: one for each setting.
    """

    facts: tuple[Fact, ...]

    @property
    def to_change(self) -> tuple[Fact, ...]:
        """Those that had better be changed."""
        return tuple(fact for fact in self.facts if fact.level == CHANGE)

    def __getitem__(self, name: str) -> Fact:
        return {fact.name: fact for fact in self.facts}[name]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        width = max((len(fact.name) for fact in self.facts), default=0)
        lines = []
        for fact in self.facts:
            lines.append(f"{fact.level:6}  {fact.name:{width}}  {fact.value}  ({fact.evidence})")
            lines += [f"{'':8}{'':{width}}  -> {fact.advice}"] if fact.advice else []
        return "\n".join(lines)


def environment(step: Callable[[], Any] | None = None) -> Environment:
    """Whether CUDA is there and used, whether compilation works, and every setting that changes speed.

    Args:
        step: one step of your loop. With it is told where it really computes and whether compiled code runs in it;
            it is called four times, and really trains. Without it only the machine and torch's settings are looked at.

    Returns:
        Facts; `Environment.to_change` holds those to act on.
    """
    from denizen.perf._environment.facts import found

    if step is not None:
        expect_function("environment: step", step)

    return Environment(tuple(found(step)))
