"""Series, tasks, sensing, splits, losses and metrics."""

import math

import pytest
import torch

from denizen import nn
from denizen.errors import InputError


@pytest.mark.parametrize("kernel", [nn.Matern(), nn.Cauchy(), nn.WhiteNoise()])
def test_factors_have_the_covariance_of_their_kernel(kernel):
    """With rank 1 the mixing weights are 1, so that columns are the factor; its scale is lost to the division."""
    drawn = nn.draw_series(1, 12, 2, rank=1, realisations=20000, kernel=kernel, seed=3)
    x = drawn.values[..., 0] * drawn.std[:, None]
    sample = (x.T @ x / len(x)).double()
    generator = torch.Generator().manual_seed(3)
    nn.RandomMixing().draw(1, 2, 1, generator)
    expected = kernel.covariance(torch.arange(12, dtype=torch.float64), torch.tensor([0]), generator)[0]
    apart = (torch.arange(12)[:, None] - torch.arange(12)).abs()
    torch.testing.assert_close(sample, expected[apart], rtol=0, atol=0.05)


@pytest.mark.parametrize("mixing", [nn.RandomMixing(), nn.BlockMixing()])
def test_rank_and_spread(mixing):
    drawn = nn.draw_series(6, 30, 10, rank=3, realisations=2, mixing=mixing)
    assert drawn.values.shape == (12, 30, 10)
    assert torch.linalg.matrix_rank(drawn.values, rtol=1e-4).tolist() == [3] * 12
    torch.testing.assert_close(drawn.values.flatten(1).std(1, correction=0), torch.ones(12))
    again = nn.draw_series(6, 30, 10, rank=3, realisations=2, mixing=mixing)
    assert torch.equal(drawn.values, again.values)
    assert not torch.equal(
        drawn.values, nn.draw_series(6, 30, 10, rank=3, realisations=2, mixing=mixing, seed=1).values
    )


def test_processes_a_few_at_a_time(inside):
    whole = nn.draw_series(7, 12, 5, rank=3, realisations=2)
    inside.processes_at_once(2 * 3 * 12**2)
    assert torch.equal(nn.draw_series(7, 12, 5, rank=3, realisations=2).values, whole.values)


def test_no_weights_are_divided_by_almost_nothing():
    weights, redrawn = nn.RandomMixing().draw(2000, 10, 2, torch.Generator().manual_seed(0))
    assert redrawn > 0
    torch.testing.assert_close(weights.sum(-1), torch.ones(2000, 10, dtype=torch.float64))
    assert weights.abs().max() < 100


def test_unstructured():
    drawn = nn.draw_unstructured(5, 8, 6, rank=2)
    assert torch.linalg.matrix_rank(drawn.values, rtol=1e-4).tolist() == [2] * 5
    assert drawn.process.tolist() == [0, 1, 2, 3, 4]


def test_wrong_sizes_are_refused():
    with pytest.raises(InputError, match="smaller side"):
        nn.draw_series(2, 5, 4, rank=5)
    with pytest.raises(InputError, match="num_processes=0"):
        nn.draw_series(0)


@pytest.mark.parametrize("seed", [None, 0, 7])
def test_no_process_is_in_two_parts(seed):
    process = torch.arange(10).repeat_interleave(3)
    parts = nn.split_processes(process, seed=seed)
    found = [set(process[rows].tolist()) for rows in parts]
    assert [len(part) for part in found] == [6, 2, 2]
    assert sum(len(rows) for rows in parts) == 30
    assert set.union(*found) == set(range(10))
    if seed is None:
        assert found[0] == set(range(6))
    assert all(nn.split_processes(torch.arange(3), (0.98, 0.01, 0.01))[part].numel() == 1 for part in range(3))
    with pytest.raises(InputError, match="draw more"):
        nn.split_processes(torch.zeros(5))
    with pytest.raises(InputError, match="add up to 1"):
        nn.split_processes(process, (0.5, 0.6))


@pytest.mark.parametrize("name", nn.TASKS)
def test_targets(name):
    task, x = nn.task(name), nn.draw_series(4, 6, 5, rank=2).values
    target = nn.NonlinearTarget.fit(x) if name == "nonlin_function" else None
    seen, wanted = nn.examples(task, x, target)
    if name == "argmax":
        assert torch.equal(wanted, x[:, 5].argmax(-1))
    elif name == "lastrow":
        assert torch.equal(wanted, x[:, 5])
    elif name == "nextrow":
        assert torch.equal(wanted[:, 2], x[:, 3])
    elif name == "argmax_next":
        assert torch.equal(wanted[:, 2], x[:, 3].argmax(-1))
    elif name == "lrmc":
        assert torch.equal(wanted, x.flatten(1))
    else:
        assert not wanted[:, 0].any()
        expected = torch.tanh(target.gain * ((x[:, 2] @ target.weights) - target.mean) / target.std)
        torch.testing.assert_close(wanted[:, 3, 0], expected)
        assert float(wanted[:, 1:].std(correction=0)) == pytest.approx(0.5, abs=1e-3)
        assert int((target.weights != 0).sum()) == 2
    rows = 5 if name not in ("lrmc", "nonlin_function") else 6
    assert seen.shape == (4, rows, 5)
    assert wanted.shape[1:] == {"argmax": (), "argmax_next": (5,), "nextrow": (5, 5), "nonlin_function": (6, 1)}.get(
        name, (5,) if name == "lastrow" else (30,)
    )


def test_unknown_tasks_and_missing_targets():
    with pytest.raises(InputError, match="did you mean 'nextrow'"):
        nn.task("nextro")
    with pytest.raises(InputError, match=r"NonlinearTarget\.fit"):
        nn.examples(nn.task("nonlin_function"), torch.zeros(2, 3, 4))
    with pytest.raises(InputError, match="at least 2 times"):
        nn.examples(nn.task("nextrow"), torch.zeros(2, 1, 4))


def test_columns():
    sensing = nn.sense_columns(7, 10, 0.3)
    assert sensing.sum(1).tolist() == [3] * 7
    assert nn.sense_columns(3, 10, 0).sum(1).tolist() == [1] * 3
    assert nn.sense_columns(3, 10, 1).all()
    assert torch.equal(sensing, nn.sense_columns(7, 10, 0.3))
    with pytest.raises(InputError, match="from 0 to 1"):
        nn.sense_columns(3, 10, 2)


def test_entries():
    part = nn.sense_entries(10, 16, 16, density=0.5, share=0, inequality=0)
    assert int(part.known.sum()) == 128
    assert not (part.seen & ~part.known).any()
    assert part.seen.flatten(1).sum(1).float().mean() == pytest.approx(12.8, abs=0.5)
    whole = nn.sense_entries(10, 16, 16, density=0.5, share=1, inequality=0)
    assert whole.coverage == 1
    assert whole.overlap_mean > 0.8 > 0.2 > part.overlap_mean
    unequal = nn.sense_entries(10, 16, 16, density=0.5, share=0.5, inequality=1)
    sizes = unequal.seen.flatten(1).sum(1)
    assert sizes.max() == 128
    assert sizes.median() < 8
    assert unequal.clipped > 0
    hidden = nn.sense_entries(10, 16, 16, density=0.5, rank=2, hide_last=True)
    assert not hidden.known[-1].any()
    assert hidden.known[:-1].sum(1).min() >= 2
    with pytest.raises(InputError, match="lower rank"):
        nn.sense_entries(3, 8, 8, density=0.1, rank=4)
    assert math.isnan(nn.sense_entries(1, 8, 8).overlap_mean)


def test_means_do_not_grow_with_the_batch():
    values, means = torch.arange(10.0), nn.RunningMeans()
    for batch in values.split(4):  # a ragged last one
        means.add(mse=batch)
    assert means.result() == {"mse": 4.5}


def test_masks_of_nothing_are_refused():
    for wrong in (
        lambda: nn.sense_columns(0, 4, 0.5),
        lambda: nn.sense_entries(0, 4, 4),
    ):
        with pytest.raises(InputError, match="at least 1"):
            wrong()
    with pytest.raises(InputError, match="times=1, expected a whole number, at least 2"):
        nn.sense_entries(3, 1, 4, hide_last=True)
    with pytest.raises(InputError, match="no scale"):
        nn.NonlinearTarget.fit(torch.zeros(3, 5, 4))
    with pytest.raises(InputError, match="no more than rounding"):
        nn.NonlinearTarget.fit(torch.full((3, 5, 4), 0.1) * torch.tensor([1.0, 1 + 2**-23, 1.0])[:, None, None])
    with pytest.raises(InputError, match="no spread beyond rounding"):
        nn.draw_series(2, times=1, features=5, rank=1)
    with pytest.raises(InputError, match="no spread beyond rounding"):
        nn.draw_unstructured(2, times=1, features=1, rank=1)


def test_a_mean_of_nothing_is_no_number():
    means = nn.RunningMeans()
    means.add(mse=torch.zeros(0))
    assert math.isnan(means.result()["mse"])


def test_targets_of_another_shape_are_refused():
    outputs, logits, known = torch.randn(4, 4, 3, 1), torch.randn(4, 3, 5), torch.ones(5, dtype=torch.bool)
    for wrong in (
        lambda: nn.agent_mse(outputs, torch.randn(4, 4)),
        lambda: nn.regression_metrics(outputs, torch.randn(4, 4)),
        lambda: nn.agent_cross_entropy(logits, torch.zeros(1, dtype=torch.long)),
        lambda: nn.classification_metrics(logits, torch.zeros(1, dtype=torch.long)),
        lambda: nn.completion_loss(logits, torch.randn(1, 5), known),
        lambda: nn.completion_metrics(logits, torch.randn(1, 5), known, 1),
    ):
        with pytest.raises(InputError, match="target has shape"):
            wrong()


def test_losses_by_hand():
    logits, target = torch.randn(3, 2, 4), torch.tensor([0, 3, 1])
    by_hand = -torch.stack([logits[i, a].log_softmax(0)[target[i]] for i in range(3) for a in range(2)]).mean()
    torch.testing.assert_close(nn.agent_cross_entropy(logits, target), by_hand)
    outputs, wanted = torch.randn(3, 2, 6), torch.randn(3, 6)
    torch.testing.assert_close(nn.agent_mse(outputs, wanted), (outputs - wanted[:, None]).square().mean())
    known = torch.tensor([1, 0, 1, 1, 0, 0], dtype=torch.bool)
    expected = (outputs - wanted[:, None])[..., known].square().mean()
    torch.testing.assert_close(nn.completion_loss(outputs, wanted, known), expected)
    assert nn.completion_loss(outputs, wanted, torch.zeros(6, dtype=torch.bool)) == 0
    assert nn.completion_loss_original(outputs, wanted, known, 2).isfinite()


def test_sinkhorn():
    points = torch.randn(2, 5, 3)
    assert nn.sinkhorn_distance(points, points[:, [2, 0, 1, 4, 3]]).abs().max() < 1e-3
    moved = nn.sinkhorn_distance(points, points + torch.tensor([0.0, 2.0, 0.0]))
    torch.testing.assert_close(moved, torch.full((2,), 2.0), rtol=0.05, atol=0)


def test_metrics_by_hand():
    votes = torch.tensor([[0, 0, 1], [2, 1, 2]])
    logits = torch.nn.functional.one_hot(votes, 3).float()
    means = nn.RunningMeans()
    means.add(**nn.classification_metrics(logits, torch.tensor([0, 1])))
    assert means.result() == pytest.approx({"accuracy": 0.5, "agent_accuracy": 3 / 6, "agreement": 4 / 6})
    found = nn.regression_metrics(torch.tensor([[[1.0], [3.0]]]), torch.tensor([[1.0]]))
    assert {name: float(value.mean()) for name, value in found.items()} == {
        "mse": 1.0,
        "agent_mse": 2.0,
        "agent_variance": 1.0,
    }
    known = torch.tensor([True, False, True, False])
    found = nn.completion_metrics(torch.tensor([[[2.0, 0, 0, 1]]]), torch.zeros(1, 4), known, 2)
    assert found["known_mse"].mean() == 2
    assert found["unknown_mse"].mean() == 0.5
    assert float(found["spectral_gap"]) == pytest.approx(1)
    assert float(found["nuclear_norm"]) == pytest.approx(3)
