"""No class of torch is touched: what the kit does leaves torch as it was, also after errors, nested and in threads."""

import contextlib
import copy
import pickle
import sys
import threading

import pytest
import torch
from torch import nn
from torch.optim import optimizer as optimizers
from torch.utils.data import DataLoader, TensorDataset, dataloader
from torch.utils.data._utils import fetch

import denizen as dz
from denizen.perf.simulated import simulated_device

from .trials import Place, Subject, Trial, at

CLASSES = [
    torch.Tensor,
    nn.Module,
    nn.Parameter,
    nn.Linear,
    torch.optim.Optimizer,
    torch.optim.SGD,
    DataLoader,
    dataloader._BaseDataLoaderIter,
    dataloader._SingleProcessDataLoaderIter,
    dataloader._MultiProcessingDataLoaderIter,
    fetch._MapDatasetFetcher,
    torch.autocast,
    torch.amp.GradScaler,
    torch.cuda.Event,
    torch.cuda.Stream,
    torch.Event,
    torch.autograd.Function,
    torch._C.TensorBase,
    torch.storage.UntypedStorage,
    torch.nn.utils.rnn.PackedSequence,
]
MODULES = [torch, torch.cuda, torch.accelerator, torch.autograd, nn.functional, dataloader, optimizers]


def picture():
    """Every entry of torch's classes and every function of its modules, by identity."""
    held = {(str(owner), name): value for owner in (*CLASSES, *MODULES) for name, value in vars(owner).items()}
    hooks = optimizers
    modules = nn.modules.module
    held |= {
        ("hooks", name): copy.copy(value)
        for owner in (hooks, modules)
        for name, value in vars(owner).items()
        if name.startswith("_global_")
    }
    return held


def changed(before):
    now = picture()
    names = {name for name in before | now if name[1] not in ("__warningregistry__", "__slotnames__")}
    same = lambda name: before.get(name) is now.get(name) or (name[0] == "hooks" and before[name] == now[name])
    return sorted(name for name in names if not same(name))


def plain_calls():
    """A hundred plain calls of many kinds, which ask for the C slots of tensors."""
    x, w = torch.arange(6.0), torch.ones(2, 3, requires_grad=True)
    i, m = torch.tensor(3), torch.tensor([True, False] * 3)
    y = x.clone()
    y[0], y[-1:], y[m], y[[1, 2]], y[torch.tensor([3])] = 1.0, 2.0, 3.0, torch.tensor([4.0, 5.0]), 6.0
    z = x.clone()
    z += 1
    z -= 1
    z *= 2
    z /= 2
    z //= 1
    (w * 2).sum().backward()
    net = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    optimizer.zero_grad()
    net(torch.ones(1, 3)).sum().backward()
    optimizer.step()
    batches = list(DataLoader(TensorDataset(torch.arange(4.0)), batch_size=2))
    a, b = torch.tensor([torch.tensor(1.0), torch.tensor(2.0)])
    return [
        torch.tensor([a, b]),
        torch.tensor([[a, b], [b, a]]),
        torch.as_tensor([a, b]),
        torch.stack([a, b]),
        x[0],
        x[-1],
        x[1:3],
        x[None],
        x[...],
        x[m],
        x[[0, 1]],
        x[i],
        x[torch.tensor([1, 2])],
        x[0:4:2],
        list(x),
        [*iter(x)],
        len(x),
        3.0 in x,
        9.0 in x,
        float(x[1]),
        int(x[2]),
        bool(x[1]),
        complex(x[1]),
        range(i)[2],
        [10, 20, 30, 40][i],
        hash(i) != 0,
        i.item(),
        x.tolist(),
        x.numpy().sum(),
        x.numpy().__class__,
        repr(i),
        str(x),
        f"{i}",
        f"{x[1]:.2f}",
        -x,
        +x,
        abs(-x),
        ~m,
        x + 1,
        1 + x,
        x - 1,
        1 - x,
        x * 2,
        2 * x,
        x / 2,
        2 / (x + 1),
        x // 2,
        x % 2,
        x**2,
        2**x,
        x @ x,
        divmod(i.item(), 2),
        m & m,
        m | m,
        m ^ m,
        i << 1,
        i >> 1,
        x == x,
        x != x,
        x < 2,
        x <= 2,
        x > 2,
        x >= 2,
        y,
        z,
        w.grad,
        w.T,
        x.shape,
        x.dtype,
        x.device,
        x.is_pinned(),
        x.requires_grad,
        x.clone(),
        x.to(torch.float64),
        x.cpu(),
        x.to("cpu"),
        x.detach(),
        x.view(2, 3),
        x.nonzero(),
        x.unique(),
        torch.bincount(torch.tensor([0, 1])),
        torch.equal(x, x),
        torch.allclose(x, x),
        torch.masked_select(x, m),
        torch.repeat_interleave(x, 2),
        torch.zeros(2),
        torch.ones(2),
        torch.full((2,), 3.0),
        torch.arange(3),
        torch.linspace(0, 1, 3),
        torch.eye(2),
        torch.from_numpy(x.numpy()),
        nn.functional.one_hot(torch.tensor([0, 1])),
        copy.deepcopy(x),
        pickle.loads(pickle.dumps(x)),
        copy.deepcopy(net).in_features,
        dir(x) == dir(y),
        batches,
        x.sum().item(),
        sum(x),
        max(x),
        min(x),
        sorted(x),
        reversed(x),
        any(m),
        all(m),
        *zip(x, x, strict=True),
        torch.jit.script(nn.ReLU())(x),
        torch.vmap(lambda row: row.sum())(x.view(2, 3)),
        round(float(x[1])),
        torch.func.grad(lambda v: (v * v).sum())(x),
        dict(zip(x.tolist(), x.tolist(), strict=True)),
        x.__getitem__(0),
    ]


def said():
    return [str(value) for value in plain_calls() if not hasattr(value, "__next__")]


torch.compile(lambda x: x + 1, backend="eager")(torch.ones(1))  # the first time, torch itself changes its optimizers
BEFORE = said()
AT_FIRST = picture()  # torch changes some when they are used first


def step_of(device, fails=False):
    net = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)
    batches = DataLoader(TensorDataset(torch.ones(400, 4)), batch_size=4)
    drawn, taken = (row for _ in range(10_000) for row in batches), 0

    def step():
        nonlocal taken
        taken += 1
        if taken > 1 and fails:
            raise ZeroDivisionError("of the user's")
        optimizer.zero_grad(set_to_none=False)
        with torch.autocast("cpu", dtype=torch.bfloat16, enabled=False):
            loss = net(next(drawn)[0].to(device)).square().mean()
        loss.backward()
        optimizer.step()
        return loss

    return step


def costs(fails):
    """Every kind that is taken out of a step, as on a GPU."""
    calls = 0

    def step():
        nonlocal calls
        calls += 1
        if fails and calls > 8:
            raise ZeroDivisionError("of the user's")
        x[mask].sum()  # from this line on: first
        x.sum().item()
        assert 3.0 in x
        x.clone()
        net(x)
        torch.tensor([x[0], x[1]])
        optimizer.zero_grad(set_to_none=False)
        y[0] = 1.0
        net(x).sum().backward(retain_graph=True)

    net, x, y, mask = nn.Linear(6, 1), torch.arange(6.0), torch.zeros(2), torch.tensor([True, False] * 3)
    optimizer, first = torch.optim.SGD(net.parameters(), 0.1), step.__code__.co_firstlineno + 5
    kinds = ["host-sync-boolindex", "host-sync-item", "host-sync-bool", "alloc-churn", "no-grad-missing", "h2d-fresh"]
    kinds += ["grad-memset", "host-sync-item", "graph-retention", "host-sync-scaler", "debug-left-on", "dtype-fp32"]
    found = [
        at(kind, Place(__file__, min(line, first + 8), "step"), 1, "every step", [])
        for line, kind in enumerate(kinds, first)
    ]
    with Trial(Subject(step, (), None, made=False), torch.device("cpu"), found, 0.02) as trial:
        trial._seconds(found)
        assert {one.kind for one in found if trial.took(one)} >= {*kinds[:5], "grad-memset", "graph-retention"}


def guarded(fails):
    guard = dz.budget(host_reads=None, transfers=None, device="simulated")
    step = step_of(guard.device, fails)
    with guard:
        for _ in guard.steps(10):
            step()


def profiled(fails):
    dz.perf.profile(step_of("cpu", fails))


def compared(fails):
    x, net = torch.ones(2, 3), nn.Linear(3, 3)

    def other(x):
        if fails:
            raise ZeroDivisionError("of the user's")
        return net(x)

    dz.perf.equivalent(lambda x: net(x), other, x)


class PlainState(dz.State):
    sick: torch.Tensor = dz.mask("agents")


class Plain(dz.Model):
    fails: bool = False

    def init(self, rng):
        return PlainState(sick=rng.bernoulli("sick", torch.full((4,), 0.5)))

    def step(self, state, rng):
        if self.fails:
            raise ZeroDivisionError("of the user's")
        return state.replace(sick=1 - state.sick)


def checked(fails):
    dz.check(Plain(fails=fails))


USES = {
    "doctor": lambda fails: dz.doctor(step_of("cpu", fails), steps=4),
    "doctor on the simulated device": lambda fails: dz.doctor(make=lambda device: step_of(device, fails), steps=4),
    "costs": costs,
    "budget": guarded,
    "profile": profiled,
    "equivalent": compared,
    "check": checked,
    "bench": lambda fails: dz.perf.bench(lambda device: step_of(device, fails), device="cpu", rounds=5, warm_up=1),
}


@pytest.mark.parametrize("fails", [False, True])
@pytest.mark.parametrize("name", USES)
def test_torch_is_as_before(name, fails):
    simulated_device()  # for machines without a GPU: it adds what makes tensors to torch's modules
    before = picture()
    with (
        pytest.raises(Exception, match=r"of the user's|division")
        if fails and name != "check"
        else contextlib.nullcontext()
    ):
        USES[name](fails)
    assert changed(before) == []
    assert said() == BEFORE
    assert sys.getprofile() is None or callable(sys.getprofile())


def test_torch_is_as_before_when_used_at_once_and_within_one_another():
    simulated_device()
    before, precision = picture(), torch.get_float32_matmul_precision()

    def both():
        with dz.budget(host_reads=None, transfers=None, recompiles=None, device="simulated") as guard:
            torch.ones(2, device=guard.device)
            costs(False)

    threads = [threading.Thread(target=use) for use in (both, lambda: costs(False), lambda: guarded(False))]
    for thread in threads:
        thread.start()
    for thread in threads:
        thread.join()
    both()
    assert torch.get_float32_matmul_precision() == precision
    assert changed(before) == []
    assert said() == BEFORE


def test_registering_the_simulated_device_touches_no_class():
    simulated_device()
    assert [name for name in changed(AT_FIRST) if name[0] in map(str, CLASSES)] == []
