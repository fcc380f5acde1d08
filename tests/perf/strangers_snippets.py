"""Training code in the manner of strangers: faulty, mended, and harmless code that looks like a fault.

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
                infected[friends[one]] = True
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
            x[[1, 3]] = 1.0  # h2d-index
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
            return torch.where(x > threshold, x, torch.tensor(0.0)) + torch.full_like(x, i) * threshold.item()
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
