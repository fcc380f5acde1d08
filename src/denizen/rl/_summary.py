"""What a rollout came to in its worlds, for the metrics of an update: on the device, of all processes."""

from typing import TYPE_CHECKING

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.model import Discrete, Env
from denizen.rl import _processes as processes
from denizen.rl._times import TIMES

if TYPE_CHECKING:
    from denizen.rl._rollout import Rollout

TOLD_ACTIONS = 18  # choices of which metrics tell how often each was made
OTHERS = {"step", "steps", "best_score", "validation_return", "patience_over", *TIMES}  # that the loop adds


def flows_of(env: Env) -> list[str]:
    """Names of the environment's series that are flows."""
    return [name for name, kind in env.all_series.items() if kind == "flow"]


def measures_of(env: Env) -> list[str]:
    """Names of what the environment makes of sums over an update."""
    zero = torch.zeros(())
    return list(env.measures({"reward": zero, "steps": zero, **dict.fromkeys(flows_of(env), zero)}))


def told(env: Env, rollout: "Rollout") -> dict[str, Tensor]:
    """Mean reward of a step, the sum of each flow, what the environment makes of such sums, and how often each choice
    was made: float32 `[]` each.
    """
    own = [rollout.fields["reward"].sum(), rollout.fields["valid"].sum()]
    sums = processes.total(torch.cat([torch.stack([one.to(torch.float32) for one in own]), rollout.flows]))
    reward, steps, *flows = sums.unbind()
    named = dict(zip(flows_of(env), flows, strict=True))
    measures = env.measures({"reward": reward, "steps": steps, **named})
    mean = {"reward_mean": reward / steps.clamp(min=1)}
    return joined(env, mean, named, measures, _shares(env, rollout))


def _shares(env: Env, rollout: "Rollout") -> dict[str, Tensor]:
    """How often each choice was made, of all that were."""
    space = env.action_space
    if not isinstance(space, Discrete) or space.n > TOLD_ACTIONS:
        return {}
    action, valid = rollout.fields["action"], rollout.fields["valid"]
    taken = (action[..., None] == torch.arange(space.n, device=action.device)) & valid[..., None]
    counts = processes.total(taken.flatten(0, -2).sum(0).to(torch.float32))
    return {f"action_{number}": share for number, share in enumerate(counts / counts.sum().clamp(min=1))}


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
