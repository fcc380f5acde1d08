"""Whether a run fits into memory, asked before anything is allocated."""

import os

import torch

from denizen.errors import InputError

BYTES = 12  # for each agent and world: the old and the new state at a byte a field, and two float32 at a time


def check_room(agents: int, worlds: int, device: torch.device) -> None:
    """Raise `InputError` where even a small model could not run; says how much is needed and what to lower."""
    needed, free = BYTES * agents * worlds, _free(device)
    if free is not None and needed > free:
        raise InputError(
            f"simulate: {agents:,} agents × {worlds:,} replicates need at least {needed / 2**30:,.1f} GiB, and "
            f"{free / 2**30:,.1f} GiB are free on {device}; lower replicates "
            f"(about {max(1, free // (BYTES * agents)):,} fit) and run the others later with worlds="
        )


def _free(device: torch.device) -> int | None:
    if device.type == "cuda":
        return torch.cuda.mem_get_info(device)[0]
    try:
        with open("/proc/meminfo", encoding="ascii") as file:  # MemAvailable counts what caches would give back
            lines = dict(line.split(":", 1) for line in file)
        return int(lines["MemAvailable"].split()[0]) * 1024
    except (OSError, KeyError, ValueError):
        pages = os.sysconf_names.get("SC_AVPHYS_PAGES") if hasattr(os, "sysconf_names") else None
        return None if pages is None else os.sysconf(pages) * os.sysconf("SC_PAGE_SIZE")
