"""Ways to run a step: eager, compiled, in lower precision."""

import contextlib
import dataclasses
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import nn

from denizen._arguments import declared
from denizen.errors import InputError, nearest
from denizen.perf.state._training_state import used
from denizen.perf.watch._tf32 import tf32

PRECISIONS = {"bf16": torch.bfloat16, "fp16": torch.float16}
MODES = ("default", "reduce-overhead", "max-autotune", "max-autotune-no-cudagraphs")
WORDS = ("eager", "compile", "tf32", "fp32", *PRECISIONS)


@dataclasses.dataclass(frozen=True)
class Variant:
    """One way to run a step; `Variant.of("compile+bf16")` reads it.

    Attributes:
        name: as written.
        autocast: dtype of autocast around the step; None leaves precision to the step. float16 comes without a gradient
            scaler: its cost is left out.
        tf32: whether float32 products may use TF32 on CUDA; None leaves it.
        compile: arguments of `torch.compile` for the modules that the step uses; None leaves them as they are.
    """

    name: str = "eager"
    autocast: torch.dtype | None = None
    tf32: bool | None = None
    compile: dict[str, Any] | None = None

    def __post_init__(self) -> None:
        declared(self)

    @classmethod
    def of(cls, text: "str | Variant") -> "Variant":
        """From words joined by ``+``: eager, compile, compile:MODE, compile:BACKEND, bf16, fp16, tf32, fp32.

        Raises:
            InputError: a word is none of these.
        """
        if isinstance(text, Variant):
            return text
        parts: dict[str, Any] = {}
        for word in text.split("+"):
            kind, _, option = word.partition(":")
            if kind not in WORDS or (option and kind != "compile"):
                raise InputError(f"variant {text!r}: no such word as {word!r}; {nearest(word, WORDS)}")
            if kind == "compile":
                parts["compile"] = _compile_options(option, text)
            elif kind in PRECISIONS:
                parts["autocast"] = PRECISIONS[kind]
            elif kind in ("tf32", "fp32"):
                parts["tf32"] = kind == "tf32"
        return cls(text, **parts)

    def applied(self, step: Callable[..., Any]) -> Callable[[], Any]:
        """The step with its modules compiled, where that is wanted."""
        if self.compile is None:
            return step
        modules = [thing for _, thing in used(step, 0) if isinstance(thing, nn.Module)]
        if not modules:
            return torch.compile(step, **self.compile)
        for module in {id(module): module for module in modules}.values():
            # Not `module.compile`, which leaves torch's own containers (nn.Sequential) eager, without a word.
            module._compiled_call_impl = torch.compile(_calling(module._call_impl), **self.compile)
        return step

    @contextlib.contextmanager
    def active(self, device: torch.device) -> Generator[None]:
        """Precision within the block."""
        with contextlib.ExitStack() as stack:
            if self.tf32 is not None:
                stack.enter_context(tf32(self.tf32, torch.backends.cuda.matmul, torch.backends.cudnn))
            if self.autocast is not None:
                stack.enter_context(torch.autocast(device.type, dtype=self.autocast, enabled=True))
            yield


def _calling(function: Callable[..., Any]) -> Callable[..., Any]:
    def call(*args: Any, **kwargs: Any) -> Any:
        return function(*args, **kwargs)

    return call


def _compile_options(option: str, text: str) -> dict[str, Any]:
    if not option:
        return {"dynamic": False}
    if option in MODES:
        return {"dynamic": False, "mode": option}
    backends = torch.compiler.list_backends(exclude_tags=())
    if option not in backends:
        raise InputError(
            f"variant {text!r}: no such mode or backend as {option!r}; {nearest(option, [*MODES, *backends])}"
        )
    return {"dynamic": False, "backend": option}
