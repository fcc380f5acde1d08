"""Snippets with a fault that only the doctor sees: faulty and mended. ``# kind`` marks the line to blame.

As in `snippets.py`; ``step(i)`` is a step on `device`.
"""

FAULTS = {
    "a loader without workers": (
        """
        from torch.utils.data import DataLoader, Dataset
        class Slow(Dataset):
            def __len__(self): return 4096
            def __getitem__(self, i): return torch.tensor([sum(k * 0.5 for k in range(3000))] * 4)
        loader = DataLoader(Slow(), batch_size=16, pin_memory=True)  # loader-workers
        batches = iter(loader)
        net = nn.Linear(4, 2).to(device)
        def step(i):
            batch = next(batches)
            with torch.no_grad():
                net(batch.to(device, non_blocking=True))
        """,
        """
        data = torch.randn(4096, 4).to(device)
        net = nn.Linear(4, 2).to(device)
        def step(i):
            batch = data[16 * (i % 64) : 16 * (i % 64) + 16]
            with torch.no_grad():
                net(batch)
        """,
    ),
    "a slow collate function": (
        """
        from torch.utils.data import DataLoader
        def collate(samples):
            rows = []
            for sample in samples:
                rows.append(torch.tensor([float(v) for v in sample.tolist()]))
            return torch.stack(rows)
        data = list(torch.randn(2048, 2048))
        loader = DataLoader(data, batch_size=32, collate_fn=collate, pin_memory=True)  # loader-collate
        batches = iter(loader)
        net = nn.Linear(2048, 2).to(device)
        def step(i):
            batch = next(batches)
            with torch.no_grad():
                net(batch.to(device, non_blocking=True))
        """,
        """
        data = torch.randn(2048, 2048).pin_memory()
        net = nn.Linear(2048, 2).to(device)
        def step(i):
            batch = data[32 * (i % 60) : 32 * (i % 60) + 32]
            with torch.no_grad():
                net(batch.to(device, non_blocking=True))
        """,
    ),
    "a loader that does not pin": (
        """
        from torch.utils.data import DataLoader, TensorDataset
        class Rows(TensorDataset):
            def __getitems__(self, places): return self.tensors[0][places]
        batches = iter(DataLoader(Rows(torch.randn(4096, 8)), batch_size=16, collate_fn=lambda batch: batch))
        net = nn.Linear(8, 2).to(device)
        def step(i):
            batch = next(batches)
            with torch.no_grad():
                net(batch.to(device))  # loader-pin
        """,
        """
        from torch.utils.data import DataLoader, TensorDataset
        class Rows(TensorDataset):
            def __getitems__(self, places): return self.tensors[0][places]
        rows = Rows(torch.randn(4096, 8))
        batches = iter(DataLoader(rows, batch_size=16, collate_fn=lambda batch: batch, pin_memory=True))
        net = nn.Linear(8, 2).to(device)
        def step(i):
            batch = next(batches)
            with torch.no_grad():
                net(batch.to(device, non_blocking=True))
        """,
    ),
    "compiled in each step": (
        """
        x = torch.ones(8, device=device)
        def f(x): return x * 2 + 1
        def step(i):
            g = torch.compile(f, backend="eager")  # compile-overhead
            return g(x)
        """,
        """
        x = torch.ones(8, device=device)
        def f(x): return x * 2 + 1
        g = torch.compile(f, backend="eager")
        def step(i):
            return g(x)
        """,
    ),
    "an optimizer in a loop": (
        """
        net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
        optimizer = torch.optim.Adam(net.parameters(), foreach=False)
        def step(i):
            optimizer.zero_grad()
            net(torch.ones(4, 8, device=device)).sum().backward()
            optimizer.step()  # optimizer-unfused
        """,
        """
        net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
        optimizer = torch.optim.Adam(net.parameters(), foreach=True)
        def step(i):
            optimizer.zero_grad()
            net(torch.ones(4, 8, device=device)).sum().backward()
            optimizer.step()
        """,
    ),
    "an optimizer of one's own": (
        """
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
        """,
        """
        net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(10)]).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        def step(i):
            optimizer.zero_grad()
            net(torch.ones(4, 8, device=device)).sum().backward()
            optimizer.step()
        """,
    ),
    "gradients filled with zeros": (
        """
        net = nn.Linear(8, 2).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        def step(i):
            optimizer.zero_grad(set_to_none=False)  # grad-memset
            net(torch.ones(4, 8, device=device)).sum().backward()
            optimizer.step()
        """,
        """
        net = nn.Linear(8, 2).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.01)
        def step(i):
            optimizer.zero_grad()
            net(torch.ones(4, 8, device=device)).sum().backward()
            optimizer.step()
        """,
    ),
    "gradients filled by hand": (
        """
        net = nn.Linear(8, 2).to(device)
        def step(i):
            net(torch.ones(4, 8, device=device)).sum().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.01 * p.grad
                    p.grad.zero_()  # grad-memset
        """,
        """
        net = nn.Linear(8, 2).to(device)
        def step(i):
            net(torch.ones(4, 8, device=device)).sum().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.01 * p.grad
                    p.grad = None
        """,
    ),
    "large products in float32": (
        """
        a, b = torch.randn(640, 640, device=device), torch.randn(640, 640, device=device)
        def step(i):
            return a @ b  # dtype-fp32
        """,
        """
        a = torch.randn(640, 640, device=device).bfloat16()
        def step(i):
            return a @ a
        """,
    ),
    "float64 from NumPy": (
        """
        x = torch.ones(8, device=device)
        table = torch.from_numpy(np.linspace(0, 1, 8)).to(device)
        def step(i):
            y = x * table  # dtype-fp64
            return (y + 1).exp()
        """,
        """
        x = torch.ones(8, device=device)
        table = torch.from_numpy(np.linspace(0, 1, 8)).float().to(device)
        def step(i):
            y = x * table
            return (y + 1).exp()
        """,
    ),
    "wide whole numbers": (
        """
        ages = torch.randint(0, 90, (200_000,), device=device)
        def step(i):
            return (ages > 60).sum()  # dtype-wide-int
        """,
        """
        ages = torch.randint(0, 90, (200_000,), device=device).to(torch.int8)
        def step(i):
            return (ages > 60).sum()
        """,
    ),
    "a loop over agents": (
        """
        x, w = torch.ones(50, device=device), torch.ones(50, device=device)
        def step(i):
            result = torch.zeros(50, device=device)
            for k in range(50):
                result[k] = x[k] * w[k]  # launch-bound
            return result
        """,
        """
        x, w = torch.ones(50, device=device), torch.ones(50, device=device)
        def step(i):
            return x * w
        """,
    ),
    "a loop over time": (
        """
        cell, x = nn.GRUCell(4, 4).to(device), torch.ones(40, 2, 4, device=device)
        def step(i):
            h = torch.zeros(2, 4, device=device)
            for t in range(40):
                h = torch.tanh(h * 0.9 + x[t])  # launch-bound
            return h
        """,
        """
        gru, x = nn.GRU(4, 4).to(device), torch.ones(40, 2, 4, device=device)
        def step(i):
            with torch.no_grad():
                return gru(x)
        """,
    ),
    "a loop over parameters": (
        """
        nets = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)]).to(device) for _ in range(2)]
        def step(i):
            with torch.no_grad():
                for slow, fast in zip(nets[0].parameters(), nets[1].parameters()):
                    slow.mul_(0.99).add_(fast, alpha=0.01)  # launch-bound
        """,
        """
        nets = [nn.Sequential(*[nn.Linear(4, 4) for _ in range(6)]).to(device) for _ in range(2)]
        def step(i):
            with torch.no_grad():
                torch._foreach_lerp_(list(nets[0].parameters()), list(nets[1].parameters()), 0.01)
        """,
    ),
    "cat in a loop": (
        """
        x = torch.ones(4, 3, device=device)
        def step(i):
            rows = torch.empty(0, 3, device=device)
            for k in range(6):
                rows = torch.cat([rows, x * k])  # alloc-churn
            return rows
        """,
        """
        x = torch.ones(4, 3, device=device)
        def step(i):
            rows = torch.empty(24, 3, device=device)
            for k in range(6):
                torch.mul(x, k, out=rows[4 * k : 4 * k + 4])
            return rows
        """,
    ),
    "a history that cat grows": (
        """
        history, x = torch.empty(0, device=device), torch.ones(4, device=device)
        def step(i):
            global history
            history = torch.cat([history, x])  # alloc-churn
        """,
        """
        history, x = torch.empty(1000, 4, device=device), torch.ones(4, device=device)
        def step(i):
            history[i] = x
        """,
    ),
    "a clone for nothing": (
        """
        x = torch.ones(64, device=device)
        def step(i):
            y = x.clone()  # alloc-churn
            return y * 2
        """,
        """
        x = torch.ones(64, device=device)
        def step(i):
            return x * 2
        """,
    ),
    "the cache emptied": (
        """
        x = torch.ones(64, device=device)
        def step(i):
            x.add_(1)
            torch.cuda.empty_cache()  # alloc-churn
        """,
        """
        x = torch.ones(64, device=device)
        torch.cuda.empty_cache()
        def step(i):
            x.add_(1)
        """,
    ),
    "losses kept": (
        """
        net, losses = nn.Linear(4, 1).to(device), []
        def step(i):
            loss = net(torch.ones(8, 4, device=device)).mean()
            net.zero_grad()
            loss.backward()
            losses.append(loss)  # graph-retention
        """,
        """
        net, losses = nn.Linear(4, 1).to(device), []
        def step(i):
            loss = net(torch.ones(8, 4, device=device)).mean()
            net.zero_grad()
            loss.backward()
            losses.append(loss.detach())
        """,
    ),
    "a running loss with its graph": (
        """
        net, total = nn.Linear(4, 1).to(device), 0.0
        def step(i):
            global total
            loss = net(torch.ones(8, 4, device=device)).mean()
            net.zero_grad()
            loss.backward()
            total = total + loss  # graph-retention
        """,
        """
        net, total = nn.Linear(4, 1).to(device), 0.0
        def step(i):
            global total
            loss = net(torch.ones(8, 4, device=device)).mean()
            net.zero_grad()
            loss.backward()
            total = total + loss.detach()
        """,
    ),
    "a graph kept for nobody": (
        """
        net = nn.Linear(4, 1).to(device)
        def step(i):
            loss = net(torch.ones(8, 4, device=device)).mean()
            net.zero_grad()
            loss.backward(retain_graph=True)  # graph-retention
        """,
        """
        net = nn.Linear(4, 1).to(device)
        def step(i):
            loss = net(torch.ones(8, 4, device=device)).mean()
            net.zero_grad()
            loss.backward()
        """,
    ),
    "a rollout with a graph": (
        """
        policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
        x = torch.ones(3, 4, device=device)
        def act():
            return policy(x).argmax(1)  # no-grad-missing
        def step(i):
            act()
            policy.zero_grad()
            policy(x).sum().backward()
        """,
        """
        policy = nn.Sequential(nn.Linear(4, 8), nn.Tanh(), nn.Linear(8, 2)).to(device)
        x = torch.ones(3, 4, device=device)
        @torch.no_grad()
        def act():
            return policy(x).argmax(1)
        def step(i):
            act()
            policy.zero_grad()
            policy(x).sum().backward()
        """,
    ),
    "all pairs for few contacts": (
        """
        places = torch.rand(300, 2, device=device)
        ill = (torch.arange(300, device=device) % 10 == 0).float()
        def step(i):
            far = torch.cdist(places, places)  # dense-quadratic
            near = far < 0.05
            return near.float() @ ill
        """,
        """
        pairs = torch.randint(0, 300, (2, 900), device=device)
        ill = (torch.arange(300, device=device) % 10 == 0).float()
        def step(i):
            return torch.zeros(300, device=device).index_add_(0, pairs[0], ill[pairs[1]])
        """,
    ),
    "a clock around launches": (
        """
        import time
        x = torch.ones(8, device=device)
        def step(i):
            began = time.perf_counter()
            x.add_(1)
            return time.perf_counter() - began  # timing-async
        """,
        """
        x = torch.ones(8, device=device)
        start, end = torch.cuda.Event(enable_timing=True), torch.cuda.Event(enable_timing=True)
        def step(i):
            start.record()
            x.add_(1)
            end.record()
        """,
    ),
    "anomaly detection": (
        """
        net = nn.Linear(4, 1).to(device)
        def step(i):
            with torch.autograd.detect_anomaly(check_nan=False):  # debug-left-on
                net.zero_grad()
                net(torch.ones(8, 4, device=device)).mean().backward()
        """,
        """
        net = nn.Linear(4, 1).to(device)
        def step(i):
            net.zero_grad()
            net(torch.ones(8, 4, device=device)).mean().backward()
        """,
    ),
    "evaluation in training mode": (
        """
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
        """,
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)).to(device)
        x = torch.ones(8, 4, device=device)
        net.eval()
        def step(i):
            with torch.no_grad():
                return net(x)
        """,
    ),
    "the weights copied": (
        """
        import copy
        net = nn.Linear(4, 2).to(device)
        def step(i):
            return copy.deepcopy(net.state_dict())  # state-copy
        """,
        """
        import copy
        net = nn.Linear(4, 2).to(device)
        old = copy.deepcopy(net)
        def step(i):
            with torch.no_grad():
                for a, b in zip(old.parameters(), net.parameters()):
                    a.copy_(b)
        """,
    ),
    "a print in compiled code": (
        """
        x = torch.ones(8, device=device)
        @torch.compile(backend="eager")
        def f(x):
            y = x * 2
            print("here")  # graph-break
            return y + 1
        def step(i):
            f(x)
        """,
        """
        x = torch.ones(8, device=device)
        @torch.compile(backend="eager")
        def f(x):
            y = x * 2
            return y + 1
        def step(i):
            f(x)
            print("here")
        """,
    ),
    "shapes that change": (
        """
        x = torch.ones(100, device=device)
        @torch.compile(backend="eager", dynamic=False)
        def f(x): return x * 2
        def step(i):
            f(x[: i % 50 + 1])  # recompile recompile-limit
        """,
        """
        x = torch.ones(100, device=device)
        @torch.compile(backend="eager", dynamic=True)
        def f(x): return x * 2
        def step(i):
            f(x[: i % 50 + 3])
        """,
    ),
}

LOOKALIKES = {
    "a batch of zeros with as many rows as columns": """
        net = nn.Linear(256, 256).to(device)
        def step(i):
            net.zero_grad()
            net(torch.zeros(256, 256, device=device)).mean().backward()
        """,
    "a precision that is set around products": """
        a, b = torch.randn(640, 640, device=device), torch.randn(640, 640, device=device)
        def step(i):
            torch.set_float32_matmul_precision("high")
            c = a @ b
            torch.set_float32_matmul_precision("highest")
            return c
        """,
    "a small loader in this process": """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.randn(640, 4)), batch_size=8, pin_memory=True)
        net = nn.Linear(4, 2).to(device)
        batches = iter(loader)
        def step(i):
            (batch,) = next(batches)
            with torch.no_grad():
                net(batch.to(device, non_blocking=True))
        """,
    "updates in a loop": """
        net = nn.Linear(4, 1).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        data = torch.ones(20, 8, 4, device=device)
        def step(i):
            for epoch in range(2):
                for k in range(20):
                    loss = (net(data[k]) * 2).mean()
                    optimizer.zero_grad()
                    loss.backward()
                    nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                    optimizer.step()
        """,
    "clones that are needed": """
        x = torch.ones(8, device=device)
        def step(i):
            before = x.clone()
            first = x[0].clone()
            x.add_(1)
            masked = before.clone()
            masked[:3] = 0
            return masked.sum(), x - before, first
        """,
    "a sum over micro-batches": """
        net = nn.Linear(4, 1).to(device)
        def step(i):
            net.zero_grad()
            total = 0.0
            for _ in range(3):
                total = total + net(torch.ones(8, 4, device=device)).mean()
            total.backward()
        """,
    "two losses on one graph": """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            net.zero_grad()
            y = net(torch.ones(8, 4, device=device))
            y[:, 0].sum().backward(retain_graph=True)
            y[:, 1].sum().backward()
        """,
    "layers in a loop": """
        layers = nn.ModuleList([nn.Linear(8, 8) for _ in range(20)]).to(device)
        def step(i):
            x = torch.ones(4, 8, device=device)
            for layer in layers:
                x = layer(x)
            x.sum().backward()
            for layer in layers:
                layer.zero_grad()
        """,
    "a log every ten steps": """
        x = torch.ones(8, device=device)
        def step(i):
            x.add_(1)
            if i % 10 == 0:
                print(x.mean().item())
        """,
    "small products": """
        a = torch.randn(64, 64, device=device)
        def step(i):
            return a @ a
        """,
    "under autocast": """
        a = torch.randn(640, 640, device=device)
        def step(i):
            with torch.autocast(device.type, torch.bfloat16):
                return a @ a
        """,
    "a clock and a wait": """
        import time
        x = torch.ones(8, device=device)
        def step(i):
            began = time.perf_counter()
            x.add_(1)
            with dz.perf.allow("measurement"):
                torch.cuda.synchronize()
            return time.perf_counter() - began
        """,
    "indices are wide": """
        x = torch.ones(200_000, device=device)
        places = torch.randint(0, 200_000, (200_000,), device=device)
        def step(i):
            return x[places]
        """,
    "attention": """
        q = torch.randn(1, 2, 300, 8, device=device)
        def step(i):
            return torch.softmax(q @ q.transpose(-1, -2) / 8, -1) @ q
        """,
    "batch norm in training": """
        net = nn.Sequential(nn.Linear(4, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.Linear(8, 1)).to(device)
        def step(i):
            net.zero_grad()
            net(torch.ones(8, 4, device=device)).mean().backward()
        """,
    "a history on the host": """
        net, losses = nn.Linear(4, 1).to(device), []
        def step(i):
            net.zero_grad()
            loss = net(torch.ones(8, 4, device=device)).mean()
            loss.backward()
            losses.append(i)
        """,
}
