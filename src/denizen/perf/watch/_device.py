"""Around work on a device: wait for it, see how much memory it could take, and get over running out of it."""

import gc

import torch

from denizen.perf.watch._host import free_on_host


def wait(device: torch.device) -> None:
    """Until the device has done what it was told."""
    if device.type == "cuda":
        torch.cuda.synchronize(device)


def clean(device: torch.device) -> None:
    """Give back what nobody holds any more."""
    gc.collect()
    if device.type == "cuda":
        torch.cuda.empty_cache()


def free(device: torch.device) -> int | None:
    """Bytes that a step could take."""
    if device.type != "cuda":
        return free_on_host() if device.type == "cpu" else None
    unused = torch.cuda.memory_reserved(device) - torch.cuda.memory_allocated(device)
    return torch.cuda.mem_get_info(device)[0] + unused


def out_of_memory(error: BaseException) -> bool:
    """Whether an error says that memory ran out; libraries say it in several ways."""
    if isinstance(error, (torch.OutOfMemoryError, MemoryError)):
        return True
    signs = ("out of memory", "not enough memory", "can't allocate memory", "CUBLAS_STATUS_ALLOC_FAILED")
    return isinstance(error, RuntimeError) and any(sign in str(error) for sign in signs)


def without_frames(error: BaseException) -> BaseException:
    """The error without tracebacks: they hold the frames of the step, and these its tensors."""
    link: BaseException | None = error
    while link is not None:
        link.__traceback__ = None
        link = link.__cause__ or link.__context__
    return error


def size(nbytes: int) -> str:
    """Bytes for reading: ``"1.5 GiB"``."""
    value = float(nbytes)
    for unit in ("B", "KiB", "MiB"):
        if value < 1024:
            return f"{value:.0f} {unit}" if unit == "B" else f"{value:.1f} {unit}"
        value /= 1024
    return f"{value:.1f} GiB"
