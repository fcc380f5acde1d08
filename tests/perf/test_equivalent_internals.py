"""The verdict on several draws."""

import torch

from denizen.perf import TOLERANCES
from denizen.perf._equivalent.compare import Rule
from denizen.perf._equivalent.seeds import _judged


def test_the_error_level_holds_for_skewed_numbers_and_many_of_them():
    generator, alarms = torch.Generator().manual_seed(0), 0
    for _ in range(40):
        a, b = torch.randn(2, 20, 30, generator=generator, dtype=torch.float64).exp()
        alarms += _judged("", a, b, ["output"] * 30, Rule(TOLERANCES)).level == "different"
    assert alarms == 0  # 0.04 expected
    assert _judged("", a, 4 * b, ["output"] * 30, Rule(TOLERANCES)).level == "different"
