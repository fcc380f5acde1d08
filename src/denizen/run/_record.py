"""A function as a CUDA graph: its first call aside, then the recording, on one stream of the present device."""

import gc
from collections.abc import Callable
from typing import Any

import torch


def aside(function: Callable[[], None]) -> torch.cuda.Stream:
    """Call a function on a stream of its own, the first call, which has to come before a capture; the stream."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        function()
    torch.cuda.current_stream().wait_stream(side)
    return side


def record(function: Callable[[], None], side: torch.cuda.Stream | None) -> Any:
    """A CUDA graph of what a function launches, which is not run; `aside` ran it before, on this stream."""
    torch.cuda.synchronize()
    # Graphs of autograd that only a cycle holds keep the nodes of the parameters, and with them the stream of an
    # earlier pass, which cannot wait for what is captured.
    gc.collect()
    torch.cuda.empty_cache()  # the graph's memory is its own: give back what the runs before it used
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph, stream=side):
        function()
    return graph
