"""Whether two steps of training do the same, for steps whose inside is not known.

What rounding does to a step of training: its weights after the gradients were rounded otherwise.

Adam and its kin divide a gradient by its own size. Where a gradient is zero but for rounding the first steps go one way
or the other by the full learning rate, so two orders of one sum give weights that are far apart, and neither is wrong.
How far is tried out: the reference takes its steps again with noise of the size of rounding on every gradient.
"""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from denizen.errors import InputError, expect_function
from denizen.perf._equivalent.compare import (
    DIFFERENT,
    NOISE,
    TOLERANCES,
    WITHIN,
    Rule,
    Verdict,
    _coarser,
    _exactly,
    _rms,
)
from denizen.perf._equivalent.equivalent import _seed
from denizen.perf._equivalent.sides import Mapped, Weights, copies_of
from denizen.perf.state._training_state import used

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


def equivalent_steps(
    make_a: Callable[[], Callable[[], Any]],
    make_b: Callable[[], Callable[[], Any]],
    weights: Weights = None,
    steps: int = 3,
    seed: int = 0,
) -> Verdict:
    """Whether two training steps do the same: compares results, weights and gradients, step by step.

    Both are built from one seed. The modules of `b` get the weights of `a`, and both take steps with the same draws.

    Tensors that both use by the same name are made equal too: batches, which otherwise depend on how many numbers the
    weights took. What the steps return is compared, and all weights and gradients after each step. Modules are those
    that the steps use by name, in that order.

    Where weights differ, the reference takes its steps again with noise of the size of rounding on its gradients: Adam
    makes a full step of a gradient that is zero but for rounding. What is no further away than noise brings the
    reference itself passes.

    Args:
        make_a: builds the reference: a function of nothing that does one step and returns what is compared.
        make_b: builds the candidate.
        weights: how the weights of `b` come from those of `a`, as `dz.perf.equivalent` takes it.
        steps: to take.
        seed: of weights and draws.

    Returns:
        The verdict.

    Raises:
        InputError: they use other numbers of modules, or the weights of `b` cannot be told from those of `a`.
    """
    for name, make in (("make_a", make_a), ("make_b", make_b)):
        expect_function(f"equivalent_steps: {name}", make)
    _seed(seed)
    a = make_a()
    _seed(seed)
    b = make_b()
    for name, step in (("make_a", a), ("make_b", b)):
        expect_function(f"what {name}() returned", step)
    mine, others = modules_of(a), modules_of(b)
    if len(mine) != len(others):
        raise InputError(f"a uses {len(mine)} modules by name and b {len(others)}: they cannot be compared")
    maps = [Mapped(x, y, weights) for x, y in zip(mine, others, strict=True)]
    starts = [{name: tensor.detach().cpu().clone() for name, tensor in x.state_dict().items()} for x in mine]
    for x, y, mapped in zip(mine, others, maps, strict=True):
        y.load_state_dict(mapped({name: tensor.clone() for name, tensor in x.state_dict().items()}))
    _share_data(a, b)
    verdict, rule = Verdict("; ".join(dict.fromkeys(m.about for m in maps)), seed=seed), Rule(TOLERANCES)
    tops, doubts = Tops(mine), dict[tuple[int, str], Doubtful]()
    for number in range(1, steps + 1):
        seen = [
            _taken(step, modules, way, seed + number) for step, modules, way in ((a, mine, maps), (b, others, None))
        ]
        tops.end_step()
        for (kind, x), (_, y) in zip(*seen, strict=True):
            _compare(verdict, rule, number, kind, x, y, doubts)
        verdict.steps = number
    tops.close()
    if doubts and len(doubts) == len(verdict.differences):
        _excuse(verdict, rule, doubts, make_a, (starts, maps, mine), tops.steps, seed)
    return verdict


Kinds = list[tuple[str, dict[str, Tensor]]]


def _taken(step: Callable[[], Any], modules: list[nn.Module], maps: list[Mapped] | None, seed: int) -> Kinds:
    """A step: what it returned, and gradients and weights of its modules, as the candidate names them."""
    _seed(seed)
    seen = [("the step's result", _tensors(step()))]
    for place, module in enumerate(modules):
        which = f" of module {place}" if len(modules) > 1 else ""
        for kind, tensors in (("gradient", _gradients(module)), ("weight", module.state_dict())):
            seen.append((f"{kind}{which}: ", maps[place](tensors) if maps is not None else tensors))
    return seen


def _excuse(
    verdict: Verdict,
    rule: Rule,
    doubts: dict[tuple[int, str], Doubtful],
    make: Callable[[], Callable[[], Any]],
    reference: tuple[list[dict[str, Tensor]], list[Mapped], list[nn.Module]],
    tops: list[float],
    seed: int,
) -> None:
    """Let pass what is no further from the reference than rounding brings the reference itself."""
    starts, maps, used = reference
    for member in range(MEMBERS):
        _seed(seed)
        step = make()
        modules = modules_of(step)
        if not same_start(modules, starts, used):
            return
        noise = Noise(modules, member)
        for number, top in enumerate(tops, 1):
            noise.largest = top
            for kind, tensors in _taken(step, modules, maps, seed + number):
                for name in tensors:
                    if (number, f"{kind}{name}") in doubts:
                        doubts[number, f"{kind}{name}"].add(rule, tensors[name])
    for doubt in doubts.values():
        if doubt.excused(rule):
            verdict.compared[doubt.place] = dataclasses.replace(verdict.compared[doubt.place], level=WITHIN, why=WHY)


def modules_of(step: Callable[..., Any]) -> list[nn.Module]:
    """Modules with weights that a step uses by name, each once, those within others left out."""
    found = {id(thing): thing for _, thing in used(step, 0) if isinstance(thing, nn.Module)}
    plain: list[Any] = [getattr(module, "_orig_mod", module) for module in found.values() if list(module.parameters())]
    inner = {id(part) for module in plain for part in module.modules() if part is not module}
    return [module for module in plain if id(module) not in inner]


def _share_data(a: Callable[..., Any], b: Callable[..., Any]) -> None:
    """Copy tensors from variables of one step to those of the same name in the other."""
    theirs = dict(used(b, 0))
    for name, thing in used(a, 0):
        if isinstance(thing, (Tensor, list, tuple, dict)):
            pairs = zip(_pytree.tree_leaves(thing), _pytree.tree_leaves(theirs.get(name)), strict=False)
            for source, into in pairs:
                both = isinstance(source, Tensor) and isinstance(into, Tensor) and not isinstance(into, nn.Parameter)
                if both and source.shape == into.shape:
                    with torch.no_grad():
                        into.copy_(source)


def _compare(
    verdict: Verdict,
    rule: Rule,
    step: int,
    title: str,
    a: dict[str, Tensor],
    b: dict[str, Tensor],
    doubts: dict[tuple[int, str], Doubtful],
) -> None:
    if a.keys() != b.keys():
        verdict.differs(step, title, f"{list(a)} against {list(b)}")
        return
    largest = max((float(t.detach().abs().max()) for t in a.values() if t.numel() and t.is_floating_point()), default=0)
    for name, tensor in a.items():
        found = rule.compare(f"{title}{name}", step, tensor, b[name], None, largest)
        doubt = doubtful(len(verdict.compared), tensor, b[name], largest) if found.level == DIFFERENT else None
        if doubt is not None:
            doubts[step, f"{title}{name}"] = doubt
        verdict.add(found)


def _tensors(result: Any) -> dict[str, Tensor]:
    return {name.removeprefix("output"): tensor for name, tensor in copies_of(result).items()}


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    """Zeros for weights without a gradient, and for buffers."""
    weights = module.state_dict(keep_vars=True)
    return {n: torch.zeros_like(w) if w.grad is None else w.grad.detach().clone() for n, w in weights.items()}
