"""Faults that only the doctor sees; mended ones; look-alikes that are right.

A function makes a step on `device`. A line to blame ends in `# <kind>`; those called `mended_…` and `harmless_…` have
none.
"""

import numpy as np
import torch
from torch import nn

import denizen as dz


def mended_a_loader_without_workers(device):
    data = torch.randn(4096, 4).to(device)
    net = nn.Linear(4, 2).to(device)

    def step(i):
        batch = data[16 * (i % 64) : 16 * (i % 64) + 16]
        with torch.no_grad():
            net(batch)

    return step


def mended_a_slow_collate_function(device):
    data = torch.randn(2048, 2048).pin_memory()
    net = nn.Linear(2048, 2).to(device)

    def step(i):
        batch = data[32 * (i % 60) : 32 * (i % 60) + 32]
        with torch.no_grad():
            net(batch.to(device, non_blocking=True))

    return step


def faulty_a_loader_that_does_not_pin(device):
    from torch.utils.data import DataLoader, TensorDataset

    class Rows(TensorDataset):
        def __getitems__(self, places):
            return self.tensors[0][places]

    batches = iter(DataLoader(Rows(torch.randn(4096, 8)), batch_size=16, collate_fn=lambda batch: batch))
    net = nn.Linear(8, 2).to(device)

    def step(i):
        batch = next(batches)
        with torch.no_grad():
            net(batch.to(device))  # loader-pin

    return step


def mended_a_loader_that_does_not_pin(device):
    from torch.utils.data import DataLoader, TensorDataset

    class Rows(TensorDataset):
        def __getitems__(self, places):
            return self.tensors[0][places]

    rows = Rows(torch.randn(4096, 8))
    batches = iter(DataLoader(rows, batch_size=16, collate_fn=lambda batch: batch, pin_memory=True))
    net = nn.Linear(8, 2).to(device)

    def step(i):
        batch = next(batches)
        with torch.no_grad():
            net(batch.to(device, non_blocking=True))

    return step


def faulty_compiled_in_each_step(device):
    x = torch.ones(8, device=device)

    def f(x):
        return x * 2 + 1

    def step(i):
        g = torch.compile(f, backend="eager")  # compile-overhead
        return g(x)

    return step


def mended_compiled_in_each_step(device):
    x = torch.ones(8, device=device)

    def f(x):
        return x * 2 + 1

    g = torch.compile(f, backend="eager")

    def step(i):
        return g(x)

    return step


def faulty_an_optimizer_in_a_loop(device):
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
    optimizer = torch.optim.Adam(net.parameters(), foreach=False)

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()  # optimizer-unfused

    return step


def mended_an_optimizer_in_a_loop(device):
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
    optimizer = torch.optim.Adam(net.parameters(), foreach=True)

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()

    return step


def faulty_an_optimizer_of_one_s_own(device):
    class Plain(torch.optim.Optimizer):
        def __init__(self, parameters):
            super().__init__(parameters, {})

        @torch.no_grad()
        def step(self):
            for group in self.param_groups:
                for p in group["params"]:
                    p.mul_(0.999)
                    p.sub_(p.grad * 0.01)

    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
    optimizer = Plain(net.parameters())

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()  # optimizer-unfused

    return step


def mended_an_optimizer_of_one_s_own(device):
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()

    return step


def faulty_gradients_filled_with_zeros(device):
    net = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def step(i):
        optimizer.zero_grad(set_to_none=False)  # grad-memset
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()

    return step


def mended_gradients_filled_with_zeros(device):
    net = nn.Linear(8, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.01)

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(4, 8, device=device)).sum().backward()
        optimizer.step()

    return step


def faulty_gradients_filled_by_hand(device):
    net = nn.Linear(8, 2).to(device)

    def step(i):
        net(torch.ones(4, 8, device=device)).sum().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.01 * p.grad
                p.grad.zero_()  # grad-memset

    return step


def mended_gradients_filled_by_hand(device):
    net = nn.Linear(8, 2).to(device)

    def step(i):
        net(torch.ones(4, 8, device=device)).sum().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.01 * p.grad
                p.grad = None

    return step


def faulty_large_products_in_float32(device):
    a, b = torch.randn(640, 640, device=device), torch.randn(640, 640, device=device)

    def step(i):
        return a @ b  # dtype-fp32

    return step


def mended_large_products_in_float32(device):
    a = torch.randn(640, 640, device=device).bfloat16()

    def step(i):
        return a @ a

    return step


def faulty_float64_from_numpy(device):
    x = torch.ones(8, device=device)
    table = torch.from_numpy(np.linspace(0, 1, 8)).to(device)

    def step(i):
        y = x * table  # dtype-fp64
        return (y + 1).exp()

    return step


def mended_float64_from_numpy(device):
    x = torch.ones(8, device=device)
    table = torch.from_numpy(np.linspace(0, 1, 8)).float().to(device)

    def step(i):
        y = x * table
        return (y + 1).exp()

    return step


def faulty_wide_whole_numbers(device):
    ages = torch.randint(0, 90, (200_000,), device=device)

    def step(i):
        return (ages > 60).sum()  # dtype-wide-int

    return step


def mended_wide_whole_numbers(device):
    ages = torch.randint(0, 90, (200_000,), device=device).to(torch.int8)

    def step(i):
        return (ages > 60).sum()

    return step


def faulty_a_loop_over_agents(device):
    x, w = torch.ones(50, device=device), torch.ones(50, device=device)

    def step(i):
        result = torch.zeros(50, device=device)
        for k in range(50):
            result[k] = x[k] * w[k]  # launch-bound
        return result

    return step


def mended_a_loop_over_agents(device):
    x, w = torch.ones(50, device=device), torch.ones(50, device=device)

    def step(i):
        return x * w

    return step


def faulty_a_loop_over_time(device):
    cell, x = nn.GRUCell(4, 4).to(device), torch.ones(40, 2, 4, device=device)

    def step(i):
        h = torch.zeros(2, 4, device=device)
        for t in range(40):
            h = torch.tanh(h * 0.9 + x[t])  # launch-bound
        return h

    return step


def mended_a_loop_over_time(device):
    gru, x = nn.GRU(4, 4).to(device), torch.ones(40, 2, 4, device=device)

    def step(i):
        with torch.no_grad():
            return gru(x)

    return step


def faulty_a_loop_over_parameters(device):
    nets = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)]).to(device) for _ in range(2)]

    def step(i):
        with torch.no_grad():
            for slow, fast in zip(nets[0].parameters(), nets[1].parameters()):
                slow.mul_(0.99).add_(fast, alpha=0.01)  # launch-bound

    return step


def mended_a_loop_over_parameters(device):
    nets = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)]).to(device) for _ in range(2)]

    def step(i):
        with torch.no_grad():
            torch._foreach_lerp_(list(nets[0].parameters()), list(nets[1].parameters()), 0.01)

    return step


def faulty_cat_in_a_loop(device):
    x = torch.ones(4, 3, device=device)

    def step(i):
        rows = torch.empty(0, 3, device=device)
        for k in range(6):
            rows = torch.cat([rows, x * k])  # alloc-churn
        return rows

    return step


def mended_cat_in_a_loop(device):
    x = torch.ones(4, 3, device=device)

    def step(i):
        rows = torch.empty(24, 3, device=device)
        for k in range(6):
            torch.mul(x, k, out=rows[4 * k : 4 * k + 4])
        return rows

    return step


def faulty_a_history_that_cat_grows(device):
    history, x = torch.empty(0, device=device), torch.ones(4, device=device)

    def step(i):
        nonlocal history
        history = torch.cat([history, x])  # alloc-churn

    return step


def mended_a_history_that_cat_grows(device):
    history, x = torch.empty(1000, 4, device=device), torch.ones(4, device=device)

    def step(i):
        history[i] = x

    return step


def faulty_a_clone_for_nothing(device):
    x = torch.ones(64, device=device)

    def step(i):
        y = x.clone()  # alloc-churn
        return y * 2

    return step


def mended_a_clone_for_nothing(device):
    x = torch.ones(64, device=device)

    def step(i):
        return x * 2

    return step


def faulty_the_cache_emptied(device):
    x = torch.ones(64, device=device)

    def step(i):
        x.add_(1)
        torch.cuda.empty_cache()  # alloc-churn

    return step


def mended_the_cache_emptied(device):
    x = torch.ones(64, device=device)
    torch.cuda.empty_cache()

    def step(i):
        x.add_(1)

    return step


def faulty_losses_kept(device):
    net, losses = nn.Linear(4, 1).to(device), []

    def step(i):
        loss = net(torch.ones(8, 4, device=device)).mean()
        net.zero_grad()
        loss.backward()
        losses.append(loss)  # graph-retention

    return step


def mended_losses_kept(device):
    net, losses = nn.Linear(4, 1).to(device), []

    def step(i):
        loss = net(torch.ones(8, 4, device=device)).mean()
        net.zero_grad()
        loss.backward()
        losses.append(loss.detach())

    return step


def faulty_a_running_loss_with_its_graph(device):
    net, total = nn.Linear(4, 1).to(device), 0.0

    def step(i):
        nonlocal total
        loss = net(torch.ones(8, 4, device=device)).mean()
        net.zero_grad()
        loss.backward()
        total = total + loss  # graph-retention

    return step


def mended_a_running_loss_with_its_graph(device):
    net, total = nn.Linear(4, 1).to(device), 0.0

    def step(i):
        nonlocal total
        loss = net(torch.ones(8, 4, device=device)).mean()
        net.zero_grad()
        loss.backward()
        total = total + loss.detach()

    return step


def faulty_a_graph_kept_for_nobody(device):
    net = nn.Linear(4, 1).to(device)

    def step(i):
        loss = net(torch.ones(8, 4, device=device)).mean()
        net.zero_grad()
        loss.backward(retain_graph=True)  # graph-retention

    return step


def mended_a_graph_kept_for_nobody(device):
    net = nn.Linear(4, 1).to(device)

    def step(i):
        loss = net(torch.ones(8, 4, device=device)).mean()
        net.zero_grad()
        loss.backward()

    return step


def faulty_a_rollout_with_a_graph(device):
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    x = torch.ones(3, 4, device=device)

    def act():
        return policy(x).argmax(1)  # no-grad-missing

    def step(i):
        act()
        policy.zero_grad()
        policy(x).sum().backward()

    return step


def mended_a_rollout_with_a_graph(device):
    policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
    x = torch.ones(3, 4, device=device)

    @torch.no_grad()
    def act():
        return policy(x).argmax(1)

    def step(i):
        act()
        policy.zero_grad()
        policy(x).sum().backward()

    return step


def faulty_all_pairs_for_few_contacts(device):
    places = torch.rand(300, 2, device=device)
    ill = (torch.arange(300, device=device) % 10 == 0).float()

    def step(i):
        far = torch.cdist(places, places)  # dense-quadratic
        near = far < 0.05
        return near.float() @ ill

    return step


def mended_all_pairs_for_few_contacts(device):
    pairs = torch.randint(0, 300, (2, 900), device=device)
    ill = (torch.arange(300, device=device) % 10 == 0).float()

    def step(i):
        return torch.zeros(300, device=device).index_add_(0, pairs[0], ill[pairs[1]])

    return step


def faulty_a_clock_around_launches(device):
    import time

    x = torch.ones(8, device=device)

    def step(i):
        began = time.perf_counter()
        x.add_(1)
        return time.perf_counter() - began  # timing-async

    return step


def mended_a_clock_around_launches(device):
    x = torch.ones(8, device=device)
    start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)

    def step(i):
        start.record()
        x.add_(1)
        end.record()

    return step


def faulty_anomaly_detection(device):
    net = nn.Linear(4, 1).to(device)

    def step(i):
        with torch.autograd.detect_anomaly(check_nan=False):  # debug-left-on
            net.zero_grad()
            net(torch.ones(8, 4, device=device)).mean().backward()

    return step


def mended_anomaly_detection(device):
    net = nn.Linear(4, 1).to(device)

    def step(i):
        net.zero_grad()
        net(torch.ones(8, 4, device=device)).mean().backward()

    return step


def faulty_evaluation_in_training_mode(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.layers = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1))

        def forward(self, x):
            return self.layers(x)

    net = Net().to(device)
    x = torch.ones(8, 4, device=device)

    def step(i):
        with torch.no_grad():
            return net(x)  # eval-mode-missing

    return step


def mended_evaluation_in_training_mode(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)).to(device)
    x = torch.ones(8, 4, device=device)
    net.eval()

    def step(i):
        with torch.no_grad():
            return net(x)

    return step


def faulty_the_weights_copied(device):
    import copy

    net = nn.Linear(4, 2).to(device)

    def step(i):
        return copy.deepcopy(net.state_dict())  # state-copy

    return step


def mended_the_weights_copied(device):
    import copy

    net = nn.Linear(4, 2).to(device)
    old = copy.deepcopy(net)

    def step(i):
        with torch.no_grad():
            for a, b in zip(old.parameters(), net.parameters()):
                a.copy_(b)

    return step


def faulty_a_print_in_compiled_code(device):
    x = torch.ones(8, device=device)

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        print("here")  # graph-break
        return y + 1

    def step(i):
        f(x)

    return step


def mended_a_print_in_compiled_code(device):
    x = torch.ones(8, device=device)

    @torch.compile(backend="eager")
    def f(x):
        y = x * 2
        return y + 1

    def step(i):
        f(x)
        print("here")

    return step


def faulty_shapes_that_change(device):
    x = torch.ones(100, device=device)

    @torch.compile(backend="eager", dynamic=False)
    def f(x):
        return x * 2

    def step(i):
        f(x[: i % 50 + 1])  # recompile recompile-limit

    return step


def mended_shapes_that_change(device):
    x = torch.ones(100, device=device)

    @torch.compile(backend="eager", dynamic=True)
    def f(x):
        return x * 2

    def step(i):
        f(x[: i % 50 + 3])

    return step


def harmless_a_batch_of_zeros_with_as_many_rows_as_columns(device):
    net = nn.Linear(256, 256).to(device)

    def step(i):
        net.zero_grad()
        net(torch.zeros(256, 256, device=device)).mean().backward()

    return step


def harmless_a_precision_that_is_set_around_products(device):
    a, b = torch.randn(640, 640, device=device), torch.randn(640, 640, device=device)

    def step(i):
        torch.set_float32_matmul_precision("high")
        c = a @ b
        torch.set_float32_matmul_precision("highest")
        return c

    return step


def harmless_a_small_loader_in_this_process(device):
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.randn(640, 4)), batch_size=8, pin_memory=True)
    net = nn.Linear(4, 2).to(device)
    batches = iter(loader)

    def step(i):
        (batch,) = next(batches)
        with torch.no_grad():
            net(batch.to(device, non_blocking=True))

    return step


def harmless_updates_in_a_loop(device):
    net = nn.Linear(4, 1).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    data = torch.ones(10, 8, 4, device=device)

    def step(i):
        for epoch in range(2):
            for k in range(10):
                loss = (net(data[k]) * 2).mean()
                optimizer.zero_grad()
                loss.backward()
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()

    return step


def harmless_clones_that_are_needed(device):
    x = torch.ones(8, device=device)

    def step(i):
        before = x.clone()
        first = x[0].clone()
        x.add_(1)
        masked = before.clone()
        masked[:3] = 0
        return masked.sum(), x - before, first

    return step


def harmless_a_sum_over_micro_batches(device):
    net = nn.Linear(4, 1).to(device)

    def step(i):
        net.zero_grad()
        total = 0.0
        for _ in range(3):
            total = total + net(torch.ones(8, 4, device=device)).mean()
        total.backward()

    return step


def harmless_two_losses_on_one_graph(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        net.zero_grad()
        y = net(torch.ones(8, 4, device=device))
        y[:, 0].sum().backward(retain_graph=True)
        y[:, 1].sum().backward()

    return step


def harmless_layers_in_a_loop(device):
    layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(20)]).to(device)

    def step(i):
        x = torch.ones(4, 8, device=device)
        for layer in layers:
            x = layer(x)
        x.sum().backward()
        for layer in layers:
            layer.zero_grad()

    return step


def harmless_a_log_every_ten_steps(device):
    x = torch.ones(8, device=device)

    def step(i):
        x.add_(1)
        if i % 10 == 0:
            print(x.mean().item())

    return step


def harmless_small_products(device):
    a = torch.randn(64, 64, device=device)

    def step(i):
        return a @ a

    return step


def harmless_under_autocast(device):
    a = torch.randn(640, 640, device=device)

    def step(i):
        with torch.autocast(device.type, torch.bfloat16):
            return a @ a

    return step


def harmless_a_clock_and_a_wait(device):
    import time

    x = torch.ones(8, device=device)

    def step(i):
        began = time.perf_counter()
        x.add_(1)
        with dz.perf.allow("measurement"):
            torch.cuda.synchronize()
        return time.perf_counter() - began

    return step


def harmless_indices_are_wide(device):
    x = torch.ones(200_000, device=device)
    places = torch.randint(0, 200_000, (200_000,), device=device)

    def step(i):
        return x[places]

    return step


def harmless_attention(device):
    q = torch.randn(1, 2, 300, 8, device=device)

    def step(i):
        return torch.softmax(q @ q.transpose(-1, -2) / 8, -1) @ q

    return step


def harmless_batch_norm_in_training(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)).to(device)

    def step(i):
        net.zero_grad()
        net(torch.ones(8, 4, device=device)).mean().backward()

    return step


def harmless_a_history_on_the_host(device):
    net, losses = nn.Linear(4, 1).to(device), []

    def step(i):
        net.zero_grad()
        loss = net(torch.ones(8, 4, device=device)).mean()
        loss.backward()
        losses.append(i)

    return step
