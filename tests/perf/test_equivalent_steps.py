"""Steps of training side by side: what Adam makes of rounding is no difference, what is one is told through it."""

import pytest
import torch
from torch import nn

from denizen.perf import equivalent_steps

FEATURES = 32

WHY = "as far from a as a itself with its gradients rounded otherwise"


class Net(nn.Module):
    """A bias in front of batch norm, whose gradient is zero but for rounding; `shuffled` sums in another order."""

    def __init__(self, shuffled=False, scale=1.0):
        super().__init__()
        self.first, self.norm, self.second = nn.Linear(FEATURES, 64), nn.BatchNorm1d(64), nn.Linear(64, 8)
        self.shuffled, self.scale = shuffled, scale

    def forward(self, x):
        order = torch.randperm(FEATURES, generator=torch.Generator().manual_seed(1))
        order = order if self.shuffled else torch.arange(FEATURES)
        hidden = nn.functional.linear(x[:, order], self.first.weight[:, order], self.first.bias)
        return self.scale * self.second(self.norm(hidden).relu())


def training(optimizer=torch.optim.Adam, lr=0.01, decay=0.0, cut=False, **net):
    def make():
        model = Net(**net)
        made = optimizer(model.parameters(), lr=lr, weight_decay=decay)
        x, y = torch.randn(64, FEATURES), torch.randn(64, 8)

        def step():
            loss = (model(x) - y).square().mean()
            made.zero_grad()
            loss.backward()
            if cut:
                model.second.weight.grad[3] = 0
            made.step()
            return loss

        return step

    return make


def test_another_order_of_sums_passes_although_adam_makes_much_of_it():
    verdict = equivalent_steps(training(), training(shuffled=True))
    assert verdict.level == "within tolerance", str(verdict)
    excused = {one.name for one in verdict.compared if one.why == WHY}
    assert "weight: first.bias" in excused
    assert not [name for name in excused if name.startswith("gradient: second")]
    assert verdict.steps == 3


RESULTS = {
    "item against a tensor": (lambda loss: loss.item(), lambda loss: loss.detach()),
    "a tensor against item": (lambda loss: loss.detach(), lambda loss: loss.item()),
    "in a dict": (lambda loss: {"loss": loss.item(), "n": 3}, lambda loss: {"loss": loss.detach(), "n": 3}),
    "an array": (lambda loss: loss.detach().numpy(), lambda loss: loss.item()),
}


def returning(result):
    def make():
        net, x = nn.Linear(4, 2), torch.randn(8, 4)

        def step():
            net.zero_grad()
            loss = net(x).square().mean()
            loss.backward()
            return result(loss)

        return step

    return make


@pytest.mark.parametrize("name", RESULTS)
def test_a_number_has_no_dtype_and_is_compared(name):
    a, b = RESULTS[name]
    same = equivalent_steps(returning(a), returning(b))
    assert same.level == "bit-equal", str(same)
    assert not equivalent_steps(returning(a), returning(lambda loss: b(loss + 1))).passed


def test_without_adam_nothing_needs_an_excuse():
    verdict = equivalent_steps(training(torch.optim.SGD), training(torch.optim.SGD, shuffled=True))
    assert verdict.passed
    assert not [one for one in verdict.compared if one.why == WHY]


@pytest.mark.parametrize("shuffled", [False, True])
@pytest.mark.parametrize(
    "fault",
    [
        {"lr": 0.01001},
        {"decay": 1e-4},
        {"optimizer": torch.optim.AdamW, "decay": 1e-3},
        {"cut": True},
        {"scale": 1.0001},
    ],
    ids=lambda fault: "".join(fault),
)
def test_a_fault_is_told_through_the_rounding(fault, shuffled):
    assert equivalent_steps(training(), training(shuffled=shuffled, **fault)).level == "different"


def test_a_reference_that_is_no_fresh_copy_is_not_tried_again():
    model = Net()
    made = torch.optim.Adam(model.parameters(), lr=0.01)
    x = torch.randn(64, FEATURES)

    def make():  # one model whoever asks
        def step():
            made.zero_grad()
            model(x).square().mean().backward()
            made.step()

        return step

    def another():
        other = Net(shuffled=True)
        own = torch.optim.Adam(other.parameters(), lr=0.02)

        def step():
            own.zero_grad()
            other(x).square().mean().backward()
            own.step()

        return step

    assert equivalent_steps(make, another).level == "different"
