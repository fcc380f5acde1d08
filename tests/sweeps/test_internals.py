"""Parts of sweeps that nothing public shows one by one: spreads of designs, the bar, what goes between processes."""

import numpy as np
import torch

from denizen._printing import progress
from denizen.sweeps import Grid, Latin, Sobol, _designs, _knobs, _sweep, sweep
from denizen.sweeps._executors import packed, unpacked
from denizen.sweeps._subject import Subject


def test_spread_designs_fill_their_ranges():
    find = Subject.of(lambda theta, worlds: theta, ()).find
    for design in (Latin(64, {"a": (2, 6), "b": (-1, 1)}), Sobol(64, {"a": (2, 6), "b": (-1, 1)})):
        values = np.array(design.sets(find)[1])
        for column, low, high in ((values[:, 0], 2, 6), (values[:, 1], -1, 1)):
            cells = np.floor((column - low) / (high - low) * 64).astype(int)
            assert sorted(cells) == list(range(64))  # one in each of the 64 parts
    whole = _designs.Span(1, 3, True).of(np.linspace(0, 1, 3001))
    assert set(whole) == {1, 2, 3}
    assert max(abs(whole.count(k) - 1000) for k in (1, 2, 3)) <= 2


def test_the_first_launch_tells_how_long_the_others_take(monkeypatch):
    bars = []

    def kept(**options):
        bars.append(progress(**options))
        return bars[-1]

    monkeypatch.setattr(_sweep, "progress_bar", kept)
    left = []

    def waits(theta, worlds):
        left.extend(task.time_remaining for task in bars[-1].tasks) if bars else None
        return theta

    monkeypatch.setattr(_sweep, "MOST_CALLED", 1)
    sweep(waits, {"a": [1, 2, 3]}, steps=1, replicates=1)
    assert left[0] is None
    assert left[1] is not None
    assert left[2] is not None
    assert bars[-1].tasks[0].finished


def test_series_of_any_dtype_go_between_processes():
    given = {"half": torch.ones(2, 3, dtype=torch.bfloat16), "flag": torch.tensor([[True], [False]])}
    rows, found = unpacked(packed(lambda job: (job, given), np.array([4, 7])), "here")
    assert rows.tolist() == [4, 7]
    assert all(torch.equal(found[name], values) and found[name].dtype == values.dtype for name, values in given.items())


def test_a_long_grid_is_read_in_time_that_grows_with_its_length():
    class Value(float):
        compared = 0

        def __eq__(self, other):
            Value.compared += 1
            return float(self) == float(other)

        __hash__ = float.__hash__

    knob = _knobs.Knob("a", "text", False)
    object.__setattr__(knob, "read", Value)
    assert len(Grid({"a": range(2_000)}).sets(lambda name: knob)[1]) == 2_000
    assert Value.compared < 20_000
