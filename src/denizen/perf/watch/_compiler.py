"""What torch.compile does: graphs that it has compiled, and the breaks and recompilations that open budgets hear of."""

import functools
import logging
import sys
from typing import Any

import torch
from torch import Tensor
from torch._guards import TracingContext

from denizen.perf.watch._event_log import RECOMPILES, here, log_event, open_logs
from denizen.perf.watch._places import USER, Place, role


def graphs_compiled() -> int:
    """Graphs that torch._dynamo compiled in this process; 0 without importing it where nothing has yet.

    A read costs a look into two dictionaries, so that a run can take the difference around every chunk of steps.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else dynamo.counters["stats"]["unique_graphs"]


@functools.cache
def install() -> None:
    """Have torch's compiler tell open budgets; once per process. Imports the compiler, which takes about a second.

    Functions of its modules are replaced for that, not its classes. What breaks a graph is written into the trace of
    the compilation by the method that knows it.
    """
    from torch._dynamo import convert_frame, symbolic_convert

    breaks = symbolic_convert.InstructionTranslatorBase.log_graph_break.__code__
    write = torch._logging.trace_structured

    @functools.wraps(write)
    def trace_structured(*args: Any, **kwargs: Any) -> None:
        frame = sys._getframe(1)
        if frame.f_code is breaks and open_logs():
            known = frame.f_locals
            reason = str(known["reason"]).partition("\n")[0]
            log_event("graph-break", reason or "graph break", (), place=_place_of_break(known["self"], known["exc"]))
        write(*args, **kwargs)

    torch._logging.trace_structured = trace_structured
    reasons_of = convert_frame.get_and_maybe_log_recompilation_reasons

    @functools.wraps(reasons_of)
    def reasons(entries: Any, frame: Any, *args: Any, **kwargs: Any) -> list[str]:
        found = reasons_of(entries, frame, *args, **kwargs)
        if open_logs() and not kwargs.get("skip_logging", False):
            code = frame.f_code
            name = code.co_name if not code.co_name.startswith("torch_dynamo_resume") else f"the rest of {code.co_name}"
            why = found[0].partition(" #")[0].strip() if found else "no guard says why"
            log_event("recompile", f"{name} compiled again", (RECOMPILES,), note=why)
        return found

    convert_frame.get_and_maybe_log_recompilation_reasons = reasons
    convert_frame.log.addHandler(_Limits())


class _Limits(logging.Handler):
    """Hears that a function reached torch's limit of recompilations and runs without compilation from now on."""

    def emit(self, record: logging.LogRecord) -> None:
        if str(record.msg).startswith("torch._dynamo hit config.") and open_logs():
            args = record.args if isinstance(record.args, tuple) else ()
            text = " ".join(str(part) for part in args[:1])
            log_event("recompile-limit", f"torch._dynamo hit config.{text}", (RECOMPILES,))


def _place_of_break(translator: Any, error: Any) -> Place:
    """The user's line that was being compiled; the innermost one."""
    stack = getattr(error, "real_stack", None) or TracingContext.extract_stack()
    for frame in reversed(list(stack)):
        if role(frame.filename) == USER and frame.lineno:
            return Place(frame.filename, frame.lineno, frame.name)
    code = translator.f_code
    if role(code.co_filename) == USER:
        return Place(code.co_filename, translator.lineno or code.co_firstlineno, code.co_name)
    return here()


def teach(kind: type[Tensor], device: str) -> None:
    """Have torch's compiler take a class of tensors for plain ones, and run graphs of their device as they are.

    A class with `__torch_dispatch__` is otherwise an object that it cannot compile; and no compiler has code for a
    device that does not exist.
    """
    from torch._dynamo import symbolic_convert
    from torch._dynamo.variables.builder import VariableBuilder

    for numpy in (False, True):
        VariableBuilder._type_dispatch_impl(numpy)[kind] = VariableBuilder.wrap_tensor
    plain: Any = symbolic_convert.OutputGraph

    class OutputGraph(plain):
        """A graph that is being traced."""

        def _call_user_compiler(self, graph: Any, inputs: Any) -> Any:
            if any(isinstance(value, Tensor) and value.device.type == device for value in _values(graph, inputs)):
                return graph.forward
            return super()._call_user_compiler(graph, inputs)

    symbolic_convert.OutputGraph = OutputGraph  # type: ignore[misc]


def _values(graph: Any, inputs: Any) -> list[Any]:
    made = [node.meta.get("example_value") for node in graph.graph.nodes]
    return [*inputs, *made, *graph.parameters(), *graph.buffers()]
