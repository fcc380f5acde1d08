"""Training code in the manner of strangers, faulty and mended; `strangers_forms.py` has more.

As in `snippets.py`; ``# kind`` marks the line to blame, ``step(i)`` is a step on `device`. Written before what judges
them had seen them; no line is taken from anybody's code.
"""

FAULTS = {
    "progress bar": (
        """
        class Bar:
            def set_postfix(self, **numbers): self.text = " ".join(f"{k}={v:.3f}" for k, v in numbers.items())
        bar, net = Bar(), nn.Linear(8, 1).to(device)
        opt, x = torch.optim.AdamW(net.parameters(), 1e-3), torch.randn(32, 8, device=device)
        def step(i):
            loss = net(x).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            bar.set_postfix(
                loss=loss.item(),  # host-sync-item
                lr=opt.param_groups[0]["lr"],
            )
        """,
        """
        class Bar:
            def set_postfix(self, **numbers): self.text = " ".join(f"{k}={v:.3f}" for k, v in numbers.items())
        bar, net = Bar(), nn.Linear(8, 1).to(device)
        opt, x = torch.optim.AdamW(net.parameters(), 1e-3), torch.randn(32, 8, device=device)
        total = torch.zeros((), device=device)
        def step(i):
            loss = net(x).pow(2).mean()
            loss.backward()
            opt.step()
            opt.zero_grad()
            total.add_(loss.detach())
            bar.set_postfix(step=i, lr=opt.param_groups[0]["lr"])
        """,
    ),
    "callbacks of a trainer": (
        """
        class Callback:
            def __init__(self): self.best = float("inf")
            def on_batch_end(self, logs):
                if logs["loss"] < self.best:  # host-sync-bool
                    self.best = logs["loss"]
        class Trainer:
            def __init__(self, net, callbacks):
                self.net, self.callbacks = net, callbacks
                self.opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
            def fit_batch(self, x):
                self.opt.zero_grad()
                loss = self.net(x).abs().mean()
                loss.backward()
                self.opt.step()
                for callback in self.callbacks:
                    callback.on_batch_end({"loss": loss.detach()})
        trainer, x = Trainer(nn.Linear(8, 4).to(device), [Callback()]), torch.randn(16, 8, device=device)
        def step(i):
            trainer.fit_batch(x)
        """,
        """
        class Callback:
            def __init__(self): self.best = torch.full((), float("inf"), device=device)
            def on_batch_end(self, logs):
                torch.minimum(self.best, logs["loss"], out=self.best)
        class Trainer:
            def __init__(self, net, callbacks):
                self.net, self.callbacks = net, callbacks
                self.opt = torch.optim.SGD(net.parameters(), lr=0.01, momentum=0.9)
            def fit_batch(self, x):
                self.opt.zero_grad()
                loss = self.net(x).abs().mean()
                loss.backward()
                self.opt.step()
                for callback in self.callbacks:
                    callback.on_batch_end({"loss": loss.detach()})
        trainer, x = Trainer(nn.Linear(8, 4).to(device), [Callback()]), torch.randn(16, 8, device=device)
        def step(i):
            trainer.fit_batch(x)
        """,
    ),
    "masked language model": (
        """
        vocabulary, net = 50, nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).to(device)
        opt = torch.optim.AdamW(net.parameters())
        tokens = torch.randint(0, vocabulary, (4, 12), device=device)
        def step(i):
            chosen = torch.rand(tokens.shape, device=device) < 0.15
            inputs = tokens.masked_fill(chosen, 3)
            logits = net(inputs)
            loss = F.cross_entropy(
                logits[chosen], tokens[chosen])  # host-sync-boolindex
            opt.zero_grad(set_to_none=True)
            loss.backward()  # host-sync-boolindex
            opt.step()
        """,
        """
        vocabulary, net = 50, nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).to(device)
        opt = torch.optim.AdamW(net.parameters())
        tokens = torch.randint(0, vocabulary, (4, 12), device=device)
        def step(i):
            chosen = torch.rand(tokens.shape, device=device) < 0.15
            inputs = tokens.masked_fill(chosen, 3)
            logits = net(inputs)
            labels = torch.where(chosen, tokens, -100)
            loss = F.cross_entropy(logits.flatten(0, 1), labels.flatten(), ignore_index=-100)
            opt.zero_grad(set_to_none=True)
            loss.backward()
            opt.step()
        """,
    ),
    "hard triplets": (
        """
        encoder = nn.Linear(8, 4).to(device)
        x, label = torch.randn(16, 8, device=device), torch.arange(16, device=device) % 4
        opt = torch.optim.Adam(encoder.parameters())
        def step(i):
            z = F.normalize(encoder(x), dim=1)
            apart = 1 - z @ z.T
            same = label[:, None] == label[None, :]
            anchors, positives = torch.where(same)  # host-sync-nonzero
            loss = apart[anchors, positives].mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
        """
        encoder = nn.Linear(8, 4).to(device)
        x, label = torch.randn(16, 8, device=device), torch.arange(16, device=device) % 4
        opt = torch.optim.Adam(encoder.parameters())
        def step(i):
            z = F.normalize(encoder(x), dim=1)
            apart = 1 - z @ z.T
            same = label[:, None] == label[None, :]
            loss = torch.where(same, apart, 0).sum() / same.sum()
            opt.zero_grad()
            loss.backward()
            opt.step()
        """,
    ),
    "diffusion with times of the host": (
        """
        steps, net = 100, nn.Linear(9, 8).to(device)
        alpha = torch.linspace(1, 0.01, steps).cumprod(0).to(device)
        x, opt = torch.randn(32, 8, device=device), torch.optim.Adam(net.parameters())
        def step(i):
            t = torch.randint(0, steps, (len(x),))
            a = alpha[t][:, None]  # h2d-index
            noise = torch.randn_like(x)
            noisy = a.sqrt() * x + (1 - a).sqrt() * noise
            loss = F.mse_loss(net(torch.cat([noisy, a], 1)), noise)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
        """
        steps, net = 100, nn.Linear(9, 8).to(device)
        alpha = torch.linspace(1, 0.01, steps).cumprod(0).to(device)
        x, opt = torch.randn(32, 8, device=device), torch.optim.Adam(net.parameters())
        def step(i):
            t = torch.randint(0, steps, (len(x),), device=device)
            a = alpha[t][:, None]
            noise = torch.randn_like(x)
            noisy = a.sqrt() * x + (1 - a).sqrt() * noise
            loss = F.mse_loss(net(torch.cat([noisy, a], 1)), noise)
            opt.zero_grad(); loss.backward(); opt.step()
        """,
    ),
    "labels of a GAN": (
        """
        D, G = nn.Linear(8, 1).to(device), nn.Linear(4, 8).to(device)
        optD, x = torch.optim.Adam(D.parameters(), betas=(0.5, 0.999)), torch.randn(16, 8, device=device)
        def step(i):
            real = torch.ones(16, 1).to(device)  # h2d-fresh
            with torch.no_grad():
                fake = G(torch.randn(16, 4, device=device))
            errD = F.binary_cross_entropy_with_logits(D(x), real)
            errD = errD + F.binary_cross_entropy_with_logits(D(fake), torch.zeros_like(real))
            optD.zero_grad(); errD.backward(); optD.step()
        """,
        """
        D, G = nn.Linear(8, 1).to(device), nn.Linear(4, 8).to(device)
        optD, x = torch.optim.Adam(D.parameters(), betas=(0.5, 0.999)), torch.randn(16, 8, device=device)
        real = torch.ones(16, 1).to(device)
        def step(i):
            with torch.no_grad():
                fake = G(torch.randn(16, 4, device=device))
            errD = F.binary_cross_entropy_with_logits(D(x), real)
            errD = errD + F.binary_cross_entropy_with_logits(D(fake), torch.zeros_like(real))
            optD.zero_grad(); errD.backward(); optD.step()
        """,
    ),
    "a Q-network that acts": (
        """
        q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
        class Env:
            def step(self, action): return np.full(4, float(action), dtype=np.float32), 1.0, False
        env, state = Env(), np.zeros(4, dtype=np.float32)
        def step(i):
            global state
            with torch.no_grad():
                obs = torch.as_tensor(state).unsqueeze(0).to(device)  # h2d-fresh
                action = int(q(obs).argmax(1))  # host-sync-float
            state, reward, done = env.step(action)
        """,
        """
        q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)
        class Env:
            def __init__(self): self.state = torch.zeros(1, 4, device=device)
            def step(self, action): return self.state.copy_(action.float()[:, None].expand(1, 4)), 1.0
        env = Env()
        def step(i):
            with torch.no_grad():
                action = q(env.state).argmax(1)
            env.step(action)
        """,
    ),
    "soft actor-critic temperature": (
        """
        log_alpha = torch.zeros(1, requires_grad=True, device=device)
        opt, log_pi = torch.optim.Adam([log_alpha], 3e-4), torch.randn(32, device=device)
        state = {"alpha": 1.0}
        def step(i):
            alpha_loss = -(log_alpha * (log_pi - 2.0)).mean()
            opt.zero_grad()
            alpha_loss.backward()
            opt.step()
            state["alpha"] = log_alpha.exp().item()  # host-sync-item
        """,
        """
        log_alpha = torch.zeros(1, requires_grad=True, device=device)
        opt, log_pi = torch.optim.Adam([log_alpha], 3e-4), torch.randn(32, device=device)
        state = {"alpha": 1.0}
        def step(i):
            alpha_loss = -(log_alpha * (log_pi - 2.0)).mean()
            opt.zero_grad()
            alpha_loss.backward()
            opt.step()
            state["alpha"] = log_alpha.detach().exp()
        """,
    ),
    "priorities of a replay": (
        """
        class Tree:
            def __init__(self): self.values = np.ones(64)
            def update(self, index, value): self.values[index] = value
        tree, td = Tree(), torch.rand(8, device=device)
        def step(i):
            tree.update(np.arange(8), td.abs().detach().cpu().numpy() + 1e-6)  # host-sync-copy
        """,
        """
        class Tree:
            def __init__(self): self.values = torch.ones(64, device=device)
            def update(self, index, value): self.values[index] = value
        tree, td, index = Tree(), torch.rand(8, device=device), torch.arange(8, device=device)
        def step(i):
            tree.update(index, td.abs().detach() + 1e-6)
        """,
    ),
    "intersection over union by class": (
        """
        predicted = torch.randint(0, 3, (2, 16, 16), device=device)
        truth, scores = torch.randint(0, 3, (2, 16, 16), device=device), []
        def step(i):
            ious = []
            for c in range(3):
                p, t = predicted == c, truth == c
                union = (p | t).sum()
                if union == 0:  # host-sync-bool
                    continue
                ious.append((p & t).sum() / union)
            scores.append(torch.stack(ious).mean() if ious else None)
        """,
        """
        predicted = torch.randint(0, 3, (2, 16, 16), device=device)
        truth, scores = torch.randint(0, 3, (2, 16, 16), device=device), []
        def step(i):
            ious = []
            for c in range(3):
                p, t = predicted == c, truth == c
                union = (p | t).sum()
                ious.append(torch.where(union > 0, (p & t).sum() / union.clamp(min=1), torch.nan))
            scores.append(torch.stack(ious).nanmean())
        """,
    ),
    "k-means until it stands": (
        """
        x, centres = torch.randn(64, 2, device=device), torch.randn(4, 2, device=device)
        def step(i):
            c = centres
            for _ in range(3):
                nearest = torch.cdist(x, c).argmin(1)
                hot = F.one_hot(nearest, 4).float()
                new = hot.T @ x / hot.sum(0).clamp(min=1)[:, None]
                if torch.allclose(new, c):  # host-sync-bool
                    break
                c = new + 0.1
            return c
        """,
        """
        x, centres = torch.randn(64, 2, device=device), torch.randn(4, 2, device=device)
        def step(i):
            c = centres
            for _ in range(3):
                nearest = torch.cdist(x, c).argmin(1)
                hot = F.one_hot(nearest, 4).float()
                c = hot.T @ x / hot.sum(0).clamp(min=1)[:, None]
            return c
        """,
    ),
    "agents that die are dropped": (
        """
        world = {"x": torch.rand(100, 2, device=device), "energy": torch.rand(100, device=device) + 5}
        def step(i):
            world["energy"] -= 0.01
            alive = world["energy"] > 0
            for key in ("x", "energy"):
                world[key] = world[key][alive]  # host-sync-boolindex
        """,
        """
        world = {"x": torch.rand(100, 2, device=device), "energy": torch.rand(100, device=device) + 5}
        world["alive"] = torch.ones(100, dtype=torch.bool, device=device)
        def step(i):
            world["energy"] -= 0.01
            world["alive"] &= world["energy"] > 0
            world["x"] += torch.where(world["alive"], 0.01, 0.0)[:, None]
        """,
    ),
    "an epidemic with a loop over the infected": (
        """
        n = 200
        infected = torch.zeros(n, dtype=torch.bool, device=device)
        infected[:3] = True
        friends = torch.randint(0, n, (n, 4), device=device)
        def step(i):
            for one in infected[:3].nonzero().flatten().tolist():  # host-sync-nonzero host-sync-item
                infected[friends[one]] = True  # h2d-fresh
        """,
        """
        n = 200
        infected = torch.zeros(n, dtype=torch.bool, device=device)
        infected[:3] = True
        friends = torch.randint(0, n, (n, 4), device=device)
        def step(i):
            caught = torch.zeros(n, dtype=torch.int, device=device)
            caught.index_add_(0, friends.flatten(), infected.int().repeat_interleave(4))
            infected.logical_or_(caught > 0)
        """,
    ),
    "beams whose lengths are read": (
        """
        logits = torch.randn(4, 50, device=device)
        def step(i):
            score, token = logits.log_softmax(-1).topk(3)
            beams = [[int(t)] for t in token[0]]  # host-sync-float
            return beams
        """,
        """
        logits = torch.randn(4, 50, device=device)
        def step(i):
            score, token = logits.log_softmax(-1).topk(3)
            return token[:1].T
        """,
    ),
    "CTC lengths": (
        """
        logits = torch.randn(20, 2, 6, device=device).log_softmax(2)
        mask = torch.ones(2, 20, device=device)
        def step(i):
            lengths = mask.sum(1).long().tolist()  # host-sync-item
            return [logits[:n, k].sum() for k, n in enumerate(lengths)]
        """,
        """
        logits = torch.randn(20, 2, 6, device=device).log_softmax(2)
        mask = torch.ones(2, 20, device=device)
        def step(i):
            return (logits * mask.T[:, :, None]).sum((0, 2))
        """,
    ),
    "augmentation by Python's dice": (
        """
        images = torch.rand(8, 3, 16, 16, device=device)
        def step(i):
            shift = torch.randn(8, 1, 1, 1) * 0.1
            return (images + shift.to(images.device)).clamp(0, 1)  # h2d-fresh
        """,
        """
        images = torch.rand(8, 3, 16, 16, device=device)
        def step(i):
            shift = images.new_empty(8, 1, 1, 1).normal_() * 0.1
            return (images + shift).clamp(0, 1)
        """,
    ),
    "class weights of each batch": (
        """
        labels, logits = torch.randint(0, 4, (32,), device=device), torch.randn(32, 4, device=device)
        def step(i):
            counts = torch.bincount(labels, minlength=4).float()  # host-sync-item host-sync-nonzero
            return F.cross_entropy(logits, labels, weight=1 / counts.clamp(min=1))
        """,
        """
        labels, logits = torch.randint(0, 4, (32,), device=device), torch.randn(32, 4, device=device)
        def step(i):
            counts = torch.zeros(4, device=device).scatter_add_(0, labels, torch.ones(32, device=device))
            return F.cross_entropy(logits, labels, weight=1 / counts.clamp(min=1))
        """,
    ),
    "a metric kept as an array": (
        """
        class AUC:
            def __init__(self): self.scores = []
            def __call__(self, scores):
                self.scores.extend(scores.detach().sigmoid().cpu().tolist())  # host-sync-copy d2h-accumulate
        auc, net, x = AUC(), nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
        def step(i):
            with torch.no_grad():
                auc(net(x).squeeze(1))
        """,
        """
        class AUC:
            def __init__(self): self.scores = torch.zeros(1000, 8, device=device)
            def __call__(self, i, scores): self.scores[i % 1000] = scores.sigmoid()
        auc, net, x = AUC(), nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
        def step(i):
            with torch.no_grad():
                auc(i, net(x).squeeze(1))
        """,
    ),
    "validation without no_grad": (
        """
        net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
        x = torch.randn(32, 8, device=device)
        opt, held = torch.optim.Adam(net.parameters()), torch.randn(64, 8, device=device)
        best = torch.full((), float("inf"), device=device)
        def validate():
            net.eval()
            loss = F.mse_loss(net(held), held)  # no-grad-missing
            net.train()
            return loss.detach()
        def step(i):
            loss = F.mse_loss(net(x), x)
            opt.zero_grad(); loss.backward(); opt.step()
            best.copy_(torch.minimum(best, validate()))
        """,
        """
        net = nn.Sequential(nn.Linear(8, 64), nn.ReLU(), nn.Linear(64, 8)).to(device)
        x = torch.randn(32, 8, device=device)
        opt, held = torch.optim.Adam(net.parameters()), torch.randn(64, 8, device=device)
        best = torch.full((), float("inf"), device=device)
        @torch.no_grad()
        def validate():
            net.eval()
            loss = F.mse_loss(net(held), held)
            net.train()
            return loss
        def step(i):
            loss = F.mse_loss(net(x), x)
            opt.zero_grad(); loss.backward(); opt.step()
            best.copy_(torch.minimum(best, validate()))
        """,
    ),
    "a policy that samples in training mode": (
        """
        policy = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.1), nn.Linear(32, 2)).to(device)
        obs = torch.randn(16, 4, device=device)
        def step(i):
            with torch.no_grad():
                return policy(obs).argmax(-1)  # eval-mode-missing
        """,
        """
        policy = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.1), nn.Linear(32, 2)).to(device).eval()
        obs = torch.randn(16, 4, device=device)
        def step(i):
            with torch.no_grad():
                return policy(obs).argmax(-1)
        """,
    ),
    "a loss summed over an epoch": (
        """
        net, x = nn.Linear(8, 1).to(device), torch.randn(32, 8, device=device)
        opt, epoch = torch.optim.SGD(net.parameters(), 0.01), {"loss": 0.0}
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            epoch["loss"] += loss  # graph-retention
        """,
        """
        net, x = nn.Linear(8, 1).to(device), torch.randn(32, 8, device=device)
        opt, epoch = torch.optim.SGD(net.parameters(), 0.01), {"loss": 0.0}
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad()
            loss.backward()
            opt.step()
            epoch["loss"] += loss.detach()
        """,
    ),
    "a simulation in float64": (
        """
        position = torch.from_numpy(np.random.default_rng(0).random((256, 3))).to(device)
        velocity = torch.zeros(256, 3, device=device)
        def step(i):
            force = -(position - 0.5)  # dtype-fp64
            return velocity + 0.01 * force, (force * force).sum(1).sqrt()
        """,
        """
        position = torch.from_numpy(np.random.default_rng(0).random((256, 3))).float().to(device)
        velocity = torch.zeros(256, 3, device=device)
        def step(i):
            force = -(position - 0.5)
            return velocity + 0.01 * force, (force * force).sum(1).sqrt()
        """,
    ),
    "a recurrent policy unrolled by index": (
        """
        w, u = torch.randn(8, 8, device=device), torch.randn(40, 8, device=device)
        def step(i):
            h = torch.zeros(8, device=device)
            for t in range(40):
                h = torch.tanh(w @ h + u[t])  # launch-bound
            return h
        """,
        """
        net, u = nn.RNN(8, 8).to(device), torch.randn(40, 1, 8, device=device)
        def step(i):
            with torch.no_grad():
                return net(u)[1]
        """,
    ),
    "averages of weights, one by one": (
        """
        net, kept = (nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to(device) for _ in range(2))
        def step(i):
            with torch.no_grad():
                for a, b in zip(kept.parameters(), net.parameters()):
                    a.mul_(0.99).add_(b, alpha=0.01)  # launch-bound
        """,
        """
        net, kept = (nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to(device) for _ in range(2))
        def step(i):
            with torch.no_grad():
                torch._foreach_lerp_(list(kept.parameters()), list(net.parameters()), 0.01)
        """,
    ),
    "a learning rate from a tensor": (
        """
        net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward()
            for group in opt.param_groups:
                group["lr"] = 0.1 / (1 + float(loss.detach()))  # host-sync-float
            opt.step()
        """,
        """
        net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
        opt = torch.optim.SGD(net.parameters(), lr=0.1)
        def step(i):
            loss = net(x).square().mean()
            opt.zero_grad(); loss.backward()
            for group in opt.param_groups:
                group["lr"] = 0.1 / (1 + 0.01 * i)
            opt.step()
        """,
    ),
    "a clock around a forward pass": (
        """
        import time
        net, x, seen = nn.Linear(8, 8).to(device), torch.randn(8, 8, device=device), []
        def step(i):
            t0 = time.time()
            with torch.no_grad():
                net(x)
            seen.append(time.time() - t0)  # timing-async
        """,
        """
        import time
        net, x, seen = nn.Linear(8, 8).to(device), torch.randn(8, 8, device=device), []
        def step(i):
            with torch.no_grad():
                net(x)
            seen.append(time.time())
        """,
    ),
    "conditional compute in compiled code": (
        """
        @torch.compile(backend="eager")
        def gated(x):
            if x.mean() > 0:  # graph-break host-sync-bool
                return x * 2
            return x - 1
        x = torch.randn(8, device=device)
        def step(i):
            return gated(x)
        """,
        """
        @torch.compile(backend="eager")
        def gated(x):
            return torch.where(x.mean() > 0, x * 2, x - 1)
        x = torch.randn(8, device=device)
        def step(i):
            return gated(x)
        """,
    ),
    "rewards whitened with NumPy": (
        """
        rewards = torch.rand(32, device=device)
        def step(i):
            r = rewards.cpu().numpy()  # roundtrip
            r = (r - r.mean()) / (r.std() + 1e-8)
            return torch.from_numpy(r).to(device) * 2  # roundtrip
        """,
        """
        rewards = torch.rand(32, device=device)
        def step(i):
            return 2 * (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-8)
        """,
    ),
}
