"""Whether fields may be stored in 16 bits: curves with and without, in pairs of worlds that draw the same numbers."""

import dataclasses
from collections.abc import Mapping
from typing import TYPE_CHECKING, Any

import torch
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import DenizenError, InputError, nearest
from denizen.model import Model

if TYPE_CHECKING:
    from denizen.run._run import Run

PAIRS = 16  # worlds compared where nothing else is said
SIGNIFICANT = 3.0  # standard errors of the paired difference from which a shift is no chance
ROUNDING = 1e-3  # of a curve's largest value: what no shift has to be smaller than

OPTIONS = ("seed", "device", "dt", "start", "params", "record", "interventions", "relax", "compile")  # of `simulate`


@dataclasses.dataclass(frozen=True)
class Precision:
    """Fields that may be stored in 16 bits in runs of a model, as `check_precision` found; pass it to `simulate`.

    Attributes:
        fields: dtype of each field.
        model: class of the model.
        relax: of the runs compared.
        steps: their steps; further ones are not vouched for.
        shifts: by series, the largest shift of the mean curve and what was allowed there.
    """

    fields: Mapping[str, torch.dtype]
    model: type[Model]
    relax: Any = None
    steps: int = 0
    shifts: Mapping[str, tuple[float, float]] = dataclasses.field(default_factory=dict)

    def __repr__(self) -> str:
        fields = ", ".join(f"{name}: {str(dtype).removeprefix('torch.')}" for name, dtype in self.fields.items())
        shifts = ", ".join(f"{name} by {shift:.3g} of {most:.3g}" for name, (shift, most) in self.shifts.items())
        return f"Precision({fields}; {self.model.__name__} over {self.steps} steps; moved {shifts or 'nothing'})"


def check_precision(
    model: Model, precision: Mapping[str, torch.dtype], steps: int, *, replicates: int = PAIRS, **options: Any
) -> Precision:
    """Compare the curves of a model with some fields stored in 16 bits with those in full precision.

    Worlds are compared in pairs that draw the same numbers. A curve counts as moved where, at some step, the mean
    difference is significant (3 standard errors of the paired differences) and larger than the sampling error of the
    mean of as many worlds, or than 1e-3 of the curve's largest value, whichever is more. More replicates see smaller
    shifts.

    Args:
        model: the model.
        precision: dtype of each field: `torch.float16` or `torch.bfloat16`.
        steps: steps to compare; as many as the runs to come.
        replicates: pairs, at least 2.
        **options: of `simulate`: seed, device, dt, start, params, record, interventions, relax, compile.

    Returns:
        What to pass as `precision=` to `simulate`.

    Raises:
        InputError: a curve moved, or a value does not fit; names series, step and size.
    """
    from denizen.run._simulate import simulate

    replicates = whole("check_precision", "replicates", replicates, 2)
    for name in options:
        if name not in OPTIONS:
            raise InputError(f"check_precision: unknown argument {name!r}; {nearest(name, OPTIONS)}")
    fields = _fields(precision)
    wide = simulate(model, steps, replicates=replicates, **options)
    wished = Precision(fields, type(model), options.get("relax"), steps)
    try:
        narrow = simulate(model, steps, replicates=replicates, precision=wished, **options)
    except DenizenError as error:
        raise InputError(f"precision={_shown(fields)} is refused: {error}") from error
    return dataclasses.replace(wished, shifts=_shifts(wide, narrow, fields))


def approved(precision: Any, model: Model, steps: int, options: dict[str, Any]) -> dict[str, torch.dtype]:
    """Fields to narrow: of a `Precision` that fits the run, or of a mapping that passes the check now."""
    if precision is None:
        return {}
    if not isinstance(precision, Precision):
        return dict(check_precision(model, precision, steps, **options).fields)
    if precision.model is not type(model) or precision.relax != options["relax"]:
        raise InputError(
            f"simulate: {precision!r} was checked for {precision.model.__name__} with relax={precision.relax!r}, this "
            f"run is {type(model).__name__} with relax={options['relax']!r}; check it again"
        )
    if steps > precision.steps:
        raise InputError(
            f"simulate: {precision!r} was checked over {precision.steps} steps and steps={steps}; check it over as many"
        )
    return dict(precision.fields)


def _fields(precision: Any) -> dict[str, torch.dtype]:
    if not isinstance(precision, Mapping) or not precision:
        raise InputError(f"precision={precision!r}, expected dtypes by field, such as {{'wealth': torch.float16}}")
    return dict(precision)


def _shown(fields: Mapping[str, torch.dtype]) -> str:
    return "{" + ", ".join(f"{name!r}: {dtype}" for name, dtype in fields.items()) + "}"


def _shifts(wide: "Run", narrow: "Run", fields: Mapping[str, torch.dtype]) -> dict[str, tuple[float, float]]:
    shifts: dict[str, tuple[float, float]] = {}
    for name in wide.series_names if wide.steps else ():
        a, b = (run[name].detach().double().reshape(len(run.worlds), run.steps, -1) for run in (wide, narrow))
        shift, allowed = _compared(a, b)
        excess = (shift - allowed).amax(dim=-1)  # [steps]
        step = int(excess.argmax())
        place = int((shift - allowed)[step].argmax())
        size, most = float(shift[step, place]), float(allowed[step, place])
        if not size <= most:
            raise InputError(
                f"precision={_shown(fields)} is refused: the mean curve of {name!r} moves by {size:.4g} at step "
                f"{step + 1}, and {len(wide.worlds)} pairs of worlds allow {most:.4g} (its sampling error); use the "
                f"other 16-bit type, or leave the field in float32"
            )
        shifts[name] = (size, most)
    return shifts


def _compared(a: Tensor, b: Tensor) -> tuple[Tensor, Tensor]:
    """(shift of the mean, what is allowed) of `[worlds, steps, …]`: `[steps, …]` each."""
    root = a.shape[0] ** 0.5
    floor = ROUNDING * a.mean(dim=0).abs().amax(dim=0)
    sampling = (a.std(dim=0) / root).maximum(floor.expand(a.shape[1:]))
    return (b - a).mean(dim=0).abs(), sampling.maximum(SIGNIFICANT * (b - a).std(dim=0) / root)
