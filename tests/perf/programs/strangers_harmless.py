"""Training code in the manner of strangers that is as it should be. A function makes a step on `device`."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def harmless_numbers_of_the_host_with_device_like_names(device):
    cuda_loss, gpu = torch.tensor(0.5), {"items": [1, 2]}
    net, x = nn.Linear(4, 2).to(device), torch.randn(8, 4, device=device)

    def step(i):
        total = cuda_loss.item() + float(cuda_loss) + sum(gpu["items"])
        if cuda_loss > total:
            raise ValueError
        with torch.no_grad():
            return net(x) * total

    return step


def harmless_a_table_of_tensors_whose_length_is_asked(device):
    batch = {"ids": torch.zeros(4, 7, dtype=torch.long, device=device), "mask": torch.ones(4, 7, device=device)}
    table = nn.Embedding(10, 8).to(device)

    def step(i):
        n, length = batch["ids"].shape
        if not len(batch) or batch.get("labels") is not None or length > 512:
            raise ValueError
        with torch.no_grad():
            return (table(batch["ids"]) * batch["mask"][..., None]).sum(1) / length

    return step


def harmless_a_loop_over_micro_batches(device):
    net, data = nn.Linear(8, 1).to(device), torch.randn(4, 16, 8, device=device)
    opt = torch.optim.AdamW(net.parameters())

    def step(i):
        opt.zero_grad(set_to_none=True)
        for part in data.unbind(0):
            loss = net(part).square().mean() / len(data)
            loss.backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        opt.step()

    return step


def harmless_gradient_penalty(device):
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

    return step


def harmless_two_optimizers_one_graph_kept(device):
    a, b, x = nn.Linear(4, 4).to(device), nn.Linear(4, 4).to(device), torch.randn(8, 4, device=device)
    optimizers = [torch.optim.SGD(net.parameters(), 0.01) for net in (a, b)]

    def step(i):
        hidden = a(x)
        for opt in optimizers:
            opt.zero_grad()
        hidden.square().mean().backward(retain_graph=True)
        b(hidden.detach()).abs().mean().backward()
        hidden.abs().mean().backward()
        for opt in optimizers:
            opt.step()

    return step


def harmless_a_variational_encoder(device):
    enc, dec, x = nn.Linear(8, 4).to(device), nn.Linear(2, 8).to(device), torch.rand(16, 8, device=device)
    opt = torch.optim.Adam([*enc.parameters(), *dec.parameters()])

    def step(i):
        mu, log_var = enc(x).chunk(2, 1)
        z = mu + torch.randn_like(mu) * (0.5 * log_var).exp()
        kl = -0.5 * (1 + log_var - mu.square() - log_var.exp()).sum(1).mean()
        loss = F.binary_cross_entropy_with_logits(dec(z), x, reduction="sum") / len(x) + kl
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_contrastive_pairs(device):
    enc, x, t = nn.Linear(8, 4).to(device), torch.randn(16, 8, device=device), torch.arange(16, device=device)
    opt = torch.optim.Adam(enc.parameters())

    def step(i):
        a, b = (F.normalize(enc(x + 0.1 * torch.randn_like(x)), dim=1) for _ in range(2))
        logits = a @ b.T / 0.07
        loss = (F.cross_entropy(logits, t) + F.cross_entropy(logits.T, t)) / 2
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_deep_q_with_a_target_all_on_the_device(device):
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
        opt.zero_grad()
        loss.backward()
        opt.step()
        if i % 100 == 0:
            target.load_state_dict(q.state_dict())

    return step


def harmless_a_grid_that_blinks(device):
    cells = (torch.rand(1, 1, 32, 32, device=device) < 0.3).float()
    kernel = torch.ones(1, 1, 3, 3, device=device)
    kernel[0, 0, 1, 1] = 0

    def step(i):
        around = F.conv2d(F.pad(cells, (1, 1, 1, 1), mode="circular"), kernel)
        cells.copy_(((around == 3) | ((around == 2) & (cells == 1))).float())

    return step


def harmless_boids_by_sorting(device):
    x, v = torch.rand(256, 2, device=device), torch.randn(256, 2, device=device) * 0.01

    def step(i):
        cell = (x * 16).long().clamp(0, 15)
        order = torch.argsort(cell[:, 0] * 16 + cell[:, 1], stable=True)
        ahead = order.roll(1)
        v[order] = v[order].lerp(v[ahead], 0.1)
        x.add_(v).remainder_(1.0)

    return step


def harmless_a_cosine_schedule_with_warm_up(device):
    net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
    opt = torch.optim.AdamW(net.parameters(), 1e-3)
    schedule = torch.optim.lr_scheduler.LambdaLR(opt, lambda k: min(1.0, (k + 1) / 10))
    rates = []

    def step(i):
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        schedule.step()
        rates.append(schedule.get_last_lr()[0])

    return step


def harmless_a_causal_transformer(device):
    layer = nn.TransformerEncoderLayer(16, 2, 32, dropout=0.0, batch_first=True).to(device)
    net = nn.TransformerEncoder(layer, 2, enable_nested_tensor=False).to(device)
    mask = nn.Transformer.generate_square_subsequent_mask(6, device=device)
    x, opt = torch.randn(2, 6, 16, device=device), torch.optim.AdamW(net.parameters(), fused=True)

    def step(i):
        loss = net(x, mask=mask, is_causal=True).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_scores_kept_for_a_late_read(device):
    net, x = nn.Linear(4, 1).to(device), torch.randn(8, 4, device=device)
    history, k = torch.zeros(1000, device=device), [0]

    def step(i):
        with torch.no_grad():
            history[k[0] % 1000] = net(x).mean()
        k[0] += 1

    return step


def harmless_a_clone_that_is_written_to(device):
    field = torch.rand(64, 64, device=device)

    def step(i):
        new = field.clone()
        new[1:-1, 1:-1] += 0.1 * (field[2:, 1:-1] + field[:-2, 1:-1] - 2 * field[1:-1, 1:-1])
        field.copy_(new)

    return step


def harmless_names_and_devices_formatted(device):
    net, x = nn.Linear(4, 2).to(device), torch.randn(8, 4, device=device)

    def step(i):
        text = f"{x.device} {tuple(x.shape)} {x.dtype} {sum(p.numel() for p in net.parameters())} {net}"
        if "cuda:7" in text or x.is_sparse or x.requires_grad or x.dim() != 2:
            raise ValueError
        with torch.no_grad():
            return net(x)

    return step


def harmless_advantages_by_a_scan(device):
    rewards, values = torch.rand(12, 32, device=device), torch.rand(13, 32, device=device)

    def step(i):
        delta = rewards + 0.99 * values[1:] - values[:-1]
        weights = (0.99 * 0.95) ** torch.arange(12, device=device)
        future = (delta * weights[:, None]).flip(0).cumsum(0).flip(0) / weights[:, None]
        return (future - future.mean()) / (future.std() + 1e-8)

    return step


def harmless_a_message_that_nobody_formats(device):
    import logging

    log, x = logging.getLogger("strangers"), torch.rand(4, device=device)
    log.setLevel(logging.WARNING)

    def step(i):
        y = x * 2
        log.debug("y is %s", y)
        return y

    return step


def harmless_questions_of_a_tensor_that_its_values_do_not_answer(device):
    x = torch.rand(4, 3, device=device)

    def step(i):
        if x.numel() and x.is_contiguous() and bool(x.size(0)) and x is not None and x.stride(0) == 3:
            return [k for k in range(len(x))], id(x), hash(x), x.data_ptr()

    return step


def harmless_rows_by_python(device):
    x = torch.rand(3, 4, device=device)

    def step(i):
        first, *others = x
        return first + sum(others)

    return step


def harmless_numbers_of_the_host_in_tensors_of_the_device(device):
    x, threshold = torch.rand(4, device=device), torch.tensor(0.5)

    def step(i):
        return torch.where(x > threshold, x, 0.0) + torch.full_like(x, i) * threshold.item()

    return step


def harmless_an_assertion_that_the_device_makes(device):
    x = torch.rand(4, device=device)

    def step(i):
        torch._assert_async((x >= 0).all())
        return x.sqrt()

    return step


def harmless_a_mask_that_fills_with_numbers(device):
    x, m = torch.rand(4, 4, device=device), torch.eye(4, device=device).bool()

    def step(i):
        x[m] = 0.0
        x[x < 0] = 0
        return x.masked_fill(m, -1e9).softmax(-1)

    return step


def harmless_a_subclass_with_reading_names(device):
    class Meter:
        def __init__(self):
            self.value = torch.zeros((), device=device)

        def item(self):
            return self.value

        def cpu(self):
            return self

        def numpy(self):
            return self.value

        def tolist(self):
            return [self.value]

        def __float__(self):
            return 1.0

    meter, x = Meter(), torch.rand(3, device=device)

    def step(i):
        meter.value.add_(x.sum())
        return meter.cpu().item() + meter.numpy() + meter.tolist()[0] + float(meter)

    return step


def harmless_a_batch_that_comes_ahead(device):
    batches = [torch.rand(8, 4).pin_memory() for _ in range(4)]
    net = nn.Linear(4, 2).to(device)

    def step(i):
        with torch.no_grad():
            return net(batches[i % 4].to(device, non_blocking=True))

    return step


def harmless_what_is_read_once_in_a_hundred(device):
    x = torch.rand(3, device=device)

    def step(i):
        y = x.mean()
        if i % 100 == 99:
            print(f"mean {y.item():.3f}")
        return y

    return step


def harmless_weights_looked_up_in_a_table_of_the_host(device):
    weights = {"a": 0.3, "b": 0.7}
    net, x = nn.Linear(4, 2).to(device), torch.rand(8, 4, device=device)
    opt = torch.optim.Adam(net.parameters())

    def step(i):
        out = net(x)
        losses = {"a": out[:, 0].square().mean(), "b": out[:, 1].abs().mean()}
        loss = sum(weights[name] * value for name, value in losses.items())
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_the_best_so_far_on_the_device(device):
    best, x = {"loss": torch.full((), 9.0, device=device)}, torch.rand(3, device=device)
    saved = torch.zeros(3, device=device)

    def step(i):
        better = x.mean() < best["loss"]
        saved.copy_(torch.where(better, x, saved))
        best["loss"] = torch.where(better, x.mean(), best["loss"])

    return step


def harmless_simclr_eye(device):
    enc = nn.Linear(32, 16).to(device)
    x = torch.randn(256, 32, device=device)
    opt = torch.optim.Adam(enc.parameters())
    eye = torch.eye(256, dtype=torch.bool, device=device)
    target = (torch.arange(256, device=device) + 128) % 256

    def step(i):
        z = F.normalize(enc(x), dim=1)
        sim = (z @ z.T / 0.5).masked_fill(eye, float("-inf"))
        loss = F.cross_entropy(sim, target)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_simclr_eye_in_step(device):
    enc = nn.Linear(32, 16).to(device)
    x = torch.randn(256, 32, device=device)
    opt = torch.optim.Adam(enc.parameters())
    target = (torch.arange(256, device=device) + 128) % 256

    def step(i):
        z = F.normalize(enc(x), dim=1)
        sim = z @ z.T / 0.5
        sim = sim - 1e9 * torch.eye(len(x), device=device)
        loss = F.cross_entropy(sim, target)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_supcon(device):
    enc = nn.Linear(32, 16).to(device)
    x = torch.randn(256, 32, device=device)
    opt = torch.optim.Adam(enc.parameters())
    y = torch.arange(256, device=device) % 32

    def step(i):
        z = F.normalize(enc(x), dim=1)
        logits = z @ z.T / 0.1
        same = (y[:, None] == y[None]).float()
        logp = logits.log_softmax(1)
        loss = -((same * logp).sum(1) / same.sum(1)).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_block_diagonal_mask(device):
    q = torch.randn(1, 2, 256, 16, device=device)
    doc = torch.arange(256, device=device) // 16
    mask = doc[:, None] == doc[None]

    def step(i):
        return F.scaled_dot_product_attention(q, q, q, attn_mask=mask)

    return step


def harmless_segmentation_accuracy(device):
    net = nn.Conv2d(3, 4, 3, padding=1).to(device)
    x, y = torch.randn(4, 3, 256, 256, device=device), torch.randint(0, 4, (4, 256, 256), device=device)
    opt, right = torch.optim.Adam(net.parameters()), torch.zeros((), device=device)

    def step(i):
        out = net(x)
        loss = F.cross_entropy(out, y)
        opt.zero_grad()
        loss.backward()
        opt.step()
        right.add_((out.detach().argmax(1) == y).float().mean())

    return step


def harmless_token_mask(device):
    ids = torch.randint(0, 30000, (16, 512), device=device)
    emb = nn.Embedding(30000, 8).to(device)

    def step(i):
        with torch.no_grad():
            mask = (ids != 0).unsqueeze(-1)
            h = emb(ids) * mask
            return h.sum(1) / mask.sum(1).clamp(min=1)

    return step


def harmless_hidden_carried(device):
    cell, opt = None, None
    cell = nn.GRUCell(8, 8).to(device)
    opt = torch.optim.Adam(cell.parameters())
    x = torch.randn(4, 8, device=device)
    h = torch.zeros(4, 8, device=device)

    def step(i):
        nonlocal h
        h = h.detach()
        for _ in range(4):
            h = cell(x, h)
        loss = h.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_ema_of_loss(device):
    net = nn.Linear(8, 1).to(device)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(32, 8, device=device)
    ema = torch.zeros((), device=device)

    def step(i):
        nonlocal ema
        loss = net(x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        ema = 0.9 * ema + 0.1 * loss.detach()

    return step


def harmless_memory_bank(device):
    from collections import deque

    enc = nn.Linear(8, 4).to(device)
    opt = torch.optim.SGD(enc.parameters(), 0.1)
    x = torch.randn(32, 8, device=device)
    bank = deque(maxlen=3)

    def step(i):
        z = enc(x)
        keys = torch.cat([*bank, z.detach()])
        loss = (z @ keys.T).logsumexp(1).mean()
        opt.zero_grad()
        loss.backward()
        opt.step()
        bank.append(z.detach())

    return step


def harmless_backward_every_second(device):
    net = nn.Linear(8, 1).to(device)
    opt = torch.optim.SGD(net.parameters(), 0.1)
    x = torch.randn(32, 8, device=device)

    def step(i):
        (net(x).square().mean() / 2).backward()
        if i % 2 == 1:
            opt.step()
            opt.zero_grad()

    return step


def harmless_aux_head_unused(device):
    trunk, a, b = nn.Linear(8, 16).to(device), nn.Linear(16, 2).to(device), nn.Linear(16, 3).to(device)
    opt = torch.optim.Adam([*trunk.parameters(), *a.parameters()])
    x = torch.randn(32, 8, device=device)

    class Net(nn.Module):
        def __init__(self):
            super().__init__()
            self.t, self.a, self.b = trunk, a, b

        def forward(self, x):
            h = self.t(x).relu()
            return self.a(h), self.b(h)

    net = Net()

    def step(i):
        out, _ = net(x)
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_ppo_epochs(device):
    net = nn.Sequential(nn.Linear(4, 32), nn.Tanh(), nn.Linear(32, 3)).to(device)
    opt = torch.optim.Adam(net.parameters(), foreach=True)
    obs, act = torch.randn(256, 4, device=device), torch.zeros(256, dtype=torch.long, device=device)
    adv = torch.randn(256, device=device)

    def step(i):
        with torch.no_grad():
            out = net(obs)
            old = F.log_softmax(out[:, :2], 1).gather(1, act[:, None])[:, 0]
        for _ in range(4):
            order = torch.randperm(256, device=device)
            for rows in order.split(64):
                out = net(obs[rows])
                logp = F.log_softmax(out[:, :2], 1).gather(1, act[rows, None])[:, 0]
                ratio = (logp - old[rows]).exp()
                pg = torch.max(-adv[rows] * ratio, -adv[rows] * ratio.clamp(0.8, 1.2)).mean()
                v = 0.5 * (out[:, 2] - adv[rows]).square().mean()
                opt.zero_grad()
                (pg + v).backward()
                nn.utils.clip_grad_norm_(net.parameters(), 0.5)
                opt.step()

    return step


def harmless_heads_in_a_loop(device):
    heads = nn.ModuleList(nn.Linear(64, 8) for _ in range(6)).to(device)
    x = torch.randn(128, 64, device=device)

    def step(i):
        with torch.no_grad():
            return torch.cat([head(x) for head in heads], 1)

    return step


def harmless_unet(device):
    class Block(nn.Module):
        def __init__(self, a, b):
            super().__init__()
            self.c, self.n = nn.Conv2d(a, b, 3, padding=1), nn.GroupNorm(2, b)

        def forward(self, x):
            return F.silu(self.n(self.c(x)))

    class UNet(nn.Module):
        def __init__(self):
            super().__init__()
            self.d1, self.d2, self.u, self.o = Block(3, 8), Block(8, 16), Block(24, 8), nn.Conv2d(8, 3, 1)

        def forward(self, x):
            a = self.d1(x)
            b = self.d2(F.avg_pool2d(a, 2))
            return self.o(self.u(torch.cat([F.interpolate(b, scale_factor=2), a], 1)))

    net = UNet().to(device)
    opt = torch.optim.AdamW(net.parameters())
    x = torch.randn(2, 3, 16, 16, device=device)

    def step(i):
        loss = F.mse_loss(net(x), x)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_tensordataset_loader_small(device):
    from torch.utils.data import DataLoader, TensorDataset

    data = TensorDataset(torch.randn(4096, 4), torch.randn(4096, 1))
    loader = DataLoader(data, batch_size=8, pin_memory=True, shuffle=True)
    net = nn.Sequential(*[nn.Linear(4, 4) for _ in range(30)], nn.Linear(4, 1)).to(device)
    opt = torch.optim.Adam(net.parameters(), foreach=True)
    batches = iter(loader)

    def step(i):
        x, y = (t.to(device, non_blocking=True) for t in next(batches))
        loss = F.mse_loss(net(x), y)
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_lookup_numbers(device):
    cfg = {"lr": torch.tensor(0.1), "n": np.int64(3)}
    x = torch.randn(8, device=device)

    def step(i):
        return x * cfg["lr"] * float(cfg["n"]) + cfg["lr"].item()

    return step


def harmless_mc_dropout_off_grad(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.LayerNorm(8)).to(device)
    x = torch.randn(8, 4, device=device)

    @torch.inference_mode()
    def step(i):
        return torch.stack([net(x + 0.1 * torch.randn_like(x)) for _ in range(3)]).var(0)

    return step


def harmless_langevin(device):
    x = torch.randn(512, 2, device=device)

    def energy(x):
        return (x.square().sum(1) - 1).square().sum()

    def step(i):
        nonlocal x
        x = x.detach().requires_grad_()
        (g,) = torch.autograd.grad(energy(x), x)
        x = x - 0.01 * g + 0.1 * torch.randn_like(x)

    return step


def harmless_maml(device):
    w = torch.randn(4, 4, device=device, requires_grad=True)
    opt = torch.optim.Adam([w])
    x = torch.randn(8, 4, device=device)

    def step(i):
        inner = (x @ w).square().mean()
        (g,) = torch.autograd.grad(inner, w, create_graph=True)
        outer = (x @ (w - 0.1 * g)).abs().mean()
        opt.zero_grad()
        outer.backward()
        opt.step()

    return step


def harmless_reservoir_sparse_fixed(device):
    i = torch.randint(0, 512, (2, 2000), device=device)
    w = torch.sparse_coo_tensor(i, torch.randn(2000, device=device), (512, 512), check_invariants=False)
    w = w.coalesce()
    h = torch.randn(512, 1, device=device)

    def step(i):
        h.copy_(torch.tanh(torch.sparse.mm(w, h)))

    return step


def harmless_grid_of_walkers(device):
    grid = torch.zeros(64, 64, dtype=torch.int32, device=device)
    pos = torch.randint(0, 64, (100, 2), device=device)

    def step(i):
        move = torch.randint(-1, 2, pos.shape, device=device)
        pos.add_(move).remainder_(64)
        grid.zero_()
        grid.index_put_((pos[:, 0], pos[:, 1]), torch.ones(100, dtype=torch.int32, device=device), accumulate=True)

    return step


def harmless_old_policy_logp(device):
    net = nn.Linear(4, 2).to(device)
    old = nn.Linear(4, 2).to(device)
    opt = torch.optim.Adam(net.parameters())
    x = torch.randn(64, 4, device=device)

    def step(i):
        with torch.no_grad():
            ref = F.log_softmax(old(x), -1)
        logp = F.log_softmax(net(x), -1)
        loss = F.kl_div(logp, ref, log_target=True, reduction="batchmean")
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_ddim_sampling_with_few_steps(device):
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

    return step


def harmless_numpy_env(device):
    state = np.zeros(4, dtype=np.float32)

    def step(i):
        nonlocal state
        state = np.clip(state + np.random.randn(4).astype(np.float32), -1, 1)
        return float(state.sum()), state.tolist(), int(state.argmax())

    return step


def harmless_moe_dense(device):
    experts = nn.ModuleList([nn.Linear(16, 16) for _ in range(4)]).to(device)
    gate = nn.Linear(16, 4).to(device)
    opt = torch.optim.AdamW([*experts.parameters(), *gate.parameters()])
    x = torch.randn(32, 16, device=device)

    def step(i):
        w = gate(x).softmax(-1)
        y = sum(w[:, k : k + 1] * e(x) for k, e in enumerate(experts))
        loss = (y - x).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_rope(device):
    x = torch.randn(2, 16, 4, 8, device=device)
    rate = 1 / 10000 ** (torch.arange(0, 8, 2, device=device) / 8)
    f = torch.outer(torch.arange(16, device=device).float(), rate)
    cos, sin = f.cos()[None, :, None], f.sin()[None, :, None]

    def step(i):
        a, b = x[..., ::2], x[..., 1::2]
        return torch.stack((a * cos - b * sin, a * sin + b * cos), -1).flatten(-2)

    return step


def harmless_kv_cache(device):
    cache = torch.zeros(2, 64, 16, device=device)
    w = nn.Linear(16, 16).to(device)
    tok = torch.randn(2, 1, 16, device=device)

    @torch.no_grad()
    def step(i):
        cache[:, i % 64 : i % 64 + 1] = w(tok)
        return F.scaled_dot_product_attention(tok, cache, cache)

    return step


def harmless_scatter_gnn(device):
    src, dst = torch.randint(0, 50, (200,), device=device), torch.randint(0, 50, (200,), device=device)
    lin = nn.Linear(8, 8).to(device)
    x = torch.randn(50, 8, device=device)
    opt = torch.optim.Adam(lin.parameters())

    def step(i):
        m = lin(x)[src]
        h = torch.zeros(50, 8, device=device).index_add(0, dst, m)
        deg = torch.zeros(50, device=device).index_add(0, dst, torch.ones(200, device=device)).clamp(min=1)
        loss = (h / deg[:, None]).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_td_lambda(device):
    r, v = torch.rand(8, 16, device=device), torch.rand(9, 16, device=device)

    def step(i):
        ret, out = v[-1], []
        for t in reversed(range(8)):
            ret = r[t] + 0.99 * ret
            out.append(ret)
        return torch.stack(out[::-1])

    return step


def harmless_dropout_train_bn(device):
    net = nn.Sequential(nn.Linear(8, 16), nn.BatchNorm1d(16), nn.ReLU(), nn.Dropout(0.5), nn.Linear(16, 2))
    net.to(device)
    opt = torch.optim.Adam(net.parameters())
    x, y = torch.randn(32, 8, device=device), torch.randint(0, 2, (32,), device=device)

    def step(i):
        net.train()
        loss = F.cross_entropy(net(x), y, label_smoothing=0.1)
        opt.zero_grad()
        loss.backward()
        opt.step()
        net.eval()
        with torch.no_grad():
            net(x)

    return step


def harmless_ema_with_lerp(device):
    a = [torch.randn(4, 4, device=device) for _ in range(12)]
    b = [torch.randn(4, 4, device=device) for _ in range(12)]

    def step(i):
        torch._foreach_lerp_(a, b, 0.01)

    return step


def harmless_hooks(device):
    net = nn.Linear(4, 4).to(device)
    stats = torch.zeros((), device=device)
    net.register_forward_hook(lambda m, a, o: stats.add_(o.detach().abs().mean()))
    x = torch.randn(8, 4, device=device)

    def step(i):
        with torch.inference_mode():
            pass
        with torch.no_grad():
            net(x)

    return step


def harmless_bucketed_lengths(device):
    data = [torch.randn(4, n, 8, device=device) for n in (8, 16)]
    net = nn.GRU(8, 8, batch_first=True).to(device)
    opt = torch.optim.Adam(net.parameters())

    def step(i):
        out, _ = net(data[i % 2])
        loss = out.square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_checkpointed(device):
    from torch.utils.checkpoint import checkpoint

    a, b = nn.Linear(8, 8).to(device), nn.Linear(8, 8).to(device)
    opt = torch.optim.SGD([*a.parameters(), *b.parameters()], 0.1)
    x = torch.randn(4, 8, device=device)

    def step(i):
        h = checkpoint(a, x, use_reentrant=False)
        loss = b(h).square().mean()
        opt.zero_grad()
        loss.backward()
        opt.step()

    return step


def harmless_weighted_sampler_device(device):
    p = torch.rand(100, device=device)
    x = torch.randn(100, 4, device=device)

    def step(i):
        rows = torch.multinomial(p, 16, replacement=True)
        return x[rows].mean()

    return step


def harmless_gumbel(device):
    logits = torch.randn(8, 4, device=device)

    def step(i):
        u = torch.rand_like(logits).clamp(1e-6, 1 - 1e-6)
        return (logits - (-u.log()).log()).argmax(-1)

    return step


def harmless_histogram_fixed(device):
    x = torch.rand(1000, device=device)

    def step(i):
        b = (x * 10).long().clamp(0, 9)
        return torch.zeros(10, device=device).scatter_add_(0, b, torch.ones_like(x))

    return step


def harmless_host_dataset_bookkeeping(device):
    order = torch.randperm(64)
    lens = torch.randint(1, 9, (64,))
    x = torch.randn(64, 4, device=device)

    def step(i):
        if lens[i % 64] > 8 or order[0].item() < 0:
            raise ValueError
        k = int(order[i % 64])
        return x[k] * x[k : k + int(lens.max())].sum(), lens.tolist(), order[lens > 3], np.asarray(lens)

    return step


def harmless_clamped_ppo_kl_on_device(device):
    lp, old = torch.randn(64, device=device), torch.randn(64, device=device)
    w = torch.ones((), device=device)

    def step(i):
        kl = ((old - lp).exp() - 1 - (old - lp)).mean()
        w.mul_(torch.where(kl > 0.015, 0.5, 1.0))
        return w * kl

    return step


def harmless_flocking(device):
    x, v = torch.rand(64, 2, device=device), torch.randn(64, 2, device=device)

    def step(i):
        d = x[:, None] - x[None]
        w = (-d.square().sum(-1) / 0.02).exp()
        v.add_(0.1 * ((w @ v) / w.sum(1, keepdim=True) - v))
        x.add_(0.01 * v).remainder_(1)

    return step


def harmless_belief_propagation_in_log_space(device):
    psi = torch.randn(4, 4, device=device)
    u = torch.randn(50, 4, device=device)

    def step(i):
        m = u
        for _ in range(5):
            m = u + torch.logsumexp(psi[None] + m[:, :, None], 1)
        return m.softmax(-1)

    return step


def harmless_masked_attention_dropout_eval(device):
    att = nn.MultiheadAttention(16, 2, dropout=0.1, batch_first=True).to(device).eval()
    x = torch.randn(2, 9, 16, device=device)
    pad = torch.zeros(2, 9, dtype=torch.bool, device=device)

    @torch.inference_mode()
    def step(i):
        return att(x, x, x, key_padding_mask=pad, need_weights=False)[0]

    return step


def harmless_int_counters(device):
    n = torch.zeros((), dtype=torch.long, device=device)
    hits = torch.zeros(10, dtype=torch.long, device=device)
    a = torch.randint(0, 10, (100,), device=device)

    def step(i):
        n.add_(100)
        hits.index_add_(0, a, torch.ones_like(a))
        return hits / n

    return step
