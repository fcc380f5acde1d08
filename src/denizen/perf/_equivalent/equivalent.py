"""Whether two implementations compute the same: outputs, gradients, some steps of training, from one state."""

import contextlib
import copy
import random
from collections.abc import Callable, Mapping, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from denizen._arguments import whole
from denizen.errors import InputError, expect_function
from denizen.perf._equivalent.compare import DIFFERENT, TOLERANCES, Rule, Tolerances, Verdict, dense
from denizen.perf._equivalent.seeds import checked, same_distribution, without_steps
from denizen.perf._equivalent.sides import Mapped, Observed, Side, Weights, lead
from denizen.perf.state._training_state import TrainingState
from denizen.perf.watch._blame import place_of
from denizen.perf.watch._places import shown


def equivalent(
    a: Callable[..., Any],
    b: Callable[..., Any],
    inputs: Any,
    *,
    weights: Weights = None,
    loss: Callable[[Any], Tensor] | None = None,
    optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
    steps: int = 3,
    tolerances: Tolerances | None = None,
    equal_nan: bool = False,
    same_draws: bool = True,
    seed: int = 0,
    seeds: int = 0,
) -> Verdict:
    """Tell whether `b` computes what `a` does; with modules also whether it learns the same.

    ```python
    verdict = dz.perf.equivalent(model, faster, batch, weights={"qkv.weight": ["q.weight", "k.weight", "v.weight"]})
    print(verdict)  # where they first differ
    assert verdict.passed
    ```

    Modules are given the weights of `a` and compared: the outputs in eval mode, then for each training step the
    outputs, the loss, every gradient, every parameter and buffer after the step, and how many random numbers were
    drawn. Functions are compared by their outputs and by the gradients of inputs that require them. Both draw the same
    random numbers. Afterwards everything is as it was, in both.

    Tensors whose dtype or layout differs are different, whatever their values: code that takes the one in place of the
    other would notice. Within tolerance is |a - b| <= absolute + relative * |a|, element by element. Where that fails
    in float32, or to be sure in bfloat16 and float16, a copy of `a` in float64 tells whether `b` is as exact as `a`
    itself.

    Args:
        a: the reference; a module or a function.
        b: the candidate; it may be compiled, and on another device.
        inputs: of one call: a tensor, a tuple of arguments or a mapping of named ones; or a list of such batches, which
            are taken in turn.
        weights: how the weights of `b` come from those of `a`: None goes by name, else by order if the shapes agree; a
            mapping from names in `b` to names in `a` (several are joined along the first axis); or a function from the
            state dict of `a` to that of `b`. It rearranges gradients as well, so it may cut and join, not scale.
        loss: of an output. None: mean squared distance from fixed random targets, for every tensor of the output.
        optimizer: makes one from a list of parameters. None: SGD with momentum. Adam divides by the size of gradients,
            so gradients that are zero but for rounding move weights visibly.
        steps: of training; 0 compares the outputs in eval mode alone.
        tolerances: relative and absolute by dtype, in place of `dz.perf.TOLERANCES`.
        equal_nan: whether NaN equals NaN.
        same_draws: whether drawing another number of random numbers is a difference.
        seed: of random numbers.
        seeds: for a candidate that draws other random numbers: where tensors differ, so many seeds of each side, at
            least 20, tell whether outputs, losses and gradients have the same distributions (``"statistically equal"``)
            by one permutation test over all of them, with an error level of 0.001. No verdict passes by it alone.

    Returns:
        The verdict, with everything that was compared.

    Raises:
        InputError: the weights of `b` cannot be told from those of `a`, `b` fails where `a` does not, or an argument is
            wrong.
    """
    for name, thing in (("a", a), ("b", b)):
        if not callable(thing) or isinstance(thing, type):
            raise InputError(f"{name}={thing!r}: expected a module or a function")
    if isinstance(a, nn.Module) != isinstance(b, nn.Module):
        raise InputError(
            f"a is a {type(a).__name__} and b a {type(b).__name__}: expected two modules, or two functions"
        )
    if a is b:
        raise InputError("a and b are the same object; compare with a copy: copy.deepcopy(a)")
    steps = whole("equivalent", "steps", steps, low=0)
    seeds = checked(seeds)
    for name, function, given in (("loss", loss, "output"), ("optimizer", optimizer, "params")):
        if function is not None:
            expect_function(f"equivalent: {name}", function, given)
    rule = Rule(TOLERANCES if tolerances is None else _checked(tolerances), equal_nan)
    batches = _batches(inputs)
    state = TrainingState(*(part for part in (a, b) if isinstance(part, nn.Module)), _random)
    mapped = Mapped(_plain(a), _plain(b), weights) if isinstance(a, nn.Module) and isinstance(b, nn.Module) else None
    if mapped is None and weights is not None:
        raise InputError("weights= is for modules; a and b are functions")
    with state.kept() as kept:
        _take_over(a, b, mapped)
        verdict = _Comparison(a, b, mapped, batches, loss, optimizer, rule, same_draws, seed).verdict(steps)
        if seeds and verdict.level == DIFFERENT:
            kept.restore()
            _take_over(a, b, mapped)
            sides = without_steps("a", a, loss), without_steps("b", b, loss)
            rearranged = mapped if mapped is not None else dict
            verdict.distribution = same_distribution(sides, batches, rearranged, rule, seed, seeds, _seed)
        return verdict


def _take_over(a: Any, b: Any, mapped: Mapped | None) -> None:
    if mapped is not None:
        _plain(b).load_state_dict(mapped({k: v.clone() for k, v in _plain(a).state_dict().items()}))


class _Comparison:
    """Both sides, step by step."""

    def __init__(
        self,
        a: Any,
        b: Any,
        mapped: Mapped | None,
        batches: list[Any],
        loss: Any,
        optimizer: Any,
        rule: Rule,
        same_draws: bool,
        seed: int,
    ) -> None:
        self.rule, self.batches, self.mapped, self.seed, self.same_draws = rule, batches, mapped, seed, same_draws
        self.verdict_ = Verdict(mapped.about if mapped else "", seed=seed)
        self.a, self.b = Side("a", a, loss, optimizer), Side("b", b, loss, optimizer)
        self.truth = _in_float64(a, loss, optimizer)

    def verdict(self, steps: int) -> Verdict:
        out = self.verdict_
        if self.mapped is None:
            for number, batch in enumerate(self.batches):
                self._both(number + 1, batch, "calls")
            out.steps = len(self.batches)
            return out
        for batch in self.batches:
            self._both(0, batch, "evaluate")
        for number in range(1, steps + 1):
            if out.level == DIFFERENT:
                break
            self._both(number, self.batches[(number - 1) % len(self.batches)], "train")
            out.steps = number
        return out

    def _both(self, step: int, batch: Any, what: str) -> None:
        seen = [self._one(side, step, batch, what) for side in (self.a, self.b)]
        if seen[0].drew or seen[1].drew:
            self.truth = None  # float64 may draw other numbers
        exact = None
        if self.truth is not None:
            try:
                exact = self._one(self.truth, step, batch, what)
            except InputError as error:
                self.truth = None
                self.verdict_.notes.append(f"float64 could not be tried: {_first_line(error.__cause__ or error)}")
        self._compare(step, seen[0], seen[1], exact)

    def _one(self, side: Side, step: int, batch: Any, what: str) -> Observed:
        _seed(self.seed + step)
        try:
            return getattr(side, what)(batch, self.seed)
        except InputError:
            raise
        except Exception as error:
            place = place_of(error)
            at = f" at {shown(place.file)}:{place.line} in {place.function}" if place is not None else ""
            said = f"{side.name} raised {type(error).__name__} in {what}{at}: {_first_line(error)}"
            raise InputError(said) from error

    def _compare(self, step: int, a: Observed, b: Observed, exact: Observed | None) -> None:
        out = self.verdict_
        first = lead(a.modules, b.modules, self.rule) if step == 0 and not out.module else ""
        for name, through in a.differentiable.items():
            if through and not b.differentiable.get(name, True):
                out.differs(step, name, "requires_grad True against False: no gradient comes through it in b")
        for kind, mine, other in zip(a.kinds(), a.groups(), b.groups(), strict=True):
            right = dict(exact.group(kind)) if exact is not None else {}
            if self.mapped is not None and kind in ("gradients", "weights"):
                mine, right = self._rearranged(mine) if mine else {}, self._rearranged(right) if right else {}
                names = [name for name in other if kind == "weights" or name not in b.buffers]
            else:
                names = list(mine)
                if mine.keys() != other.keys():
                    out.differs(step, kind, f"{list(mine)} against {list(other)}")
                    continue
            largest = max([_top(mine[name]) for name in names], default=0.0)
            for name in names:
                found = self.rule.compare(_title(kind, name), step, mine[name], other[name], right.get(name), largest)
                out.add(found, b.missing if kind == "gradients" else (), name)
        if first:
            out.module = first
        if a.draws != b.draws:
            if self.same_draws:
                out.differs(step, "random numbers", "b draws another number of them than a")
            out.note("b draws another number of random numbers than a")
        for name in sorted(b.missing - self._missing(a)):
            out.note(f"b has no gradient (None) for {name}; a has one")

    def _missing(self, a: Observed) -> set[str]:
        """Names in `b` that are made of nothing but tensors without a gradient in `a`."""
        if self.mapped is None or not a.missing:
            return set()
        marks = {name: torch.full_like(t, float(name not in a.missing)) for name, t in a.gradients.items()}
        return {name for name, mark in self._rearranged(marks).items() if not bool(mark.any())}

    def _rearranged(self, tensors: Mapping[str, Tensor]) -> dict[str, Tensor]:
        assert self.mapped is not None
        return self.mapped(dict(tensors))


def _title(kind: str, name: str) -> str:
    return {"gradients": f"gradient of {name}", "weights": f"{name} after the step"}.get(kind, name)


def _top(tensor: Tensor) -> float:
    if not tensor.numel() or not tensor.is_floating_point():
        return 0.0
    return float(torch.nan_to_num(dense(tensor).abs().max(), nan=0.0, posinf=0.0))


def _first_line(error: BaseException) -> str:
    return str(error).strip().partition("\n")[0][:300] or type(error).__name__


def _plain(module: Any) -> Any:
    """What a compiled wrapper holds: its names have no prefix."""
    return getattr(module, "_orig_mod", module)


def _in_float64(a: Any, loss: Any, optimizer: Any) -> Side | None:
    """The reference in float64, as the judge of what rounding does; None where there is no use for it."""
    tensors = list(a.parameters()) if isinstance(a, nn.Module) else []
    if not tensors or all(tensor.dtype is torch.float64 for tensor in tensors):
        return None
    with contextlib.suppress(Exception):  # what cannot be copied or has no float64 goes without
        return Side("a in float64", copy.deepcopy(_plain(a)).double(), loss, optimizer, torch.float64)
    return None


def _batches(inputs: Any) -> list[Any]:
    if isinstance(inputs, list):
        if not inputs:
            raise InputError("inputs=[]: expected at least one batch")
        return inputs
    if not any(isinstance(leaf, Tensor) for leaf in _pytree.tree_leaves(inputs)):
        raise InputError(
            f"inputs={inputs!r}: expected a tensor, a tuple of arguments, a mapping of named ones, or a list of these"
        )
    return [inputs]


def _checked(tolerances: Any) -> Tolerances:
    for dtype, pair in tolerances.items() if isinstance(tolerances, Mapping) else ():
        if isinstance(dtype, torch.dtype) and isinstance(pair, Sequence) and len(pair) == 2 and min(pair) >= 0:
            continue
        raise InputError(f"tolerances: {dtype!r}: {pair!r} should be a dtype with its (relative, absolute) tolerance")
    if not isinstance(tolerances, Mapping):
        raise InputError(f"tolerances={tolerances!r}: expected a mapping such as {{torch.float32: (1e-5, 1e-6)}}")
    return {**TOLERANCES, **tolerances}


_random = random.Random(0)  # a part to keep where there is no module; the global generators are kept with it


def _seed(seed: int) -> None:
    torch.manual_seed(seed)
    np.random.seed(seed % 2**32)  # noqa: NPY002  # whatever a module may draw from
    random.seed(seed)
