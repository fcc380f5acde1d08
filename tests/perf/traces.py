"""Synthetic traces in the format of kineto, written by hand so that the cause of each gap is known."""

import json
import tempfile
from typing import Any

import torch

from denizen.perf import Trace, read_trace

MAIN, OTHER, BACKWARD = 100, 200, 300


class Tape:
    """Events in microseconds, as kineto writes them."""

    def __init__(self) -> None:
        self.events: list[dict[str, Any]] = []
        self.facts: dict[str, Any] = {}
        self._correlation = 0

    def host(self, name: str, start: float, end: float, category: str = "cpu_op", thread: int = MAIN, **args: Any):
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": 1,
                "tid": thread,
                "ts": start,
                "dur": end - start,
                "args": args,
            }
        )

    def call(self, name: str, start: float, end: float, thread: int = MAIN, correlation: int = 0) -> None:
        self.host(name, start, end, "cuda_runtime", thread, correlation=correlation)

    def kernel(
        self,
        start: float,
        end: float,
        launched: float,
        name: str = "gemm",
        stream: int = 7,
        thread: int = MAIN,
        device: int = 0,
        op: str = "aten::mm",
    ) -> None:
        """A kernel, with the operator and the call that launched it, 5 µs long."""
        self._correlation += 1
        if op:
            self.host(op, launched - 2, launched + 6, thread=thread)
        self.call("cudaLaunchKernel", launched, launched + 5, thread, self._correlation)
        self._work("kernel", name, start, end, device, stream)

    def copy(self, kind: str, start: float, end: float, asked: float, took: float = 4, stream: int = 7) -> None:
        """A copy ("HtoD", "DtoH", "DtoD") and the call that asked for it."""
        self._correlation += 1
        self.call("cudaMemcpyAsync", asked, asked + took, correlation=self._correlation)
        self._work("gpu_memcpy", f"Memcpy {kind} (Pageable -> Device)", start, end, 0, stream)

    def _work(self, category: str, name: str, start: float, end: float, device: int, stream: int) -> None:
        self.events.append(
            {
                "ph": "X",
                "cat": category,
                "name": name,
                "pid": device,
                "tid": stream,
                "ts": start,
                "dur": end - start,
                "args": {"device": device, "stream": stream, "correlation": self._correlation},
            }
        )

    def python(self, name: str, start: float, end: float, thread: int = MAIN) -> None:
        self.host(name, start, end, "python_function", thread)

    def step(self, number: int, start: float, end: float) -> None:
        self.host(f"ProfilerStep#{number}", start, end, "user_annotation")

    def sample(self, time: float, thread: int, used: float, at: str, late: float = 0, waits: bool = False) -> None:
        args = {"used_ns": round(1e3 * used), "late_ns": round(1e3 * late), "waits": waits, "at": at}
        self.events.append(
            {
                "ph": "i",
                "cat": "denizen_sample",
                "s": "t",
                "name": at,
                "pid": 1,
                "tid": thread,
                "ts": time,
                "args": args,
            }
        )

    def trace(self) -> Trace:
        if not self.events:
            return Trace(facts=self.facts, source="")
        with tempfile.NamedTemporaryFile("w", suffix=".json") as file:
            json.dump({"traceEvents": self.events, **self.facts}, file)
            file.flush()
            return read_trace(file.name)


def two_kernels(end: float, start: float, launched: float) -> Tape:
    """A kernel from 0 to `end`, another one from `start` on: the gap between them is what is asked about."""
    tape = Tape()
    tape.kernel(0, end, -10)
    tape.kernel(start, start + 50, launched)
    return tape


def training_step(device="cpu"):
    net = torch.nn.Linear(8, 8).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    calls = []

    def step():
        calls.append(1)
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()

    step.calls = calls
    return step


def on_device() -> Tape:
    tape = Tape()
    tape.facts = {"denizen": {"steps": 2, "plain_times": [1e-4]}, "deviceProperties": [{"id": 0, "name": "H100"}]}
    tape.step(2, 0, 500)
    tape.step(3, 500, 1_000)
    tape.kernel(100, 200, 50, name="gemm", op="aten::mm")
    tape.kernel(150, 250, 60, name="add", stream=9, op="aten::add")  # beside the other
    tape.kernel(600, 700, 550, name="gemm", op="aten::mm")
    tape.copy("HtoD", 690, 800, asked=560)
    return tape
