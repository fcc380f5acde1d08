"""Lines of training code as people write them: with what a budget must say of each, or nothing.

A snippet defines `step(i)`; `device`, `torch`, `nn`, `F` and `np` are there. A line to blame ends in `# <kind>`.
Written before what judges them had seen them.
"""

FAULTY = {
    "accuracy of an evaluation": """
        net = nn.Linear(4, 3).to(device)
        x, y = torch.randn(8, 4).to(device), torch.randint(0, 3, (8,)).to(device)
        @torch.no_grad()
        def step(i):
            correct = 0
            predicted = net(x).argmax(dim=1)
            correct += predicted.eq(y).sum().item()  # host-sync-item
            return correct / len(y)
        """,
    "topk accuracy as in torchvision": """
        out, target = torch.randn(8, 5).to(device), torch.randint(0, 5, (8,)).to(device)
        def accuracy(output, target, topk=(1, 2)):
            with torch.inference_mode():
                _, pred = output.topk(max(topk), 1)
                correct = pred.t() == target[None]
                return [correct[:k].flatten().sum(dtype=torch.float32) * (100.0 / len(target)) for k in topk]
        def step(i):
            first, second = accuracy(out, target)
            meter = first.item()  # host-sync-item
            return meter
        """,
    "a meter that takes floats": """
        class Meter:
            def __init__(self): self.total = 0.0
            def update(self, value): self.total += float(value)  # host-sync-float
        meter, x = Meter(), torch.ones(3).to(device)
        def step(i):
            meter.update(x.mean())
        """,
    "maximum by Python": """
        x = torch.arange(4.).to(device)
        def step(i):
            return max(x)  # host-sync-bool
        """,
    "sorted by Python": """
        x = torch.arange(4.).to(device)
        def step(i):
            return sorted(x, key=lambda value: value)  # host-sync-bool
        """,
    "sum of a comparison as number": """
        x = torch.arange(4.).to(device)
        def step(i):
            return range(int((x > 1).sum()))  # host-sync-float
        """,
    "range over a tensor": """
        n, x = torch.tensor(3).to(device), torch.zeros(2).to(device)
        def step(i):
            for _ in range(n):  # host-sync-float
                x.add_(1)
        """,
    "membership": """
        seen = torch.arange(4).to(device)
        def step(i):
            return 3 in seen  # host-sync-bool
        """,
    "while not converged": """
        x = torch.full((2,), 4.0).to(device)
        def step(i):
            x.fill_(4.0)
            while x.abs().max() > 1:  # host-sync-bool
                x.mul_(0.5)
        """,
    "conditional expression": """
        x = torch.arange(4.).to(device)
        def step(i):
            return 1.0 if x.sum() > 2 else 0.0  # host-sync-bool
        """,
    "and of tensors": """
        x = torch.arange(4.).to(device)
        def step(i):
            return (x.sum() > 2) and (x.max() < 9)  # host-sync-bool
        """,
    "assert on a tensor": """
        x = torch.arange(4.).to(device)
        def step(i):
            assert (x >= 0).all(), "negative"  # host-sync-bool
        """,
    "math of a tensor": """
        import math
        x = torch.arange(4.).to(device)
        def step(i):
            return math.sqrt(x.sum())  # host-sync-float
        """,
    "perplexity": """
        import math
        loss = torch.tensor(1.5).to(device)
        def step(i):
            return math.exp(loss.item())  # host-sync-item
        """,
    "numpy of a loss detached": """
        net = nn.Linear(4, 1).to(device)
        losses = []
        def step(i):
            loss = net(torch.ones(2, 4, device=device)).mean()
            losses.append(loss.detach().cpu().numpy())  # d2h-accumulate
        """,
    "numpy function on a tensor": """
        x = torch.arange(4.).to(device)
        def step(i):
            return np.mean(x.cpu().numpy())  # host-sync-copy
        """,
    "tensor of a list of tensors": """
        parts = [torch.tensor(1.).to(device), torch.tensor(2.).to(device)]
        def step(i):
            return torch.tensor(parts)  # host-sync-item host-sync-float
        """,
    "tensor from a list with a device": """
        def step(i):
            return torch.tensor([0.1 * i, 0.2], device=device)  # h2d-fresh
        """,
    "as_tensor of an array": """
        actions = np.arange(4)
        def step(i):
            return torch.as_tensor(actions, device=device)  # h2d-fresh
        """,
    "FloatTensor to the device": """
        def step(i):
            return torch.FloatTensor([1.0, 2.0]).to(device)  # h2d-fresh
        """,
    "an observation of an environment": """
        class Env:
            def step(self, action): return np.zeros(4, np.float32), 1.0, False
        env, net = Env(), nn.Linear(4, 2).to(device)
        state = {"obs": torch.zeros(4).to(device)}
        def step(i):
            with torch.no_grad():
                action = net(state["obs"]).argmax()
            obs, reward, done = env.step(action.item())  # host-sync-item
            state["obs"] = torch.from_numpy(obs).to(device)  # h2d-fresh
        """,
    "replay of an array": """
        buffer = np.zeros((100, 4), np.float32)
        random = np.random.default_rng(0)
        def step(i):
            rows = random.integers(0, 100, 8)
            return torch.tensor(buffer[rows], device=device)  # h2d-fresh
        """,
    "replay on the device, indexed by the host": """
        buffer = torch.zeros(100, 4).to(device)
        random = np.random.default_rng(0)
        def step(i):
            return buffer[random.integers(0, 100, 8)]  # h2d-index
        """,
    "epsilon-greedy": """
        q = torch.randn(8, 3).to(device)
        def step(i):
            explore = torch.rand(8, device=device) < 0.1
            action = q.argmax(1)
            count = int(explore.sum())  # host-sync-float
            action[explore] = torch.randint(0, 3, (count,), device=device)  # host-sync-boolindex
            return action
        """,
    "resetting worlds that are done": """
        state, done = torch.randn(8, 3).to(device), torch.arange(8).to(device) % 2 == 0
        def step(i):
            places = done.nonzero(as_tuple=True)[0]  # host-sync-nonzero
            state[places] = 0.0  # h2d-fresh
        """,
    "averaged model of torch, which counts on the host": """
        net = nn.Linear(4, 2).to(device)
        average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))
        def step(i):
            average.update_parameters(net)  # h2d-fresh
        """,
    "any world done": """
        done = torch.zeros(8, dtype=torch.bool).to(device)
        def step(i):
            if torch.any(done):  # host-sync-bool
                done.zero_()
        """,
    "KL early stop": """
        kl = torch.tensor(0.1).to(device)
        def step(i):
            for epoch in range(2):
                if kl > 0.5:  # host-sync-bool
                    break
        """,
    "sampling a normal policy": """
        mean, std = torch.zeros(4).to(device), torch.ones(4).to(device)
        def step(i):
            return torch.distributions.Normal(mean, std).sample()  # host-sync-bool
        """,
    "a batch of a dict": """
        from torch.utils.data import default_collate
        rows = [{"x": torch.ones(3), "y": 1} for _ in range(4)]
        def step(i):
            batch = default_collate(rows)
            batch = {k: v.to(device) for k, v in batch.items()}  # h2d-fresh
            return batch["x"]
        """,
    "a loader, moved by cuda-like call": """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.ones(64, 3), torch.ones(64)), batch_size=4)
        batches = iter(loader)
        def step(i):
            x, y = next(batches)
            x, y = x.to(device), y.to(device)  # h2d-fresh
        """,
    "labels moved, non-blocking from pageable memory": """
        labels = torch.arange(8)
        def step(i):
            return labels.to(device, non_blocking=True)  # h2d-pageable
        """,
    "copying a batch into a static buffer": """
        static, batch = torch.zeros(8, 4).to(device), torch.ones(8, 4)
        def step(i):
            static.copy_(batch)  # h2d-fresh
        """,
    "EMA on the host": """
        net = nn.Linear(4, 2).to(device)
        shadow = {name: value.detach().cpu() for name, value in net.named_parameters()}
        def step(i):
            for name, value in net.named_parameters():
                shadow[name].mul_(0.9).add_(value.detach().cpu(), alpha=0.1)  # state-copy
        """,
    "weights sent to workers": """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            weights = {k: v.cpu().numpy() for k, v in net.state_dict().items()}  # state-copy
        """,
    "gradient norm for the log": """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            net(torch.ones(2, 4, device=device)).sum().backward()
            norm = sum(p.grad.norm().item() ** 2 for p in net.parameters())  # host-sync-item
        """,
    "clip and read": """
        net = nn.Linear(4, 2).to(device)
        def step(i):
            net(torch.ones(2, 4, device=device)).sum().backward()
            norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            return {"grad_norm": norm.item()}  # host-sync-item
        """,
    "skipping steps that are not finite": """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.Adam(net.parameters())
        def step(i):
            optimizer.zero_grad()
            loss = net(torch.ones(2, 4, device=device)).sum()
            loss.backward()
            if not torch.isfinite(loss):  # host-sync-bool
                return
            optimizer.step()
        """,
    "plateau scheduler": """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)
        def step(i):
            loss = net(torch.ones(2, 4, device=device)).sum()
            loss.backward()
            optimizer.step()
            plateau.step(loss.detach())  # host-sync-float
        """,
    "GradScaler with unscaling": """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.Adam(net.parameters())
        scaler = torch.amp.GradScaler(device.type)
        def step(i):
            optimizer.zero_grad(set_to_none=True)
            with torch.autocast(device.type, torch.float16):
                loss = net(torch.ones(2, 4, device=device)).sum()
            scaler.scale(loss).backward()
            scaler.unscale_(optimizer)
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            scaler.step(optimizer)  # host-sync-scaler
            scaler.update()
        """,
    "LBFGS": """
        x = torch.ones(3).to(device).requires_grad_()
        optimizer = torch.optim.LBFGS([x], max_iter=2)
        def closure():
            optimizer.zero_grad()
            loss = ((x - 5) ** 4).sum()
            loss.backward()
            return loss
        def step(i):
            optimizer.step(closure)  # host-sync-float host-sync-bool host-sync-item
        """,
    "confusion matrix by bincount": """
        true, guess = torch.arange(3).to(device), torch.arange(3).to(device)
        def step(i):
            return torch.bincount(3 * true + guess, minlength=9).view(3, 3)  # host-sync-item
        """,
    "dropping padded tokens": """
        logits, labels = torch.randn(2, 5, 7).to(device), torch.tensor([[1, 2, -100, -100, 3]] * 2).to(device)
        def step(i):
            active = labels.view(-1) != -100
            return F.cross_entropy(logits.view(-1, 7)[active], labels.view(-1)[active])  # host-sync-boolindex
        """,
    "longest of a batch": """
        mask = torch.ones(2, 5, dtype=torch.long).to(device)
        ids = torch.ones(2, 5, dtype=torch.long).to(device)
        def step(i):
            longest = mask.sum(1).max().item()  # host-sync-item
            return ids[:, :longest]
        """,
    "packing sequences": """
        rnn = nn.GRU(3, 4, batch_first=True).to(device)
        x, lengths = torch.randn(2, 5, 3).to(device), torch.tensor([5, 3]).to(device)
        def step(i):
            packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)  # host-sync-copy
            return rnn(packed)[1]
        """,
    "generation until the end token": """
        net = nn.Linear(4, 6).to(device)
        def step(i):
            tokens = []
            x = torch.ones(1, 4, device=device)
            for _ in range(3):
                token = net(x).argmax(-1)
                tokens.append(token)
                if token == 9:  # host-sync-bool
                    break
        """,
    "decoding tokens": """
        tokens = torch.arange(4).to(device)
        names = "abcd"
        def step(i):
            return "".join(names[token] for token in tokens)  # host-sync-float
        """,
    "dict keyed by values": """
        labels = torch.arange(3).to(device)
        def step(i):
            counts = {}
            for label in labels.cpu().numpy():  # host-sync-copy
                counts[label] = counts.get(label, 0) + 1
        """,
    "unique with counts": """
        labels = torch.arange(3).to(device)
        def step(i):
            values, counts = labels.unique(return_counts=True)  # host-sync-nonzero
        """,
    "unique along an axis": """
        edges = torch.arange(6).view(3, 2).to(device)
        def step(i):
            return torch.unique(edges, dim=0)  # host-sync-nonzero
        """,
    "unique of runs": """
        labels = torch.tensor([1, 1, 2]).to(device)
        def step(i):
            return torch.unique_consecutive(labels)  # host-sync-nonzero
        """,
    "argwhere": """
        x = torch.eye(3).to(device)
        def step(i):
            return torch.argwhere(x > 0)  # host-sync-nonzero
        """,
    "adding through a mask": """
        x, mask = torch.zeros(4).to(device), torch.tensor([True, False, True, True]).to(device)
        def step(i):
            x[mask] += 1  # host-sync-boolindex
        """,
    "two masks": """
        x, rows = torch.zeros(3, 3).to(device), torch.tensor([True, False, True]).to(device)
        def step(i):
            return x[rows][:, rows]  # host-sync-boolindex
        """,
    "boolean list as index": """
        x = torch.arange(3.).to(device)
        def step(i):
            return x[[True, False, True]]  # h2d-index host-sync-boolindex
        """,
    "uint8 mask built on the host": """
        x, mask = torch.arange(3.).to(device), torch.tensor([True, False, True])
        def step(i):
            return x[mask.to(device)]  # h2d-index host-sync-boolindex
        """,
    "index_select by a list": """
        x = torch.arange(5.).to(device)
        def step(i):
            return torch.index_select(x, 0, torch.tensor([1, 3]).to(device))  # h2d-fresh h2d-index
        """,
    "f-string of a mean": """
        x = torch.arange(3.).to(device)
        def step(i):
            text = f"step {i}: mean {x.mean()}"  # host-sync-print
        """,
    "percent formatting": """
        x = torch.arange(3.).to(device)
        def step(i):
            text = "loss %.3f" % x.mean()  # host-sync-float
        """,
    "str.format": """
        x = torch.arange(3.).to(device)
        def step(i):
            text = "loss {:.3f}".format(x.mean())  # host-sync-print
        """,
    "logging": """
        import logging
        log, x = logging.getLogger("field"), torch.arange(3.).to(device)
        log.addHandler(logging.NullHandler())
        log.setLevel(logging.INFO)
        log.propagate = False
        handler = logging.StreamHandler(__import__("io").StringIO())
        log.addHandler(handler)
        def step(i):
            log.info("loss %s", x.mean())  # host-sync-print
        """,
    "json of metrics": """
        import json
        x = torch.arange(3.).to(device)
        def step(i):
            return json.dumps({"loss": x.mean().item(), "all": x.tolist()})  # host-sync-item
        """,
    "round": """
        x = torch.arange(3.).to(device)
        def step(i):
            return round(x.mean().item(), 2)  # host-sync-item
        """,
    "explicit timing": """
        import time
        x = torch.ones(3).to(device)
        def step(i):
            start = time.perf_counter()
            x.mul_(2)
            torch.cuda.synchronize()  # host-sync-explicit
            return time.perf_counter() - start
        """,
    "stream synchronised": """
        x = torch.ones(3).to(device)
        def step(i):
            x.mul_(1)
            torch.cuda.current_stream().synchronize()  # host-sync-explicit
        """,
    "positions of a transformer on the host": """
        def step(i):
            half = torch.exp(torch.arange(0, 8, 2) * -0.5)
            angles = torch.arange(5)[:, None] * half
            table = torch.cat([angles.sin(), angles.cos()], 1).to(device)  # h2d-fresh
            return table
        """,
    "causal mask made on the host": """
        def step(i):
            mask = torch.triu(torch.ones(4, 4), 1).bool()
            return mask.to(device=device)  # h2d-fresh
        """,
    "noise of NumPy": """
        random, x = np.random.default_rng(0), torch.zeros(4).to(device)
        def step(i):
            return x + torch.as_tensor(random.normal(size=4), dtype=torch.float32).to(device)  # h2d-fresh
        """,
    "mixup": """
        random = np.random.default_rng(0)
        x = torch.randn(4, 3).to(device)
        def step(i):
            share, order = random.beta(0.2, 0.2), torch.randperm(4)
            return share * x + (1 - share) * x[order]  # h2d-index
        """,
    "repeat_interleave of counts": """
        x, counts = torch.arange(3.).to(device), torch.tensor([2, 1, 1]).to(device)
        def step(i):
            return torch.repeat_interleave(x, counts, dim=0)  # host-sync-item
        """,
    "one_hot of labels": """
        labels = torch.arange(3).to(device)
        def step(i):
            return F.one_hot(labels).float()  # host-sync-item
        """,
    "split by sizes on the device": """
        x, sizes = torch.arange(6.).to(device), torch.tensor([2, 4]).to(device)
        def step(i):
            return torch.split(x, sizes.tolist())  # host-sync-item
        """,
    "a size from a tensor": """
        n = torch.tensor(3).to(device)
        def step(i):
            return torch.zeros(n, device=device)  # host-sync-item host-sync-float
        """,
    "arange to a tensor": """
        n = torch.tensor(3).to(device)
        def step(i):
            return torch.arange(n, device=device)  # host-sync-item host-sync-float
        """,
    "a graph's edges filtered": """
        edges = torch.tensor([[0, 1, 2], [1, 2, 0]]).to(device)
        keep = torch.tensor([True, False, True]).to(device)
        def step(i):
            return edges[:, keep]  # host-sync-boolindex
        """,
    "masked_scatter with counts": """
        x, mask = torch.zeros(3).to(device), torch.tensor([True, False, True]).to(device)
        def step(i):
            values = torch.ones(int(mask.sum()), device=device)  # host-sync-float
            return x.masked_scatter(mask, values)
        """,
    "cholesky": """
        x = torch.eye(3).to(device)
        def step(i):
            return torch.linalg.cholesky(x)  # host-sync-bool host-sync-item
        """,
    "backward of a mask": """
        x = torch.arange(4.).to(device).requires_grad_()
        mask = torch.tensor([True, False, True, True]).to(device)
        def step(i):
            chosen = x[mask].sum()  # host-sync-boolindex
            chosen.backward()  # host-sync-boolindex
        """,
    "deep copy to the host for the best model": """
        import copy
        net = nn.Linear(4, 2).to(device)
        def step(i):
            best = copy.deepcopy(net).cpu()  # state-copy
        """,
    "saving in each step": """
        import io
        net = nn.Linear(4, 2).to(device)
        def step(i):
            torch.save(net.state_dict(), io.BytesIO())  # state-copy host-sync-copy
        """,
    "device to NumPy and back with clipping": """
        x = torch.randn(6).to(device)
        def step(i):
            array = x.detach().cpu().numpy()  # roundtrip
            array = np.clip(array, -1, 1)
            return torch.from_numpy(array).to(device)  # roundtrip
        """,
    "plot data": """
        history, x = [], torch.ones(3).to(device)
        def step(i):
            history.extend(x.cpu().tolist())  # d2h-accumulate
        """,
    "loss list of floats": """
        losses, x = [], torch.ones(3).to(device)
        def step(i):
            losses.append(x.sum().item())  # host-sync-item
        """,
}

QUIET = {
    "HF-style loop, mended": """
        net = nn.Sequential(nn.Embedding(9, 4), nn.Flatten(), nn.Linear(12, 9)).to(device)
        optimizer = torch.optim.AdamW(net.parameters(), lr=1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(optimizer, lambda done: 1 / (1 + done))
        ids, labels = torch.randint(0, 9, (2, 3)).to(device), torch.tensor([1, -100]).to(device)
        total = torch.zeros((), device=device)
        def step(i):
            loss = F.cross_entropy(net(ids), labels, ignore_index=-100)
            (loss / 2).backward()
            if (i + 1) % 2 == 0:
                nn.utils.clip_grad_norm_(net.parameters(), 1.0)
                optimizer.step()
                schedule.step()
                optimizer.zero_grad()
            total.add_(loss.detach())
        """,
    "EMA on the device": """
        import copy
        net = nn.Linear(4, 2).to(device)
        average = copy.deepcopy(net).requires_grad_(False)
        def step(i):
            with torch.no_grad():
                for mine, other in zip(average.parameters(), net.parameters()):
                    mine.lerp_(other, 0.1)
                average.load_state_dict(net.state_dict())
        """,
    "optimizers": """
        kinds = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad]
        nets = [nn.Linear(4, 2).to(device) for _ in kinds]
        made = [kind(net.parameters(), lr=0.1) for kind, net in zip(kinds, nets)]
        def step(i):
            for net, optimizer in zip(nets, made):
                optimizer.zero_grad()
                net(torch.ones(2, 4, device=device)).sum().backward()
                optimizer.step()
        """,
    "fused Adam": """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1), capturable=False, foreach=False)
        def step(i):
            optimizer.zero_grad()
            net(torch.ones(2, 4, device=device)).sum().backward()
            optimizer.step()
        """,
    "host metrics": """
        import math
        losses, x = [], torch.ones(3).to(device)
        def step(i):
            x.mul_(1)
            losses.append(0.5 * i)
            host = torch.tensor(losses)
            return math.fsum(losses), host.mean().item(), f"{host.max():.2f}", host[host > 0].tolist(), host.numpy()
        """,
    "sizes and shapes": """
        x = torch.zeros(3, 4).to(device)
        def step(i):
            rows, columns = x.shape
            if x.numel() > 2 and x.size(0) == 3 and len(x) == 3 and x.dim() == 2 and x.requires_grad is False:
                return [row.sum() for row in x], x.is_floating_point(), x.device == device, x.dtype
        """,
    "indexing by numbers and slices": """
        x = torch.zeros(6, 4).to(device)
        def step(i):
            x[i % 6, 1:3] = 1.0
            x[0] = x[1]
            x[..., -1] += 2
            return x[i % 3 :: 2], x[None], x[:, [1][0]], x.unbind(0)[2]
        """,
    "indexing by device tensors": """
        x = torch.zeros(6, 4).to(device)
        rows = torch.tensor([1, 2]).to(device)
        def step(i):
            x.index_fill_(0, rows, 1.0)
            x[rows, rows] += torch.ones(2, device=device)
            x.index_add_(0, rows, torch.ones(2, 4, device=device))
            return x[rows][:, rows], x.take_along_dim(rows.view(1, 2), 1)
        """,
    "masks without counts": """
        x = torch.randn(6).to(device)
        def step(i):
            mask = x > 0
            y = torch.where(mask, x, 0.0)
            y = y.masked_fill(mask, 1.0)
            y[~mask] = -1
            y[mask & (y > 3)] = 2.5
            return (y * mask).sum() / mask.sum().clamp(min=1), mask.any() | mask.all()
        """,
    "clamping and choosing by tensors": """
        x, low = torch.randn(6).to(device), torch.tensor(-1.0).to(device)
        def step(i):
            y = torch.clamp(x, min=low)
            y = torch.maximum(y, low) + torch.minimum(y, low) + torch.lerp(x, y, low.sigmoid())
            return torch.nan_to_num(y), y.isnan().any().logical_not()
        """,
    "random numbers on the device": """
        weights = torch.ones(3).to(device)
        generator = torch.Generator(device=device).manual_seed(1)
        def step(i):
            a = torch.randn(3, device=device, generator=generator) + torch.rand_like(weights)
            b = torch.randint(0, 4, (3,), device=device), torch.randperm(3, device=device)
            return a, b, torch.bernoulli(weights / 2), torch.multinomial(weights, 2), a.clone().normal_()
        """,
    "sampling without validation": """
        from torch.distributions import Bernoulli, Categorical, Normal
        logits = torch.zeros(4, 3).to(device)
        def step(i):
            chances = Categorical(logits=logits, validate_args=False)
            actions = chances.sample()
            normal = Normal(logits, logits.exp(), validate_args=False)
            coin = Bernoulli(logits=logits, validate_args=False)
            return chances.log_prob(actions), chances.entropy(), normal.rsample(), normal.log_prob(logits), coin.mean
        """,
    "one_hot, bins, scatter with fixed sizes": """
        labels, x = torch.arange(3).to(device), torch.arange(3.).to(device)
        def step(i):
            hot = F.one_hot(labels, 5).float()
            counts = torch.zeros(5, device=device).scatter_add_(0, labels, x)
            counts.index_add_(0, labels, x)
            return hot, counts, torch.bucketize(x, x), torch.searchsorted(x, x), torch.histc(x, 4, 0, 4)
        """,
    "pinned batches ahead": """
        from torch.utils.data import DataLoader, TensorDataset
        loader = DataLoader(TensorDataset(torch.ones(64, 3), torch.ones(64)), batch_size=4, pin_memory=True)
        batches, stream = iter(loader), torch.cuda.Stream()
        ahead = []
        def step(i):
            with torch.cuda.stream(stream):
                ahead.append([part.to(device, non_blocking=True) for part in next(batches)])
            torch.cuda.current_stream().wait_stream(stream)
            x, y = ahead.pop()
            return x.sum() + y.sum()
        """,
    "log in every third step, allowed": """
        import denizen
        x = torch.ones(3).to(device)
        def step(i):
            x.mul_(1)
            if i % 3 == 0:
                with denizen.perf.allow("periodic log", every=3):
                    return f"{x.mean():.3f}", x.max().item()
        """,
    "convolutions, pooling, upsampling": """
        down = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.GroupNorm(2, 4), nn.SiLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))
        down = down.to(device)
        def step(i):
            y = down(torch.randn(2, 1, 8, 8, device=device))
            y = F.interpolate(y, scale_factor=2, mode="bilinear") + F.interpolate(y, size=(16, 16), mode="nearest")
            y = F.pad(F.max_pool2d(y, 2), (1, 1)) [..., 1:-1]
            F.avg_pool2d(y, 2).mean().backward()
        """,
    "attention": """
        q = torch.randn(2, 2, 4, 8).to(device).requires_grad_()
        layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device)
        def step(i):
            F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
            layer(torch.randn(2, 4, 8, device=device)).sum().backward()
        """,
    "losses": """
        x, y = torch.randn(4, 3).to(device).requires_grad_(), torch.randint(0, 3, (4,)).to(device)
        def step(i):
            total = F.cross_entropy(x, y, label_smoothing=0.1) + F.nll_loss(x.log_softmax(1), y) + F.mse_loss(x, x * 2)
            total = total + F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()) + F.smooth_l1_loss(x, x * 2)
            total = total + F.kl_div(x.log_softmax(1), x.detach().softmax(1), reduction="batchmean")
            total.backward()
        """,
    "higher derivatives": """
        x = torch.randn(4).to(device)
        def step(i):
            gradient = torch.func.grad(lambda v: (v ** 3).sum())(x)
            hessian = torch.func.hessian(lambda v: (v ** 3).sum())(x)
            y = x.clone().requires_grad_()
            (penalty,) = torch.autograd.grad((y ** 2).sum(), y, create_graph=True)
            (penalty ** 2).sum().backward()
            return gradient, hessian, torch.func.jvp(lambda v: v.sin(), (x,), (x,))
        """,
    "einsum, matrices, sorting": """
        x = torch.randn(4, 4).to(device)
        def step(i):
            y = torch.einsum("ij,jk->ik", x, x) + x @ x + torch.bmm(x[None], x[None])[0] + torch.outer(x[0], x[1])
            y = y.sort(dim=1, descending=True).values + y.argsort(1) + y.topk(4, 1).values + y.cumsum(0).roll(1, 0)
            return y.softmax(-1), y.logsumexp(0), y.std(), y.var(0), y.norm(), y.trace(), y.tril(), y.median()
        """,
    "early stopping by a number of the host": """
        best, x = [1.0], torch.ones(3).to(device)
        def step(i):
            x.mul_(1)
            validation = 1.0 / (i + 1)
            if validation < best[0]:
                best[0] = validation
                return True
        """,
    "a late read": """
        host, x = torch.zeros(2, 3).pin_memory(), torch.ones(3).to(device)
        done = [None, None]
        def step(i):
            x.mul_(1)
            slot = i % 2
            if done[slot] is not None:
                done[slot].synchronize()
                host[slot].mean().item()
            host[slot].copy_(x, non_blocking=True)
            done[slot] = torch.cuda.Event()
            done[slot].record()
        """,
    "full, arange, eye, tril on the device": """
        def step(i):
            a = torch.full((3, 3), 2.0 + i, device=device) + torch.eye(3, device=device)
            b = torch.linspace(0, 1, 3, device=device) + torch.ones(3, 3, device=device).tril() + a.new_zeros(3)
            return b, torch.full((), 1.5, device=device), torch.zeros_like(a), torch.meshgrid(b[0], b[0], indexing="ij")
        """,
    "spectral norm, weight norm, checkpoint": """
        from torch.nn.utils import parametrizations
        first, last = nn.Linear(4, 4), nn.Linear(4, 2)
        net = nn.Sequential(parametrizations.spectral_norm(first), parametrizations.weight_norm(last)).to(device)
        def step(i):
            x = torch.ones(2, 4, device=device, requires_grad=True)
            torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum().backward()
        """,
    "state dict looked at": """
        net = nn.Linear(4, 2).to(device)
        optimizer = torch.optim.SGD(net.parameters(), 0.1)
        def step(i):
            state = net.state_dict()
            names = [name for name in state if "weight" in name]
            rate = optimizer.param_groups[0]["lr"]
            for group in optimizer.param_groups:
                group["lr"] = rate * 0.9
            return names, sum(p.numel() for p in net.parameters() if p.requires_grad)
        """,
    "own classes with look-alike methods": """
        class Box(dict):
            def item(self): return 1.0
            def cpu(self): return self
            def to(self, *_): return self
            def nonzero(self): return [0]
            def synchronize(self): return None
        x = torch.ones(3).to(device)
        def step(i):
            box = Box(a=1)
            box.synchronize()
            return box.item(), box.cpu().to(device).nonzero(), np.arange(3).nonzero(), x.sum(), list(box.items())
        """,
    "CSR graph messages": """
        source, target = torch.tensor([0, 1, 2]).to(device), torch.tensor([1, 2, 0]).to(device)
        x = torch.randn(3, 4).to(device)
        def step(i):
            messages = x[source] * 0.5
            return torch.zeros_like(x).index_add_(0, target, messages), x.index_select(0, target).relu()
        """,
}
