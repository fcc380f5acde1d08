"""Kernels that Triton compiles in threads while the host does other things.

Whoever knows what will be launched calls the launching functions with tensors of the device "meta", which have no
memory: then kernels are compiled only. Within `precompiling` that goes on in threads, and a launch that comes too
early waits for its own kernel.
"""

import contextlib
import os
from collections.abc import Callable, Iterator
from concurrent.futures import Future, ThreadPoolExecutor
from typing import Any

MOST_THREADS = 8


def launch(kernel: Any, grid: tuple[int, ...], *args: Any, **more: Any) -> None:
    """Launch a kernel; compile it only, where its first tensor, or that of its descriptor, has no memory."""
    if getattr(args[0], "base", args[0]).is_meta:
        kernel.warmup(*args, grid=grid, **more)
    else:
        kernel[grid](*args, **more)


@contextlib.contextmanager
def precompiling() -> Iterator[bool]:
    """While this lasts, kernels are compiled in threads; False where this Triton cannot, or there is none."""
    try:
        from triton import AsyncCompileMode
    except ImportError:
        yield False
        return

    threads = _Threads(min(MOST_THREADS, os.cpu_count() or 1))
    with threads, AsyncCompileMode(threads, ignore_errors=True):  # a launch tells its error itself
        yield True


class _Threads(ThreadPoolExecutor):
    """Threads that compile with a kernel what launches it, which is C."""

    def submit(self, fn: Callable[..., Any], /, *args: Any, **kwargs: Any) -> Future[Any]:
        return super().submit(lambda: _with_launcher(fn(*args, **kwargs)))


def _with_launcher(kernel: Any) -> Any:
    """A kernel whose launcher is in Triton's cache."""
    from triton.runtime import driver

    with contextlib.suppress(Exception):  # the launch tells it
        driver.active.launcher_cls(kernel.src, kernel.metadata)
    return kernel
