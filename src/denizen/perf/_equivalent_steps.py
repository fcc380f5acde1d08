"""Whether two steps of training do the same, for steps whose inside is not known."""

from collections.abc import Callable
from typing import Any

import torch
from torch import Tensor, nn
from torch.utils import _pytree

from denizen.errors import InputError
from denizen.perf._equivalent import _seed
from denizen.perf._equivalent_compare import DIFFERENT, TOLERANCES, Rule
from denizen.perf._equivalent_side import outputs_of
from denizen.perf._equivalent_verdict import Verdict
from denizen.perf._equivalent_weights import Mapped, Weights
from denizen.tools._warm_up import _used


def equivalent_steps(
    make_a: Callable[[], Callable[[], Any]], make_b: Callable[[], Callable[[], Any]], weights: Weights = None,
    steps: int = 3, seed: int = 0,
) -> Verdict:  # fmt: skip
    """Build both from one seed, give the modules of `b` the weights of `a`, and take steps with the same draws.

    Tensors that both use by the same name are made equal too: batches, which otherwise depend on how many numbers the
    weights took. What the steps return is compared, and all weights and gradients after each step. Modules are those
    that the steps use by name, in that order.

    Raises:
        InputError: they use other numbers of modules, or the weights of `b` cannot be told from those of `a`.
    """
    _seed(seed)
    a = make_a()
    _seed(seed)
    b = make_b()
    mine, others = modules_of(a), modules_of(b)
    if len(mine) != len(others):
        raise InputError(f"a uses {len(mine)} modules by name and b {len(others)}: they cannot be compared")
    pairs = [(x, y, Mapped(x, y, weights)) for x, y in zip(mine, others, strict=True)]
    for x, y, mapped in pairs:
        y.load_state_dict(mapped({name: tensor.clone() for name, tensor in x.state_dict().items()}))
    _share_data(a, b)
    verdict, rule = Verdict("; ".join(dict.fromkeys(m.about for _, _, m in pairs)), seed=seed), Rule(TOLERANCES)
    for number in range(1, steps + 1):
        results = []
        for step in (a, b):
            _seed(seed + number)
            results.append(_tensors(step()))
        _compare(verdict, rule, number, "the step's result", *results)
        for place, (x, y, mapped) in enumerate(pairs):
            which = f" of module {place}" if len(pairs) > 1 else ""
            _compare(verdict, rule, number, f"gradient{which}: ", mapped(_gradients(x)), _gradients(y))
            _compare(verdict, rule, number, f"weight{which}: ", mapped(x.state_dict()), y.state_dict())
        verdict.steps = number
        if verdict.level == DIFFERENT:
            break
    return verdict


def modules_of(step: Callable[..., Any]) -> list[nn.Module]:
    """Modules with weights that a step uses by name, each once, those within others left out."""
    found = {id(thing): thing for _, thing in _used(step, 0) if isinstance(thing, nn.Module)}
    plain: list[Any] = [getattr(module, "_orig_mod", module) for module in found.values() if list(module.parameters())]
    inner = {id(part) for module in plain for part in module.modules() if part is not module}
    return [module for module in plain if id(module) not in inner]


def _share_data(a: Callable[..., Any], b: Callable[..., Any]) -> None:
    """Copy tensors from variables of one step to those of the same name in the other."""
    theirs = dict(_used(b, 0))
    for name, thing in _used(a, 0):
        if isinstance(thing, (Tensor, list, tuple, dict)):
            pairs = zip(_pytree.tree_leaves(thing), _pytree.tree_leaves(theirs.get(name)), strict=False)
            for source, into in pairs:
                both = isinstance(source, Tensor) and isinstance(into, Tensor) and not isinstance(into, nn.Parameter)
                if both and source.shape == into.shape:
                    with torch.no_grad():
                        into.copy_(source)


def _compare(verdict: Verdict, rule: Rule, step: int, title: str, a: dict[str, Tensor], b: dict[str, Tensor]) -> None:
    if a.keys() != b.keys():
        verdict.differs(step, title, f"{list(a)} against {list(b)}")
        return
    largest = max((float(t.detach().abs().max()) for t in a.values() if t.numel() and t.is_floating_point()), default=0)
    for name, tensor in a.items():
        verdict.add(rule.compare(f"{title}{name}", step, tensor, b[name], None, largest))


def _tensors(result: Any) -> dict[str, Tensor]:
    if isinstance(result, (bool, int, float)):
        result = torch.tensor(result, dtype=torch.float64 if isinstance(result, float) else None)
    return {name.removeprefix("output"): tensor.detach().clone() for name, tensor in outputs_of(result).items()}


def _gradients(module: nn.Module) -> dict[str, Tensor]:
    """Zeros for weights without a gradient, and for buffers."""
    weights = module.state_dict(keep_vars=True)
    return {n: torch.zeros_like(w) if w.grad is None else w.grad.detach().clone() for n, w in weights.items()}
