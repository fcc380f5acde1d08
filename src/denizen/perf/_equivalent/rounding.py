"""What rounding does to a step of training: its weights after the gradients were rounded otherwise.

Adam and its kin divide a gradient by its own size. Where a gradient is zero but for rounding the first steps go one way
or the other by the full learning rate, so two orders of one sum give weights that are far apart, and neither is wrong.
How far is tried out: the reference takes its steps again with noise of the size of rounding on every gradient.
"""

import dataclasses

import torch
from torch import Tensor, nn

from denizen.perf._equivalent.compare import NOISE, Rule, _coarser, _exactly, _rms

MEMBERS = 8  # a lone weight of undecided sign keeps it in all of them once in 2**8 times
FACTOR = 2.0  # times what noise does to the reference that the candidate may be away
WHY = "as far from a as a itself with its gradients rounded otherwise"


@dataclasses.dataclass
class Doubtful:
    """A tensor outside the tolerance that rounding may have moved.

    Attributes:
        place: in the list of what was compared.
        a: of the reference, on the host.
        b: of the candidate, on the host.
        largest: value among tensors of this kind.
        moved: deviations of the reference with noise: elements outside the tolerance, root mean square, largest.
    """

    place: int
    a: Tensor
    b: Tensor
    largest: float
    moved: list[tuple[float, float, float]] = dataclasses.field(default_factory=list)

    def add(self, rule: Rule, noisy: Tensor) -> None:
        """Take in the tensor of the reference with noise."""
        self.moved.append(self._away(rule, noisy))

    def excused(self, rule: Rule) -> bool:
        """Whether the candidate is no further away than noise brings the reference."""
        mine = self._away(rule, self.b)
        return bool(self.moved) and all(
            one <= FACTOR * max(others) for one, others in zip(mine, zip(*self.moved, strict=True), strict=True)
        )

    def _away(self, rule: Rule, other: Tensor) -> tuple[float, float, float]:
        x, y = _exactly(self.a), _exactly(other.detach().cpu())
        error = (x - y).abs().nan_to_num(nan=float("inf"))
        outside = error > rule._allowed(x, _coarser(self.a.dtype, other.dtype), self.largest)
        return float(outside.sum()), _rms(error), float(error.max())


def doubtful(place: int, a: Tensor, b: Tensor, largest: float) -> Doubtful | None:
    """A tensor that rounding may have moved; None where it cannot have."""
    if a.shape != b.shape or a.dtype is not b.dtype or not a.is_floating_point() or a.layout is not torch.strided:
        return None
    return Doubtful(place, a.detach().cpu().clone(), b.detach().cpu().clone(), largest)


class Tops:
    """The largest gradient of each step of the reference, whatever becomes of `.grad` within it."""

    def __init__(self, modules: list[nn.Module]) -> None:
        self.steps: list[float] = []
        self._seen: list[Tensor] = []
        self._handles = [p.register_hook(self._see) for p in _trained(modules)]

    def _see(self, gradient: Tensor) -> None:
        if gradient.layout is torch.strided and gradient.numel():
            self._seen.append(gradient.detach().abs().max().float())

    def end_step(self) -> None:
        """A step ended."""
        self.steps.append(max([float(top.nan_to_num(nan=0.0, posinf=0.0)) for top in self._seen], default=0.0))
        self._seen.clear()

    def close(self) -> None:
        """Hear no more."""
        for handle in self._handles:
            handle.remove()


class Noise:
    """Noise of the size of rounding on every gradient of some modules."""

    def __init__(self, modules: list[nn.Module], member: int) -> None:
        """Args:
        modules: whose parameters; nobody needs them afterwards.
        member: seeds the noise; numbers of torch's own generators are left alone.
        """
        self.largest = 0.0  # gradient of the step that is taken now
        self._member, self._generators = member, dict[torch.device, torch.Generator]()
        for parameter in _trained(modules):
            parameter.register_hook(self._noisy)

    def _noisy(self, gradient: Tensor) -> Tensor:
        size, device = NOISE.get(gradient.dtype, 0.0) * self.largest, gradient.device
        if gradient.layout is not torch.strided or not size:
            return gradient
        if device not in self._generators:
            self._generators[device] = torch.Generator(device).manual_seed(self._member)
        drawn = torch.rand(gradient.shape, generator=self._generators[device], device=device)
        return gradient + (size * (2 * drawn - 1)).to(gradient.dtype)


def _trained(modules: list[nn.Module]) -> list[nn.Parameter]:
    return [parameter for module in modules for parameter in module.parameters() if parameter.requires_grad]


def same_start(modules: list[nn.Module], states: list[dict[str, Tensor]], others: list[nn.Module]) -> bool:
    """Give freshly built modules the weights that the reference began with; False where they are no copies."""
    if len(modules) != len(states) or any(a is b for a in modules for b in others):
        return False
    for module, state in zip(modules, states, strict=True):
        module.load_state_dict(state)
    return True
