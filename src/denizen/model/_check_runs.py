"""A model's steps for `dz.check`, alone, batched by vmap or compiled into one graph; and its errors in words.

The engine (`denizen.run`) lies above this layer and steps the same `FlatWorld`, in chunks.
"""

import dataclasses
import re
from collections.abc import Callable
from types import FunctionType
from typing import Any

import torch
from torch import Tensor

from denizen import rng
from denizen.errors import ModelError
from denizen.model._flat_world import FlatWorld, Setting
from denizen.model._guard import translate
from denizen.model._model import Model
from denizen.model._source_lines import Line, line_of_error, whose

# Parts of what denizen says of values that do not have the form their field was declared with.
_SHAPES = (
    "changed from",
    "entries on axis",
    "has shape",
    "was given",
    "expected a tensor",
    "end a step with",
    "no value for",
)


def explain(rule: str, error: BaseException) -> tuple[str, Line | None, str, str]:
    """(rule, line, what, instead) of an exception that a model raised.

    Args:
        rule: what was tried: ``"error"`` for a plain run, else ``"vmap"``, ``"compile"``, ….
        error: the exception.
    """
    line = line_of_error(error)
    message = str(error).strip() or type(error).__name__
    known = translate(error)
    if known is not None:
        return known[0], known[2], known[1].what, known[1].instead
    if isinstance(error, ModelError):
        what, _, instead = message.rpartition("; ")
        shapes = any(part in message for part in _SHAPES)
        name = "stream" if "is used twice" in message else "shapes" if rule == "error" and shapes else rule
        name = "in place" if "is never changed" in message else name
        fallback = "fields that keep their shape and dtype" if name == "shapes" else ""
        return name, line, what or message, instead if what else fallback
    if isinstance(error, dataclasses.FrozenInstanceError):
        return "in place", line, f"a model is never changed: {message}", "a field of the state for what changes"
    if rule == "compile":
        what, instead = _compile_message(message), "plain torch operations on tensors of fixed shape"
        return rule, _traced_line(error) or line, what, instead
    first = message.splitlines()[0]
    what = f"vmap cannot run this: {first}" if rule == "vmap" else f"{type(error).__name__}: {first}"
    return rule, line, what, "operations that torch.vmap supports" if rule == "vmap" else ""


def _traced_line(error: BaseException) -> Line | None:
    """The author's innermost line that torch was tracing."""
    stack = list(getattr(error, "real_stack", None) or [])
    lines = [Line(entry.filename, entry.lineno or 0) for entry in stack if whose(entry.filename) == "author"]
    if not lines:
        found = re.findall(r'File "([^"]+)", line (\d+)', str(error))
        lines = [Line(file, int(number)) for file, number in found if whose(file) == "author"]
    return lines[-1] if lines else None


def _compile_message(message: str) -> str:
    if "recompile" in message.lower():
        reason = re.search(r"- (?:\d+/\d+: )?(.+)", message)
        return f"a later step would need a second graph: {reason.group(1) if reason else message.splitlines()[0]}"
    first = message.splitlines()[0]
    detail = re.search(r"Explanation: (.+)", message)
    return f"one graph cannot hold this: {first}{'; ' + detail.group(1) if detail else ''}"


@dataclasses.dataclass(frozen=True)
class Course:
    """What came out of a few steps.

    Attributes:
        first: tensors of the initial state.
        first_bad: of the device checks of init, their labels and int8 `[…, checks]`.
        records: for each step, one tensor per series.
        leaves: tensors of the last state.
        labels: of the device checks, for the last step.
        bad: int8 `[…, checks]` of each step.
    """

    first: list[Tensor]
    first_bad: tuple[list[str], Tensor]
    records: list[list[Tensor]]
    leaves: list[Tensor]
    labels: list[str]
    bad: list[Tensor]


@dataclasses.dataclass(frozen=True)
class Hard:
    """A relaxed run with the draws of a hard one, like `denizen.relax.StraightThrough`, which lies above this layer."""

    def draw(self, prob: Tensor, hard: rng.Hard) -> Tensor:
        """What a hard run draws."""
        return hard().to(prob.dtype)


class Flat:
    """Init and a few steps of one world, or of several.

    Attributes:
        phase: ``"init"`` or ``"step"``: where `run` is, or where it ended.
    """

    def __init__(self, model: Model, setting: Setting, ids: Tensor, answers: list[dict[str, Tensor]]) -> None:
        """Args:
        model: the model.
        setting: of the run.
        ids: int64 `[agents]`.
        answers: parameters decided on the host, for each step to run.
        """
        self.world, self.answers = FlatWorld(model, setting, ids), answers
        self.phase = "init"

    def state(self, leaves: list[Tensor], step: Tensor) -> Any:
        """The state with these tensors."""
        return self.world.state(leaves, step)

    def init(self, key: Tensor) -> tuple[list[Tensor], Tensor]:
        """(leaves, checks) of the initial state."""
        return self.world.init(key, {})

    def step(
        self, leaves: list[Tensor], switches: Tensor, key: Tensor, step: Tensor, answers: dict[str, Tensor]
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """(leaves, switches, records, checks) one step on."""
        return self.world.step(leaves, switches, key, {}, step, answers)

    def run(
        self,
        keys: Tensor,
        *,
        init: Callable[..., Any] | None = None,
        step: Callable[..., Any] | None = None,
        around: Callable[[int], Any] | None = None,
    ) -> Course:
        """All steps of one world (`keys` `[2]`) or of a batch (`[worlds, 2]`).

        Args:
            keys: of the worlds.
            init: stands in for the method of the same name.
            step: stands in for the method of the same name.
            around: makes a context for init (step -1) and for each step.
        """
        around = around or (lambda number: torch.set_grad_enabled(self.world.setting.relax is not None))
        with around(-1):
            leaves, bad = (init or self.init)(keys)
        self.phase, begun, checked = "step", list(leaves), (self.world.checks, bad)
        switches = torch.zeros(*keys.shape[:-1], len(self.world.setting.interventions), dtype=torch.int8)
        records, flags = [], []
        for number, answers in enumerate(self.answers):
            with around(number):
                leaves, switches, row, bad = (step or self.step)(leaves, switches, keys, torch.tensor(number), answers)
            records.append(row)
            flags.append(bad)
        return Course(begun, checked, records, list(leaves), self.world.checks, flags)

    def batched(self, keys: Tensor) -> Course:
        """All steps of a batch of worlds under vmap."""
        step = torch.vmap(self.step, in_dims=(0, 0, 0, None, None))
        return self.run(keys, init=torch.vmap(self.init), step=step)

    def compiled(self, key: Tensor) -> tuple[Course, int]:
        """All steps through one graph without code generation, and the number of operations in it.

        Raises whatever torch raises where there is more than one graph.
        """
        operations = 0

        def backend(graph: Any, inputs: Any) -> Any:
            nonlocal operations
            operations = sum(node.op not in ("placeholder", "output", "get_attr") for node in graph.graph.nodes)
            return graph

        def whole(*args: Any) -> Any:
            return self.step(*args)

        # A code object of its own, since torch keeps its graphs there and counts them over all checks of a process.
        whole = FunctionType(whole.__code__.replace(), whole.__globals__, "step", None, whole.__closure__)
        function = torch.compile(whole, fullgraph=True, dynamic=False, backend=backend)

        def one_graph(leaves: Any, switches: Any, key: Any, step: Any, answers: Any) -> Any:
            leaves = [leaf.clone() for leaf in leaves]  # torch keeps a graph for two fields that are one tensor
            if int(step) == 0:
                return function(leaves, switches, key, step, answers)
            with torch.compiler.set_stance("fail_on_recompile"):
                return function(leaves, switches, key, step, answers)

        return self.run(key, step=one_graph), operations


def same(one: list[Tensor], other: list[Tensor], exact: bool = True) -> bool:
    """Whether tensors are equal; reals up to the last bits unless `exact`."""
    if len(one) != len(other):
        return False
    for a, b in zip(one, other, strict=True):
        if a.shape != b.shape or a.dtype != b.dtype:
            return False
        if not a.dtype.is_floating_point or exact:
            different = (a != b) & ~((a != a) & (b != b))
            if bool(different.any()):
                return False
        elif not torch.allclose(a, b, rtol=1e-4, atol=1e-6, equal_nan=True):
            return False
    return True


def flat_records(course: Course) -> list[Tensor]:
    """Every record of every step."""
    return [value for row in course.records for value in row]
