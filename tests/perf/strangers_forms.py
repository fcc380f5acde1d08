"""More training code in the manner of strangers, as in `strangers_snippets.py`: harmless code, and odd forms."""

LOOKALIKES = {
    "numbers of the host with device-like names": """
        cuda_loss, gpu = torch.tensor(0.5), {"items": [1, 2]}
        net, x = nn.Linear(4, 2).to(device), torch.randn(8, 4, device=device)
        def step(i):
            total = cuda_loss.item() + float(cuda_loss) + sum(gpu["items"])
            if cuda_loss > total:
                raise ValueError
            with torch.no_grad():
                return net(x) * total
        """,
    "a table of tensors whose length is asked": """
        batch = {"ids": torch.zeros(4, 7, dtype=torch.long, device=device), "mask": torch.ones(4, 7, device=device)}
        table = nn.Embedding(10, 8).to(device)
        def step(i):
            n, length = batch["ids"].shape
            if not len(batch) or batch.get("labels") is not None or length > 512:
                raise ValueError
            with torch.no_grad():
                return (table(batch["ids"]) * batch["mask"][..., None]).sum(1) / length
        """,
    "a loop over micro-batches": """
        net, data = nn.Linear(8, 1).to(device), torch.randn(4, 16, 8, device=device)
        opt = torch.optim.AdamW(net.parameters())
        def step(i):
            opt.zero_grad(set_to_none=True)
            for part in data.unbind(0):
                loss = net(part).square().mean() / len(data)
                loss.backward()
            nn.utils.clip_grad_norm_(net.parameters(), 1.0)
            opt.step()
        """,
    "gradient penalty": """
        critic = nn.Sequential(nn.Linear(4, 16), nn.Tanh(), nn.Linear(16, 1)).to(device)
        x = torch.randn(8, 4, device=device)
        opt = torch.optim.Adam(critic.parameters())
        def step(i):
            mixed = (x + 0.1 * torch.randn_like(x)).requires_grad_()
            (g,) = torch.autograd.grad(critic(mixed).sum(), mixed, create_graph=True)
            loss = critic(x).mean() + 10 * (g.norm(dim=1) - 1).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    "two optimizers, one graph kept": """
        a, b, x = nn.Linear(4, 4).to(device), nn.Linear(4, 4).to(device), torch.randn(8, 4, device=device)
        optimizers = [torch.optim.SGD(net.parameters(), 0.01) for net in (a, b)]
        def step(i):
            hidden = a(x)
            for opt in optimizers: opt.zero_grad()
            hidden.square().mean().backward(retain_graph=True)
            b(hidden.detach()).abs().mean().backward()
            hidden.abs().mean().backward()
            for opt in optimizers: opt.step()
        """,
    "a variational encoder": """
        enc, dec, x = nn.Linear(8, 4).to(device), nn.Linear(2, 8).to(device), torch.rand(16, 8, device=device)
        opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()])
        def step(i):
            mu, log_var = enc(x).chunk(2, 1)
            z = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
            kl = -0.5 * (1 + log_var - mu.square() - log_var.exp()).sum(1).mean()
            loss = F.binary_cross_entropy_with_logits(dec(z), x, reduction="sum") / len(x) + kl
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "contrastive pairs": """
        enc, x, t = nn.Linear(8, 4).to(device), torch.randn(16, 8, device=device), torch.arange(16, device=device)
        opt = torch.optim.Adam(enc.parameters())
        def step(i):
            a, b = (F.normalize(enc(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
            logits = a @ b.T / 0.07
            loss = (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "deep Q with a target, all on the device": """
        q, target = nn.Linear(4, 2).to(device), nn.Linear(4, 2).to(device)
        target.load_state_dict(q.state_dict())
        opt = torch.optim.Adam(q.parameters())
        buffer = {"s": torch.randn(512, 4, device=device), "a": torch.zeros(512, 1, dtype=torch.long, device=device)}
        def step(i):
            rows = torch.randint(0, 512, (32,), device=device)
            s, a = buffer["s"][rows], buffer["a"][rows]
            with torch.no_grad():
                y = 1.0 + 0.99 * target(s).amax(1, keepdim=True)
            loss = F.smooth_l1_loss(q(s).gather(1, a), y)
            opt.zero_grad(); loss.backward(); opt.step()
            if i % 100 == 0:
                target.load_state_dict(q.state_dict())
        """,
    "a grid that blinks": """
        cells = (torch.rand(1, 1, 32, 32, device=device) < 0.3).float()
        kernel = torch.ones(1, 1, 3, 3, device=device)
        kernel[0, 0, 1, 1] = 0
        def step(i):
            around = F.conv2d(F.pad(cells, (1, 1, 1, 1), mode="circular"), kernel)
            cells.copy_(((around == 3) | ((around == 2) & (cells == 1))).float())
        """,
    "boids by sorting": """
        x, v = torch.rand(256, 2, device=device), torch.randn(256, 2, device=device) * 0.01
        def step(i):
            cell = (x * 16).long().clamp(0, 15)
            order = torch.argsort(cell[:, 0] * 16 + cell[:, 1], stable=True)
            ahead = order.roll(1)
            v[order] = v[order].lerp(v[ahead], 0.1)
            x.add_(v).remainder_(1.0)
        """,
    "a cosine schedule with warm-up": """
        net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
        opt = torch.optim.AdamW(net.parameters(), 1e-3)
        schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, (k + 1) / 10))
        rates = []
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step(); schedule.step()
            rates.append(schedule.get_last_lr()[0])
        """,
    "a causal transformer": """
        layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)
        net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
        mask = nn.Transformer.generate_square_subsequent_mask(6, device=device)
        x, opt = torch.randn(2, 6, 16, device=device), torch.optim.AdamW(net.parameters(), fused=True)
        def step(i):
            loss = net(x, mask=mask, is_causal=True).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "scores kept for a late read": """
        net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
        history, k = torch.zeros(1000, device=device), [0]
        def step(i):
            with torch.no_grad():
                history[k[0] % 1000] = net(x).mean()
            k[0] += 1
        """,
    "a clone that is written to": """
        field = torch.rand(64, 64, device=device)
        def step(i):
            new = field.clone()
            new[1:-1, 1:-1] += 0.1 * (field[2:, 1:-1] + field[:-2, 1:-1] - 2 * field[1:-1, 1:-1])
            field.copy_(new)
        """,
    "names and devices formatted": """
        net, x = nn.Linear(4, 2).to(device), torch.randn(8, 4, device=device)
        def step(i):
            text = f"{x.device} {tuple(x.shape)} {x.dtype} {sum(p.numel() for p in net.parameters())} {net}"
            if "cuda:7" in text or x.is_sparse or x.requires_grad or x.dim() != 2:
                raise ValueError
            with torch.no_grad():
                return net(x)
        """,
    "advantages by a scan": """
        rewards, values = torch.rand(12, 32, device=device), torch.rand(13, 32, device=device)
        def step(i):
            delta = rewards + 0.99 * values[1:] - values[:-1]
            weights = (0.99 * 0.95) ** torch.arange(12, device=device)
            future = (delta * weights[:, None]).flip(0).cumsum(0).flip(0) / weights[:, None]
            return (future - future.mean()) / (future.std() + 1e-8)
        """,
}
HOSTILE = {
    "reduce": """
        import functools
        losses = [torch.rand((), device=device) for _ in range(4)]
        def step(i):
            return functools.reduce(lambda a, b: a + b.item(), losses, 0.0)  # host-sync-item
        """,
    "map of a method": """
        losses = [torch.rand((), device=device) for _ in range(3)]
        def step(i):
            return list(map(torch.Tensor.item, losses))  # host-sync-item
        """,
    "partial": """
        from functools import partial
        def log(scale, value): return scale * float(value)  # host-sync-float
        x, half = torch.rand(4, device=device), partial(log, 0.5)
        def step(i):
            return half(x.sum())
        """,
    "an object that is called": """
        class Schedule:
            def __call__(self, loss):
                return 1e-3 if loss.item() > 1 else 1e-4  # host-sync-item
        schedule, x = Schedule(), torch.rand(4, device=device)
        def step(i):
            return schedule(x.sum())
        """,
    "an iterator of its own": """
        class Worlds:
            def __init__(self): self.done = torch.zeros(3, dtype=torch.bool, device=device)
            def __iter__(self):
                for k in range(3):
                    if not self.done[k]:  # host-sync-bool
                        yield k
        worlds = Worlds()
        def step(i):
            return sum(worlds)
        """,
    "finally": """
        x, seen = torch.rand(4, device=device), {}
        def step(i):
            try:
                y = x.square().mean()
            finally:
                seen["x"] = x.max().item()  # host-sync-item
            return y
        """,
    "default of get": """
        x, table = torch.rand(4, device=device), {0: "a"}
        def step(i):
            return table.get(0, x.argmax().item())  # host-sync-item
        """,
    "a conditional in a comprehension": """
        parts = [torch.rand(3, device=device) for _ in range(4)]
        def step(i):
            return [
                part * 2
                for part in parts
                if part.max() > 2  # host-sync-bool
            ]
        """,
    "chained comparison": """
        x = torch.rand((), device=device)
        def step(i):
            return 1 if 0.0 <= x <= 1.0 else 2  # host-sync-bool
        """,
    "loss that is not itself": """
        x = torch.rand(3, device=device)
        def step(i):
            loss = x.mean()
            if loss != loss:  # host-sync-bool
                raise FloatingPointError
        """,
    "negation": """
        x = torch.ones(3, dtype=torch.bool, device=device)
        def step(i):
            return not x.all()  # host-sync-bool
        """,
    "filter": """
        rows = [torch.rand(2, device=device) for _ in range(3)]
        def step(i):
            return list(filter(lambda row: row.sum() > 5, rows))  # host-sync-bool
        """,
    "a mean of numbers": """
        losses = [torch.rand((), device=device) for _ in range(3)]
        def step(i):
            return np.mean([loss.item() for loss in losses])  # host-sync-item
        """,
    "array protocol of NumPy": """
        x = torch.rand(4, device=device)
        def step(i):
            return np.log1p(np.asarray(x.cpu()))  # host-sync-copy
        """,
    "two lists of numbers": """
        x, y = torch.rand(4, device=device), torch.rand(4, device=device)
        def step(i):
            return dict(zip(x.tolist(), y.tolist()))  # host-sync-item
        """,
    "a column of a list": """
        x, columns = torch.rand(4, 6, device=device), [0, 2, 5]
        def step(i):
            return x[:, columns].sum()  # h2d-index
        """,
    "a row written by a list": """
        x = torch.zeros(6, 2, device=device)
        def step(i):
            x[[1, 3]] = 1.0  # h2d-index h2d-fresh
        """,
    "padding made on the host": """
        x = torch.rand(4, 6, device=device)
        def step(i):
            return torch.cat([x, torch.zeros(4, 2).to(x)], 1)  # h2d-fresh
        """,
    "a stack of numbers": """
        x = torch.rand(3, device=device)
        def step(i):
            return x * torch.stack([torch.tensor(float(k)) for k in range(3)]).to(device)  # h2d-fresh
        """,
    "Tensor of a list": """
        x = torch.rand(3, device=device)
        def step(i):
            return x * torch.Tensor([1, 2, i]).to(device)  # h2d-fresh
        """,
    "a constant of a module that stayed on the host": """
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
        """,
    "pickled": """
        import pickle
        x = torch.rand(3, device=device)
        def step(i):
            return pickle.dumps(x)  # host-sync-copy
        """,
    "a hook of a gradient": """
        w = nn.Parameter(torch.rand(3, device=device))
        norms = []
        w.register_hook(lambda g: norms.append(g.norm().item()))  # host-sync-item
        def step(i):
            w.grad = None
            (w * 2).sum().backward()
        """,
    "a function of torch that is Python inside": """
        x = torch.rand(5, device=device)
        def step(i):
            return torch.histc(x, bins=4)  # host-sync-item
        """,
    "debug text of a module": """
        class Net(nn.Linear):
            def extra_repr(self): return f"w={self.weight.mean():.2f}"  # host-sync-print
        net = Net(4, 4).to(device)
        def step(i):
            return str(net)
        """,
    "a coroutine": """
        import asyncio
        x = torch.rand(3, device=device)
        async def read():
            await asyncio.sleep(0)
            return x.sum().item()  # host-sync-item
        def step(i):
            return asyncio.run(read())
        """,
    "a product of lists": """
        import itertools
        x = torch.rand(3, device=device)
        def step(i):
            return [a * b for a, b in itertools.product(x.tolist(), [1, 2])]  # host-sync-item
        """,
    "a scheduler told of a tensor": """
        net, x = nn.Linear(4, 1).to(device), torch.rand(8, 4, device=device)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(opt, patience=100)
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            plateau.step(loss.detach())  # host-sync-float
        """,
}
LOOKALIKES |= {
    "a message that nobody formats": """
        import logging
        log, x = logging.getLogger("strangers"), torch.rand(4, device=device)
        log.setLevel(logging.WARNING)
        def step(i):
            y = x * 2
            log.debug("y is %s", y)
            return y
        """,
    "questions of a tensor that its values do not answer": """
        x = torch.rand(4, 3, device=device)
        def step(i):
            if x.numel() and x.is_contiguous() and bool(x.size(0)) and x is not None and x.stride(0) == 3:
                return [k for k in range(len(x))], id(x), hash(x), x.data_ptr()
        """,
    "rows by Python": """
        x = torch.rand(3, 4, device=device)
        def step(i):
            first, *others = x
            return first + sum(others)
        """,
    "numbers of the host in tensors of the device": """
        x, threshold = torch.rand(4, device=device), torch.tensor(0.5)
        def step(i):
            return torch.where(x > threshold, x, 0.0) + torch.full_like(x, i) * threshold.item()
        """,
    "an assertion that the device makes": """
        x = torch.rand(4, device=device)
        def step(i):
            torch._assert_async((x >= 0).all())
            return x.sqrt()
        """,
    "a mask that fills with numbers": """
        x, m = torch.rand(4, 4, device=device), torch.eye(4, device=device).bool()
        def step(i):
            x[m] = 0.0
            x[x < 0] = 0
            return x.masked_fill(m, -1e9).softmax(-1)
        """,
    "a subclass with reading names": """
        class Meter:
            def __init__(self): self.value = torch.zeros((), device=device)
            def item(self): return self.value
            def cpu(self): return self
            def numpy(self): return self.value
            def tolist(self): return [self.value]
            def __float__(self): return 1.0
        meter, x = Meter(), torch.rand(3, device=device)
        def step(i):
            meter.value.add_(x.sum())
            return meter.cpu().item() + meter.numpy() + meter.tolist()[0] + float(meter)
        """,
    "a batch that comes ahead": """
        batches = [torch.rand(8, 4).pin_memory() for _ in range(4)]
        net = nn.Linear(4, 2).to(device)
        def step(i):
            with torch.no_grad():
                return net(batches[i % 4].to(device, non_blocking=True))
        """,
    "what is read once in a hundred": """
        x = torch.rand(3, device=device)
        def step(i):
            y = x.mean()
            if i % 100 == 99:
                print(f"mean {y.item():.3f}")
            return y
        """,
    "weights looked up in a table of the host": """
        weights = {"a": 0.3, "b": 0.7}
        net, x = nn.Linear(4, 2).to(device), torch.rand(8, 4, device=device)
        opt = torch.optim.Adam(net.parameters())
        def step(i):
            out = net(x)
            losses = {"a": out[:, 0].square().mean(), "b": out[:, 1].abs().mean()}
            loss = sum(weights[name] * value for name, value in losses.items())
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "the best so far on the device": """
        best, x = {"loss": torch.full((), 9.0, device=device)}, torch.rand(3, device=device)
        saved = torch.zeros(3, device=device)
        def step(i):
            better = x.mean() < best["loss"]
            saved.copy_(torch.where(better, x, saved))
            best["loss"] = torch.where(better, x.mean(), best["loss"])
        """,
}
LOOKALIKES |= {
    "simclr eye": """
        enc = nn.Linear(32, 16).to(device)
        x = torch.randn(256, 32, device=device); opt = torch.optim.Adam(enc.parameters())
        eye = torch.eye(256, dtype=torch.bool, device=device)
        target = (torch.arange(256, device=device) + 128) % 256
        def step(i):
            z = F.normalize(enc(x), dim=1)
            sim = (z @ z.T / 0.5).masked_fill(eye, float("-inf"))
            loss = F.cross_entropy(sim, target)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "simclr eye in step": """
        enc = nn.Linear(32, 16).to(device)
        x = torch.randn(256, 32, device=device); opt = torch.optim.Adam(enc.parameters())
        target = (torch.arange(256, device=device) + 128) % 256
        def step(i):
            z = F.normalize(enc(x), dim=1)
            sim = z @ z.T / 0.5
            sim = sim - 1e9 * torch.eye(len(x), device=device)
            loss = F.cross_entropy(sim, target)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "supcon": """
        enc = nn.Linear(32, 16).to(device)
        x = torch.randn(256, 32, device=device); opt = torch.optim.Adam(enc.parameters())
        y = torch.arange(256, device=device) % 32
        def step(i):
            z = F.normalize(enc(x), dim=1)
            logits = z @ z.T / 0.1
            same = (y[:, None] == y[None]).float()
            logp = logits.log_softmax(1)
            loss = -((same * logp).sum(1) / same.sum(1)).mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "block diagonal mask": """
        q = torch.randn(1, 2, 256, 16, device=device)
        doc = torch.arange(256, device=device) // 16
        mask = doc[:, None] == doc[None]
        def step(i):
            return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)
        """,
    "segmentation accuracy": """
        net = nn.Conv2d(3, 4, 3, padding=1).to(device)
        x, y = torch.randn(4, 3, 256, 256, device=device), torch.randint(0, 4, (4, 256, 256), device=device)
        opt, right = torch.optim.Adam(net.parameters()), torch.zeros((), device=device)
        def step(i):
            out = net(x)
            loss = F.cross_entropy(out, y)
            opt.zero_grad(); loss.backward(); opt.step()
            right.add_((out.detach().argmax(1) == y).float().mean())
        """,
    "token mask": """
        ids = torch.randint(0, 30000, (16, 512), device=device)
        emb = nn.Embedding(30000, 8).to(device)
        def step(i):
            with torch.no_grad():
                mask = (ids != 0).unsqueeze(-1)
                h = emb(ids) * mask
                return h.sum(1) / mask.sum(1).clamp(min=1)
        """,
    "hidden carried": """
        cell, opt = None, None
        cell = nn.GRUCell(8, 8).to(device); opt = torch.optim.Adam(cell.parameters())
        x = torch.randn(4, 8, device=device); h = torch.zeros(4, 8, device=device)
        def step(i):
            global h
            h = h.detach()
            for _ in range(4):
                h = cell(x, h)
            loss = h.square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "ema of loss": """
        net = nn.Linear(8, 1).to(device); opt = torch.optim.SGD(net.parameters(), 0.1)
        x = torch.randn(32, 8, device=device); ema = torch.zeros((), device=device)
        def step(i):
            global ema
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            ema = 0.9 * ema + 0.1 * loss.detach()
        """,
    "memory bank": """
        from collections import deque
        enc = nn.Linear(8, 4).to(device); opt = torch.optim.SGD(enc.parameters(), 0.1)
        x = torch.randn(32, 8, device=device); bank = deque(maxlen=3)
        def step(i):
            z = enc(x)
            keys = torch.cat([*bank, z.detach()])
            loss = (z @ keys.T).logsumexp(1).mean()
            opt.zero_grad(); loss.backward(); opt.step()
            bank.append(z.detach())
        """,
    "backward every second": """
        net = nn.Linear(8, 1).to(device); opt = torch.optim.SGD(net.parameters(), 0.1)
        x = torch.randn(32, 8, device=device)
        def step(i):
            (net(x).square().mean() / 2).backward()
            if i % 2 == 1:
                opt.step(); opt.zero_grad()
        """,
    "aux head unused": """
        trunk, a, b = nn.Linear(8, 16).to(device), nn.Linear(16, 2).to(device), nn.Linear(16, 3).to(device)
        opt = torch.optim.Adam([*trunk.parameters(), *a.parameters()])
        x = torch.randn(32, 8, device=device)
        class Net(nn.Module):
            def __init__(self): super().__init__(); self.t, self.a, self.b = trunk, a, b
            def forward(self, x):
                h = self.t(x).relu()
                return self.a(h), self.b(h)
        net = Net()
        def step(i):
            out, _ = net(x)
            loss = out.square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "ppo epochs": """
        net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)).to(device)
        opt = torch.optim.Adam(net.parameters(), foreach=True)
        obs, act = torch.randn(256, 4, device=device), torch.zeros(256, dtype=torch.long, device=device)
        adv = torch.randn(256, device=device)
        def step(i):
            with torch.no_grad():
                out = net(obs); old = F.log_softmax(out[:, :2], 1).gather(1, act[:, None])[:, 0]
            for _ in range(4):
                order = torch.randperm(256, device=device)
                for rows in order.split(64):
                    out = net(obs[rows])
                    logp = F.log_softmax(out[:, :2], 1).gather(1, act[rows, None])[:, 0]
                    ratio = (logp - old[rows]).exp()
                    pg = torch.max(-adv[rows] * ratio, -adv[rows] * ratio.clamp(0.8, 1.2)).mean()
                    v = 0.5 * (out[:, 2] - adv[rows]).square().mean()
                    opt.zero_grad(); (pg + v).backward()
                    nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                    opt.step()
        """,
    "heads in a loop": """
        heads = nn.ModuleList(nn.Linear(64, 8) for _ in range(6)).to(device)
        x = torch.randn(128, 64, device=device)
        def step(i):
            with torch.no_grad():
                return torch.cat([head(x) for head in heads], 1)
        """,
    "unet": """
        class Block(nn.Module):
            def __init__(self, a, b):
                super().__init__(); self.c, self.n = nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b)
            def forward(self, x): return F.silu(self.n(self.c(x)))
        class UNet(nn.Module):
            def __init__(self):
                super().__init__()
                self.d1, self.d2, self.u, self.o = Block(3, 8), Block(8, 16), Block(24, 8), nn.Conv2d(8, 3, 1)
            def forward(self, x):
                a = self.d1(x); b = self.d2(F.avg_pool2d(a, 2))
                return self.o(self.u(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))
        net = UNet().to(device); opt = torch.optim.AdamW(net.parameters())
        x = torch.randn(2, 3, 16, 16, device=device)
        def step(i):
            loss = F.mse_loss(net(x), x)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "tensordataset loader small": """
        from torch.utils.data import DataLoader, TensorDataset
        data = TensorDataset(torch.randn(4096, 4), torch.randn(4096, 1))
        loader = DataLoader(data, batch_size=8, pin_memory=True, shuffle=True)
        net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(30)], nn.Linear(4, 1)).to(device)
        opt = torch.optim.Adam(net.parameters(), foreach=True)
        batches = iter(loader)
        def step(i):
            x, y = (t.to(device, non_blocking=True) for t in next(batches))
            loss = F.mse_loss(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "lookup numbers": """
        cfg = {"lr": torch.tensor(0.1), "n": np.int64(3)}
        x = torch.randn(8, device=device)
        def step(i):
            return x * cfg["lr"] * float(cfg["n"]) + cfg["lr"].item()
        """,
    "mc dropout off grad": """
        net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)).to(device)
        x = torch.randn(8, 4, device=device)
        @torch.inference_mode()
        def step(i):
            return torch.stack([net(x + 0.1 * torch.randn_like(x)) for _ in range(3)]).var(0)
        """,
    "langevin": """
        x = torch.randn(512, 2, device=device)
        def energy(x): return (x.square().sum(1) - 1).square().sum()
        def step(i):
            global x
            x = x.detach().requires_grad_()
            (g,) = torch.autograd.grad(energy(x), x)
            x = x - 0.01 * g + 0.1 * torch.randn_like(x)
        """,
    "maml": """
        w = torch.randn(4, 4, device=device, requires_grad=True); opt = torch.optim.Adam([w])
        x = torch.randn(8, 4, device=device)
        def step(i):
            inner = (x @ w).square().mean()
            (g,) = torch.autograd.grad(inner, w, create_graph=True)
            outer = (x @ (w - 0.1 * g)).abs().mean()
            opt.zero_grad(); outer.backward(); opt.step()
        """,
    "reservoir sparse fixed": """
        i = torch.randint(0, 512, (2, 2000), device=device)
        w = torch.sparse_coo_tensor(i, torch.randn(2000, device=device), (512, 512), check_invariants=False)
        w = w.coalesce()
        h = torch.randn(512, 1, device=device)
        def step(i):
            h.copy_(torch.tanh(torch.sparse.mm(w, h)))
        """,
    "grid of walkers": """
        grid = torch.zeros(64, 64, dtype=torch.int32, device=device)
        pos = torch.randint(0, 64, (100, 2), device=device)
        def step(i):
            move = torch.randint(-1, 2, pos.shape, device=device)
            pos.add_(move).remainder_(64)
            grid.zero_()
            grid.index_put_((pos[:, 0], pos[:, 1]), torch.ones(100, dtype=torch.int32, device=device), accumulate=True)
        """,
    "old policy logp": """
        net = nn.Linear(4, 2).to(device); old = nn.Linear(4, 2).to(device)
        opt = torch.optim.Adam(net.parameters()); x = torch.randn(64, 4, device=device)
        def step(i):
            with torch.no_grad(): ref = F.log_softmax(old(x), -1)
            logp = F.log_softmax(net(x), -1)
            loss = F.kl_div(logp, ref, log_target=True, reduction="batchmean")
            opt.zero_grad(); loss.backward(); opt.step()
        """,
}
HOSTILE |= {
    "image normalise host mean": """
        mean = torch.tensor([0.4, 0.5, 0.6]).view(1, 3, 1, 1)
        x = torch.rand(4, 3, 8, 8, device=device)
        def step(i):
            return x - mean.to(device)  # h2d-pageable h2d-fresh
        """,
    "eval loop list extend": """
        preds = []
        x = torch.rand(16, 3, device=device)
        def step(i):
            out = x.argmax(1)
            preds.extend(out.cpu().numpy())  # host-sync-copy d2h-accumulate
        """,
    "sparse contact": """
        p = torch.rand(400, 2, device=device)
        def step(i):
            d = p[:, None] - p[None]  # dense-quadratic
            near = d.square().sum(-1) < 0.001
            return near.sum(1)
        """,
    "sample loop small": """
        net = nn.Linear(3, 2).to(device)
        x0 = torch.randn(16, 2, device=device)
        @torch.no_grad()
        def sample():
            x = x0
            for t in range(50):
                x = x + 0.02 * net(torch.cat([x, torch.full((16, 1), t / 50, device=device)], 1))  # launch-bound
            return x
        def step(i): return sample()
        """,
    "grad scaler bf16": """
        net = nn.Linear(8, 8).to(device); opt = torch.optim.SGD(net.parameters(), 0.1)
        scaler = torch.amp.GradScaler(device.type); x = torch.randn(8, 8, device=device)
        def step(i):
            opt.zero_grad()
            with torch.autocast(device.type, dtype=torch.bfloat16):
                loss = net(x).square().mean()
            scaler.scale(loss).backward()
            scaler.step(opt)  # host-sync-scaler
            scaler.update()
        """,
    "hidden with its graph": """
        cell = nn.GRUCell(8, 8).to(device); opt = torch.optim.Adam(cell.parameters())
        x = torch.randn(4, 8, device=device); h = torch.zeros(4, 8, device=device); losses = []
        def step(i):
            out = cell(x, h)
            loss = out.square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            losses.append(loss)  # graph-retention
        """,
    "metric outside no_grad": """
        net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
        opt = torch.optim.Adam(net.parameters())
        x, y = torch.randn(256, 8, device=device), torch.randn(256, 4, device=device); seen = {}
        def step(i):
            loss = F.mse_loss(net(x), y)
            opt.zero_grad(); loss.backward(); opt.step()
            seen["l1"] = F.l1_loss(net(x), y).detach()  # no-grad-missing
        """,
    "clone for safety": """
        x = torch.randn(1000, device=device)
        def normalise(t):
            t = t.clone()  # alloc-churn
            return (t - t.mean()) / t.std()
        def step(i): return normalise(x)
        """,
    "while heap": """
        import heapq
        d = torch.rand(8, device=device)
        def step(i):
            heap = [(float(v), k) for k, v in enumerate(d)]  # host-sync-float
            heapq.heapify(heap)
            return heap[0][1]
        """,
    "torch.tensor of tensor list": """
        a = [torch.rand((), device=device) for _ in range(3)]
        def step(i):
            return torch.tensor(a, device=device).mean()  # host-sync-item h2d-fresh host-sync-float roundtrip
        """,
    "averages of weights by torch": """
        from torch.optim.swa_utils import AveragedModel
        net = nn.Linear(4, 4).to(device)
        average, opt, x = AveragedModel(net), torch.optim.Adam(net.parameters()), torch.randn(8, 4, device=device)
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            average.update_parameters(net)  # host-sync-item h2d-fresh
        """,
}
HOSTILE |= {
    "wandb dict": """
        class Run:
            def log(self, d, step=None): self.last = d
        run = Run()
        net = nn.Linear(4, 1).to(device)
        opt = torch.optim.Adam(net.parameters())
        x = torch.randn(8, 4, device=device)
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            run.log({"loss": loss.item(), "w": net.weight.detach().norm().item()}, step=i)  # host-sync-item
        """,
    "detach cpu item mean list": """
        x = torch.randn(8, device=device); hist = []
        def step(i):
            hist.append(x.mean().detach().cpu().item())  # host-sync-copy d2h-accumulate
        """,
    "numpy argmax": """
        x = torch.randn(8, 5, device=device)
        def step(i):
            return np.argmax(x.detach().cpu().numpy(), axis=1)  # host-sync-copy
        """,
    "numpy choice probs": """
        logits = torch.randn(5, device=device)
        def step(i):
            p = logits.softmax(0).cpu().numpy().astype(np.float64)  # host-sync-copy
            return np.random.choice(5, p=p / p.sum())
        """,
    "device from numpy float": """
        x = torch.randn(8, device=device)
        def step(i):
            lr = torch.from_numpy(np.random.rand(8).astype(np.float32)).to(device)  # h2d-fresh
            return x * lr
        """,
    "tensor from list of lists": """
        x = torch.randn(2, 2, device=device)
        def step(i):
            return x @ torch.tensor([[1.0, 0.0], [0.0, i]], device=device)  # h2d-fresh
        """,
    "edge list python": """
        x = torch.randn(6, 3, device=device)
        edges = [(0, 1), (2, 3), (4, 5)]
        def step(i):
            src, dst = zip(*edges)
            return x[list(src)] + x[list(dst)]  # h2d-index
        """,
    "python max over rows": """
        x = torch.randn(4, 3, device=device)
        def step(i):
            best, at = -1e9, 0
            for k, row in enumerate(x):
                s = row.sum()
                if s > best:  # host-sync-bool
                    best, at = s, k
            return at
        """,
    "top p": """
        logits = torch.randn(1, 50, device=device)
        def step(i):
            s, idx = logits.sort(descending=True)
            drop = s.softmax(-1).cumsum(-1) > 0.9
            drop[..., 1:] = drop[..., :-1].clone(); drop[..., 0] = False
            logits2 = logits.clone()
            logits2[:, idx[drop]] = -1e9  # host-sync-boolindex h2d-fresh
            return logits2
        """,
    "eos stop": """
        out = torch.zeros(4, 6, dtype=torch.long, device=device)
        def step(i):
            for t in range(6):
                if (out[:, t] == 1).all():  # host-sync-bool
                    break
            return out
        """,
    "nan count": """
        g = torch.randn(10, device=device)
        def step(i):
            n = torch.isnan(g).sum().item()  # host-sync-item
            return n
        """,
    "grad norm by hand": """
        net = nn.Sequential(nn.Linear(4, 4), nn.Linear(4, 1)).to(device); x = torch.randn(8, 4, device=device)
        def step(i):
            net.zero_grad()
            net(x).mean().backward()
            total = 0.0
            for p in net.parameters():
                total += p.grad.data.norm(2).item() ** 2  # host-sync-item
            return total ** 0.5
        """,
    "weights to numpy state": """
        net = nn.Linear(4, 4).to(device)
        def step(i):
            return {k: v.cpu().numpy() for k, v in net.state_dict().items()}  # state-copy
        """,
    "lambda lr host read": """
        beta = torch.tensor(0.5, device=device); x = torch.randn(3, device=device)
        def step(i):
            return x.mul(beta.item()).add(1)  # host-sync-item
        """,
    "agents neighbours python": """
        pos = torch.rand(20, 2, device=device)
        def step(i):
            out = []
            for k in range(20):
                d = (pos - pos[k]).square().sum(1)  # launch-bound
                out.append(d < 0.1)
            return torch.stack(out).sum(1)
        """,
    "infection by where": """
        s = torch.zeros(200, dtype=torch.long, device=device); s[:5] = 1
        def step(i):
            sick = (s == 1).nonzero(as_tuple=True)[0]  # host-sync-nonzero
            s.index_fill_(0, sick, 1)
        """,
    "sir count list": """
        s = torch.zeros(200, dtype=torch.long, device=device); history = []
        def step(i):
            history.append([int((s == k).sum()) for k in range(3)])  # host-sync-float
        """,
    "unique labels": """
        y = torch.randint(0, 3, (30,), device=device); x = torch.randn(30, 2, device=device)
        def step(i):
            return torch.stack([x[y == c].mean(0) for c in y.unique()])  # host-sync-nonzero host-sync-boolindex
        """,
    "random perm host": """
        x = torch.randn(32, 4, device=device)
        def step(i):
            idx = torch.randperm(32)
            a = x[idx]  # h2d-index
            return a
        """,
    "numpy random mask": """
        x = torch.randn(32, device=device)
        def step(i):
            m = np.random.rand(32) < 0.5
            return x * torch.tensor(m, device=device)  # h2d-fresh
        """,
    "float64 scalar array": """
        w = torch.tensor(np.ones((8, 8))).to(device); x = torch.randn(4, 8, device=device)
        def step(i):
            return (x.double() @ w).relu().float()  # dtype-fp64
        """,
    "inference without no_grad": """
        net = nn.Sequential(nn.Linear(16, 64), nn.ReLU(), nn.Linear(64, 4)).to(device)
        x = torch.randn(32, 16, device=device)
        def step(i):
            return net(x).argmax(1)  # no-grad-missing
        """,
    "set to none false": """
        net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(4)]).to(device)
        opt = torch.optim.SGD(net.parameters(), 0.1)
        x = torch.randn(4, 8, device=device)
        def step(i):
            net.zero_grad(set_to_none=False)  # grad-memset
            net(x).square().mean().backward()
            opt.step()
        """,
    "own sgd": """
        net = nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to(device); x = torch.randn(4, 8, device=device)
        def step(i):
            net.zero_grad()
            net(x).square().mean().backward()
            with torch.no_grad():
                for p in net.parameters():
                    p -= 0.01 * p.grad  # launch-bound
        """,
    "compile in loop": """
        def f(x): return x * 2 + 1
        x = torch.randn(4, device=device)
        def step(i):
            g = torch.compile(f, backend="eager")  # compile-overhead
            return g(x)
        """,
    "cat of results": """
        x = torch.randn(32, 4, device=device)
        def step(i):
            out = torch.empty(0, 4, device=device)
            for k in range(6):
                out = torch.cat((out, x * k))  # alloc-churn
            return out
        """,
    "print loss": """
        x = torch.randn(3, device=device)
        def step(i):
            print("loss", x.mean())  # host-sync-print
        """,
    "numpy clip roundtrip": """
        x = torch.randn(8, device=device)
        def step(i):
            return torch.tensor(np.clip(x.cpu().numpy(), -1, 1), device=device)  # roundtrip
        """,
}
LOOKALIKES |= {
    "ddim sampling with few steps": """
        net = nn.Sequential(nn.Linear(9, 64), nn.SiLU(), nn.Linear(64, 8)).to(device)
        alpha = torch.linspace(0.99, 0.1, 4, device=device)
        x0 = torch.randn(64, 8, device=device)
        @torch.no_grad()
        def step(i):
            x = x0
            for t in range(4):
                eps = net(torch.cat([x, alpha[t].expand(64, 1)], 1))
                x = (x - (1 - alpha[t]).sqrt() * eps) / alpha[t].sqrt()
            return x
        """,
    "numpy env": """
        state = np.zeros(4, dtype=np.float32)
        def step(i):
            global state
            state = np.clip(state + np.random.randn(4).astype(np.float32), -1, 1)
            return float(state.sum()), state.tolist(), int(state.argmax())
        """,
    "moe dense": """
        experts = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)]).to(device); gate = nn.Linear(16, 4).to(device)
        opt = torch.optim.AdamW([*experts.parameters(), *gate.parameters()]); x = torch.randn(32, 16, device=device)
        def step(i):
            w = gate(x).softmax(-1)
            y = sum(w[:, k:k + 1] * e(x) for k, e in enumerate(experts))
            loss = (y - x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "rope": """
        x = torch.randn(2, 16, 4, 8, device=device)
        rate = 1 / 10000 ** (torch.arange(0, 8, 2, device=device) / 8)
        f = torch.outer(torch.arange(16, device=device).float(), rate)
        cos, sin = f.cos()[None, :, None], f.sin()[None, :, None]
        def step(i):
            a, b = x[..., ::2], x[..., 1::2]
            return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)
        """,
    "kv cache": """
        cache = torch.zeros(2, 64, 16, device=device); w = nn.Linear(16, 16).to(device)
        tok = torch.randn(2, 1, 16, device=device)
        @torch.no_grad()
        def step(i):
            cache[:, i % 64 : i % 64 + 1] = w(tok)
            return F.scaled_dot_product_attention(tok, cache, cache)
        """,
    "scatter gnn": """
        src, dst = torch.randint(0, 50, (200,), device=device), torch.randint(0, 50, (200,), device=device)
        lin = nn.Linear(8, 8).to(device)
        x = torch.randn(50, 8, device=device)
        opt = torch.optim.Adam(lin.parameters())
        def step(i):
            m = lin(x)[src]
            h = torch.zeros(50, 8, device=device).index_add(0, dst, m)
            deg = torch.zeros(50, device=device).index_add(0, dst, torch.ones(200, device=device)).clamp(min=1)
            loss = (h / deg[:, None]).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "td lambda": """
        r, v = torch.rand(8, 16, device=device), torch.rand(9, 16, device=device)
        def step(i):
            ret, out = v[-1], []
            for t in reversed(range(8)):
                ret = r[t] + 0.99 * ret
                out.append(ret)
            return torch.stack(out[::-1])
        """,
    "dropout train bn": """
        net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
        net.to(device)
        opt = torch.optim.Adam(net.parameters())
        x, y = torch.randn(32, 8, device=device), torch.randint(0, 2, (32,), device=device)
        def step(i):
            net.train()
            loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
            opt.zero_grad(); loss.backward(); opt.step()
            net.eval()
            with torch.no_grad(): net(x)
        """,
    "ema with lerp": """
        a = [torch.randn(4, 4, device=device) for _ in range(12)]
        b = [torch.randn(4, 4, device=device) for _ in range(12)]
        def step(i):
            torch._foreach_lerp_(a, b, 0.01)
        """,
    "hooks": """
        net = nn.Linear(4, 4).to(device); stats = torch.zeros((), device=device)
        net.register_forward_hook(lambda m, a, o: stats.add_(o.detach().abs().mean()))
        x = torch.randn(8, 4, device=device)
        def step(i):
            with torch.inference_mode(): pass
            with torch.no_grad(): net(x)
        """,
    "bucketed lengths": """
        data = [torch.randn(4, n, 8, device=device) for n in (8, 16)]; net = nn.GRU(8, 8, batch_first=True).to(device)
        opt = torch.optim.Adam(net.parameters())
        def step(i):
            out, _ = net(data[i % 2])
            loss = out.square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "checkpointed": """
        from torch.utils.checkpoint import checkpoint
        a, b = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
        opt = torch.optim.SGD([*a.parameters(), *b.parameters()], 0.1)
        x = torch.randn(4, 8, device=device)
        def step(i):
            h = checkpoint(a, x, use_reentrant=False)
            loss = b(h).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "weighted sampler device": """
        p = torch.rand(100, device=device); x = torch.randn(100, 4, device=device)
        def step(i):
            rows = torch.multinomial(p, 16, replacement=True)
            return x[rows].mean()
        """,
    "gumbel": """
        logits = torch.randn(8, 4, device=device)
        def step(i):
            u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
            return (logits - (-u.log()).log()).argmax(-1)
        """,
    "histogram fixed": """
        x = torch.rand(1000, device=device)
        def step(i):
            b = (x * 10).long().clamp(0, 9)
            return torch.zeros(10, device=device).scatter_add_(0, b, torch.ones_like(x))
        """,
    "host dataset bookkeeping": """
        order = torch.randperm(64); lens = torch.randint(1, 9, (64,)); x = torch.randn(64, 4, device=device)
        def step(i):
            if lens[i % 64] > 8 or order[0].item() < 0: raise ValueError
            k = int(order[i % 64])
            return x[k] * x[k : k + int(lens.max())].sum(), lens.tolist(), order[lens > 3], np.asarray(lens)
        """,
    "clamped ppo kl on device": """
        lp, old = torch.randn(64, device=device), torch.randn(64, device=device); w = torch.ones((), device=device)
        def step(i):
            kl = ((old - lp).exp() - 1 - (old - lp)).mean()
            w.mul_(torch.where(kl > 0.015, 0.5, 1.0))
            return w * kl
        """,
}
HOSTILE |= {
    "target from online net with grad": """
        q, t = nn.Linear(8, 64).to(device), nn.Linear(8, 64).to(device); opt = torch.optim.Adam(q.parameters())
        x = torch.randn(64, 8, device=device)
        def step(i):
            target = t(x).detach()  # no-grad-missing
            loss = (q(x) - target).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    "losses dict kept": """
        net = nn.Linear(8, 1).to(device)
        opt = torch.optim.Adam(net.parameters())
        x = torch.randn(8, 8, device=device)
        log = {"loss": []}
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward(); opt.step()
            log["loss"].append(loss)  # graph-retention
        """,
    "eval forgotten": """
        class Net(nn.Module):
            def __init__(self):
                super().__init__()
                self.f = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU())
                self.o = nn.Linear(16, 2)
            def forward(self, x): return self.o(self.f(x))
        net = Net().to(device); x = torch.randn(8, 8, device=device)
        @torch.no_grad()
        def predict(x): return net(x).softmax(-1)  # eval-mode-missing
        def step(i): return predict(x)
        """,
    "perf_counter fps": """
        import time
        net = nn.Linear(8, 8).to(device); x = torch.randn(8, 8, device=device); fps = []
        def step(i):
            t = time.perf_counter()
            with torch.no_grad(): y = net(x).relu()
            fps.append(len(x) / (time.perf_counter() - t))  # timing-async
        """,
    "history cat": """
        h = {"x": torch.zeros(1, 8, device=device)}
        new = torch.ones(1, 8, device=device)
        def step(i):
            h["x"] = torch.cat([h["x"], new])  # alloc-churn
        """,
    "deepcopy best": """
        import copy
        net = nn.Linear(8, 8).to(device); best = {}
        def step(i):
            best["net"] = copy.deepcopy(net)  # state-copy
        """,
    "deque obs stack": """
        from collections import deque
        frames = deque([torch.rand(1, 8, 8) for _ in range(4)], maxlen=4)
        net = nn.Conv2d(4, 2, 3).to(device)
        def step(i):
            frames.append(torch.rand(1, 8, 8))
            s = torch.cat(list(frames)).unsqueeze(0).to(device)  # h2d-fresh
            with torch.no_grad(): return net(s)
        """,
}
LOOKALIKES |= {
    "flocking": """
        x, v = torch.rand(64, 2, device=device), torch.randn(64, 2, device=device)
        def step(i):
            d = x[:, None] - x[None]
            w = (-d.square().sum(-1) / 0.02).exp()
            v.add_(0.1 * ((w @ v) / w.sum(1, keepdim=True) - v))
            x.add_(0.01 * v).remainder_(1)
        """,
    "belief propagation in log space": """
        psi = torch.randn(4, 4, device=device); u = torch.randn(50, 4, device=device)
        def step(i):
            m = u
            for _ in range(5):
                m = u + torch.logsumexp(psi[None] + m[:, :, None], 1)
            return m.softmax(-1)
        """,
    "masked attention dropout eval": """
        att = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True).to(device).eval()
        x = torch.randn(2, 9, 16, device=device); pad = torch.zeros(2, 9, dtype=torch.bool, device=device)
        @torch.inference_mode()
        def step(i): return att(x, x, x, key_padding_mask=pad, need_weights=False)[0]
        """,
    "int counters": """
        n = torch.zeros((), dtype=torch.long, device=device); hits = torch.zeros(10, dtype=torch.long, device=device)
        a = torch.randint(0, 10, (100,), device=device)
        def step(i):
            n.add_(100); hits.index_add_(0, a, torch.ones_like(a))
            return hits / n
        """,
}
