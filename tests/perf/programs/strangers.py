"""Training code in the manner of strangers. Written before what judges it had seen it.

A function makes a step on `device`. A line to blame ends in `# <kind>`; those called `mended_…` and `harmless_…` have
none.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def faulty_progress_bar(device):
    class Bar:
        def set_postfix(self, **numbers):
            self.text = " ".join(f"{k}={v:.3f}" for k, v in numbers.items())

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

    return step


def mended_progress_bar(device):
    class Bar:
        def set_postfix(self, **numbers):
            self.text = " ".join(f"{k}={v:.3f}" for k, v in numbers.items())

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

    return step


def faulty_callbacks_of_a_trainer(device):
    class Callback:
        def __init__(self):
            self.best = float("inf")

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

    return step


def mended_callbacks_of_a_trainer(device):
    class Callback:
        def __init__(self):
            self.best = torch.full((), float("inf"), device=device)

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

    return step


def faulty_masked_language_model(device):
    vocabulary, net = 50, nn.Sequential(nn.Embedding(50, 16), nn.Linear(16, 50)).to(device)
    opt = torch.optim.AdamW(net.parameters())
    tokens = torch.randint(0, vocabulary, (4, 12), device=device)

    def step(i):
        chosen = torch.rand(tokens.shape, device=device) < 0.15
        inputs = tokens.masked_fill(chosen, 3)
        logits = net(inputs)
        loss = F.cross_entropy(logits[chosen], tokens[chosen])  # host-sync-boolindex
        opt.zero_grad(set_to_none=True)
        loss.backward()  # host-sync-boolindex
        opt.step()

    return step


def mended_masked_language_model(device):
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

    return step


def faulty_hard_triplets(device):
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

    return step


def mended_hard_triplets(device):
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

    return step


def faulty_diffusion_with_times_of_the_host(device):
    steps, net = 100, nn.Linear(9, 8).to(device)
    alpha = torch.linspace(1, 0.01, steps).cumprod(0).to(device)
    x, opt = torch.randn(32, 8, device=device), torch.optim.Adam(net.parameters())

    def step(i):
        t = torch.randint(0, steps, (len(x),))
        a = alpha[t][:, None]  # h2d-index
        noise = torch.randn_like(x)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = F.mse_loss(net(torch.cat([noisy, a], 1)), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def mended_diffusion_with_times_of_the_host(device):
    steps, net = 100, nn.Linear(9, 8).to(device)
    alpha = torch.linspace(1, 0.01, steps).cumprod(0).to(device)
    x, opt = torch.randn(32, 8, device=device), torch.optim.Adam(net.parameters())

    def step(i):
        t = torch.randint(0, steps, (len(x),), device=device)
        a = alpha[t][:, None]
        noise = torch.randn_like(x)
        noisy = a.sqrt() * x + (1 - a).sqrt() * noise
        loss = F.mse_loss(net(torch.cat([noisy, a], 1)), noise)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def faulty_labels_of_a_gan(device):
    D, G = nn.Linear(8, 1).to(device), nn.Linear(4, 8).to(device)
    optD, x = torch.optim.Adam(D.parameters(), betas=(0.5, 0.999)), torch.randn(16, 8, device=device)

    def step(i):
        real = torch.ones(16, 1).to(device)  # h2d-fresh
        with torch.no_grad():
            fake = G(torch.randn(16, 4, device=device))
        errD = F.binary_cross_entropy_with_logits(D(x), real)
        errD = errD + F.binary_cross_entropy_with_logits(D(fake), torch.zeros_like(real))
        optD.zero_grad()
        errD.backward()
        optD.step()

    return step


def mended_labels_of_a_gan(device):
    D, G = nn.Linear(8, 1).to(device), nn.Linear(4, 8).to(device)
    optD, x = torch.optim.Adam(D.parameters(), betas=(0.5, 0.999)), torch.randn(16, 8, device=device)
    real = torch.ones(16, 1).to(device)

    def step(i):
        with torch.no_grad():
            fake = G(torch.randn(16, 4, device=device))
        errD = F.binary_cross_entropy_with_logits(D(x), real)
        errD = errD + F.binary_cross_entropy_with_logits(D(fake), torch.zeros_like(real))
        optD.zero_grad()
        errD.backward()
        optD.step()

    return step


def faulty_a_q_network_that_acts(device):
    q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)

    class Env:
        def step(self, action):
            return np.full(4, float(action), dtype=np.float32), 1.0, False

    env, state = Env(), np.zeros(4, dtype=np.float32)

    def step(i):
        nonlocal state
        with torch.no_grad():
            obs = torch.as_tensor(state).unsqueeze(0).to(device)  # h2d-fresh
            action = int(q(obs).argmax(1))  # host-sync-float
        state, reward, done = env.step(action)

    return step


def mended_a_q_network_that_acts(device):
    q = nn.Sequential(nn.Linear(4, 32), nn.ReLU(), nn.Linear(32, 2)).to(device)

    class Env:
        def __init__(self):
            self.state = torch.zeros(1, 4, device=device)

        def step(self, action):
            return self.state.copy_(action.float()[:, None].expand(1, 4)), 1.0

    env = Env()

    def step(i):
        with torch.no_grad():
            action = q(env.state).argmax(1)
        env.step(action)

    return step


def faulty_soft_actor_critic_temperature(device):
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    opt, log_pi = torch.optim.Adam([log_alpha], 3e-4), torch.randn(32, device=device)
    state = {"alpha": 1.0}

    def step(i):
        alpha_loss = -(log_alpha * (log_pi - 2.0)).mean()
        opt.zero_grad()
        alpha_loss.backward()
        opt.step()
        state["alpha"] = log_alpha.exp().item()  # host-sync-item

    return step


def mended_soft_actor_critic_temperature(device):
    log_alpha = torch.zeros(1, requires_grad=True, device=device)
    opt, log_pi = torch.optim.Adam([log_alpha], 3e-4), torch.randn(32, device=device)
    state = {"alpha": 1.0}

    def step(i):
        alpha_loss = -(log_alpha * (log_pi - 2.0)).mean()
        opt.zero_grad()
        alpha_loss.backward()
        opt.step()
        state["alpha"] = log_alpha.detach().exp()

    return step


def faulty_priorities_of_a_replay(device):
    class Tree:
        def __init__(self):
            self.values = np.ones(64)

        def update(self, index, value):
            self.values[index] = value

    tree, td = Tree(), torch.rand(8, device=device)

    def step(i):
        tree.update(np.arange(8), td.abs().detach().cpu().numpy() + 1e-6)  # host-sync-copy

    return step


def mended_priorities_of_a_replay(device):
    class Tree:
        def __init__(self):
            self.values = torch.ones(64, device=device)

        def update(self, index, value):
            self.values[index] = value

    tree, td, index = Tree(), torch.rand(8, device=device), torch.arange(8, device=device)

    def step(i):
        tree.update(index, td.abs().detach() + 1e-6)

    return step


def faulty_intersection_over_union_by_class(device):
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

    return step


def mended_intersection_over_union_by_class(device):
    predicted = torch.randint(0, 3, (2, 16, 16), device=device)
    truth, scores = torch.randint(0, 3, (2, 16, 16), device=device), []

    def step(i):
        ious = []
        for c in range(3):
            p, t = predicted == c, truth == c
            union = (p | t).sum()
            ious.append(torch.where(union > 0, (p & t).sum() / union.clamp(min=1), torch.nan))
        scores.append(torch.stack(ious).nanmean())

    return step


def faulty_k_means_until_it_stands(device):
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

    return step


def mended_k_means_until_it_stands(device):
    x, centres = torch.randn(64, 2, device=device), torch.randn(4, 2, device=device)

    def step(i):
        c = centres
        for _ in range(3):
            nearest = torch.cdist(x, c).argmin(1)
            hot = F.one_hot(nearest, 4).float()
            c = hot.T @ x / hot.sum(0).clamp(min=1)[:, None]
        return c

    return step


def faulty_agents_that_die_are_dropped(device):
    world = {"x": torch.rand(100, 2, device=device), "energy": torch.rand(100, device=device) + 5}

    def step(i):
        world["energy"] -= 0.01
        alive = world["energy"] > 0
        for key in ("x", "energy"):
            world[key] = world[key][alive]  # host-sync-boolindex

    return step


def mended_agents_that_die_are_dropped(device):
    world = {"x": torch.rand(100, 2, device=device), "energy": torch.rand(100, device=device) + 5}
    world["alive"] = torch.ones(100, dtype=torch.bool, device=device)

    def step(i):
        world["energy"] -= 0.01
        world["alive"] &= world["energy"] > 0
        world["x"] += torch.where(world["alive"], 0.01, 0.0)[:, None]

    return step


def faulty_an_epidemic_with_a_loop_over_the_infected(device):
    n = 200
    infected = torch.zeros(n, dtype=torch.bool, device=device)
    infected[:3] = True
    friends = torch.randint(0, n, (n, 4), device=device)

    def step(i):
        for one in infected[:3].nonzero().flatten().tolist():  # host-sync-nonzero host-sync-item
            infected[friends[one]] = True  # h2d-fresh

    return step


def mended_an_epidemic_with_a_loop_over_the_infected(device):
    n = 200
    infected = torch.zeros(n, dtype=torch.bool, device=device)
    infected[:3] = True
    friends = torch.randint(0, n, (n, 4), device=device)

    def step(i):
        caught = torch.zeros(n, dtype=torch.int, device=device)
        caught.index_add_(0, friends.flatten(), infected.int().repeat_interleave(4))
        infected.logical_or_(caught > 0)

    return step


def faulty_beams_whose_lengths_are_read(device):
    logits = torch.randn(4, 50, device=device)

    def step(i):
        score, token = logits.log_softmax(-1).topk(3)
        beams = [[int(t)] for t in token[0]]  # host-sync-float
        return beams

    return step


def mended_beams_whose_lengths_are_read(device):
    logits = torch.randn(4, 50, device=device)

    def step(i):
        score, token = logits.log_softmax(-1).topk(3)
        return token[:1].T

    return step


def faulty_ctc_lengths(device):
    logits = torch.randn(20, 2, 6, device=device).log_softmax(2)
    mask = torch.ones(2, 20, device=device)

    def step(i):
        lengths = mask.sum(1).long().tolist()  # host-sync-item
        return [logits[:n, k].sum() for k, n in enumerate(lengths)]

    return step


def mended_ctc_lengths(device):
    logits = torch.randn(20, 2, 6, device=device).log_softmax(2)
    mask = torch.ones(2, 20, device=device)

    def step(i):
        return (logits * mask.T[:, :, None]).sum((0, 2))

    return step


def faulty_augmentation_by_python_s_dice(device):
    images = torch.rand(8, 3, 16, 16, device=device)

    def step(i):
        shift = torch.randn(8, 1, 1, 1) * 0.1
        return (images + shift.to(images.device)).clamp(0, 1)  # h2d-fresh

    return step


def mended_augmentation_by_python_s_dice(device):
    images = torch.rand(8, 3, 16, 16, device=device)

    def step(i):
        shift = images.new_empty(8, 1, 1, 1).normal_() * 0.1
        return (images + shift).clamp(0, 1)

    return step


def faulty_class_weights_of_each_batch(device):
    labels, logits = torch.randint(0, 4, (32,), device=device), torch.randn(32, 4, device=device)

    def step(i):
        counts = torch.bincount(labels, minlength=4).float()  # host-sync-item host-sync-nonzero
        return F.cross_entropy(logits, labels, weight=1 / counts.clamp(min=1))

    return step


def mended_class_weights_of_each_batch(device):
    labels, logits = torch.randint(0, 4, (32,), device=device), torch.randn(32, 4, device=device)

    def step(i):
        counts = torch.zeros(4, device=device).scatter_add_(0, labels, torch.ones(32, device=device))
        return F.cross_entropy(logits, labels, weight=1 / counts.clamp(min=1))

    return step


def faulty_a_metric_kept_as_an_array(device):
    class AUC:
        def __init__(self):
            self.scores = []

        def __call__(self, scores):
            self.scores.extend(scores.detach().sigmoid().cpu().tolist())  # host-sync-copy d2h-accumulate

    auc, net, x = AUC(), nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)

    def step(i):
        with torch.no_grad():
            auc(net(x).squeeze(1))

    return step


def mended_a_metric_kept_as_an_array(device):
    class AUC:
        def __init__(self):
            self.scores = torch.zeros(1000, 8, device=device)

        def __call__(self, i, scores):
            self.scores[i % 1000] = scores.sigmoid()

    auc, net, x = AUC(), nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)

    def step(i):
        with torch.no_grad():
            auc(i, net(x).squeeze(1))

    return step


def faulty_validation_without_no_grad(device):
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
        opt.zero_grad()
        loss.backward()
        opt.step()
        best.copy_(torch.minimum(best, validate()))

    return step


def mended_validation_without_no_grad(device):
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
        opt.zero_grad()
        loss.backward()
        opt.step()
        best.copy_(torch.minimum(best, validate()))

    return step


def faulty_a_policy_that_samples_in_training_mode(device):
    policy = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.1), nn.Linear(32, 2)).to(device)
    obs = torch.randn(16, 4, device=device)

    def step(i):
        with torch.no_grad():
            return policy(obs).argmax(-1)  # eval-mode-missing

    return step


def mended_a_policy_that_samples_in_training_mode(device):
    policy = nn.Sequential(nn.Linear(4, 32), nn.Dropout(0.1), nn.Linear(32, 2)).to(device).eval()
    obs = torch.randn(16, 4, device=device)

    def step(i):
        with torch.no_grad():
            return policy(obs).argmax(-1)

    return step


def faulty_a_loss_summed_over_an_epoch(device):
    net, x = nn.Linear(8, 1).to(device), torch.randn(32, 8, device=device)
    opt, epoch = torch.optim.SGD(net.parameters(), 0.01), {"loss": 0.0}

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        epoch["loss"] += loss  # graph-retention

    return step


def mended_a_loss_summed_over_an_epoch(device):
    net, x = nn.Linear(8, 1).to(device), torch.randn(32, 8, device=device)
    opt, epoch = torch.optim.SGD(net.parameters(), 0.01), {"loss": 0.0}

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        epoch["loss"] += loss.detach()

    return step


def faulty_a_simulation_in_float64(device):
    position = torch.from_numpy(np.random.default_rng(0).random((256, 3))).to(device)
    velocity = torch.zeros(256, 3, device=device)

    def step(i):
        force = -(position - 0.5)  # dtype-fp64
        return velocity + 0.01 * force, (force * force).sum(1).sqrt()

    return step


def mended_a_simulation_in_float64(device):
    position = torch.from_numpy(np.random.default_rng(0).random((256, 3))).float().to(device)
    velocity = torch.zeros(256, 3, device=device)

    def step(i):
        force = -(position - 0.5)
        return velocity + 0.01 * force, (force * force).sum(1).sqrt()

    return step


def faulty_a_recurrent_policy_unrolled_by_index(device):
    w, u = torch.randn(8, 8, device=device), torch.randn(40, 8, device=device)

    def step(i):
        h = torch.zeros(8, device=device)
        for t in range(40):
            h = torch.tanh(w @ h + u[t])  # launch-bound
        return h

    return step


def mended_a_recurrent_policy_unrolled_by_index(device):
    net, u = nn.RNN(8, 8).to(device), torch.randn(40, 1, 8, device=device)

    def step(i):
        with torch.no_grad():
            return net(u)[1]

    return step


def faulty_averages_of_weights_one_by_one(device):
    net, kept = (nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to(device) for _ in range(2))

    def step(i):
        with torch.no_grad():
            for a, b in zip(kept.parameters(), net.parameters()):
                a.mul_(0.99).add_(b, alpha=0.01)  # launch-bound

    return step


def mended_averages_of_weights_one_by_one(device):
    net, kept = (nn.Sequential(*[nn.Linear(8, 8) for _ in range(6)]).to(device) for _ in range(2))

    def step(i):
        with torch.no_grad():
            torch._foreach_lerp_(list(kept.parameters()), list(net.parameters()), 0.01)

    return step


def faulty_a_learning_rate_from_a_tensor(device):
    net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        for group in opt.param_groups:
            group["lr"] = 0.1 / (1 + float(loss.detach()))  # host-sync-float
        opt.step()

    return step


def mended_a_learning_rate_from_a_tensor(device):
    net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
    opt = torch.optim.SGD(net.parameters(), lr=0.1)

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        for group in opt.param_groups:
            group["lr"] = 0.1 / (1 + 0.01 * i)
        opt.step()

    return step


def faulty_a_clock_around_a_forward_pass(device):
    import time

    net, x, seen = nn.Linear(8, 8).to(device), torch.randn(8, 8, device=device), []

    def step(i):
        t0 = time.time()
        with torch.no_grad():
            net(x)
        seen.append(time.time() - t0)  # timing-async

    return step


def mended_a_clock_around_a_forward_pass(device):
    import time

    net, x, seen = nn.Linear(8, 8).to(device), torch.randn(8, 8, device=device), []

    def step(i):
        with torch.no_grad():
            net(x)
        seen.append(time.time())

    return step


def faulty_conditional_compute_in_compiled_code(device):
    @torch.compile(backend="eager")
    def gated(x):
        if x.mean() > 0:  # graph-break host-sync-bool
            return x * 2
        return x - 1

    x = torch.randn(8, device=device)

    def step(i):
        return gated(x)

    return step


def mended_conditional_compute_in_compiled_code(device):
    @torch.compile(backend="eager")
    def gated(x):
        return torch.where(x.mean() > 0, x * 2, x - 1)

    x = torch.randn(8, device=device)

    def step(i):
        return gated(x)

    return step


def faulty_rewards_whitened_with_numpy(device):
    rewards = torch.rand(32, device=device)

    def step(i):
        r = rewards.cpu().numpy()  # roundtrip
        r = (r - r.mean()) / (r.std() + 1e-8)
        return torch.from_numpy(r).to(device) * 2  # roundtrip

    return step


def mended_rewards_whitened_with_numpy(device):
    rewards = torch.rand(32, device=device)

    def step(i):
        return 2 * (rewards - rewards.mean()) / (rewards.std(correction=0) + 1e-8)

    return step
