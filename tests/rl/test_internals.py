"""Parts of a training that nothing public shows one by one: rates, scores, patience, layouts, gathering, recording,
trees as rows of bytes."""

import pytest
import torch
from torch import nn

import denizen as dz
from denizen import _processes
from denizen import _spaces as trees
from denizen.app._watch import _brain
from denizen.rl import Dict, Discrete, MultiBinary, MultiDiscrete, Patience, _metrics
from denizen.rl._best_policy import BestPolicy, Stall
from denizen.rl._draws import Minibatches, _selected, cut
from denizen.rl._live import Trends, spark
from denizen.rl._metrics import RATES, Times
from denizen.rl._optimizer import FlatAdam
from denizen.rl._ppo import _explained
from denizen.rl._recorded import Recorded


def test_rates_are_of_an_update_of_four_and_of_all(monkeypatch):
    clock = iter([0.0, 1.0, 3.0, 4.0, 5.0, 6.0, 16.0])
    monkeypatch.setattr("time.perf_counter", lambda: next(clock))
    times, rows = Times(100, torch.device("cpu")), [{"step": k} for k in range(6)]
    for row in rows:
        times.add_to(row)
    assert [row["seconds"] for row in rows] == [1.0, 3.0, 4.0, 5.0, 6.0, 16.0]
    assert [row["steps_per_second"] for row in rows[:3]] == [100.0, 50.0, 100.0]
    assert [rows[k]["steps_per_second_of_4"] for k in (0, 1, 4, 5)] == [100.0, 200 / 3, 80.0, 400 / 13]
    assert rows[5]["steps_per_second_overall"] == 600 / 16


def test_a_gpu_is_looked_at_once_a_second(monkeypatch):
    now, looks = [0.0], iter([10.0, 90.0])
    told = lambda: [("utilisation %", next(looks)), ("power W", 250.0), ("SM clock MHz", 1980.0)]
    monkeypatch.setattr(_metrics, "gpu_reader", lambda device: told)
    monkeypatch.setattr(_metrics.time, "perf_counter", lambda: now[0])
    times, found = Times(100, torch.device("cuda")), []
    for now[0] in (0.0, 0.5, 1.5):
        row = {"loss": 1.0}
        times.add_to(row)
        found.append({name: value for name, value in row.items() if name not in RATES})
    assert [row["gpu_utilisation"] for row in found] == [10.0, 10.0, 90.0]
    assert found[0] == {"loss": 1.0, "gpu_utilisation": 10.0, "gpu_power": 250.0}
    row = {}
    Times(100, torch.device("cpu")).add_to(row)
    assert row.keys() == set(RATES)


def test_the_best_is_the_highest_score_and_nan_is_none():
    layer = nn.Linear(1, 1)
    best = BestPolicy(layer)
    for number, score in enumerate([torch.nan, 1.0, torch.nan, 3.0, 2.0, torch.nan]):
        nn.init.constant_(layer.weight, number)
        best.offer(torch.tensor(score), torch.tensor(number))
    assert (best.score.item(), best.update.item(), best.weights()["weight"].item()) == (3.0, 3, 3.0)


def patience_over(scores, **settings):
    """After each score, whether patience is at its end."""
    stall = Stall(Patience(**settings), torch.device("cpu"))
    told = []
    for update, score in enumerate(scores, 1):
        stall.take(torch.tensor(score), torch.tensor(update))
        told.append(bool(stall.over))
    return told, stall


def test_ends_so_many_updates_after_the_last_that_was_better():
    told, stall = patience_over([1.0, 2.0, 1.5, 2.0, 2.04, 2.0, 9.0], updates=3, min_delta=0.05)
    assert told == [False, False, False, False, True, True, True], "2.04 is not better by more than 0.05"
    assert int(stall.since) == 7, "scores go on being taken, but what is over stays over"


def test_small_steps_that_add_up_count_and_nan_does_not():
    told, _ = patience_over([1.0, 1.04, 1.08, float("nan"), 1.1, 1.14], updates=3, min_delta=0.05)
    assert told == [False] * 6


def test_trends_keep_the_latest_and_leave_out_what_is_missing():
    trends = Trends()
    for k in range(100):
        trends.take({"return_mean": float(k), "entropy": float("nan"), "other": 1.0})
    ((words, value, trend),) = trends.rows()
    assert (words, value) == ("return", "99")
    assert trend == "".join(sorted(trend))
    assert len(trend) == 32


def test_an_environments_own_measures_are_shown():
    trends = Trends(["food_ratio"])
    trends.take({"food_ratio": 0.25})
    assert trends.rows() == [("food ratio", "0.25", "▁")]


def test_a_flat_line_and_a_single_point_are_drawn():
    assert spark([2.0, 2.0, 2.0]) == "▁▁▁"
    assert spark([5.0]) == "▁"
    assert spark([float("inf"), 5.0, float("nan")]) == "▁"
    assert spark([float("nan")]) == ""


def test_every_dtype_is_gathered(monkeypatch):
    """NCCL knows few of them."""

    def gather(own, parts):
        assert own.dtype == torch.uint8
        assert own.is_contiguous()
        for part in parts:
            part.copy_(own)

    monkeypatch.setattr(_processes.dist, "gather", gather)
    held = {
        str(dtype): torch.tensor([[1, 0, 1], [0, 1, 1]]).to(dtype).t()
        for dtype in (torch.int16, torch.bool, torch.int64, torch.float32, torch.bfloat16, torch.uint8)
    }
    held |= {"one": torch.tensor(7), "none": torch.zeros(0, 3, dtype=torch.int16)}
    held |= {"first": torch.arange(10.0)[::10], "repeated": torch.tensor(2.0).expand(1)}
    found = _processes.gathered(held)
    assert set(found) == {f"rank0.{name}" for name in held}
    for name, tensor in held.items():
        assert found[f"rank0.{name}"].dtype == tensor.dtype
        assert torch.equal(found[f"rank0.{name}"], tensor)


def test_groups_give_every_minibatch_an_equal_part_and_do_not_depend_on_who_has_them():
    step, device = torch.tensor(3), torch.device("cpu")
    whole = Minibatches(0, device, range(4), 2).parts(step, 5, 8)
    assert sorted(torch.cat(whole).tolist()) == list(range(40))
    for part in whole:
        assert torch.bincount(part % 8 // 2).tolist() == [5, 5, 5, 5]
    second = Minibatches(0, device, range(2, 4), 2).parts(step, 5, 4)
    for part, mine in zip(whole, second, strict=True):
        theirs = part[part % 8 >= 4]
        assert torch.equal(theirs // 8 * 4 + theirs % 8 - 4, mine)


def test_one_tensor_given_twice_counts_as_two_inputs():
    function = Recorded(lambda a, b: (a + 1, b - 1))
    zero = torch.zeros(2)
    function(zero, zero)
    first, second = function(torch.full((2,), 5.0), torch.full((2,), 7.0))
    assert first.tolist() == [6.0, 6.0]
    assert second.tolist() == [6.0, 6.0]


def written_through_a_view(x):
    made = torch.tensor([0.0, 0.0])
    made[0] = x.sum()
    return made


def written_in_another_dtype(x):
    return torch.tensor([1.0, 2.0]).double().add_(x.sum())


def handed_on(x):
    return torch.tensor([1.0, 2.0])


@pytest.mark.parametrize("in_place", [False, True])
@pytest.mark.parametrize("function", [written_through_a_view, written_in_another_dtype, handed_on])
def test_constants_stay_what_they_are(function, in_place):
    step, x = Recorded(function, in_place=in_place), torch.ones(3)
    step(x).add_(100)  # what a caller does with a result
    assert torch.equal(step(x), function(x))


def test_a_constant_that_is_only_read_is_not_copied_at_each_call():
    step = Recorded(lambda x: x * torch.tensor([1.0, 2.0]).double())
    step(torch.ones(2))
    assert [node.target for node in step.graph.graph.nodes if node.op == "call_function"] == [torch.ops.aten.mul.Tensor]


def test_flat_adam_equals_torch_and_can_skip():
    torch.manual_seed(0)
    mine, theirs = nn.Linear(3, 2), nn.Linear(3, 2)
    theirs.load_state_dict(mine.state_dict())
    flat = FlatAdam([list(mine.parameters())], max_norm=0.5)
    adam = torch.optim.Adam(theirs.parameters(), lr=0.1, eps=1e-5)
    for step in range(5):
        batch, skip = 10 * torch.randn(4, 3), step == 3
        flat.backward(mine(batch).square().sum())
        flat.step(torch.tensor(0.1), torch.tensor(skip))
        if not skip:
            adam.zero_grad()
            theirs(batch).square().sum().backward()
            nn.utils.clip_grad_norm_(theirs.parameters(), 0.5)
            adam.step()
        assert torch.allclose(mine.weight, theirs.weight, atol=1e-6)


@pytest.mark.parametrize(("shape", "axis"), [((30, 4, 10, 10), 0), ((5, 30, 4, 6), 1), ((30, 3), 0), ((30,), 0)])
def test_bytes_are_picked_by_row(shape, axis):
    field, rows = torch.randint(0, 256, shape, dtype=torch.uint8), torch.randperm(30)[:7]
    assert torch.equal(_selected(field, axis, rows), field.index_select(axis, rows))


def test_explained_variance_is_nothing_where_returns_vary_by_rounding():
    returns, weight = (
        torch.tensor([0.1, 0.1, 0.6]).sum() * torch.tensor([1.0, 1 + 2**-22, 1.0, 1 - 2**-23]),
        torch.ones(4),
    )
    assert bool(_explained(returns, torch.zeros(4), weight).isnan())
    returns[0] += 1e-4
    assert float(_explained(returns, returns, weight)) == pytest.approx(1)


def test_segments_lie_side_by_side():
    field = torch.arange(12 * 3).view(12, 3)
    side = cut(field, 4)
    assert side.shape == (3, 12)
    assert torch.equal(side[:, 3 * 2 + 1], field[6:9, 1])


ACTS = dz.rl.Tuple((Discrete(3, start=3), Dict({"two": MultiDiscrete((2, 3)), "far": dz.rl.Box(-1.0, 1.0, (1,))})))
SEES = Dict({"picture": dz.rl.Box(0, 1, (1, 4, 4), torch.uint8), "day": Discrete(7), "more": MultiBinary(3)})


def test_rows_of_bytes_hold_every_value():
    generator = torch.Generator().manual_seed(0)
    for space in (ACTS, SEES, Dict({"half": dz.rl.Box(-9, 9, (3,), torch.bfloat16), "one": MultiBinary(9)})):
        value = trees.drawn(space, (5, 2), 3.0, generator)
        stored = trees.packed(space, value)
        assert stored.shape == (5, 2, *space.shape)
        assert space.shape[0] % 8 == 0
        found = trees.values(space, trees.unpacked(space, stored))
        assert all(
            torch.equal(a, b) and a.dtype == b.dtype for a, b in zip(found, trees.values(space, value), strict=True)
        )
        assert torch.equal(trees.packed(space, trees.unpacked(space, stored[1:])), stored[1:])


def test_a_constant_of_one_world_is_stored():
    space = Dict({"day": Discrete(7), "left": dz.rl.Box(0.0, 9.0, (1,))})
    alone = {name: torch.full((), 3, dtype=leaf.dtype) for name, leaf in space.spaces.items()}
    value = {"day": alone["day"].expand(1), "left": alone["left"].expand(1, 1)}  # both of stride 0
    found = trees.unpacked(space, trees.packed(space, value))
    assert all(torch.equal(found[name], value[name]) for name in value)


def test_brains_that_see_a_tree_have_a_picture():
    tree = {"picture": torch.rand(1, 4, 4), "digit": torch.rand(3), "more": (torch.rand(1), torch.rand(3))}
    seen, matters = _brain(tree, tree)
    assert seen.shape == matters.shape == (4, 4, 3)
