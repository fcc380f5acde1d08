"""First weights, drawn slice by slice: a stack or a fused matrix drawn as one would have other bounds."""

import math

import torch
from torch import Tensor

from denizen.nn._config import DotGATConfig

GAIN = math.sqrt(2 / (1 + 1.5**2))  # of Kaiming, for a leaky ReLU of slope 1.5


def initial(config: DotGATConfig) -> dict[str, Tensor]:
    """First weights by the names of the reference, from torch's global generator.

    Q and K: Xavier-uniform, bound sqrt(3/H). V and MLP: Kaiming-normal, std 0.784/sqrt(H); the embedding with
    1/sqrt(M). Head: Xavier-uniform. Gains 1, biases 0.
    """
    agents, width, outputs = config.num_agents, config.hidden, config.num_outputs
    weights = {"embed": _normal(GAIN / math.sqrt(config.num_features), agents, config.num_features, width)}
    weights["embed_gain"] = torch.ones(width)
    for name, present in (("memory", config.memory), ("social", config.talks)):
        if present:
            weights[f"{name}_q"] = _uniform(math.sqrt(3 / width), agents, width, width)
            weights[f"{name}_k"] = _uniform(math.sqrt(3 / width), agents, width, width)
            shape = (width, width) if config.shared_v else (agents, width, width)
            weights[f"{name}_v"] = _normal(GAIN / math.sqrt(width), *shape)
            weights[f"{name}_gain"] = torch.ones(width)
    if config.isolated_width:
        weights.update(_mlp("alone", agents, width, config.isolated_width))
    weights.update(_mlp("mlp", agents, width, width))
    weights["head"] = _uniform(math.sqrt(6 / (width + outputs)), agents, width, outputs)
    weights["head_bias"] = torch.zeros(agents, outputs)
    weights["head_gain"] = torch.ones(width)
    return weights


def _mlp(name: str, agents: int, width: int, inner: int) -> dict[str, Tensor]:
    return {
        f"{name}_in": _normal(GAIN / math.sqrt(inner), agents, width, inner),  # fan-out, as of every slice
        f"{name}_in_bias": torch.zeros(agents, inner),
        f"{name}_out": _normal(GAIN / math.sqrt(width), agents, inner, width),
        f"{name}_out_bias": torch.zeros(agents, width),
        f"{name}_gain": torch.ones(width),
    }


def _uniform(bound: float, *shape: int) -> Tensor:
    return torch.empty(shape).uniform_(-bound, bound)


def _normal(std: float, *shape: int) -> Tensor:
    return torch.empty(shape).normal_(0.0, std)
