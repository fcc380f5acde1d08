"""Whether two steps of training do the same, for steps whose inside is not known."""

import dataclasses
from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from denizen.errors import InputError, expect_function
from denizen.perf._equivalent.compare import DIFFERENT, TOLERANCES, WITHIN, Rule
from denizen.perf._equivalent.equivalent import _seed
from denizen.perf._equivalent.rounding import MEMBERS, WHY, Doubtful, Noise, Tops, doubtful, same_start
from denizen.perf._equivalent.side import copies_of
from denizen.perf._equivalent.verdict import Verdict
from denizen.perf._equivalent.weights import Mapped, Weights
from denizen.perf.state._used import used


def equivalent_steps(
    make_a: Callable[[], Callable[[], Any]],
    make_b: Callable[[], Callable[[], Any]],
    weights: Weights = None,
    steps: int = 3,
    seed: int = 0,
) -> Verdict:
    """Build both from one seed, give the modules of `b` the weights of `a`, and take steps with the same draws.

    Tensors that both use by the same name are made equal too: batches, which otherwise depend on how many numbers the
    weights took. What the steps return is compared, and all weights and gradients after each step. Modules are those
    that the steps use by name, in that order.

    Where weights differ, the reference takes its steps again with noise of the size of rounding on its gradients: Adam
    makes a full step of a gradient that is zero but for rounding. What is no further away than noise brings the
    reference itself passes.

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
