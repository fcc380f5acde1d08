"""The fast network on a CUDA device; for a machine that has one: `pytest -m cuda tests/nn`."""

import pytest
import torch

from denizen import nn

from .configurations import CONFIGURATIONS, random_model, some_sensing

pytestmark = pytest.mark.cuda


@pytest.fixture(autouse=True)
def _needs_cuda():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")


@pytest.mark.parametrize("name", CONFIGURATIONS)
@pytest.mark.parametrize("dtype", [torch.float64, torch.float32])
def test_the_device_gives_what_the_cpu_gives(name, dtype):
    config = CONFIGURATIONS[name]
    model = random_model(nn.DynamicDotGAT, config, some_sensing(config), dtype=dtype)
    series = torch.randn(3, 7, 4, dtype=dtype)
    expected = model(series).outputs
    expected.square().sum().backward()
    grads = {key: weight.grad.clone() for key, weight in model.named_parameters() if weight.grad is not None}
    model.zero_grad()
    model.cuda()
    found = model(series.cuda()).outputs
    found.square().sum().backward()
    tolerance = {"rtol": 1e-8, "atol": 1e-10} if dtype is torch.float64 else {"rtol": 1e-3, "atol": 1e-4}
    torch.testing.assert_close(found.cpu(), expected, **tolerance)
    for key, weight in model.named_parameters():
        if key in grads:
            torch.testing.assert_close(weight.grad.cpu(), grads[key], msg=key, **tolerance)


def test_nothing_is_read_on_the_host(no_waits):
    model = random_model(nn.DynamicDotGAT, CONFIGURATIONS["plain"], dtype=torch.float32).cuda().train()
    series = torch.randn(3, 7, 4, device="cuda")
    model(series).outputs.sum().backward()
    with no_waits():
        model(series).outputs.sum().backward()


def test_replays_of_a_graph_drop_different_units():
    config = CONFIGURATIONS["plain"]
    model = random_model(nn.DynamicDotGAT, config, dtype=torch.float32).cuda().train()
    series = torch.randn(3, 7, 4, device="cuda")
    side = torch.cuda.Stream()
    with torch.cuda.stream(side), torch.no_grad():
        model(series)
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.no_grad(), torch.cuda.graph(graph):
        outputs = model(series).outputs
    graph.replay()
    first = outputs.clone()
    graph.replay()
    assert not torch.equal(first, outputs)
