"""What is to be predicted of a series, and what may be looked at for it."""

import dataclasses
from typing import Literal

import torch
from torch import Tensor

from denizen._arguments import one_of
from denizen.errors import InputError
from denizen.ops import FEW, rounding

_USED_COLUMNS = 0.4
_TARGET_STD = 0.5
_BISECTIONS = 60


@dataclasses.dataclass(frozen=True)
class Task:
    """What is asked of a series.

    Attributes:
        name: word for the command line.
        classes: whether the answer is one of the columns (cross-entropy), else values (squared error).
        every_time: whether there is an answer at every time, else one at the end.
        about: one line.
    """

    name: Literal["argmax", "lastrow", "nextrow", "argmax_next", "nonlin_function", "lrmc"]
    classes: bool
    every_time: bool
    about: str

    def outputs(self, times: int, features: int) -> int:
        """Values that an agent has to put out (at each time)."""
        return {"nonlin_function": 1, "lrmc": times * features}.get(self.name, features)


TASKS: dict[str, Task] = {
    task.name: task
    for task in (
        Task("argmax", True, False, "which column will be largest in the last row"),
        Task("lastrow", False, False, "the values of the last row"),
        Task("nextrow", False, True, "at each time, the next row"),
        Task("argmax_next", True, True, "at each time, which column will be largest in the next row"),
        Task("nonlin_function", False, True, "at each time, a bent sum of the row before"),
        Task("lrmc", False, False, "all entries of a matrix of low rank of which few are known"),
    )
}


def task(name: str) -> Task:
    """A task by its name.

    Raises:
        InputError: there is none of this name.
    """
    one_of("task", "name", name, TASKS)
    return TASKS[name]


@dataclasses.dataclass(frozen=True, eq=False)
class NonlinearTarget:
    """y at time i = tanh(gain (weights · row i-1 - mean) / std), 0 at time 0; all from the training split only.

    Attributes:
        weights: float32 `[features]`, N(0, 1) on 40 % of the columns.
        mean, std: of the weighted sums over the training split.
        gain: so that y has standard deviation 0.5 there.
    """

    weights: Tensor
    mean: float
    std: float
    gain: float

    @classmethod
    def fit(cls, training: Tensor, seed: int = 0) -> "NonlinearTarget":
        """From training series `[series, times, features]`.

        Raises:
            InputError: they do not vary.
        """
        features = training.shape[-1]
        generator = torch.Generator().manual_seed(seed)
        used = torch.randperm(features, generator=generator)[: max(1, round(_USED_COLUMNS * features))]
        weights = torch.zeros(features).scatter(0, used, torch.randn(len(used), generator=generator))
        weights = weights.to(training.device)
        sums, sizes = training[:, :-1] @ weights, training[:, :-1].abs() @ weights.abs()
        mean, std = float(sums.mean()), float(sums.std(correction=0))
        if not float(sums.amax() - sums.amin()) > rounding(float(sizes.amax()), sums.dtype, FEW + features):
            raise InputError(
                f"NonlinearTarget.fit: sums of the training series have spread {std}, which is no more than rounding: "
                f"there is no scale"
            )
        z, low, high = ((sums - mean) / std).double(), 1e-3, 1e3
        for _ in range(_BISECTIONS):
            middle = (low * high) ** 0.5
            wide = float(torch.tanh(middle * z).std(correction=0)) > _TARGET_STD
            low, high = (low, middle) if wide else (middle, high)
        return cls(weights.cpu(), mean, std, (low * high) ** 0.5)

    def __call__(self, values: Tensor) -> Tensor:
        """Targets `[series, times, 1]` of series `[series, times, features]`."""
        sums = values[:, :-1] @ self.weights.to(values.device)
        y = torch.tanh(self.gain * (sums - self.mean) / self.std)
        return torch.nn.functional.pad(y, (1, 0))[..., None]


def examples(task: Task, values: Tensor, target: NonlinearTarget | None = None) -> tuple[Tensor, Tensor]:
    """What may be looked at and what is asked, computed once for all series.

    Args:
        task: of a series; `lrmc` takes its matrices as they are.
        values: `[series, times, features]`, at least two times.
        target: of `nonlin_function`, fitted to the training split.

    Returns:
        Inputs `[series, rows, features]` and targets: classes int64 `[series]` or `[series, rows]`, values
        `[series, y]` or `[series, rows, y]`. No target lies in a row that is looked at by its time.
    """
    if values.ndim != 3 or values.shape[1] < 2:
        raise InputError(
            f"examples: values has shape {tuple(values.shape)}, expected [series, at least 2 times, features]"
        )
    if task.name == "lrmc":
        return values, values.flatten(1)
    if task.name == "nonlin_function":
        if target is None:
            raise InputError("examples: the task nonlin_function needs target=NonlinearTarget.fit(training series)")
        return values, target(values)
    seen, coming = values[:, :-1], values[:, 1:] if task.every_time else values[:, -1]
    return seen, coming.argmax(-1) if task.classes else coming
