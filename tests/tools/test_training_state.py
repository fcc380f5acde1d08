"""Training state: what is tried inside a snapshot leaves no bit behind; a resumed run is the plain run."""

import copy
import dataclasses
import random
import types
from collections import deque

import numpy as np
import pytest
import torch
from torch import nn
from torch.nn import functional as F
from torch.utils.data import DataLoader, DistributedSampler, TensorDataset

from denizen import tools
from denizen.errors import InputError


class Net(nn.Module):
    """Dropout, batch norm, and things that nobody registered."""

    def __init__(self):
        super().__init__()
        self.first, self.norm, self.drop, self.last = (
            nn.Linear(6, 8),
            nn.BatchNorm1d(8),
            nn.Dropout(0.3),
            nn.Linear(8, 1),
        )
        self.register_buffer("replaced", torch.zeros(()))
        self.calls, self.hidden, self.seen = 0, torch.zeros(8), []

    def forward(self, x):
        self.calls += 1
        self.replaced = self.replaced + 1  # another tensor, not the same one changed
        h = self.drop(F.relu(self.norm(self.first(x))))
        self.hidden += h.detach().mean(0).cpu()
        self.seen.append(self.calls)
        if not hasattr(self, "cache"):
            self.cache = torch.zeros(2)
        return self.last(h)


class Loop:
    """A training loop with everything in it."""

    def __init__(self, make_optimizer, device="cpu"):
        torch.manual_seed(1), random.seed(1), np.random.seed(1)  # noqa: NPY002
        self.device = device
        self.model = Net().to(device)
        self.optimizer = make_optimizer(self.model.parameters())
        self.scheduler = torch.optim.lr_scheduler.CosineAnnealingLR(self.optimizer, 20)
        self.ema = torch.optim.swa_utils.AveragedModel(
            self.model, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn()
        )
        self.own, self.numpy, self.python = torch.Generator().manual_seed(2), np.random.default_rng(3), random.Random(4)
        self.log = {
            "steps": 0,
            "losses": [],
            "last": deque(maxlen=3),
            "total": torch.zeros((), device=device),
            "kinds": set(),
        }
        data = torch.randn(40, 6)
        loader = DataLoader(TensorDataset(data, data.sum(1, keepdim=True)), 8, shuffle=True)
        self.loader = tools.PrefetchLoader(loader, device)
        self.drawn = []

    def parts(self):
        names = ("model", "optimizer", "scheduler", "ema", "own", "numpy", "python", "log", "loader", "drawn")
        return {name: getattr(self, name) for name in names}

    def step(self):
        x, y = next(iter(self.loader))
        noise = torch.randn(x.shape[0], 1, generator=self.own) + self.numpy.normal() + self.python.random()
        loss = F.mse_loss(self.model(x), y + noise.to(self.device) + random.random() + np.random.rand())  # noqa: NPY002
        self.optimizer.zero_grad()
        loss.backward()
        self.optimizer.step()
        self.scheduler.step()
        self.ema.update_parameters(self.model)
        self.log["steps"] += 1
        self.log["losses"].append(loss.item())
        self.log["last"].append(loss.item())
        self.log["kinds"].add(self.log["steps"])
        self.log["total"] += loss.detach()
        self.log.setdefault("first", loss.item())
        self.drawn.append(noise.sum().item())

    def everything(self):
        return {
            "model": dict(self.model.state_dict()),
            "ema": dict(self.ema.state_dict()),
            "grads": [None if w.grad is None else w.grad for w in self.model.parameters()],
            "optimizer": self.optimizer.state_dict(),
            "scheduler": self.scheduler.state_dict(),
            "attributes": [self.model.calls, self.model.hidden, self.model.seen, hasattr(self.model, "cache")],
            "log": {**self.log, "last": list(self.log["last"])},
            "drawn": self.drawn,
            "loader": self.loader.epoch,
            "modes": [module.training for module in self.model.modules()],
            "draws": [
                torch.rand(3),
                torch.rand(3, generator=self.own),
                self.numpy.random(),
                self.python.random(),
                random.random(),
                np.random.rand(),  # noqa: NPY002 - the old generator is what users have
                torch.rand(3, device=self.device),
            ],
        }


def same(a, b, path="state"):
    """Fails at the first bit that differs."""
    assert type(a) is type(b) or isinstance(a, dict), path
    if isinstance(a, torch.Tensor):
        assert torch.equal(a, b), path
    elif isinstance(a, dict):
        assert list(a) == list(b), path
        for key in a:
            same(a[key], b[key], f"{path}.{key}")
    elif isinstance(a, (list, tuple)):
        assert len(a) == len(b), path
        for number, (left, right) in enumerate(zip(a, b, strict=True)):
            same(left, right, f"{path}[{number}]")
    else:
        assert a == b, path


OPTIMIZERS = {
    "adam": lambda w: torch.optim.Adam(w, 1e-2),
    "adam amsgrad": lambda w: torch.optim.Adam(w, 1e-2, amsgrad=True),
    "adamw tensor rate": lambda w: torch.optim.AdamW(w, torch.tensor(1e-2)),
    "nadam": lambda w: torch.optim.NAdam(w, 1e-2),
    "radam": lambda w: torch.optim.RAdam(w, 1e-2),
    "adamax": lambda w: torch.optim.Adamax(w, 1e-2),
    "rmsprop": lambda w: torch.optim.RMSprop(w, 1e-2, momentum=0.9, centered=True),
    "adadelta": lambda w: torch.optim.Adadelta(w),
    "sgd": lambda w: torch.optim.SGD(w, 1e-2, momentum=0.9, nesterov=True),
    "sgd dampened": lambda w: torch.optim.SGD(w, 1e-2, momentum=0.9, dampening=0.5),
    "adagrad": lambda w: torch.optim.Adagrad(w, 1e-2),
    "asgd": lambda w: torch.optim.ASGD(w, 1e-2),
    "rprop": lambda w: torch.optim.Rprop(w, 1e-2),
}
IN_PLACE = ("adam", "adam amsgrad", "adamw tensor rate", "nadam", "radam", "adamax", "rmsprop", "adadelta", "sgd")


@pytest.mark.parametrize("name", OPTIMIZERS)
def test_steps_after_warm_up_have_the_bits_of_steps_without(name):
    plain, warmed = Loop(OPTIMIZERS[name]), Loop(OPTIMIZERS[name])

    def run(loop, warm):
        torch.manual_seed(5), random.seed(6), np.random.seed(7)  # noqa: NPY002
        if warm:
            seconds = tools.warm_up(loop.step, state=loop.parts(), steps=3)
            assert len(seconds) == 3
            assert loop.log["steps"] == 0
            assert all(w.grad is None for w in loop.model.parameters())
        for _ in range(4):
            loop.step()
        return loop.everything()

    same(run(plain, False), run(warmed, True))


@pytest.mark.parametrize("name", IN_PLACE)
def test_fresh_optimizer_state_is_reset_where_it_lies(name):
    loop = Loop(OPTIMIZERS[name])
    state = tools.TrainingState(loop.parts())
    with state.kept():
        loop.step()
        addresses = {key: t.data_ptr() for values in loop.optimizer.state.values() for key, t in values.items()}
    assert addresses == {key: t.data_ptr() for values in loop.optimizer.state.values() for key, t in values.items()}


def test_in_the_middle_of_a_run_and_after_an_error():
    loop = Loop(OPTIMIZERS["adam"])
    for _ in range(3):
        loop.step()
    loop.model.norm.eval()
    loop.model.first.bias.requires_grad_(False)
    other, addresses = copy.deepcopy(loop.model), [t.data_ptr() for t in loop.model.state_dict().values()]
    gradient = loop.model.last.weight.grad
    values, draws = gradient.clone(), torch.get_rng_state()

    def step():
        loop.model.train().requires_grad_(True)
        loop.step()
        loop.optimizer.add_param_group({"params": [nn.Parameter(torch.zeros(2))]})
        loop.model.last.weight.data = torch.zeros(1, 8)
        raise RuntimeError("diverged")

    with pytest.raises(RuntimeError, match="diverged"):
        tools.warm_up(step, state=tools.TrainingState(**loop.parts()))
    same(dict(other.state_dict()), dict(loop.model.state_dict()))
    assert [t.data_ptr() for t in loop.model.state_dict().values()] == addresses
    assert loop.model.last.weight.grad is gradient
    assert torch.equal(gradient, values)
    assert [module.training for module in loop.model.modules()] == [module.training for module in other.modules()]
    assert not loop.model.norm.training
    assert [w.requires_grad for w in loop.model.parameters()] == [w.requires_grad for w in other.parameters()]
    assert len(loop.optimizer.param_groups) == 1
    assert loop.log["steps"] == 3
    assert torch.equal(torch.get_rng_state(), draws)


@pytest.mark.parametrize("in_place", [True, False])
def test_resumed_from_disk_in_the_middle_of_a_pass(tmp_path, in_place):
    def build():
        loop = Loop(OPTIMIZERS["adamw tensor rate"])
        parts = {k: v for k, v in loop.parts().items() if k not in ("log", "drawn")}
        return loop, tools.TrainingState(**parts)

    def train(loop, batches):
        for x, y in batches:
            loss = F.mse_loss(loop.model(x), y + torch.randn(1, generator=loop.own) + random.random())
            loss = loss * (1 + loop.numpy.random() + loop.python.random() + np.random.rand())  # noqa: NPY002
            loop.optimizer.zero_grad()
            loss.backward()
            loop.optimizer.step()
            loop.scheduler.step()
            loop.ema.update_parameters(loop.model)
            yield loss.item()

    plain, _ = build()
    whole = [loss for _ in range(3) for loss in train(plain, plain.loader)]
    stopped, state = build()
    steps = (loss for _ in range(3) for loss in train(stopped, stopped.loader))
    first = [next(steps) for _ in range(7)]
    torch.save(state.state_dict(), tmp_path / "state.pt")
    if not in_place:
        stopped, state = build()
    torch.manual_seed(99), random.seed(99), np.random.seed(99)  # noqa: NPY002
    state.load_state_dict(torch.load(tmp_path / "state.pt", weights_only=True))
    passes = 3 - stopped.loader.epoch
    rest = [loss for _ in range(passes) for loss in train(stopped, stopped.loader)]
    assert first + rest == whole
    same(dict(plain.model.state_dict()), dict(stopped.model.state_dict()))


def test_scaler_and_precision():
    model = nn.Linear(3, 1)
    optimizer = torch.optim.SGD(model.parameters(), 0.1)
    amp = tools.Amp("cpu", torch.float16, init_scale=8.0)
    state = tools.TrainingState(model, optimizer, amp)
    with state.kept():  # left between unscale_ and update
        amp.scaler.scale(model(torch.ones(2, 3)).sum()).backward()
        amp.scaler.unscale_(optimizer)
    assert amp.scaler.get_scale() == 8.0
    amp.scaler.scale(model(torch.ones(2, 3)).sum()).backward()
    amp.step(optimizer, max_norm=1.0)  # would be refused if the mark of unscale_ had stayed
    assert amp.scaler.get_scale() == 8.0
    with state.kept():
        amp.scaler.update(2.0)
    assert amp.scaler.get_scale() == 8.0


def test_loaders_and_samplers():
    data = TensorDataset(torch.arange(12))
    own = torch.Generator().manual_seed(0)
    shuffled = DataLoader(data, 4, shuffle=True, generator=own)
    sampler = DistributedSampler(data, 2, 0, seed=1)
    split = DataLoader(data, 4, sampler=sampler)
    state = tools.TrainingState(shuffled, split)
    with state.kept():
        expected = [batch[0].tolist() for batch in shuffled], [batch[0].tolist() for batch in split]
        sampler.set_epoch(3)
        assert [batch[0].tolist() for batch in split] != expected[1]
    assert ([batch[0].tolist() for batch in shuffled], [batch[0].tolist() for batch in split]) == expected


def test_persistent_workers_start_as_if_for_the_first_time():
    def order(warm):
        torch.manual_seed(0)
        loader = DataLoader(TensorDataset(torch.arange(8)), 4, shuffle=True, num_workers=1, persistent_workers=True)
        if warm:
            with tools.TrainingState(loader).kept():
                list(loader)
        return [batch[0].tolist() for _ in range(2) for batch in loader]

    assert order(True) == order(False)


def test_batches_of_a_pass_under_way_come_again():
    loader = tools.PrefetchLoader(DataLoader(TensorDataset(torch.arange(12)), 2, shuffle=True), "cpu")
    batches = iter(loader)
    seen = [next(batches)[0].tolist() for _ in range(2)]
    with tools.TrainingState(loader).kept():
        tried = [next(batches)[0].tolist() for _ in range(2)]
    rest = [batch[0].tolist() for batch in loader]
    assert rest[:2] == tried
    assert sorted(number for batch in seen + rest for number in batch) == list(range(12))


@dataclasses.dataclass(frozen=True)
class World:
    position: torch.Tensor
    picture: np.ndarray


def test_environment_state():
    world = World(torch.arange(3.0), np.arange(3))
    settings = {"world": world, "pair": (torch.ones(2), [1]), "act": torch.relu, "expanded": torch.ones(1).expand(4)}
    with tools.TrainingState(settings, np.random.RandomState(0)).kept():
        world.position.add_(1)
        world.picture[:] = 7
        settings["pair"][0].zero_()
        settings["pair"][1].append(2)
        settings["expanded"][:1] = 5
        settings["act"] = None
    assert world.position.tolist() == [0, 1, 2]
    assert world.picture.tolist() == [0, 1, 2]
    assert settings["pair"][0].tolist() == [1, 1]
    assert settings["pair"][1] == [1]
    assert settings["expanded"].tolist() == [1] * 4
    assert settings["act"] is torch.relu


class Clock:
    def __init__(self):
        self.now = 0


def test_what_cannot_be_kept_is_refused():
    with pytest.raises(InputError, match=r"0\['clock'\] is a Clock.*state_dict.*vars"):
        tools.TrainingState({"clock": Clock()}).snapshot()
    with pytest.raises(InputError, match="iterator cannot be turned back"):
        tools.TrainingState(batches=iter(DataLoader(TensorDataset(torch.ones(3))))).snapshot()
    with pytest.raises(InputError, match="epoch=3 cannot be put back"):
        tools.TrainingState(epoch=3).snapshot()
    with pytest.raises(InputError, match="run the model once"):
        tools.TrainingState(nn.LazyLinear(3)).snapshot()
    with pytest.raises(InputError, match="no parts"):
        tools.TrainingState()
    clock = Clock()
    with tools.TrainingState(vars(clock)).kept():
        clock.now = 5
    assert clock.now == 0


def test_states_of_something_else_are_refused():
    state = tools.TrainingState(model=nn.Linear(2, 2))
    with pytest.raises(InputError, match="not from TrainingState"):
        state.load_state_dict({"weight": torch.ones(2)})
    with pytest.raises(InputError, match="the saved state has no part 'net'"):
        tools.TrainingState(net=nn.Linear(2, 2)).load_state_dict(state.state_dict() | {"parts": {}})
    with pytest.raises(InputError, match="this TrainingState has no part 'model'; did you mean"):
        tools.TrainingState(mode1=nn.Linear(2, 2)).load_state_dict(state.state_dict())
    with pytest.raises(InputError, match="without state_dict"):
        tools.TrainingState(log={}).state_dict()


a_global = nn.Linear(1, 1)


def attributes_only(thing):
    return thing.a_global


def nested():
    return (lambda: a_global(torch.ones(1)))()


def test_warm_up_warns_of_what_it_was_not_told():
    loop, criterion = Loop(OPTIMIZERS["sgd"]), nn.MSELoss()
    model, optimizer = loop.model, loop.optimizer

    def inner():
        optimizer.zero_grad()
        criterion(model(torch.ones(4, 6)), torch.ones(4, 1)).backward()
        optimizer.step()

    with pytest.warns(UserWarning, match="the step uses model, optimizer, which will not be put back"):
        tools.warm_up(lambda: inner(), state=loop.own, steps=1)
    tools.warm_up(inner, state=[optimizer, model], steps=1)
    tools.warm_up(attributes_only, types.SimpleNamespace(a_global=3), state=loop.own, steps=1)
    with pytest.warns(UserWarning, match="the step uses a_global, which"):
        tools.warm_up(nested, state=loop.own, steps=1)
    with pytest.raises(InputError, match="steps=0"):
        tools.warm_up(inner, state=[optimizer, model], steps=0)


def test_addresses_and_kind_of_the_first_cuda_draws(monkeypatch):
    class Fake:
        def __init__(self):
            self.seeds = []

        def initial_seed(self):
            return 11

        def manual_seed(self, seed):
            self.seeds.append(seed)

    fake, started = Fake(), []
    monkeypatch.setattr(torch.cuda, "is_initialized", lambda: bool(started))
    monkeypatch.setattr(torch.cuda, "default_generators", (fake,))
    with tools.TrainingState([]).kept():
        started.append(True)
    assert fake.seeds == [11]


@pytest.mark.cuda
def test_warm_up_on_cuda():
    results = []
    for warm in (False, True):
        loop = Loop(OPTIMIZERS["adam"], "cuda")
        torch.manual_seed(5), random.seed(6), np.random.seed(7)  # noqa: NPY002
        if warm:
            tools.warm_up(loop.step, state=loop.parts(), steps=3)
        for _ in range(4):
            loop.step()
        results.append(loop.everything())
    same(*results)
