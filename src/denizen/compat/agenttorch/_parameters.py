"""Learnable tensors by name: the very objects that the simulation reads, and the intervention that binds them."""

import dataclasses
from collections.abc import Iterator, Mapping
from typing import Any

import torch
from torch import Tensor

from denizen.compat.agenttorch.models import Binding, Parameter
from denizen.errors import InputError, nearest
from denizen.model import During, Intervention, Model

_ALWAYS = During(0)


class ParameterNameError(InputError, KeyError):
    """A parameter has no such name."""

    __str__ = Exception.__str__  # KeyError would show the message in quotes


@dataclasses.dataclass(frozen=True, kw_only=True)
class Bind(Intervention):
    """Gives the model the runner's tensors at each step, so that a tensor set between two steps takes effect.

    It asks the host, so the engine captures no CUDA graphs. That costs nothing so far: the runner extends its run by
    one kernel length at a time, too little for the engine to compile, and a captured graph would not see that another
    tensor was set for a module.

    Attributes:
        fields: field of the model -> key of its tensor in `values`.
        values: tensors; read anew at each step.
    """

    fields: Mapping[str, str]
    values: Mapping[str, Tensor]
    when: During = _ALWAYS
    name: str = "parameters"

    def answers(self, step: int) -> dict[str, Tensor]:
        """The tensors as they are now."""
        return {field: self.values[key] for field, key in self.fields.items()}

    def act(self, model: Any, now: Any, on: Tensor, rng: Any) -> tuple[Any, Any]:
        """Nothing: the engine binds the answers before it calls."""
        return model, now


class BoundModule(torch.nn.Module):
    """A module that computes with tensors kept elsewhere instead of its own parameters."""

    def __init__(self, module: torch.nn.Module, keys: dict[str, str], values: Mapping[str, Tensor]) -> None:
        """Args:
        module: the module.
        keys: name of each of its parameters -> key in `values`.
        values: tensors; read anew at each call.
        """
        super().__init__()
        self.module, self._keys, self._values = module, keys, values

    def forward(self, x: Tensor) -> Tensor:
        """The module's answer with the present tensors."""
        tensors = {name: self._values[key].to(x.device) for name, key in self._keys.items()}
        return torch.func.functional_call(self.module, tensors, (x,))


class Parameters:
    """The learnable tensors of one simulation.

    Attributes:
        model: the model, reading its modules' tensors from here.
        values: short name -> tensor, as it was given.
        bind: hands the other tensors to the model.
    """

    def __init__(self, binding: Binding, model: Model) -> None:
        """Starts from the model's values, as leaves that require a gradient, and from its modules' own tensors."""
        self._known: tuple[Parameter, ...] = binding.parameters(model)
        self._by_name = {name: p for p in self._known for name in (p.name, *p.aliases)}
        self._original = model
        self.values: dict[str, Tensor] = {}
        modules: dict[str, dict[str, str]] = {}
        for p in self._known:
            own = self._own(p)
            self.values[p.short] = own if p.part else own.detach().clone().requires_grad_()
            if p.part:
                modules.setdefault(p.field, {})[p.part] = p.short
        bound: Any = {field: BoundModule(getattr(model, field), keys, self.values) for field, keys in modules.items()}
        self.model = model.with_values(bound)
        self.bind = Bind(fields={p.field: p.short for p in self._known if not p.part}, values=self.values)

    def _own(self, parameter: Parameter) -> Tensor:
        """The tensor that the model came with."""
        held = getattr(self._original, parameter.field)
        return held.get_parameter(parameter.part) if parameter.part else held

    def named(self) -> Iterator[tuple[str, Tensor]]:
        """(dotted name, tensor) of each."""
        return ((p.name, self.values[p.short]) for p in self._known)

    def set(self, given: Mapping[str, Tensor]) -> None:
        """Bind tensors under dotted names, short names or aliases; all or none.

        Raises:
            ParameterNameError: an unknown name.
            InputError: a wrong type or shape, a value out of bounds, one parameter under two names.
        """
        if not isinstance(given, Mapping):
            raise InputError(f"set_parameters: got {type(given).__name__}, expected a mapping of names to tensors")
        new: dict[str, Tensor] = {}
        for name, tensor in given.items():
            parameter = self._find(name)
            if parameter.short in new:
                raise InputError(f"set_parameters: {name!r} names a parameter that is given under another name, too")
            self._check(name, parameter, tensor)
            new[parameter.short] = tensor
        self.values.update(new)

    def _find(self, name: str) -> Parameter:
        if name not in self._by_name:
            valid = "; ".join(f"{p.name} (short: {p.short})" for p in self._known)
            raise ParameterNameError(
                f"set_parameters: unknown parameter {name!r}; {nearest(name, self._by_name)}. Valid: {valid}"
            )
        return self._by_name[name]

    def _check(self, name: str, parameter: Parameter, tensor: Any) -> None:
        if not isinstance(tensor, Tensor) or not tensor.dtype.is_floating_point:
            got = tensor.dtype if isinstance(tensor, Tensor) else type(tensor).__name__
            raise InputError(f"set_parameters: {name!r} is {got}, expected a floating-point tensor")
        expected = self._own(parameter).shape
        if tensor.shape != expected:
            raise InputError(
                f"set_parameters: {name!r} has shape {tuple(tensor.shape)}, expected {tuple(expected)}"
                + (", one number for each week" if parameter.field == "R" else "")
            )
        if not parameter.part:
            self._original.params[parameter.field].check(tensor, f"set_parameters: {name!r}")

    @property
    def need_grad(self) -> bool:
        """Whether any of them requires a gradient."""
        return any(value.requires_grad for value in self.values.values())
