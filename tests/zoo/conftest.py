"""Comparison with theory, as z-tests whose numbers also make the table of docs/guides/theory.md.

`DENIZEN_THEORY=1 python -m pytest tests/zoo` (without xdist) rewrites that table from what the tests found on the CPU.
With `-m cuda` the same tests run on a GPU, to the same tolerances.
"""

import math
import os
from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor
from torch.utils import _pytree as pytree

import denizen as dz

PAGE = Path(__file__).resolve().parents[2] / "docs" / "guides" / "theory.md"
BEGIN, END = "<!-- table: begin -->", "<!-- table: end -->"
ORDER = ("test_theory", "test_networks", "test_covid", "test_covid_series")
_rows: list[tuple[int, list[str]]] = []


def _number(value: float) -> str:
    return f"{value:.6f}" if 1e-3 < abs(value) < 10 else f"{value:.5g}"


class OnHost:
    """Series and state of a run, brought to the CPU."""

    def __init__(self, run: dz.run.Run) -> None:
        self.run = run

    def __getitem__(self, name: str) -> Tensor:
        return self.run[name].cpu()

    @property
    def state(self) -> Any:
        return pytree.tree_map_only(torch.Tensor, lambda tensor: tensor.cpu(), self.run.state)


class Theory:
    """Asserts that something is what a formula says, and notes it for the table.

    `mean` tests a sample: its mean lies within `sigmas` standard errors, taken from its own spread, of the expected
    value. `value` tests a number against a stated tolerance, `share` a count of independent trials.
    """

    def __init__(self, device: torch.device, place: int, group: str) -> None:
        self.device, self.place, self.group = device, place, group

    def simulate(self, model: dz.Model, steps: int, **options: Any) -> OnHost:
        """`dz.simulate` on the test's device."""
        return OnHost(dz.simulate(model, steps, device=self.device, **options))

    def mean(self, what: str, sample, expected: float, sigmas: float = 4.0, bias: float = 0.0) -> None:
        """`bias` is a known error of finite size or step, added to the tolerance."""
        sample = torch.as_tensor(sample, dtype=torch.float64).flatten()
        assert sample.numel() >= 6, "too few samples for a spread"
        error = float(sample.std()) / math.sqrt(sample.numel())
        basis = f"{sigmas:g} s.e. of {sample.numel():,}" + (f" + {bias:g}" if bias else "")
        self._note(what, expected, float(sample.mean()), sigmas * error + bias, basis)

    def share(self, what: str, hits: int, trials: int, expected: float, sigmas: float = 4.0) -> None:
        error = math.sqrt(expected * (1 - expected) / trials)
        self._note(what, expected, hits / trials, sigmas * error, f"{sigmas:g} s.e. of {trials:,}")

    def value(self, what: str, got: float, expected: float, tolerance: float, basis: str = "stated") -> None:
        self._note(what, expected, got, tolerance, basis)

    def compare(self, what: str, got: float, expected: float, variance: float, sigmas: float = 4.0) -> None:
        """Two means that both scatter; `variance` is that of their difference."""
        self._note(what, expected, got, sigmas * math.sqrt(float(variance)), f"{sigmas:g} s.e. of both")

    def _note(self, what: str, expected: float, got: float, tolerance: float, basis: str) -> None:
        numbers = (_number(expected), _number(got), f"{tolerance:.2g}")
        if self.device.type == "cpu":
            _rows.append((self.place, [self.group, what, *numbers, basis]))
        assert abs(got - expected) <= tolerance, f"{what}: expected {expected}, got {got}, {tolerance=} ({basis})"


@pytest.fixture
def theory(request: pytest.FixtureRequest, device: torch.device) -> Theory:
    """Comparison with theory; rows of the table are grouped by the test's name."""
    name = request.node.originalname.removeprefix("test_").replace("_", " ")
    name = name.replace("covid", "COVID").replace("astoria", "Astoria")
    return Theory(device, ORDER.index(request.path.stem), name[0].upper() + name[1:])


def pytest_sessionfinish() -> None:
    """Rewrite the table where asked to."""
    if not os.environ.get("DENIZEN_THEORY") or not _rows:
        return
    lines = ["| test | setting | expected | got | tolerance | which is |", "|---|---|---|---|---|---|"]
    lines += [f"| {' | '.join(row)} |" for _, row in sorted(_rows, key=lambda row: row[0])]
    head, _, rest = PAGE.read_text(encoding="utf-8").partition(BEGIN)
    _, _, tail = rest.partition(END)
    PAGE.write_text(f"{head}{BEGIN}\n\n" + "\n".join(lines) + f"\n\n{END}{tail}", encoding="utf-8")
