"""What a run did, and, where asked, what a few of its steps do when counted on a copy."""

import dataclasses
from typing import TYPE_CHECKING, Any

from denizen import ops
from denizen.model import per_agent_fallbacks

if TYPE_CHECKING:
    from denizen.run._run import Run


@dataclasses.dataclass(frozen=True)
class Counted:
    """What steps were counted to do."""


def stats(run: "Run", count: bool) -> dict[str, Any]:
    """See `Run.stats`."""
    return _cheap(run)


def _cheap(run: "Run") -> dict[str, Any]:
    agents, worlds, times = run._stepper.ids.numel(), len(run.worlds), run._times
    seconds = times["steps"]
    return {
        "steps": run._steps,
        "agents": agents,
        "replicates": worlds,
        "device": str(run.device),
        "path": run._path,
        "ops": ops.variant(run.device),
        "seconds_load": times["load"],
        "seconds_init": times["init"],
        "seconds_compile": times["compile"],
        "seconds_capture": times["capture"],
        "seconds_steps": seconds,
        "seconds_snapshot": times["snapshot"],
        "seconds_per_step": run._step_cost() or seconds,
        "agent_steps_per_second": agents * worlds * run._timed_steps / seconds if seconds else 0.0,
        "state_bytes": sum(leaf.numel() * leaf.element_size() for leaf in run._carry.leaves),
        "fallback_calls": per_agent_fallbacks(),
        "looks": run._looks,
        "graphs": run._graphs,
        "recompiles": run._recompiles,
    }
