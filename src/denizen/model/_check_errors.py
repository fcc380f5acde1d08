"""Exceptions of torch and of denizen in the words of a finding."""

import dataclasses
import re

from denizen.errors import ModelError
from denizen.model._guard import translate
from denizen.model._lines import Line, line_of_error, whose

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
    known = translate(message)
    if known is not None:
        return known[0], line, known[1].what, known[1].instead
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
