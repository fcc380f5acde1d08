"""The simulated device computes what the CPU computes, also where code changes tensors without an operation."""

import copy
import io

import pytest
import torch
from torch import nn
from torch.nn.utils import parametrizations, prune

import denizen as dz
from denizen.perf.simulated import cuda_alias


def net(device):
    torch.manual_seed(0)
    return nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.ReLU(), nn.Linear(8, 2)).to(device)


def rows(device, dtype=torch.float32):
    return torch.arange(12, device=device, dtype=dtype).view(3, 4).sin()


def double_module(device):
    return net(device).double()(rows(device, torch.float64))


def recurrent_in_double(device):
    torch.manual_seed(0)
    return nn.GRU(4, 3).to(device).double()(rows(device, torch.float64)[:, None])[0]


def states_of_an_lstm(device):
    torch.manual_seed(0)
    lstm, x = nn.LSTM(4, 3, 2, bidirectional=True).to(device), rows(device)[:, None]
    _, states = lstm(x)
    packed = nn.utils.rnn.pack_sequence([rows(device), rows(device)[:2]])
    return torch.cat([*lstm(x, states)[1], *(state[:, :1] for state in lstm(packed)[1])])


def data_of_another(device):
    mine, other = net(device), net(device)
    for p, q in zip(mine.parameters(), other.parameters(), strict=True):
        p.data = q.data * 2
    return mine(rows(device))


def data_shared(device):
    layer, flat = nn.Linear(4, 2).to(device), torch.arange(8.0, device=device)
    layer.weight.data = flat.view(2, 4)
    flat.add_(1)
    with torch.no_grad():
        layer.weight.mul_(2)
    return torch.cat([flat, layer.weight.flatten()])


def data_larger(device):
    x = torch.zeros(3, device=device)
    x.data = torch.arange(5.0, device=device)
    return x.add_(1)


def descent_by_data(device):
    model = net(device)
    model(rows(device)).sum().backward()
    for p in model.parameters():
        p.data = p.data - 0.1 * p.grad.data
    return model(rows(device))


def parameters_by_vector(device):
    model = net(device)
    nn.utils.vector_to_parameters(0.5 * nn.utils.parameters_to_vector(model.parameters()), model.parameters())
    return model(rows(device))


def data_in_compiled_code(device):
    model = net(device)
    return torch.compile(lambda x: model(x.data), backend="eager")(rows(device))


def chosen_in_compiled_code(device):
    def choose(x):
        return torch.cond(x.sum() > 0, torch.sin, torch.cos, (x,))

    return torch.compile(choose, backend="eager", fullgraph=True)(rows(device))


def assigned(device):
    mine, other = net(device), net(device)
    nn.init.ones_(other[0].weight)
    mine.load_state_dict(other.state_dict(), assign=True)
    return mine(rows(device))


def saved_and_loaded(device):
    mine, other, file = net(device), net(device), io.BytesIO()
    nn.init.ones_(other[0].weight)
    torch.save(other.state_dict(), file)
    file.seek(0)
    mine.load_state_dict(torch.load(file))
    return mine(rows(device))


def optimizer_loaded(device):
    model = net(device)
    for _ in range(3):
        optimizer = torch.optim.Adam(model.parameters(), 0.1)
        model(rows(device)).square().sum().backward()
        optimizer.step()
        optimizer.load_state_dict(copy.deepcopy(optimizer.state_dict()))
    return model(rows(device))


def pruned(device):
    model = copy.deepcopy(net(device))
    prune.l1_unstructured(model[0], "weight", amount=0.5)
    prune.remove(model[0], "weight")
    return model(rows(device))


def weight_set(device):
    layer = parametrizations.weight_norm(nn.Linear(4, 3).to(device))
    layer.weight = torch.ones(3, 4, device=device)
    return layer(rows(device)) - layer.bias


def swapped(device):
    a, b = torch.ones(2, device=device), torch.zeros(3, device=device)
    torch.utils.swap_tensors(a, b)
    return torch.cat([a, b])


def written_through_views(device):
    x = torch.zeros(4, 4, device=device)
    x.view(16)[::2] += 1
    x.t()[0] = 5
    x.diagonal().fill_(7)
    return torch.cat([x, torch.mul(x, 2, out=torch.empty(0, device=device))])


@pytest.mark.parametrize(
    "code",
    [
        value
        for value in list(globals().values())
        if getattr(value, "__code__", None) and value.__module__ == __name__ and value not in (net, rows)
    ],
)
def test_values_are_those_of_the_cpu(code):
    torch._dynamo.reset()
    expected = code(torch.device("cpu"))
    found = code(dz.budget(device="simulated").device)
    assert found.device.type == "simulated"
    torch.testing.assert_close(found.detach().cpu(), expected.detach())


def test_a_parameter_stays_one_when_it_takes_other_memory():
    device = dz.budget(device="simulated").device
    layer = nn.Linear(4, 2).to(device).half()
    guard = dz.budget(host_reads=None, transfers=None, device="simulated")
    with guard:
        layer.weight.cpu()
    assert [finding.kind for finding in guard.report.findings] == ["state-copy"]


@pytest.mark.skipif(torch.cuda.is_available(), reason="stands in for CUDA where there is none")
def test_classes_that_code_asks_for_by_name_stay_classes():
    device, before = dz.budget(device="simulated").device, torch.Generator
    with cuda_alias():
        on_cuda, on_cpu = torch.Generator("cuda").manual_seed(3), torch.Generator(device="cpu").manual_seed(3)

        def draw(generator: torch.Generator | None, within: torch.cuda.device | torch.cuda.device_of | None): ...

        assert draw.__annotations__["generator"] == torch.Generator | None
        assert isinstance(on_cuda, torch.Generator)
        assert isinstance(on_cpu, torch.Generator)
        assert not isinstance(device, torch.Generator)
        assert not isinstance(device, torch.cuda.device)
        with torch.cuda.device(device="cuda:0") as within:
            assert within is None
        drawn = torch.randn(5, device="cuda", generator=on_cuda)
    assert torch.Generator is before
    assert isinstance(on_cuda, torch.Generator)
    assert drawn.tolist() == torch.randn(5, generator=on_cpu).tolist()
