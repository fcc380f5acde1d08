"""Metrics of an update: what a rollout came to, on the device; rates, phases and counters of the GPU."""

import time
from collections import deque
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen import _processes as processes
from denizen.errors import ModelError
from denizen.model import Discrete, Env
from denizen.nn import kernels
from denizen.perf.watch import gpu_reader

if TYPE_CHECKING:
    from denizen.rl._rollout import Rollout


LAST = 4  # updates of the rate that follows closely
RATES = ("seconds", "steps_per_second", "steps_per_second_of_4", "steps_per_second_overall")
PHASES = ("rollout_seconds", "learning_seconds")
COUNTERS = {"utilisation %": "gpu_utilisation", "memory GiB": "gpu_memory_gib", "power W": "gpu_power"}
TIMES = (*RATES, *PHASES, *COUNTERS.values())  # what differs from run to run
EACH = 1.0  # seconds between looks at the GPU's counters; its driver averages over a good part of that


class Times:
    """Adds times to the metrics of each update, as they arrive on the host, and what the GPU tells of itself.

    That is its utilisation (%), memory (GiB) and power (W); nothing without nvidia-ml-py.
    """

    def __init__(self, samples: int, device: torch.device) -> None:
        """Args:
        samples: steps of worlds in an update.
        device: of the training.
        """
        self._samples, self._count = samples, 0
        self._began = time.perf_counter()
        self._arrived = deque([self._began], LAST + 1)
        self._read = gpu_reader(device) if device.type == "cuda" else None
        self._looked, self._counters = -EACH, dict[str, float]()

    def add_to(self, row: dict[str, Any]) -> None:
        """Add `seconds` since the first update began, and steps of worlds a second: of this update, of the last four,
        of all since then.

        Called by the thread that writes: a look at the counters takes the driver longer than a small update.
        """
        now, arrived, self._count = time.perf_counter(), self._arrived, self._count + 1
        arrived.append(now)
        rates = (1, arrived[-2]), (len(arrived) - 1, arrived[0]), (self._count, self._began)
        speeds = [updates * self._samples / max(now - since, 1e-9) for updates, since in rates]
        row.update(zip(RATES, (now - self._began, *speeds), strict=True))
        if self._read is None:
            return
        if now - self._looked >= EACH:
            self._looked = now
            self._counters = {COUNTERS[name]: value for name, value in self._read() if name in COUNTERS}
        row.update(self._counters)


class Phases:
    """Seconds of the phases of an update, told by the device, also within a captured graph."""

    def __init__(self, device: torch.device) -> None:
        """Args:
        device: of the training.
        """
        self._last = torch.zeros(1, dtype=torch.int64, device=device)
        self._before, *self._seconds = [torch.zeros(1, device=device) for _ in range(1 + len(PHASES))]
        self._known = False

    def begin(self) -> None:
        """An update begins."""
        kernels.device_clock(self._last, self._before)

    def ended(self, number: int) -> None:
        """A phase ended."""
        self._known = kernels.device_clock(self._last, self._seconds[number])

    def metrics(self) -> dict[str, Tensor]:
        """Of the last update: float32 `[]` each, on the device; none where it has no clock."""
        return {name: part[0] for name, part in zip(PHASES, self._seconds, strict=True)} if self._known else {}


SHOWN_ACTIONS = 18  # choices of which metrics tell how often each was made
OTHERS = {"step", "steps", "best_score", "validation_return", "patience_over", *TIMES}  # that the loop adds


def flows_of(env: Env) -> list[str]:
    """Names of the environment's series that are flows."""
    return [name for name, kind in env.all_series.items() if kind == "flow"]


def measures_of(env: Env) -> list[str]:
    """Names of what the environment makes of sums over an update."""
    zero = torch.zeros(())
    return list(env.measures({"reward": zero, "steps": zero, **dict.fromkeys(flows_of(env), zero)}))


def summary_of(env: Env, rollout: "Rollout") -> dict[str, Tensor]:
    """Of the last rollout: lives that ended, flows, worlds that waited, faults; of all processes."""
    count, whole, least, most, steps = rollout.lives.unbind()
    worlds = rollout.state.worlds
    sums = [count, whole, steps, worlds.waited.sum(), (worlds.faults >= 0).any()]
    count, whole, steps, waited, faulty = processes.total(torch.stack([one.to(torch.float32) for one in sums])).unbind()
    some, mean = count > 0, count.clamp(min=1)
    none = torch.full_like(count, torch.nan)
    summary = {
        "episodes": count,
        "return_sum": whole,
        "return_mean": torch.where(some, whole / mean, none),
        "return_min": torch.where(some, processes.least(least), none),
        "return_max": torch.where(some, processes.most(most), none),
        "length_mean": torch.where(some, steps / mean, none),
        "waited": waited,
        "faulty": faulty,
    }
    return joined(env, summary, rollout_metrics(env, rollout))


def rollout_metrics(env: Env, rollout: "Rollout") -> dict[str, Tensor]:
    """Mean reward of a step, the sum of each flow, what the environment makes of such sums, and how often each choice
    was made: float32 `[]` each.
    """
    sums = flow_metrics(env, rollout.fields["reward"].sum(), rollout.fields["valid"].sum(), rollout.flows)
    return joined(env, sums, _shares(env, rollout))


def flow_metrics(env: Env, reward: Tensor, steps: Tensor, flows: Tensor) -> dict[str, Tensor]:
    """Mean reward of a step, the sum of each flow, and what the environment makes of such sums, of all processes.

    Args:
        env: the environment.
        reward: the sum of all.
        steps: in which somebody acted.
        flows: the sum of each: float32 `[flows]`.
    """
    own = [reward, steps]
    sums = processes.total(torch.cat([torch.stack([one.to(torch.float32) for one in own]), flows]))
    reward, steps, *each = sums.unbind()
    named = dict(zip(flows_of(env), each, strict=True))
    measures = env.measures({"reward": reward, "steps": steps, **named})
    mean = {"reward_mean": reward / steps.clamp(min=1)}
    return joined(env, mean, named, measures)


def _shares(env: Env, rollout: "Rollout") -> dict[str, Tensor]:
    """How often each choice was made, of all that were."""
    space = env.action_space
    if not isinstance(space, Discrete) or space.n > SHOWN_ACTIONS:
        return {}
    action, valid = rollout.fields["action"], rollout.fields["valid"]
    taken = (action[..., None] == torch.arange(space.n, device=action.device)) & valid[..., None]
    counts = processes.total(taken.flatten(0, -2).sum(0).to(torch.float32))
    return {f"action_{space.start + number}": share for number, share in enumerate(counts / counts.sum().clamp(min=1))}


def joined(env: Env, *parts: dict[str, Tensor]) -> dict[str, Tensor]:
    """Metrics of an update together; raises `ModelError` where an environment's series has the name of another one."""
    metrics: dict[str, Tensor] = {}
    for part in parts:
        for name in (metrics.keys() | OTHERS) & part.keys():
            raise ModelError(
                f"{type(env).__name__} has a series or measure {name!r}, which is a metric of the training itself; "
                f"rename it"
            )
        metrics.update(part)
    return metrics
