r"""The reference and the fast network at the benchmark's sizes, for the tools of `dz.perf` and their commands.

    denizen equivalent denizen.zoo.dotgat.makers:plain_network denizen.zoo.dotgat.makers:fast_network \
        --shape 2,50,25 --weights denizen.zoo.dotgat.makers:weights
    denizen bench denizen.zoo.dotgat.makers:reference --versus denizen.zoo.dotgat.makers:fast --batch 8,16,32,64 \
        --weights denizen.zoo.dotgat.makers:weights
    denizen profile denizen.zoo.dotgat.makers:fast

All start from equal weights, and train without dropout, whose draws would fall differently in the two layouts.
"""

from collections.abc import Callable, Mapping

import torch
from torch import Tensor, nn

from denizen.nn import DotGATConfig, DynamicDotGAT, DynamicDotGATReference, sense_columns

CONFIG = DotGATConfig(num_agents=20, num_features=25, dropout=0.0)
TIMES, SHARE = 50, 0.2


def pair(config: DotGATConfig = CONFIG, device: torch.device | str = "cpu") -> tuple[nn.Module, nn.Module]:
    """The reference and the fast network with equal weights."""
    sensing = sense_columns(config.num_agents, config.num_features, SHARE)
    torch.manual_seed(0)
    reference = DynamicDotGATReference(config, sensing)
    return reference.to(device), DynamicDotGAT.from_reference(reference).to(device)


def plain_network() -> nn.Module:
    """The reference, on the CPU."""
    return pair()[0]


def fast_network() -> nn.Module:
    """The fast network, on the CPU."""
    return pair()[1]


def batch(size: int, config: DotGATConfig = CONFIG, device: torch.device | str = "cpu") -> Tensor:
    """Some series `[size, times, features]`."""
    return torch.randn(size, TIMES, config.num_features, device=device)


def weights(state: Mapping[str, Tensor]) -> dict[str, Tensor]:
    """Weights of the reference in the form of the fast network."""
    return DynamicDotGAT(CONFIG).state_of_reference(state)


def reference(batch_size: int = 8, device: torch.device | str = "cpu") -> Callable[[], Tensor]:
    """A step of training of the reference."""
    return _step(pair(device=device)[0], batch_size, device)


def fast(batch_size: int = 8, device: torch.device | str = "cpu") -> Callable[[], Tensor]:
    """A step of training of the fast network."""
    return _step(pair(device=device)[1], batch_size, device)


def _step(model: nn.Module, batch_size: int, device: torch.device | str) -> Callable[[], Tensor]:
    optimizer = torch.optim.AdamW(model.parameters(), 1e-3, fused=True)
    torch.manual_seed(1)
    x = batch(batch_size, device=device)
    y = torch.randn(batch_size, TIMES, 1, CONFIG.num_outputs, device=device)

    def step() -> Tensor:
        optimizer.zero_grad()
        loss = (model(x).outputs - y).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step
