"""One of two implementations that are compared: it takes weights, is called and trained, and what comes out is kept."""

import dataclasses
import hashlib
import random
from collections.abc import Callable, Generator, Mapping, Sequence
from contextlib import contextmanager
from typing import Any

import numpy as np
import torch
from torch import Tensor, nn
from torch.utils import _pytree

from denizen.errors import InputError, expect_function
from denizen.perf._equivalent.compare import DIFFERENT, Rule, as_number

Named = dict[str, Tensor]
Weights = Mapping[str, str | Sequence[str]] | Callable[[Named], Mapping[str, Tensor]] | None
SHOWN = 6  # names in a message


class Mapped:
    """Rearranges tensors named and shaped as the reference's into those of the candidate.

    Attributes:
        about: how, in words.
    """

    def __init__(self, a: nn.Module, b: nn.Module, weights: Weights) -> None:
        """Raises:
        InputError: there is no way from one to the other.
        """
        self._shapes = {name: tensor.shape for name, tensor in b.state_dict().items()}
        mine = a.state_dict()
        self._rearrange, self.about = _way(mine, self._shapes, weights)
        self(mine)

    def __call__(self, tensors: Named) -> Named:
        """The candidate's tensors, out of all the reference's.

        Raises:
            InputError: what comes out has not the candidate's names and shapes.
        """
        out = dict(self._rearrange(tensors))
        missing = [name for name in self._shapes if name not in out]
        extra = [name for name in out if name not in self._shapes]
        if missing or extra:
            raise InputError(f"weights=: what comes out of it lacks {_list(missing)} and has besides {_list(extra)}")
        for name, tensor in out.items():
            if tensor.shape != self._shapes[name]:
                raise InputError(
                    f"weights=: {name} is {[*self._shapes[name]]} in b, and what would be put there {[*tensor.shape]}"
                )
        return out


def _way(mine: Named, shapes: Mapping[str, torch.Size], weights: Weights) -> tuple[Callable[[Named], Any], str]:
    if weights is None:
        return _by_itself(mine, shapes)
    if isinstance(weights, Mapping):
        return _by_names(mine, shapes, weights)
    if callable(weights):
        expect_function("weights", weights, "state_dict")
        return weights, f"by {getattr(weights, '__name__', 'a function')}"
    raise InputError(
        f"weights={weights!r}: expected a mapping from names in b to names in a (several are joined along the first "
        "axis), or a function from the state dict of a to that of b"
    )


def _by_itself(mine: Named, shapes: Mapping[str, torch.Size]) -> tuple[Callable[[Named], Any], str]:
    """By name, else by order."""
    same = all(name in mine and mine[name].shape == shape for name, shape in shapes.items())
    if same and len(mine) == len(shapes):
        return (lambda tensors: tensors), f"by name, {len(shapes)} tensors"
    if [tensor.shape for tensor in mine.values()] == list(shapes.values()):
        pairs = list(zip(shapes, mine, strict=True))
        return (lambda tensors: {b: tensors[a] for b, a in pairs}), f"by order, {len(pairs)} tensors of equal shapes"
    only_a = [f"{name} {[*tensor.shape]}" for name, tensor in mine.items() if shapes.get(name) != tensor.shape]
    only_b = [f"{name} {[*shape]}" for name, shape in shapes.items() if name not in mine or mine[name].shape != shape]
    raise InputError(
        f"a and b have other weights: only a has {_list(only_a)}; only b has {_list(only_b)}. Say where these "
        "come from: weights={'qkv.weight': ['q.weight', 'k.weight', 'v.weight']}, or a function from "
        "the state dict of a to that of b"
    )


def _by_names(
    mine: Named, shapes: Mapping[str, torch.Size], weights: Mapping[str, str | Sequence[str]]
) -> tuple[Callable[[Named], Any], str]:
    """As the mapping says; what it leaves out goes by its name."""
    sources = {name: weights.get(name, name) for name in shapes}
    unknown = [name for name in weights if name not in shapes]
    if unknown:
        raise InputError(f"weights=: b has no {_list(unknown)}; it has {_list(list(shapes))}")
    groups = {name: [source] if isinstance(source, str) else list(source) for name, source in sources.items()}
    lost = [source for group in groups.values() for source in group if source not in mine]
    if lost:
        raise InputError(f"weights=: a has no {_list(lost)}; it has {_list(list(mine))}")

    def rearrange(tensors: Named) -> Named:
        return {b: tensors[g[0]] if len(g) == 1 else torch.cat([tensors[n] for n in g]) for b, g in groups.items()}

    unused = [name for name in mine if not any(name in group for group in groups.values())]
    rest = f", nothing of b takes {_list(unused)}" if unused else ""
    return rearrange, f"by a mapping of {len(weights)} names, the rest by name{rest}"


def _list(names: Sequence[str]) -> str:
    text = ", ".join(names[:SHOWN])
    return f"{text} and {len(names) - SHOWN} more" if len(names) > SHOWN else text or "nothing"


@dataclasses.dataclass
class Observed:
    """What one call or step gave.

    Attributes:
        outputs: by name; the loss is among them, and inputs after the call.
        gradients: by name of the parameter or input; zeros where there is none.
        weights: parameters and buffers after the step.
        missing: names whose gradient is None.
        buffers: names that have no gradient.
        modules: outputs of inner modules, in the order in which they came.
        differentiable: whether gradients come through an output, by its name.
        draws: mark of the generators afterwards.
        drew: whether random numbers were drawn.
    """

    outputs: Named = dataclasses.field(default_factory=dict)
    gradients: Named = dataclasses.field(default_factory=dict)
    weights: Named = dataclasses.field(default_factory=dict)
    missing: set[str] = dataclasses.field(default_factory=set)
    buffers: set[str] = dataclasses.field(default_factory=set)
    modules: Named = dataclasses.field(default_factory=dict)
    differentiable: dict[str, bool] = dataclasses.field(default_factory=dict)
    draws: str = ""
    drew: bool = False

    @staticmethod
    def kinds() -> tuple[str, ...]:
        return "outputs", "gradients", "weights"

    def group(self, kind: str) -> Named:
        return getattr(self, kind)

    def groups(self) -> list[Named]:
        return [self.group(kind) for kind in self.kinds()]


class Side:
    """One implementation."""

    def __init__(
        self, name: str, call: Any, loss: Callable[[Any], Tensor] | None, make: Any, dtype: torch.dtype | None = None
    ) -> None:
        self.name, self.call, self._loss, self._dtype = name, call, loss, dtype
        held: Any = getattr(call, "_orig_mod", call)
        self.module: Any = held if isinstance(call, nn.Module) else None
        self.optimizer: torch.optim.Optimizer | None = None
        if self.module is not None:
            weights = [weight for weight in held.parameters() if weight.requires_grad]
            self._make = (lambda: make(weights)) if make else lambda: torch.optim.SGD(weights, 0.01, momentum=0.9)
            self._trains = bool(weights)
        places = [tensor.device for tensor in held.state_dict().values()] if self.module is not None else []
        self._place = places[0] if places else None

    def call_once(self, batch: Any) -> tuple[Any, Named, Observed]:
        """Call it with copies of the inputs."""
        args, kwargs = self._given(batch)
        given = {f"input {key}": value for key, value in [*enumerate(args), *kwargs.items()]}
        leaves = {name: value for name, value in given.items() if isinstance(value, Tensor)}
        before = _mark()
        with _recorded(self.module if self.module is self.call else None) as modules:
            out = self.call(*args, **kwargs)
        seen = Observed(modules=modules)
        seen.draws = _mark()
        seen.drew = seen.draws != before
        seen.outputs |= copies_of(out)
        for name, tensor in outputs_of(out).items():
            if tensor.is_floating_point() or tensor.is_complex():
                seen.differentiable[name] = tensor.requires_grad
        for name, tensor in leaves.items():
            seen.outputs[f"{name} after the call"] = tensor.detach().clone()
        return out, leaves, seen

    def evaluate(self, batch: Any, seed: int) -> Observed:
        """Outputs in eval mode."""
        self.module.eval()
        with torch.no_grad():
            return self.call_once(batch)[2]

    def train(self, batch: Any, seed: int) -> Observed:
        """One step: forward, loss, backward, optimizer."""
        self.call.train()
        if self.optimizer is None and self._trains:
            self.optimizer = self._make()
        self.module.zero_grad()
        out, leaves, seen = self.call_once(batch)
        self._backward(out, seen, seed)
        for name, weight in self.module.state_dict(keep_vars=True).items():
            _note_gradient(seen, name, weight)
        wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        for name, leaf in wanted.items():
            seen.outputs[f"gradient of {name}"] = _gradient(leaf)
        if self.optimizer is not None:
            self.optimizer.step()
        seen.weights = {name: tensor.detach().clone() for name, tensor in self.module.state_dict().items()}
        seen.draws = _mark()
        return seen

    def calls(self, batch: Any, seed: int) -> Observed:
        """Outputs of a function, and gradients of the inputs that require them."""
        out, leaves, seen = self.call_once(batch)
        wanted = {name: leaf for name, leaf in leaves.items() if leaf.requires_grad}
        if wanted:
            self._backward(out, seen, seed)
            for name, leaf in wanted.items():
                seen.gradients[name] = _gradient(leaf)
                if leaf.grad is None:
                    seen.missing.add(name)
        seen.draws = _mark()
        return seen

    def _backward(self, out: Any, seen: Observed, seed: int) -> None:
        loss = self._loss(out) if self._loss is not None else _distance(out, seed)
        if not isinstance(loss, Tensor) or loss.numel() != 1:
            raise InputError(f"loss(output of {self.name}) gave {type(loss).__name__}: expected a tensor of one number")
        seen.outputs["loss"] = loss.detach().clone()
        if loss.requires_grad:
            loss.backward()

    def _given(self, batch: Any) -> tuple[tuple[Any, ...], dict[str, Any]]:
        """Positional and named arguments, as copies on the device of the weights."""
        batch = _pytree.tree_map_only(Tensor, self._copy, batch)
        if isinstance(batch, Mapping):
            return (), dict(batch)
        return (batch if isinstance(batch, tuple) else (batch,)), {}

    def _copy(self, tensor: Tensor) -> Tensor:
        dtype = self._dtype if self._dtype is not None and tensor.is_floating_point() else tensor.dtype
        place = self._place if self._place is not None else tensor.device
        return tensor.detach().to(place, dtype).clone().requires_grad_(tensor.requires_grad)


def outputs_of(out: Any) -> Named:
    """Tensors of an output, by name."""
    leaves, _ = _pytree.tree_flatten_with_path(out)
    return {f"output{_pytree.keystr(path)}": leaf for path, leaf in leaves if isinstance(leaf, Tensor)}


def copies_of(out: Any) -> Named:
    """Copies of an output's tensors, and its numbers and arrays as tensors, by name."""
    leaves, _ = _pytree.tree_flatten_with_path(out)
    made = {f"output{_pytree.keystr(path)}": _copy_of(leaf) for path, leaf in leaves}
    return {name: tensor for name, tensor in made.items() if tensor is not None}


def _copy_of(leaf: Any) -> Tensor | None:
    if isinstance(leaf, Tensor):
        return leaf.detach().clone()
    if not isinstance(leaf, bool | int | float | complex | np.generic | np.ndarray):
        return None
    exact = torch.float64 if isinstance(leaf, float) else torch.complex128 if isinstance(leaf, complex) else None
    try:
        made = torch.tensor(leaf, dtype=exact)
    except (RuntimeError, TypeError):  # texts, objects, integers of more than 64 bits
        return None
    return made if isinstance(leaf, np.ndarray) else as_number(made)


def _distance(out: Any, seed: int) -> Tensor:
    """Mean squared distance from fixed random targets."""
    generator = torch.Generator().manual_seed(seed)
    total: Any = 0.0
    for tensor in outputs_of(out).values():
        if tensor.is_floating_point() and tensor.numel():
            target = torch.randn(tensor.shape, generator=generator).to(tensor)
            total = total + (tensor - target).square().mean()
    if not isinstance(total, Tensor):
        raise InputError("the output has no floating tensor to make a loss of: pass loss=, or steps=0")
    return total


def _gradient(leaf: Tensor) -> Tensor:
    return torch.zeros_like(leaf) if leaf.grad is None else leaf.grad.detach().clone()


def _note_gradient(seen: Observed, name: str, weight: Tensor) -> None:
    """Buffers get zeros, so that the rearrangement finds every name."""
    seen.gradients[name] = _gradient(weight.detach() if weight.grad is None else weight)
    if not weight.requires_grad:
        seen.buffers.add(name)
    elif weight.grad is None:
        seen.missing.add(name)


@contextmanager
def _recorded(module: nn.Module | None) -> Generator[Named]:
    """Outputs of inner modules by name, as they come; of the first call where there are several."""
    seen: Named = {}
    handles = []

    def hook(name: str) -> Any:
        def note(_: Any, __: Any, out: Any) -> None:
            tensors = outputs_of(out)
            if name not in seen and tensors:
                seen[name] = next(iter(tensors.values())).detach().clone()

        return note

    if module is not None and not torch.is_grad_enabled():
        handles = [inner.register_forward_hook(hook(name)) for name, inner in module.named_modules() if name]
    try:
        yield seen
    finally:
        for handle in handles:
            handle.remove()


def lead(a: Named, b: Named, rule: Rule) -> str:
    """Name of the first inner module, known by its name in both, whose output differs; "" where there is none."""
    for name, tensor in a.items():
        if name in b and rule.compare(name, 0, tensor, b[name]).level == DIFFERENT:
            return name
    return ""


def _mark() -> str:
    """Of the state of all generators that belong to nobody."""
    parts = [torch.get_rng_state().numpy().tobytes(), repr(random.getstate()).encode()]
    parts += _bytes_of(np.random.get_state(legacy=False))  # noqa: NPY002
    if torch.cuda.is_initialized():
        parts += [state.numpy().tobytes() for state in torch.cuda.get_rng_state_all()]
    return hashlib.sha256(b"".join(parts)).hexdigest()


def _bytes_of(state: Any) -> list[bytes]:
    """What a generator's state holds; NumPy takes milliseconds to print an array."""
    if isinstance(state, Mapping):
        return [part for name, value in state.items() for part in (name.encode(), *_bytes_of(value))]
    return [state.tobytes() if isinstance(state, np.ndarray) else repr(state).encode()]
