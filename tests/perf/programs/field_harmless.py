"""Lines of training code as people write them, and none to blame. A function makes a step on `device`."""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def harmless_hf_style_loop_mended(device):
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

    return step


def harmless_ema_on_the_device(device):
    import copy

    net = nn.Linear(4, 2).to(device)
    average = copy.deepcopy(net).requires_grad_(False)

    def step(i):
        with torch.no_grad():
            for mine, other in zip(average.parameters(), net.parameters()):
                mine.lerp_(other, 0.1)
            average.load_state_dict(net.state_dict())

    return step


def harmless_optimizers(device):
    kinds = [torch.optim.SGD, torch.optim.Adam, torch.optim.AdamW, torch.optim.RMSprop, torch.optim.Adagrad]
    nets = [nn.Linear(4, 2).to(device) for _ in kinds]
    made = [kind(net.parameters(), lr=0.1) for kind, net in zip(kinds, nets)]

    def step(i):
        for net, optimizer in zip(nets, made):
            optimizer.zero_grad()
            net(torch.ones(2, 4, device=device)).sum().backward()
            optimizer.step()

    return step


def harmless_fused_adam(device):
    net = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters(), lr=torch.tensor(0.1), capturable=False, foreach=False)

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(2, 4, device=device)).sum().backward()
        optimizer.step()

    return step


def harmless_host_metrics(device):
    import math

    losses, x = [], torch.ones(3).to(device)

    def step(i):
        x.mul_(1)
        losses.append(0.5 * i)
        host = torch.tensor(losses)
        return math.fsum(losses), host.mean().item(), f"{host.max():.2f}", host[host > 0].tolist(), host.numpy()

    return step


def harmless_sizes_and_shapes(device):
    x = torch.zeros(3, 4).to(device)

    def step(i):
        rows, columns = x.shape
        if x.numel() > 2 and x.size(0) == 3 and len(x) == 3 and x.dim() == 2 and x.requires_grad is False:
            return [row.sum() for row in x], x.is_floating_point(), x.device == device, x.dtype

    return step


def harmless_indexing_by_numbers_and_slices(device):
    x = torch.zeros(6, 4).to(device)

    def step(i):
        x[i % 6, 1:3] = 1.0
        x[0] = x[1]
        x[..., -1] += 2
        return x[i % 3 :: 2], x[None], x[:, [1][0]], x.unbind(0)[2]

    return step


def harmless_indexing_by_device_tensors(device):
    x = torch.zeros(6, 4).to(device)
    rows = torch.tensor([1, 2]).to(device)

    def step(i):
        x.index_fill_(0, rows, 1.0)
        x[rows, rows] += torch.ones(2, device=device)
        x.index_add_(0, rows, torch.ones(2, 4, device=device))
        return x[rows][:, rows], x.take_along_dim(rows.view(1, 2), 1)

    return step


def harmless_masks_without_counts(device):
    x = torch.randn(6).to(device)

    def step(i):
        mask = x > 0
        y = torch.where(mask, x, 0.0)
        y = y.masked_fill(mask, 1.0)
        y[~mask] = -1
        y[mask & (y > 3)] = 2.5
        return (y * mask).sum() / mask.sum().clamp(min=1), mask.any() | mask.all()

    return step


def harmless_clamping_and_choosing_by_tensors(device):
    x, low = torch.randn(6).to(device), torch.tensor(-1.0).to(device)

    def step(i):
        y = torch.clamp(x, min=low)
        y = torch.maximum(y, low) + torch.minimum(y, low) + torch.lerp(x, y, low.sigmoid())
        return torch.nan_to_num(y), y.isnan().any().logical_not()

    return step


def harmless_random_numbers_on_the_device(device):
    weights = torch.ones(3).to(device)
    generator = torch.Generator(device=device).manual_seed(1)

    def step(i):
        a = torch.randn(3, device=device, generator=generator) + torch.rand_like(weights)
        b = torch.randint(0, 4, (3,), device=device), torch.randperm(3, device=device)
        return a, b, torch.bernoulli(weights / 2), torch.multinomial(weights, 2), a.clone().normal_()

    return step


def harmless_sampling_without_validation(device):
    from torch.distributions import Bernoulli, Categorical, Normal

    logits = torch.zeros(4, 3).to(device)

    def step(i):
        chances = Categorical(logits=logits, validate_args=False)
        actions = chances.sample()
        normal = Normal(logits, logits.exp(), validate_args=False)
        coin = Bernoulli(logits=logits, validate_args=False)
        return chances.log_prob(actions), chances.entropy(), normal.rsample(), normal.log_prob(logits), coin.mean

    return step


def harmless_one_hot_bins_scatter_with_fixed_sizes(device):
    labels, x = torch.arange(3).to(device), torch.arange(3.0).to(device)

    def step(i):
        hot = F.one_hot(labels, 5).float()
        counts = torch.zeros(5, device=device).scatter_add_(0, labels, x)
        counts.index_add_(0, labels, x)
        return hot, counts, torch.bucketize(x, x), torch.searchsorted(x, x), torch.histc(x, 4, 0, 4)

    return step


def harmless_pinned_batches_ahead(device):
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

    return step


def harmless_log_in_every_third_step_allowed(device):
    import denizen

    x = torch.ones(3).to(device)

    def step(i):
        x.mul_(1)
        if i % 3 == 0:
            with denizen.perf.allow("periodic log", every=3):
                return f"{x.mean():.3f}", x.max().item()

    return step


def harmless_convolutions_pooling_upsampling(device):
    down = nn.Sequential(nn.Conv2d(1, 4, 3, 2, 1), nn.GroupNorm(2, 4), nn.SiLU(), nn.ConvTranspose2d(4, 1, 4, 2, 1))
    down = down.to(device)

    def step(i):
        y = down(torch.randn(2, 1, 8, 8, device=device))
        y = F.interpolate(y, scale_factor=2, mode="bilinear") + F.interpolate(y, size=(16, 16), mode="nearest")
        y = F.pad(F.max_pool2d(y, 2), (1, 1))[..., 1:-1]
        F.avg_pool2d(y, 2).mean().backward()

    return step


def harmless_attention(device):
    q = torch.randn(2, 2, 4, 8).to(device).requires_grad_()
    layer = nn.TransformerEncoderLayer(8, 2, 16, batch_first=True).to(device)

    def step(i):
        F.scaled_dot_product_attention(q, q, q, is_causal=True).sum().backward()
        layer(torch.randn(2, 4, 8, device=device)).sum().backward()

    return step


def harmless_losses(device):
    x, y = torch.randn(4, 3).to(device).requires_grad_(), torch.randint(0, 3, (4,)).to(device)

    def step(i):
        total = F.cross_entropy(x, y, label_smoothing=0.1) + F.nll_loss(x.log_softmax(1), y) + F.mse_loss(x, x * 2)
        total = total + F.binary_cross_entropy_with_logits(x, x.detach().sigmoid()) + F.smooth_l1_loss(x, x * 2)
        total = total + F.kl_div(x.log_softmax(1), x.detach().softmax(1), reduction="batchmean")
        total.backward()

    return step


def harmless_higher_derivatives(device):
    x = torch.randn(4).to(device)

    def step(i):
        gradient = torch.func.grad(lambda v: (v**3).sum())(x)
        hessian = torch.func.hessian(lambda v: (v**3).sum())(x)
        y = x.clone().requires_grad_()
        (penalty,) = torch.autograd.grad((y**2).sum(), y, create_graph=True)
        (penalty**2).sum().backward()
        return gradient, hessian, torch.func.jvp(lambda v: v.sin(), (x,), (x,))

    return step


def harmless_einsum_matrices_sorting(device):
    x = torch.randn(4, 4).to(device)

    def step(i):
        y = torch.einsum("ij,jk->ik", x, x) + x @ x + torch.bmm(x[None], x[None])[0] + torch.outer(x[0], x[1])
        y = y.sort(dim=1, descending=True).values + y.argsort(1) + y.topk(4, 1).values + y.cumsum(0).roll(1, 0)
        return y.softmax(-1), y.logsumexp(0), y.std(), y.var(0), y.norm(), y.trace(), y.tril(), y.median()

    return step


def harmless_early_stopping_by_a_number_of_the_host(device):
    best, x = [1.0], torch.ones(3).to(device)

    def step(i):
        x.mul_(1)
        validation = 1.0 / (i + 1)
        if validation < best[0]:
            best[0] = validation
            return True

    return step


def harmless_a_late_read(device):
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

    return step


def harmless_full_arange_eye_tril_on_the_device(device):
    def step(i):
        a = torch.full((3, 3), 2.0 + i, device=device) + torch.eye(3, device=device)
        b = torch.linspace(0, 1, 3, device=device) + torch.ones(3, 3, device=device).tril() + a.new_zeros(3)
        return b, torch.full((), 1.5, device=device), torch.zeros_like(a), torch.meshgrid(b[0], b[0], indexing="ij")

    return step


def harmless_spectral_norm_weight_norm_checkpoint(device):
    from torch.nn.utils import parametrizations

    first, last = nn.Linear(4, 4), nn.Linear(4, 2)
    net = nn.Sequential(parametrizations.spectral_norm(first), parametrizations.weight_norm(last)).to(device)

    def step(i):
        x = torch.ones(2, 4, device=device, requires_grad=True)
        torch.utils.checkpoint.checkpoint(net, x, use_reentrant=False).sum().backward()

    return step


def harmless_state_dict_looked_at(device):
    net = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(i):
        state = net.state_dict()
        names = [name for name in state if "weight" in name]
        rate = optimizer.param_groups[0]["lr"]
        for group in optimizer.param_groups:
            group["lr"] = rate * 0.9
        return names, sum(p.numel() for p in net.parameters() if p.requires_grad)

    return step


def harmless_own_classes_with_look_alike_methods(device):
    class Box(dict):
        def item(self):
            return 1.0

        def cpu(self):
            return self

        def to(self, *_):
            return self

        def nonzero(self):
            return [0]

        def synchronize(self):
            return None

    x = torch.ones(3).to(device)

    def step(i):
        box = Box(a=1)
        box.synchronize()
        return box.item(), box.cpu().to(device).nonzero(), np.arange(3).nonzero(), x.sum(), list(box.items())

    return step


def harmless_csr_graph_messages(device):
    source, target = torch.tensor([0, 1, 2]).to(device), torch.tensor([1, 2, 0]).to(device)
    x = torch.randn(3, 4).to(device)

    def step(i):
        messages = x[source] * 0.5
        return torch.zeros_like(x).index_add_(0, target, messages), x.index_select(0, target).relu()

    return step
