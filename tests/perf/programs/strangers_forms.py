"""More training code in the manner of strangers: odd forms.

A function makes a step on `device`. A line to blame ends in `# <kind>`; those called `mended_…` and `harmless_…` have
none.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def faulty_reduce(device):
    import functools

    losses = [torch.rand((), device=device) for _ in range(4)]

    def step(i):
        return functools.reduce(lambda a, b: a + b.item(), losses, 0.0)  # host-sync-item

    return step


def faulty_map_of_a_method(device):
    losses = [torch.rand((), device=device) for _ in range(3)]

    def step(i):
        return list(map(torch.Tensor.item, losses))  # host-sync-item

    return step


def faulty_partial(device):
    from functools import partial

    def log(scale, value):
        return scale * float(value)  # host-sync-float

    x, half = torch.rand(4, device=device), partial(log, 0.5)

    def step(i):
        return half(x.sum())

    return step


def faulty_an_object_that_is_called(device):
    class Schedule:
        def __call__(self, loss):
            return 1e-3 if loss.item() > 1 else 1e-4  # host-sync-item

    schedule, x = Schedule(), torch.rand(4, device=device)

    def step(i):
        return schedule(x.sum())

    return step


def faulty_an_iterator_of_its_own(device):
    class Worlds:
        def __init__(self):
            self.done = torch.zeros(3, dtype=torch.bool, device=device)

        def __iter__(self):
            for k in range(3):
                if not self.done[k]:  # host-sync-bool
                    yield k

    worlds = Worlds()

    def step(i):
        return sum(worlds)

    return step


def faulty_finally(device):
    x, seen = torch.rand(4, device=device), {}

    def step(i):
        try:
            y = x.square().mean()
        finally:
            seen["x"] = x.max().item()  # host-sync-item
        return y

    return step


def faulty_default_of_get(device):
    x, table = torch.rand(4, device=device), {0: "a"}

    def step(i):
        return table.get(0, x.argmax().item())  # host-sync-item

    return step


def faulty_a_conditional_in_a_comprehension(device):
    parts = [torch.rand(3, device=device) for _ in range(4)]

    def step(i):
        return [
            part * 2
            for part in parts
            if part.max() > 2  # host-sync-bool
        ]

    return step


def faulty_chained_comparison(device):
    x = torch.rand((), device=device)

    def step(i):
        return 1 if 0.0 <= x <= 1.0 else 2  # host-sync-bool

    return step


def faulty_loss_that_is_not_itself(device):
    x = torch.rand(3, device=device)

    def step(i):
        loss = x.mean()
        if loss != loss:  # host-sync-bool
            raise FloatingPointError

    return step


def faulty_negation(device):
    x = torch.ones(3, dtype=torch.bool, device=device)

    def step(i):
        return not x.all()  # host-sync-bool

    return step


def faulty_filter(device):
    rows = [torch.rand(2, device=device) for _ in range(3)]

    def step(i):
        return list(filter(lambda row: row.sum() > 5, rows))  # host-sync-bool

    return step


def faulty_a_mean_of_numbers(device):
    losses = [torch.rand((), device=device) for _ in range(3)]

    def step(i):
        return np.mean([loss.item() for loss in losses])  # host-sync-item

    return step


def faulty_array_protocol_of_numpy(device):
    x = torch.rand(4, device=device)

    def step(i):
        return np.log1p(np.asarray(x.cpu()))  # host-sync-copy

    return step


def faulty_two_lists_of_numbers(device):
    x, y = torch.rand(4, device=device), torch.rand(4, device=device)

    def step(i):
        return dict(zip(x.tolist(), y.tolist()))  # host-sync-item

    return step


def faulty_a_column_of_a_list(device):
    x, columns = torch.rand(4, 6, device=device), [0, 2, 5]

    def step(i):
        return x[:, columns].sum()  # h2d-index

    return step


def faulty_a_row_written_by_a_list(device):
    x = torch.zeros(6, 2, device=device)

    def step(i):
        x[[1, 3]] = 1.0  # h2d-index h2d-fresh

    return step


def faulty_padding_made_on_the_host(device):
    x = torch.rand(4, 6, device=device)

    def step(i):
        return torch.cat([x, torch.zeros(4, 2).to(x)], 1)  # h2d-fresh

    return step


def faulty_a_stack_of_numbers(device):
    x = torch.rand(3, device=device)

    def step(i):
        return x * torch.stack([torch.tensor(float(k)) for k in range(3)]).to(device)  # h2d-fresh

    return step


def faulty_tensor_of_a_list(device):
    x = torch.rand(3, device=device)

    def step(i):
        return x * torch.Tensor([1, 2, i]).to(device)  # h2d-fresh

    return step


def faulty_a_constant_of_a_module_that_stayed_on_the_host(device):
    class Scale(nn.Module):
        def __init__(self):
            super().__init__()
            self.factor, self.linear = torch.rand(8), nn.Linear(8, 8)

        def forward(self, x):
            return self.linear(x) * self.factor.to(x.device)  # h2d-pageable h2d-fresh

    net, x = Scale().to(device), torch.rand(2, 8, device=device)

    def step(i):
        with torch.no_grad():
            return net(x)

    return step


def faulty_pickled(device):
    import pickle

    x = torch.rand(3, device=device)

    def step(i):
        return pickle.dumps(x)  # host-sync-copy

    return step


def faulty_a_hook_of_a_gradient(device):
    w = nn.Parameter(torch.rand(3, device=device))
    norms = []
    w.register_hook(lambda g: norms.append(g.norm().item()))  # host-sync-item

    def step(i):
        w.grad = None
        (w * 2).sum().backward()

    return step


def faulty_a_function_of_torch_that_is_python_inside(device):
    x = torch.rand(5, device=device)

    def step(i):
        return torch.histc(x, bins=4)  # host-sync-item

    return step


def faulty_debug_text_of_a_module(device):
    class Net(nn.Linear):
        def extra_repr(self):
            return f"w={self.weight.mean():.2f}"  # host-sync-print

    net = Net(4, 4).to(device)

    def step(i):
        return str(net)

    return step


def faulty_a_coroutine(device):
    import asyncio

    x = torch.rand(3, device=device)

    async def read():
        await asyncio.sleep(0)
        return x.sum().item()  # host-sync-item

    def step(i):
        return asyncio.run(read())

    return step


def faulty_a_product_of_lists(device):
    import itertools

    x = torch.rand(3, device=device)

    def step(i):
        return [a * b for a, b in itertools.product(x.tolist(), [1, 2])]  # host-sync-item

    return step


def faulty_a_scheduler_told_of_a_tensor(device):
    net, x = nn.Linear(4, 1).to(device), torch.rand(8, 4, device=device)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=100)

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        plateau.step(loss.detach())  # host-sync-float

    return step


def faulty_image_normalise_host_mean(device):
    mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
    x = torch.rand(4, 3, 8, 8, device=device)

    def step(i):
        return x - mean.to(device)  # h2d-pageable h2d-fresh

    return step


def faulty_eval_loop_list_extend(device):
    preds = []
    x = torch.rand(16, 3, device=device)

    def step(i):
        out = x.argmax(1)
        preds.extend(out.cpu().numpy())  # host-sync-copy d2h-accumulate

    return step


def faulty_sparse_contact(device):
    p = torch.rand(400, 2, device=device)

    def step(i):
        d = p[:, None] - p[None]  # dense-quadratic
        near = d.square().sum(-1) < 0.001
        return near.sum(1)

    return step


def faulty_sample_loop_small(device):
    net = nn.Linear(3, 2).to(device)
    x0 = torch.randn(16, 2, device=device)

    @torch.no_grad()
    def sample():
        x = x0
        for t in range(50):
            x = x + 0.02 * net(torch.cat([x, torch.full((16, 1), t / 50, device=device)], 1))  # launch-bound
        return x

    def step(i):
        return sample()

    return step


def faulty_grad_scaler_bf16(device):
    net = nn.Linear(8, 8).to(device)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler(device.type)
    x = torch.randn(8, 8, device=device)

    def step(i):
        opt.zero_grad()
        with torch.autocast(device.type, dtype=torch.bfloat16):
            loss = net(x).square().mean()
        scaler.scale(loss).backward()
        scaler.step(opt)  # host-sync-scaler
        scaler.update()

    return step


def faulty_hidden_with_its_graph(device):
    cell = nn.GRUCell(8, 8).to(device)
    opt = torch.optim.Adam(cell.parameters())
    x = torch.randn(4, 8, device=device)
    h = torch.zeros(4, 8, device=device)
    losses = []

    def step(i):
        out = cell(x, h)
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        losses.append(loss)  # graph-retention

    return step


def faulty_metric_outside_no_grad(device):
    net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    opt = torch.optim.Adam(net.parameters())
    x, y = torch.randn(256, 8, device=device), torch.randn(256, 4, device=device)
    seen = {}

    def step(i):
        loss = F.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        seen["l1"] = F.l1_loss(net(x), y).detach()  # no-grad-missing

    return step


def faulty_clone_for_safety(device):
    x = torch.randn(1000, device=device)

    def normalise(t):
        t = t.clone()  # alloc-churn
        return (t - t.mean()) / t.std()

    def step(i):
        return normalise(x)

    return step


def faulty_while_heap(device):
    import heapq

    d = torch.rand(8, device=device)

    def step(i):
        heap = [(float(v), k) for k, v in enumerate(d)]  # host-sync-float
        heapq.heapify(heap)
        return heap[0][1]

    return step


def faulty_torch_tensor_of_tensor_list(device):
    a = [torch.rand((), device=device) for _ in range(3)]

    def step(i):
        return torch.tensor(a, device=device).mean()  # host-sync-item h2d-fresh host-sync-float roundtrip

    return step


def faulty_averages_of_weights_by_torch(device):
    from torch.optim.swa_utils import AveragedModel

    net = nn.Linear(4, 4).to(device)
    average, opt, x = AveragedModel(net), torch.optim.Adam(net.parameters()), torch.randn(8, 4, device=device)

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        average.update_parameters(net)  # host-sync-item h2d-fresh

    return step


def faulty_wandb_dict(device):
    class Run:
        def log(self, d, step=None):
            self.last = d

    run = Run()
    net = nn.Linear(4, 1).to(device)
    opt = torch.optim.Adam(net.parameters())
    x = torch.randn(8, 4, device=device)

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        run.log({"loss": loss.item(), "w": net.weight.detach().norm().item()}, step=i)  # host-sync-item

    return step


def faulty_detach_cpu_item_mean_list(device):
    x = torch.randn(8, device=device)
    hist = []

    def step(i):
        hist.append(x.mean().detach().cpu().item())  # host-sync-copy d2h-accumulate

    return step


def faulty_numpy_argmax(device):
    x = torch.randn(8, 5, device=device)

    def step(i):
        return np.argmax(x.detach().cpu().numpy(), axis=1)  # host-sync-copy

    return step


def faulty_numpy_choice_probs(device):
    logits = torch.randn(5, device=device)

    def step(i):
        p = logits.softmax(0).cpu().numpy().astype(np.float64)  # host-sync-copy
        return np.random.choice(5, p=p / p.sum())

    return step


def faulty_device_from_numpy_float(device):
    x = torch.randn(8, device=device)

    def step(i):
        lr = torch.from_numpy(np.random.rand(8).astype(np.float32)).to(device)  # h2d-fresh
        return x * lr

    return step


def faulty_tensor_from_list_of_lists(device):
    x = torch.randn(2, 2, device=device)

    def step(i):
        return x @ torch.tensor([[1.0, 0.0], [0.0, i]], device=device)  # h2d-fresh

    return step


def faulty_edge_list_python(device):
    x = torch.randn(6, 3, device=device)
    edges = [(0, 1), (2, 3), (4, 5)]

    def step(i):
        src, dst = zip(*edges)
        return x[list(src)] + x[list(dst)]  # h2d-index

    return step


def faulty_python_max_over_rows(device):
    x = torch.randn(4, 3, device=device)

    def step(i):
        best, at = -1e9, 0
        for k, row in enumerate(x):
            s = row.sum()
            if s > best:  # host-sync-bool
                best, at = s, k
        return at

    return step


def faulty_top_p(device):
    logits = torch.randn(1, 50, device=device)

    def step(i):
        s, idx = logits.sort(descending=True)
        drop = s.softmax(-1).cumsum(-1) > 0.9
        drop[..., 1:] = drop[..., :-1].clone()
        drop[..., 0] = False
        logits2 = logits.clone()
        logits2[:, idx[drop]] = -1e9  # host-sync-boolindex h2d-fresh
        return logits2

    return step


def faulty_eos_stop(device):
    out = torch.zeros(4, 6, dtype=torch.long, device=device)

    def step(i):
        for t in range(6):
            if (out[:, t] == 1).all():  # host-sync-bool
                break
        return out

    return step


def faulty_nan_count(device):
    g = torch.randn(10, device=device)

    def step(i):
        n = torch.isnan(g).sum().item()  # host-sync-item
        return n

    return step


def faulty_grad_norm_by_hand(device):
    net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).to(device)
    x = torch.randn(8, 4, device=device)

    def step(i):
        net.zero_grad()
        net(x).mean().backward()
        total = 0.0
        for p in net.parameters():
            total += p.grad.data.norm(2).item() ** 2  # host-sync-item
        return total**0.5

    return step


def faulty_weights_to_numpy_state(device):
    net = nn.Linear(4, 4).to(device)

    def step(i):
        return {k: v.cpu().numpy() for k, v in net.state_dict().items()}  # state-copy

    return step


def faulty_lambda_lr_host_read(device):
    beta = torch.tensor(0.5, device=device)
    x = torch.randn(3, device=device)

    def step(i):
        return x.mul(beta.item()).add(1)  # host-sync-item

    return step


def faulty_agents_neighbours_python(device):
    pos = torch.rand(20, 2, device=device)

    def step(i):
        out = []
        for k in range(20):
            d = (pos - pos[k]).square().sum(1)  # launch-bound
            out.append(d < 0.1)
        return torch.stack(out).sum(1)

    return step


def faulty_infection_by_where(device):
    s = torch.zeros(200, dtype=torch.long, device=device)
    s[:5] = 1

    def step(i):
        sick = (s == 1).nonzero(as_tuple=True)[0]  # host-sync-nonzero
        s.index_fill_(0, sick, 1)

    return step


def faulty_sir_count_list(device):
    s = torch.zeros(200, dtype=torch.long, device=device)
    history = []

    def step(i):
        history.append([int((s == k).sum()) for k in range(3)])  # host-sync-float

    return step


def faulty_unique_labels(device):
    y = torch.randint(0, 3, (30,), device=device)
    x = torch.randn(30, 2, device=device)

    def step(i):
        return torch.stack([x[y == c].mean(0) for c in y.unique()])  # host-sync-nonzero host-sync-boolindex

    return step


def faulty_random_perm_host(device):
    x = torch.randn(32, 4, device=device)

    def step(i):
        idx = torch.randperm(32)
        a = x[idx]  # h2d-index
        return a

    return step


def faulty_numpy_random_mask(device):
    x = torch.randn(32, device=device)

    def step(i):
        m = np.random.rand(32) < 0.5
        return x * torch.tensor(m, device=device)  # h2d-fresh

    return step


def faulty_float64_scalar_array(device):
    w = torch.tensor(np.ones((8, 8))).to(device)
    x = torch.randn(4, 8, device=device)

    def step(i):
        return (x.double() @ w).relu().float()  # dtype-fp64

    return step


def faulty_inference_without_no_grad(device):
    net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
    x = torch.randn(32, 16, device=device)

    def step(i):
        return net(x).argmax(1)  # no-grad-missing

    return step


def faulty_set_to_none_false(device):
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]).to(device)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(4, 8, device=device)

    def step(i):
        net.zero_grad(set_to_none=False)  # grad-memset
        net(x).square().mean().backward()
        opt.step()

    return step


def faulty_own_sgd(device):
    net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to(device)
    x = torch.randn(4, 8, device=device)

    def step(i):
        net.zero_grad()
        net(x).square().mean().backward()
        with torch.no_grad():
            for p in net.parameters():
                p -= 0.01 * p.grad  # launch-bound

    return step


def faulty_compile_in_loop(device):
    def f(x):
        return x * 2 + 1

    x = torch.randn(4, device=device)

    def step(i):
        g = torch.compile(f, backend="eager")  # compile-overhead
        return g(x)

    return step


def faulty_cat_of_results(device):
    x = torch.randn(32, 4, device=device)

    def step(i):
        out = torch.empty(0, 4, device=device)
        for k in range(6):
            out = torch.cat((out, x * k))  # alloc-churn
        return out

    return step


def faulty_print_loss(device):
    x = torch.randn(3, device=device)

    def step(i):
        print("loss", x.mean())  # host-sync-print

    return step


def faulty_numpy_clip_roundtrip(device):
    x = torch.randn(8, device=device)

    def step(i):
        return torch.tensor(np.clip(x.cpu().numpy(), -1, 1), device=device)  # roundtrip

    return step


def faulty_target_from_online_net_with_grad(device):
    q, t = nn.Linear(8, 64).to(device), nn.Linear(8, 64).to(device)
    opt = torch.optim.Adam(q.parameters())
    x = torch.randn(64, 8, device=device)

    def step(i):
        target = t(x).detach()  # no-grad-missing
        loss = (q(x) - target).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def faulty_losses_dict_kept(device):
    net = nn.Linear(8, 1).to(device)
    opt = torch.optim.Adam(net.parameters())
    x = torch.randn(8, 8, device=device)
    log = {"loss": []}

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        log["loss"].append(loss)  # graph-retention

    return step


def faulty_eval_forgotten(device):
    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.f = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
            self.o = nn.Linear(16, 2)

        def forward(self, x):
            return self.o(self.f(x))

    net = Net().to(device)
    x = torch.randn(8, 8, device=device)

    @torch.no_grad()
    def predict(x):
        return net(x).softmax(-1)  # eval-mode-missing

    def step(i):
        return predict(x)

    return step


def faulty_perf_counter_fps(device):
    import time

    net = nn.Linear(8, 8).to(device)
    x = torch.randn(8, 8, device=device)
    fps = []

    def step(i):
        t = time.perf_counter()
        with torch.no_grad():
            y = net(x).relu()
        fps.append(len(x) / (time.perf_counter() - t))  # timing-async

    return step


def faulty_history_cat(device):
    h = {"x": torch.zeros(1, 8, device=device)}
    new = torch.ones(1, 8, device=device)

    def step(i):
        h["x"] = torch.cat([h["x"], new])  # alloc-churn

    return step


def faulty_deepcopy_best(device):
    import copy

    net = nn.Linear(8, 8).to(device)
    best = {}

    def step(i):
        best["net"] = copy.deepcopy(net)  # state-copy

    return step


def faulty_deque_obs_stack(device):
    from collections import deque

    frames = deque([torch.rand(1, 8, 8) for _ in range(4)], maxlen=4)
    net = nn.Conv2d(4, 2, 3).to(device)

    def step(i):
        frames.append(torch.rand(1, 8, 8))
        s = torch.cat(list(frames)).unsqueeze(0).to(device)  # h2d-fresh
        with torch.no_grad():
            return net(s)

    return step
