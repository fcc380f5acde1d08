"""Commands under torchrun: the process group, the device of each process, and who speaks."""

import os
import sys
from collections.abc import Generator
from contextlib import contextmanager
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from denizen._printing import Console


@contextmanager
def together(device: str, console: "Console") -> Generator[str | None]:
    """Join the other processes, if there are any; gives the device to use, None for the library's choice.

    Args:
        device: as asked for: ``"auto"``, ``"cpu"`` or ``"cuda"``.
        console: falls silent in every process but the first.
    """
    plain = None if device == "auto" else device
    if int(os.environ.get("WORLD_SIZE", "1")) == 1:
        yield plain
        return
    import torch
    import torch.distributed as dist

    cuda = device != "cpu" and torch.cuda.is_available()
    if cuda:
        own = torch.device("cuda", int(os.environ.get("LOCAL_RANK", "0")))
        torch.cuda.set_device(own)
        dist.init_process_group("nccl", device_id=own)
    else:
        dist.init_process_group("gloo")
    try:
        console.quiet = console.quiet or dist.get_rank() > 0
        yield f"cuda:{torch.cuda.current_device()}" if cuda else plain
        dist.barrier()  # the first process holds the store that the others still talk to
        if dist.get_rank() > 0:
            # Threads of torch.distributed abort one process in ten at the end of the interpreter ("terminate called
            # without an active exception", torch 2.13), after all work is done; these processes have none left.
            sys.stdout.flush()
            sys.stderr.flush()
            os._exit(0)
    finally:
        dist.destroy_process_group()
