"""Model: parameters and fixed structures, and the pure functions `init` and `step` over one world."""

import dataclasses
import inspect
from collections.abc import Callable, Mapping
from typing import Any, ClassVar, Self, dataclass_transform

import numpy as np
import torch
from torch import Tensor

from denizen import _tree
from denizen.errors import InputError, ModelError, nearest
from denizen.model._state import State
from denizen.rng import Rng
from denizen.space import Graph, Layers


@dataclasses.dataclass(frozen=True)
class Param:
    """What `dz.param` declares: bounds, unit and whether calibration may change the value."""

    low: float | None
    high: float | None
    unit: str
    learnable: bool
    about: str

    def check(self, value: Tensor, where: str) -> None:
        """Raise `InputError` where a value is NaN, infinite or out of bounds (reads the value on the host)."""
        data = value.detach()
        if not bool(torch.isfinite(data).all()):
            raise InputError(f"{where} = {_short(data)}: expected finite numbers")
        low_bad = self.low is not None and bool((data < self.low).any())
        high_bad = self.high is not None and bool((data > self.high).any())
        if low_bad or high_bad:
            raise InputError(f"{where} = {_short(data)}: expected {self.bounds()}{self.unit and ' ' + self.unit}")

    def bounds(self) -> str:
        """The bounds in words."""
        if self.low is not None and self.high is not None:
            return f"{self.low:g} to {self.high:g}"
        return (
            f"at least {self.low:g}"
            if self.low is not None
            else f"at most {self.high:g}"
            if self.high is not None
            else "any"
        )


def _short(value: Tensor) -> str:
    return f"{value.item():g}" if value.numel() == 1 else str(value.flatten()[:8].tolist())


def param(
    default: Any, *, low: float | None = None, high: float | None = None, unit: str = "", learnable: bool = True,
    about: str = "",
) -> Any:  # fmt: skip
    """A parameter of a model: a float32 tensor, a number or a vector.

    Args:
        default: number or sequence of numbers.
        low: lower bound, inclusive; a value below it is an error.
        high: upper bound, inclusive.
        unit: unit, for people.
        learnable: whether calibration may change it.
        about: one sentence for `denizen models`.
    """
    spec = Param(low, high, unit, learnable, about)
    return dataclasses.field(default_factory=lambda: _tensor(default), metadata={"param": spec})


def _tensor(value: Any) -> Tensor:
    return torch.as_tensor(value, dtype=torch.float32)


def series(function: Callable[..., Tensor]) -> Callable[..., Tensor]:
    """Mark a method as a series, recorded at every step.

    A method of (self, now) is a level, the value after each step; a method of (self, before, now) is a flow, what
    happened within it. It returns a tensor of fixed shape, usually 0-d, and is part of the step: no host reads.
    """
    arguments = len(inspect.signature(function).parameters)
    if arguments not in (2, 3):
        raise ModelError(f"series {function.__name__}: expected (self, now) or (self, before, now)")
    function.__series__ = "level" if arguments == 2 else "flow"  # type: ignore[attr-defined]  # a mark for collection
    return function


@dataclass_transform(frozen_default=True, field_specifiers=(param, dataclasses.field))
class Model:
    """Base of models. A subclass declares parameters (`dz.param`) and structures (graphs, tensors, plain numbers).

    Subclasses write `init(self, rng) -> State` and `step(self, now, rng) -> State` for one world, as pure functions of
    their arguments: fixed shapes, no value read on the host, random numbers only from `rng`, new values returned
    instead of written in place. `dz.check(model)` proves it.
    """

    time_unit: ClassVar[str] = "step"
    params: ClassVar[dict[str, Param]] = {}
    all_series: ClassVar[dict[str, str]] = {}
    field_names: ClassVar[tuple[str, ...]] = ()

    def __init_subclass__(cls) -> None:
        super().__init_subclass__()
        dataclasses.dataclass(frozen=True, eq=False, repr=False)(cls)
        fields = dataclasses.fields(cls)  # type: ignore[arg-type]  # made a dataclass on the line above
        cls.params = {f.name: f.metadata["param"] for f in fields if "param" in f.metadata}
        cls.field_names = tuple(f.name for f in fields)
        found: dict[str, str] = {}
        for base in reversed(cls.__mro__):
            found.update({n: v.__series__ for n, v in vars(base).items() if hasattr(v, "__series__")})
        cls.all_series = found
        _tree.register(cls, _flatten, lambda children, static: _unflatten(cls, children, static))

    def __post_init__(self) -> None:
        for name, spec in self.params.items():
            value = getattr(self, name)
            if isinstance(value, int | float | list | tuple | np.ndarray):
                try:
                    value = _tensor(value)
                    object.__setattr__(self, name, value)
                except (TypeError, ValueError) as error:
                    raise InputError(
                        f"{type(self).__name__}.{name} = {value!r}: expected a number or a list of numbers"
                    ) from error
            elif not isinstance(value, Tensor):
                raise InputError(f"{type(self).__name__}.{name} = {value!r}: expected a number or a tensor")
            if (
                value.device.type == "cpu"
                and not torch.compiler.is_compiling()
                and not torch._C._functorch.is_batchedtensor(value)
            ):
                spec.check(value, f"{type(self).__name__}.{name}")

    def init(self, rng: Rng) -> State:
        """The state before the first step."""
        raise ModelError(f"{type(self).__name__} has no init(self, rng)")

    def step(self, now: Any, rng: Rng) -> State:
        """The state one step on."""
        raise ModelError(f"{type(self).__name__} has no step(self, now, rng)")

    @property
    def interventions(self) -> tuple[Any, ...]:
        """Interventions that belong to the model and act before those given to `simulate`."""
        return ()

    @property
    def num_agents(self) -> int:
        """Number of agents: that of the first graph among the fields, unless a subclass says otherwise."""
        for value in self._held().values():
            if isinstance(value, Graph | Layers):
                return value.num_agents
        raise ModelError(
            f"{type(self).__name__} does not say how many agents it has; add a dz.Graph, or a field `num_agents: int`"
        )

    def replace(self, **changes: Any) -> Self:
        """The model with some fields changed; parameters may be numbers, sequences or tensors.

        Raises:
            InputError: for an unknown field, or a value that is out of bounds.
        """
        for name in changes:
            if name not in self.field_names:
                raise InputError(f"{type(self).__name__}: unknown field {name!r}; {nearest(name, self.field_names)}")
        return dataclasses.replace(self, **changes)  # type: ignore[type-var]

    def with_values(self, values: Mapping[str, Any]) -> Self:
        """The model with other parameter tensors, bound as they are: no check, no conversion; for engines."""
        return _make(type(self), {**self._held(), **values})

    def _held(self) -> dict[str, Any]:
        return {name: getattr(self, name) for name in self.field_names}

    def to(self, device: torch.device | str) -> Self:
        """The model with every tensor, graph and module on a device."""
        moved = {
            n: v.to(device) for n, v in self._held().items() if isinstance(v, Tensor | Graph | Layers | torch.nn.Module)
        }
        return self.with_values(moved)

    def __repr__(self) -> str:
        return f"{type(self).__name__}({', '.join(f'{n}={_brief(v)}' for n, v in self._held().items())})"


def _brief(value: Any) -> str:
    if isinstance(value, Tensor):
        return _short(value) if value.numel() <= 8 else f"{value.dtype}{list(value.shape)}"
    return repr(value)


def _flatten(model: Model) -> tuple[list[Any], Any]:
    held = model._held()
    dynamic = [n for n, v in held.items() if isinstance(v, Tensor | Graph | Layers)]
    static = tuple((n, v) for n, v in held.items() if n not in dynamic)
    return [held[name] for name in dynamic], (tuple(dynamic), static)


def _unflatten(cls: type[Any], children: list[Any], context: Any) -> Any:
    names, static = context
    return _make(cls, {**dict(static), **dict(zip(names, children, strict=True))})


def _make(cls: type[Any], values: dict[str, Any]) -> Any:
    model = object.__new__(cls)
    for name, value in values.items():  # one at a time: dynamo of torch 2.11 cannot trace __dict__.update
        object.__setattr__(model, name, value)
    return model
