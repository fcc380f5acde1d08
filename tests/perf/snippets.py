"""Faulty and mended snippets, one pair or more for each kind of fault that a budget can see, and its look-alikes.

A snippet defines `step(i)`; `device`, `torch`, `nn`, `F` and `np` are there. A line to blame ends in `# <kind>`.
"""

# (faulty, mended)
FAULTS = {
    "item of a loss": (
        """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            loss = net(torch.randn(8, 4, device=device)).square().mean()
            loss.backward()
            return loss.item()  # host-sync-item
        """,
        """
        net = nn.Linear(4, 2).to(device)
        total = torch.zeros((), device=device)
        def step(i):
            loss = net(torch.randn(8, 4, device=device)).square().mean()
            loss.backward()
            total.add_(loss.detach())
        """,
    ),
    "tolist": (
        """
        x = torch.arange(4., device=device)
        def step(i):
            for value in x.tolist():  # host-sync-item
                assert value >= 0
        """,
        """
        x = torch.arange(4., device=device)
        def step(i):
            torch.relu(x)
        """,
    ),
    "repeat_interleave without its size": (
        """
        x, times = torch.arange(3, device=device), torch.tensor([1, 2, 3], device=device)
        def step(i):
            x.repeat_interleave(times)  # host-sync-item
        """,
        """
        x, times = torch.arange(3, device=device), torch.tensor([1, 2, 3], device=device)
        def step(i):
            x.repeat_interleave(times, output_size=6)
        """,
    ),
    "one_hot without classes": (
        """
        x = torch.arange(3, device=device)
        def step(i):
            F.one_hot(x)  # host-sync-item
        """,
        """
        x = torch.arange(3, device=device)
        def step(i):
            F.one_hot(x, num_classes=3)
        """,
    ),
    "bincount": (
        """
        x = torch.arange(3, device=device)
        def step(i):
            torch.bincount(x, minlength=5)  # host-sync-item
        """,
        """
        x = torch.arange(3, device=device)
        def step(i):
            torch.zeros(5, dtype=torch.long, device=device).scatter_add_(0, x, torch.ones_like(x))
        """,
    ),
    "slicing by a tensor": (
        """
        x, end = torch.arange(9., device=device), torch.tensor(4, device=device)
        def step(i):
            return x[:end].sum()  # host-sync-item host-sync-float
        """,
        """
        x, end = torch.arange(9., device=device), torch.tensor(4, device=device)
        places = torch.arange(9, device=device)
        def step(i):
            return torch.where(places < end, x, 0).sum()
        """,
    ),
    "a loop over values": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            total = 0
            for value in x:
                total += value.item()  # host-sync-item
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            total = x.sum()
        """,
    ),
    "float": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            scale = 2 * float(x.max())  # host-sync-float
            return x / scale
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            scale = 2 * x.max()
            return x / scale
        """,
    ),
    "int": (
        """
        x = torch.arange(3, device=device)
        def step(i):
            return int(x.sum())  # host-sync-float
        """,
        """
        x = torch.arange(3, device=device)
        def step(i):
            return x.sum()
        """,
    ),
    "if": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            if (x < 0).any():  # host-sync-bool
                return -x
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.where((x < 0).any(), -x, x)
        """,
    ),
    "a guard against NaN": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            assert not torch.isnan(x).any()  # host-sync-bool
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.nan_to_num(x)
        """,
    ),
    "equal": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.equal(x, x)  # host-sync-bool
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return (x == x).all()
        """,
    ),
    "allclose": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.allclose(x, x)  # host-sync-bool
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.isclose(x, x).all()
        """,
    ),
    "clipping that refuses what is not finite": (
        """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            net(torch.ones(8, 4, device=device)).sum().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)  # host-sync-bool
        """,
        """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            net(torch.ones(8, 4, device=device)).sum().backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        """,
    ),
    "validation of distributions": (
        """
        from torch.distributions import Categorical
        logits = torch.zeros(5, 3, device=device)
        def step(i):
            return Categorical(logits=logits).sample()  # host-sync-bool
        """,
        """
        from torch.distributions import Categorical
        logits = torch.zeros(5, 3, device=device)
        def step(i):
            return Categorical(logits=logits, validate_args=False).sample()
        """,
    ),
    "cpu": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return x.mean().cpu()  # host-sync-copy
        """,
        """
        x, late = torch.arange(3., device=device), torch.empty((), pin_memory=True)
        def step(i):
            late.copy_(x.mean(), non_blocking=True)
        """,
    ),
    "numpy": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return x.cpu().numpy()  # host-sync-copy
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return x.to("cpu", non_blocking=True)
        """,
    ),
    "copying into a host buffer": (
        """
        x, host = torch.arange(3., device=device), torch.empty(3)
        def step(i):
            host.copy_(x)  # host-sync-copy
        """,
        """
        x, host = torch.arange(3., device=device), torch.empty(3).pin_memory()
        def step(i):
            host.copy_(x, non_blocking=True)
        """,
    ),
    "nonzero": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return x.nonzero()  # host-sync-nonzero
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return (x != 0).float()
        """,
    ),
    "where with one argument": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.where(x > 1)[0]  # host-sync-nonzero
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.where(x > 1, x, 0)
        """,
    ),
    "unique": (
        """
        x = torch.arange(3, device=device)
        def step(i):
            return torch.unique(x)  # host-sync-nonzero
        """,
        """
        x = torch.arange(3, device=device)
        def step(i):
            return x.sort().values
        """,
    ),
    "masked_select": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return torch.masked_select(x, x > 0).sum()  # host-sync-nonzero
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return (x * (x > 0)).sum()
        """,
    ),
    "a mask as index": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return x[x > 0].mean()  # host-sync-boolindex
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            mask = x > 0
            return (x * mask).sum() / mask.sum()
        """,
    ),
    "writing a tensor through a mask": (
        """
        x, values = torch.arange(3., device=device), torch.ones(2, device=device)
        def step(i):
            x[torch.tensor([True, False, True], device=device)] = values  # host-sync-boolindex h2d-index
        """,
        """
        x, values = torch.arange(3., device=device), torch.ones(3, device=device)
        mask = torch.tensor([True, False, True], device=device)
        def step(i):
            x.copy_(torch.where(mask, values, x))
        """,
    ),
    "print": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            print(x)  # host-sync-print
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            print(x.shape, x.device, x.dtype)
        """,
    ),
    "f-string": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            return f"loss {x.sum():.3f}"  # host-sync-print
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            return f"loss of step {i:.3f}"
        """,
    ),
    "synchronize": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            x.add_(1)
            torch.cuda.synchronize()  # host-sync-explicit
        """,
        """
        x, event = torch.arange(3., device=device), None
        def step(i):
            global event
            x.add_(1)
            if event is not None:
                event.synchronize()
            event = torch.cuda.Event()
            event.record()
        """,
    ),
    "waiting for an event at once": (
        """
        x = torch.arange(3., device=device)
        def step(i):
            x.add_(1)
            done = torch.cuda.Event()
            done.record()
            done.synchronize()  # host-sync-explicit
        """,
        """
        x = torch.arange(3., device=device)
        def step(i):
            x.add_(1)
            done = torch.cuda.Event()
            done.record()
            torch.cuda.current_stream().wait_event(done)
        """,
    ),
    "GradScaler": (
        """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler(device.type)
        def step(i):
            optimizer.zero_grad()
            scaler.scale(net(torch.ones(8, 4, device=device)).sum()).backward()
            scaler.step(optimizer)  # host-sync-scaler
            scaler.update()
        """,
        """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        def step(i):
            optimizer.zero_grad()
            net(torch.ones(8, 4, device=device)).sum().backward()
            optimizer.step()
        """,
    ),
    "zeros made on the host": (
        """
        def step(i):
            return torch.zeros(8, 4).to(device)  # h2d-fresh
        """,
        """
        def step(i):
            return torch.zeros(8, 4, device=device)
        """,
    ),
    "noise of the host": (
        """
        x = torch.zeros(8, device=device)
        def step(i):
            noise = torch.randn(8)
            return x + noise.to(device)  # h2d-fresh
        """,
        """
        x = torch.zeros(8, device=device)
        generator = torch.Generator(device=device).manual_seed(0)
        def step(i):
            return x + torch.randn(8, device=device, generator=generator)
        """,
    ),
    "a list made into a tensor": (
        """
        def step(i):
            return torch.tensor([1.0, 2.0, i], device=device)  # h2d-fresh
        """,
        """
        weights = torch.tensor([1.0, 2.0, 3.0], device=device)
        def step(i):
            return weights * i
        """,
    ),
    "an array of NumPy": (
        """
        def step(i):
            return torch.from_numpy(np.ones(4)).to(device)  # h2d-fresh
        """,
        """
        ones = torch.from_numpy(np.ones(4)).to(device)
        def step(i):
            return ones + i
        """,
    ),
    "a list as index": (
        """
        x = torch.arange(5., device=device)
        def step(i):
            return x[[0, 2]]  # h2d-index
        """,
        """
        x, places = torch.arange(5., device=device), torch.tensor([0, 2], device=device)
        def step(i):
            return x[places]
        """,
    ),
    "a host tensor as index": (
        """
        x, order = torch.arange(5., device=device), torch.tensor([3, 1])
        def step(i):
            return x[order]  # h2d-index
        """,
        """
        x, order = torch.arange(5., device=device), torch.tensor([3, 1]).to(device)
        def step(i):
            return x[order]
        """,
    ),
    "a permutation of the host": (
        """
        x = torch.arange(5., device=device)
        def step(i):
            order = torch.randperm(5)
            return x[order]  # h2d-index
        """,
        """
        x = torch.arange(5., device=device)
        def step(i):
            order = torch.randperm(5, device=device)
            return x[order]
        """,
    ),
    "a batch that is not pinned": (
        """
        batches = torch.randn(9, 4, 2)
        def step(i):
            return batches[i].to(device, non_blocking=True)  # h2d-pageable
        """,
        """
        batches = torch.randn(9, 4, 2).pin_memory()
        def step(i):
            return batches[i].to(device, non_blocking=True)
        """,
    ),
    "a batch of a loader that does not pin": (
        """
        from torch.utils.data import DataLoader
        data = iter(DataLoader(torch.arange(64.), batch_size=4))
        def step(i):
            x = next(data)
            return x.to(device, non_blocking=True)  # h2d-pageable
        """,
        """
        from torch.utils.data import DataLoader
        data = iter(DataLoader(torch.arange(64.), batch_size=4, pin_memory=True))
        def step(i):
            x = next(data)
            return x.to(device, non_blocking=True)
        """,
    ),
    "through NumPy and back": (
        """
        x = torch.arange(5., device=device)
        def step(i):
            host = x.cpu().numpy()  # roundtrip
            host = np.sin(host)
            return torch.from_numpy(host).to(device)  # roundtrip
        """,
        """
        x = torch.arange(5., device=device)
        def step(i):
            return torch.sin(x)
        """,
    ),
    "a rollout in a list": (
        """
        x = torch.arange(5., device=device)
        def step(i):
            rollout = []
            for _ in range(4):
                x.add_(1)
                rollout.append(x.cpu())  # d2h-accumulate
            return torch.stack(rollout)
        """,
        """
        x, rollout = torch.arange(5., device=device), torch.empty(4, 5, device=device)
        def step(i):
            for t in range(4):
                x.add_(1)
                rollout[t] = x
        """,
    ),
    "weights to the host": (
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)
        def step(i):
            return {name: value.cpu() for name, value in net.state_dict().items()}  # state-copy
        """,
        """
        net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)
        old = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)
        def step(i):
            with torch.no_grad():
                for mine, other in zip(old.parameters(), net.parameters()):
                    mine.copy_(other)
        """,
    ),
    "a module moved in each step": (
        """
        def step(i):
            nn.Linear(4, 2).to(device)  # state-copy
        """,
        """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            net.to(device)
        """,
    ),
    "a library that reads": (
        """
        x = torch.arange(5., device=device)
        def step(i):
            torch.testing.assert_close(x, x)  # host-sync-bool host-sync-item
        """,
        """
        x = torch.arange(5., device=device)
        def step(i):
            torch.nn.functional.mse_loss(x, x)
        """,
    ),
}

# Right as they are.
LOOKALIKES = {
    "host tensors": """
        x, there = torch.arange(5.), torch.zeros(5, device=device)
        def step(i):
            there.add_(1)
            if x.sum() > 0 and x[x > 1].mean().item() > 0 and x.nonzero().tolist():
                return x.cpu().numpy().tolist(), f"{x.mean():.2f}", x.clone().copy_(x)
        """,
    "masks filled with one value": """
        x = torch.arange(5., device=device)
        def step(i):
            x[x > 2] = 0
            x.masked_fill_(x > 1, 3.0)
            x[x > 3] = torch.tensor(1.0)
        """,
    "an asynchronous read-back": """
        ring = [torch.empty(2).pin_memory(), torch.empty(2, pin_memory=True)]
        events, x = [None, None], torch.arange(2., device=device)
        def step(i):
            x.add_(1)
            ring[i % 2].copy_(x, non_blocking=True)
            events[i % 2] = torch.cuda.Event()
            events[i % 2].record()
            if i and events[(i - 1) % 2].query():
                ring[(i - 1) % 2].tolist()
        """,
    "work of the first call": """
        net = nn.Linear(4, 2).to(device)
        optimizer, scale = torch.optim.Adam(net.parameters()), None
        def step(i):
            global scale
            if scale is None:
                scale = float(net.weight.detach().abs().max())
                torch.zeros(4).to(device)
            optimizer.zero_grad()
            (net(torch.ones(3, 4, device=device)).sum() / scale).backward()
            optimizer.step()
        """,
    "methods of other classes": """
        class Reading:
            def item(self): return 1
            def cpu(self): return self
            def numpy(self): return [1]
            def tolist(self): return [1]
            def nonzero(self): return [1]
        x = torch.arange(5., device=device)
        def step(i):
            reading = Reading()
            reading.item(), reading.cpu().numpy(), reading.tolist(), reading.nonzero()
            return x.add(1), np.ones(3).tolist(), np.float32(1).item()
        """,
    "single values of the host": """
        x, rate = torch.arange(5., device=device), torch.tensor(0.5)
        def step(i):
            x[0:1] = 2.0
            x[x > 3.0] = rate
            x[1].fill_(rate)
            return x * rate + torch.full((), 2.0, device=device) + torch.full((5,), 3.0, device=device)
        """,
    "copies of no elements": """
        x, none, pinned = torch.arange(5., device=device), torch.empty(0), torch.empty(0).pin_memory()
        def step(i):
            x[:0] = none
            here = none.to(device), torch.tensor([], device=device), pinned.to(device, non_blocking=True)
            return here, here[0].cpu(), here[0].tolist(), x[:0].cpu().numpy()
        """,
    "fixed shapes and gathers": """
        x = torch.arange(6., device=device).view(2, 3)
        rows = torch.tensor([1, 0], device=device)
        def step(i):
            y = x.index_select(0, rows) + x[rows] + x[i % 2] + x[:, :2].sum() + x.gather(0, rows.view(1, 2))[0, 0]
            y.scatter_add_(0, rows.view(1, 2), y[:1, :2].clone())
            return y.topk(2), y.sort(), y.argmax(), y.cumsum(0), y.max(), torch.cat([y, y]), y.to(torch.float16)
        """,
    "dropout, batch norm, attention": """
        net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.GELU(), nn.LayerNorm(8)).to(device)
        attention = nn.MultiheadAttention(8, 2, batch_first=True).to(device)
        def step(i):
            x = net(torch.randn(4, 8, device=device))[None]
            attention(x, x, x)[0].sum().backward()
        """,
    "recurrent networks": """
        cells = [kind(3, 4).to(device) for kind in (nn.LSTM, nn.GRU, nn.RNN)]
        def step(i):
            x = torch.randn(5, 2, 3, device=device)
            sum(cell(x)[0].sum() for cell in cells).backward()
        """,
    "convolutions and a loss": """
        net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
        net = net.to(device)
        labels = torch.tensor([0, 1], device=device)
        def step(i):
            F.cross_entropy(net(torch.randn(2, 3, 8, 8, device=device)), labels).backward()
        """,
    "a batch moved between devices of one kind": """
        x = torch.arange(4., device=device)
        def step(i):
            return x.to(device).to(torch.float64).contiguous().to(x.device)
        """,
    "activation checkpointing": """
        from torch.utils.checkpoint import checkpoint
        net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2)).to(device)
        def step(i):
            x = torch.randn(3, 4, device=device, requires_grad=True)
            checkpoint(net, x, use_reentrant=False).sum().backward()
        """,
    "vmap and grad": """
        x = torch.arange(6., device=device).view(2, 3)
        def step(i):
            torch.vmap(torch.func.grad(lambda row: (row ** 2).sum()))(x)
        """,
}
