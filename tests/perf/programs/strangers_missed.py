"""More training code in the manner of strangers: what the tools once missed, or cried wolf at.

A function makes a step on `device`. A line to blame ends in `# <kind>`; those called `mended_…` and `harmless_…` have
none.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def faulty_a_dataclass_printed(device):
    from dataclasses import dataclass

    @dataclass
    class State:
        energy: torch.Tensor
        t: int = 0

    state = State(torch.rand(3, device=device))

    def report(s):
        print(s)  # host-sync-print

    def step(i):
        state.t = i
        report(state)

    return step


def faulty_an_autograd_function_written_in_numpy(device):
    class Sine(torch.autograd.Function):
        @staticmethod
        def forward(ctx, x):
            a = x.detach().cpu().numpy()  # roundtrip host-sync-copy
            ctx.save_for_backward(x)
            return torch.from_numpy(np.sin(a)).to(x.device)  # roundtrip h2d-fresh

        @staticmethod
        def backward(ctx, g):
            (x,) = ctx.saved_tensors
            return g * x.cos()

    w = nn.Parameter(torch.rand(5, device=device))
    opt = torch.optim.SGD([w], 0.1)

    def step(i):
        opt.zero_grad()
        Sine.apply(w).sum().backward()
        opt.step()

    return step


def faulty_outputs_of_a_batch_to_the_host(device):
    net = nn.ModuleDict({"cls": nn.Linear(6, 3), "box": nn.Linear(6, 4), "emb": nn.Linear(6, 8)}).to(device)
    x = torch.randn(5, 6, device=device)

    @torch.inference_mode()
    def predict(t):
        out = {k: m(t) for k, m in net.items()}
        return {k: v.cpu().numpy() for k, v in out.items()}  # host-sync-copy

    def step(i):
        return predict(x)

    return step


def faulty_one_optimizer_for_each_parameter(device):
    net, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device), torch.randn(4, 8, device=device)
    opts = [torch.optim.SGD([p], lr=0.01, momentum=0.9) for p in net.parameters()]

    def step(i):
        net(x).square().mean().backward()
        for o in opts:
            o.step()  # optimizer-unfused launch-bound
        for p in net.parameters():
            p.grad = None

    return step


def faulty_a_cellular_automaton_in_int64(device):
    class Life:
        def __init__(self, n):
            self.c = torch.randint(0, 2, (n, n), device=device)

        def tick(self):
            c = self.c
            s = sum(c.roll((a, b), (0, 1)) for a in (-1, 0, 1) for b in (-1, 0, 1) if a or b)  # dtype-wide-int
            self.c = ((s == 3) | ((s == 2) & (c == 1))).long()  # dtype-wide-int

    life = Life(512)

    def step(i):
        life.tick()

    return step


def faulty_substeps_by_reduce(device):
    import functools

    def spring(p, v, dt):
        a = -4.0 * p - 0.1 * v
        v = v + dt * a
        return p + dt * v, v

    state = torch.rand(10, device=device), torch.zeros(10, device=device)

    def step(i):
        return functools.reduce(lambda s, _: spring(*s, 0.01), range(50), state)  # launch-bound

    return step


def faulty_a_map_over_agents(device):
    goals = torch.rand(32, 2, device=device)
    agents = list(torch.rand(32, 2, device=device))

    def head_for(a, g):
        return a + 0.1 * (g - a)

    def step(i):
        return torch.stack(list(map(head_for, agents, goals)))  # launch-bound

    return step


def faulty_predictions_put_away_by_a_helper(device):
    from collections import deque

    net, x = nn.Linear(4, 2).to(device), torch.randn(8, 4, device=device)
    opt, recent = torch.optim.SGD(net.parameters(), 0.1), deque(maxlen=100)

    def remember(y):
        recent.append(y)  # graph-retention

    def step(i):
        y = net(x)
        remember(y)
        loss = y.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def faulty_losses_within_named_tuples(device):
    from typing import NamedTuple

    class Out(NamedTuple):
        step: int
        loss: torch.Tensor

    outs = []
    net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
    opt = torch.optim.SGD(net.parameters(), 0.1)

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        outs.append(Out(i, loss))  # graph-retention

    return step


def faulty_a_class_that_keeps_a_clock_s_reading(device):
    import time

    class Rate:
        def tick(self):
            self.t = time.time()

        def tock(self, n):
            self.rate = n / (time.time() - self.t)  # timing-async

    rate, x = Rate(), torch.rand(8, device=device)

    def step(i):
        rate.tick()
        x.mul_(1.01).clamp_(0, 1)
        rate.tock(8)

    return step


def faulty_a_list_joined_anew_for_each_window(device):
    frames = torch.rand(10, 4, 4, device=device)

    def windows():
        seen, out = [], []
        for f in frames:
            seen.append(f)
            clip = torch.stack(seen)  # alloc-churn
            out.append(clip.mean())
        return out

    def step(i):
        return windows()

    return step


def faulty_a_cache_of_keys_that_grows_token_by_token(device):
    wk, wq = torch.randn(8, 8, device=device), torch.randn(8, 8, device=device)

    class Cache:
        def __init__(self):
            self.k = torch.empty(1, 0, 8, device=device)

        def extend(self, k):
            self.k = torch.cat([self.k, k], dim=1)  # alloc-churn
            return self.k

    @torch.no_grad()
    def step(i):
        cache, tok = Cache(), torch.ones(1, 1, 8, device=device)
        for _ in range(6):
            keys = cache.extend(tok @ wk)
            tok = ((tok @ wq) @ keys.transpose(1, 2)).softmax(-1) @ keys
        return tok

    return step


def faulty_followers_by_a_difference_in_one_dimension(device):
    x = torch.rand(700, device=device)
    speed = torch.rand(700, device=device)

    def followers(x, r):
        gap = x[None, :] - x[:, None]  # dense-quadratic
        close = (gap > 0) & (gap < r)
        return (close * speed[None, :]).sum(1)

    def step(i):
        return followers(x, 0.01)

    return step


def faulty_anomaly_mode_by_a_trainer_s_option(device):
    class Trainer:
        def __init__(self, detect_anomaly):
            self.flag = detect_anomaly

        def fit(self, loss):
            with torch.autograd.set_detect_anomaly(self.flag, check_nan=False):  # debug-left-on
                loss().backward()

    net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
    trainer = Trainer(True)

    def step(i):
        net.zero_grad()
        trainer.fit(lambda: net(x).square().mean())

    return step


def harmless_a_generator_with_batch_norm_on_the_discriminator_s_turn(device):
    G = nn.Sequential(nn.Linear(4, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 8)).to(device)
    D = nn.Linear(8, 1).to(device)
    optD, optG = torch.optim.Adam(D.parameters()), torch.optim.Adam(G.parameters())
    real = torch.randn(32, 8, device=device)

    def step(i):
        with torch.no_grad():
            fake = G(torch.randn(32, 4, device=device))
        loss = F.softplus(-D(real)).mean() + F.softplus(D(fake)).mean()
        optD.zero_grad()
        loss.backward()
        optD.step()
        lossG = F.softplus(-D(G(torch.randn(32, 4, device=device)))).mean()
        optG.zero_grad()
        lossG.backward()
        optG.step()

    return step


def harmless_a_momentum_encoder_in_training_mode(device):
    import copy

    query = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Linear(16, 4)).to(device)
    key = copy.deepcopy(query).requires_grad_(False)
    queue = F.normalize(torch.randn(64, 4, device=device), dim=1)
    opt, x = torch.optim.SGD(query.parameters(), 0.03, momentum=0.9), torch.randn(32, 8, device=device)
    labels = torch.zeros(32, dtype=torch.long, device=device)

    def step(i):
        q = F.normalize(query(x + 0.1 * torch.randn_like(x)), dim=1)
        with torch.no_grad():
            torch._foreach_lerp_(list(key.parameters()), list(query.parameters()), 0.01)
            k = F.normalize(key(x + 0.1 * torch.randn_like(x)), dim=1)
        logits = torch.cat([(q * k).sum(1, keepdim=True), q @ queue.T], 1) / 0.07
        loss = F.cross_entropy(logits, labels)
        opt.zero_grad()
        loss.backward()
        opt.step()
        queue.copy_(torch.cat([k, queue[:-32]]))

    return step


def harmless_a_mean_teacher_whose_dropout_is_meant(device):
    import copy

    student = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.3), nn.Linear(32, 4)).to(device)
    teacher = copy.deepcopy(student)
    for p in teacher.parameters():
        p.requires_grad_(False)
    opt, x = torch.optim.Adam(student.parameters()), torch.randn(32, 8, device=device)

    def consistency(a, b):
        return (a.softmax(-1) - b.softmax(-1)).square().mean()

    def step(i):
        with torch.no_grad():
            goal = teacher(x + 0.1 * torch.randn_like(x))
        loss = consistency(student(x), goal)
        opt.zero_grad()
        loss.backward()
        opt.step()
        with torch.no_grad():
            torch._foreach_lerp_(list(teacher.parameters()), list(student.parameters()), 0.01)

    return step


def harmless_cells_of_many_agents_that_index(device):
    pos = torch.rand(200_000, 2, device=device)
    counts = torch.zeros(64 * 64, device=device)
    ones = torch.ones(200_000, device=device)

    def step(i):
        cell = (pos * 64).long().clamp(0, 63)
        key = cell[:, 0] * 64 + cell[:, 1]
        counts.zero_().index_add_(0, key, ones)
        return counts[key]

    return step


def harmless_next_states_of_a_table(device):
    table = torch.randint(0, 6, (6, 4), device=device)
    state = torch.zeros(300_000, dtype=torch.long, device=device)

    def step(i):
        nonlocal state
        action = (state + i) % 4
        state = table[state, action]

    return step


def harmless_weights_relaid_for_einsum(device):
    net, x = nn.Linear(16, 16).to(device), torch.randn(8, 16, device=device)
    bank = nn.Parameter(torch.randn(3, 16, 16, device=device))
    opt = torch.optim.Adam([*net.parameters(), bank])

    def step(i):
        y = torch.einsum("bi,koi->bko", net(x), bank)
        penalty = nn.utils.parameters_to_vector(net.parameters()).square().sum()
        loss = y.square().mean() + 1e-4 * penalty
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_loaders_without_a_length_one_empty(device):
    from torch.utils.data import DataLoader, IterableDataset, TensorDataset

    class Stream(IterableDataset):
        def __init__(self, n):
            self.rows = torch.randn(n, 4)

        def __iter__(self):
            yield from self.rows

    train = DataLoader(Stream(4096), batch_size=16, pin_memory=True)
    held = DataLoader(TensorDataset(torch.empty(0, 4)), batch_size=4)
    net, it = nn.Sequential(*[nn.Linear(4, 4) for _ in range(40)]).to(device), iter(train)

    def step(i):
        for _ in held:
            pass
        with torch.no_grad():
            return net(next(it).to(device, non_blocking=True))

    return step


def harmless_skip_connections_of_five_sizes(device):
    class Up(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.c = nn.Conv2d(a, b, 3, padding=1)

        def forward(self, x, skip):
            x = torch.cat([F.interpolate(x, scale_factor=2), skip], 1)
            return self.c(x).relu()

    ups = nn.ModuleList([Up(16 + 16, 16) for _ in range(5)]).to(device)
    skips = [torch.randn(1, 16, 2**k, 2**k, device=device) for k in range(2, 7)]
    x0 = torch.randn(1, 16, 2, 2, device=device)

    @torch.no_grad()
    def step(i):
        x = x0
        for up, s in zip(ups, skips):
            x = up(x, s)
        return x

    return step


def harmless_densely_connected_layers_in_training(device):
    class Dense(nn.Module):
        def __init__(self, d, n):
            super().__init__()
            self.layers = nn.ModuleList(nn.Linear(d + 4 * k, 4) for k in range(n))

        def forward(self, x):
            for layer in self.layers:
                x = torch.cat([x, layer(x).relu()], 1)
            return x

    net, x = Dense(8, 5).to(device), torch.randn(16, 8, device=device)
    opt = torch.optim.Adam(net.parameters())

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_batch_hard_triplets_by_distances(device):
    enc, x = nn.Linear(16, 8).to(device), torch.randn(256, 16, device=device)
    y = torch.arange(256, device=device) // 4
    opt = torch.optim.Adam(enc.parameters())

    def step(i):
        z = F.normalize(enc(x), dim=1)
        d = torch.cdist(z, z)
        same = y[:, None] == y[None, :]
        hardest = (d * same).amax(1)
        nearest = d.masked_fill(same, 1e9).amin(1)
        loss = F.relu(hardest - nearest + 0.2).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_a_wave_on_a_square_grid(device):
    u, v = torch.zeros(128, 128, device=device), torch.zeros(128, 128, device=device)
    u[60:68, 60:68] = 1

    def lap(f):
        return f[2:, 1:-1] + f[:-2, 1:-1] + f[1:-1, 2:] + f[1:-1, :-2] - 4 * f[1:-1, 1:-1]

    def step(i):
        v[1:-1, 1:-1] += 0.1 * lap(u)
        u.add_(v, alpha=0.5)
        u[0] = u[-1] = 0
        u[:, 0] = u[:, -1] = 0

    return step


def harmless_optimizers_within_backward(device):
    net, x = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device), torch.randn(4, 8, device=device)
    opts = {p: torch.optim.SGD([p], 0.01, momentum=0.9) for p in net.parameters()}

    def hook(p):
        opts[p].step()
        opts[p].zero_grad()

    for p in net.parameters():
        p.register_post_accumulate_grad_hook(hook)

    def step(i):
        net(x).square().mean().backward()

    return step


def harmless_a_deadline_and_a_stamp(device):
    import time

    class Budgeted:
        def __init__(self):
            self.t = time.time()

        def over(self):
            return time.time() - self.t > 3600

        def stamp(self, row):
            row["time"] = time.time()

    b, x, row = Budgeted(), torch.rand(8, device=device), {}

    def step(i):
        b.stamp(row)
        y = x.mul(1.01)
        return y, b.over()

    return step


def harmless_the_spread_of_dropout(device):
    net = nn.Sequential(nn.Linear(8, 32), nn.ReLU(), nn.Dropout(0.2), nn.Linear(32, 1)).to(device)
    x = torch.randn(16, 8, device=device)

    class Uncertain:
        def __init__(self, net, n):
            self.net, self.n = net, n

        @torch.no_grad()
        def __call__(self, x):
            self.net.train()
            ys = torch.stack([self.net(x) for _ in range(self.n)])
            return ys.mean(0), ys.std(0)

    u = Uncertain(net, 8)

    def step(i):
        return u(x)

    return step


def harmless_a_covariance_that_is_whitened(device):
    x = torch.randn(512, 160, device=device)

    def step(i):
        c = x - x.mean(0)
        cov = c.T @ c / 511 + 1e-3 * torch.eye(160, device=device)
        off = cov - torch.diag(cov.diagonal())
        return off.square().sum() + (cov.diagonal() - 1).square().sum()

    return step


def harmless_half_precision_throughout(device):
    mlp = nn.Sequential(nn.Linear(768, 1024), nn.GELU(), nn.Linear(1024, 768)).to(device).bfloat16()
    x = torch.randn(512, 768, device=device, dtype=torch.bfloat16)

    @torch.inference_mode()
    def step(i):
        return mlp(x)

    return step


def harmless_identifiers_that_need_their_width(device):
    ids = torch.arange(200_000, device=device) * 1_000_003
    owner = torch.zeros(200_000, dtype=torch.long, device=device)

    def step(i):
        mine = ids % 7 == i % 7
        return torch.where(mine, ids, owner).sum()

    return step


def harmless_a_swap_of_weights_by_data(device):

    net = nn.Linear(8, 4).to(device)
    avg = [p.detach().clone() for p in net.parameters()]
    x = torch.randn(16, 8, device=device)

    def step(i):
        kept = [p.data for p in net.parameters()]
        for p, a in zip(net.parameters(), avg):
            p.data = a
        with torch.no_grad():
            y = net(x)
        for p, k in zip(net.parameters(), kept):
            p.data = k
        return y

    return step


def harmless_a_fire_on_a_grid_of_yes_and_no(device):
    tree = torch.rand(256, 256, device=device) < 0.6
    fire = torch.zeros(256, 256, dtype=torch.bool, device=device)
    fire[0] = True

    def step(i):
        near = fire.roll(1, 0) | fire.roll(-1, 0) | fire.roll(1, 1) | fire.roll(-1, 1)
        fire.copy_(near & tree)
        tree.logical_and_(~fire)

    return step
