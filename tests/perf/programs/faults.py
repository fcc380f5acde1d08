"""One fault in each, or more of one kind that a budget can see; mended ones; look-alikes that are right.

A function makes a step on `device`. A line to blame ends in `# <kind>`; those called `mended_…` and `harmless_…` have
none.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def faulty_item_of_a_loss(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        loss = net(torch.randn(8, 4, device=device)).square().mean()
        loss.backward()
        return loss.item()  # host-sync-item

    return step


def mended_item_of_a_loss(device):
    net = nn.Linear(4, 2).to(device)
    total = torch.zeros((), device=device)

    def step(i):
        loss = net(torch.randn(8, 4, device=device)).square().mean()
        loss.backward()
        total.add_(loss.detach())

    return step


def faulty_tolist(device):
    x = torch.arange(4.0, device=device)

    def step(i):
        for value in x.tolist():  # host-sync-item
            assert value >= 0

    return step


def mended_tolist(device):
    x = torch.arange(4.0, device=device)

    def step(i):
        torch.relu(x)

    return step


def faulty_repeat_interleave_without_its_size(device):
    x, times = torch.arange(3, device=device), torch.tensor([1, 2, 3], device=device)

    def step(i):
        x.repeat_interleave(times)  # host-sync-item

    return step


def mended_repeat_interleave_without_its_size(device):
    x, times = torch.arange(3, device=device), torch.tensor([1, 2, 3], device=device)

    def step(i):
        x.repeat_interleave(times, output_size=6)

    return step


def faulty_one_hot_without_classes(device):
    x = torch.arange(3, device=device)

    def step(i):
        F.one_hot(x)  # host-sync-item

    return step


def mended_one_hot_without_classes(device):
    x = torch.arange(3, device=device)

    def step(i):
        F.one_hot(x, num_classes=3)

    return step


def faulty_bincount(device):
    x = torch.arange(3, device=device)

    def step(i):
        torch.bincount(x, minlength=5)  # host-sync-item

    return step


def mended_bincount(device):
    x = torch.arange(3, device=device)

    def step(i):
        torch.zeros(5, dtype=torch.long, device=device).scatter_add_(0, x, torch.ones_like(x))

    return step


def faulty_slicing_by_a_tensor(device):
    x, end = torch.arange(9.0, device=device), torch.tensor(4, device=device)

    def step(i):
        return x[:end].sum()  # host-sync-item host-sync-float

    return step


def mended_slicing_by_a_tensor(device):
    x, end = torch.arange(9.0, device=device), torch.tensor(4, device=device)
    places = torch.arange(9, device=device)

    def step(i):
        return torch.where(places < end, x, 0).sum()

    return step


def faulty_a_loop_over_values(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        total = 0
        for value in x:
            total += value.item()  # host-sync-item

    return step


def mended_a_loop_over_values(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        total = x.sum()

    return step


def faulty_float(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        scale = 2 * float(x.max())  # host-sync-float
        return x / scale

    return step


def mended_float(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        scale = 2 * x.max()
        return x / scale

    return step


def faulty_int(device):
    x = torch.arange(3, device=device)

    def step(i):
        return int(x.sum())  # host-sync-float

    return step


def mended_int(device):
    x = torch.arange(3, device=device)

    def step(i):
        return x.sum()

    return step


def faulty_if(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        if (x < 0).any():  # host-sync-bool
            return -x

    return step


def mended_if(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.where((x < 0).any(), -x, x)

    return step


def faulty_a_guard_against_nan(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        assert not torch.isnan(x).any()  # host-sync-bool

    return step


def mended_a_guard_against_nan(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.nan_to_num(x)

    return step


def faulty_equal(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.equal(x, x)  # host-sync-bool

    return step


def mended_equal(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return (x == x).all()

    return step


def faulty_allclose(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.allclose(x, x)  # host-sync-bool

    return step


def mended_allclose(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.isclose(x, x).all()

    return step


def faulty_clipping_that_refuses_what_is_not_finite(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        net(torch.ones(8, 4, device=device)).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0, error_if_nonfinite=True)  # host-sync-bool

    return step


def mended_clipping_that_refuses_what_is_not_finite(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        net(torch.ones(8, 4, device=device)).sum().backward()
        nn.utils.clip_grad_norm_(net.parameters(), 1.0)

    return step


def faulty_validation_of_distributions(device):
    from torch.distributions import Categorical

    logits = torch.zeros(5, 3, device=device)

    def step(i):
        return Categorical(logits=logits).sample()  # host-sync-bool

    return step


def mended_validation_of_distributions(device):
    from torch.distributions import Categorical

    logits = torch.zeros(5, 3, device=device)

    def step(i):
        return Categorical(logits=logits, validate_args=False).sample()

    return step


def faulty_cpu(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return x.mean().cpu()  # host-sync-copy

    return step


def mended_cpu(device):
    x, late = torch.arange(3.0, device=device), torch.empty((), pin_memory=True)

    def step(i):
        late.copy_(x.mean(), non_blocking=True)

    return step


def faulty_numpy(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return x.cpu().numpy()  # host-sync-copy

    return step


def mended_numpy(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return x.to("cpu", non_blocking=True)

    return step


def faulty_copying_into_a_host_buffer(device):
    x, host = torch.arange(3.0, device=device), torch.empty(3)

    def step(i):
        host.copy_(x)  # host-sync-copy

    return step


def mended_copying_into_a_host_buffer(device):
    x, host = torch.arange(3.0, device=device), torch.empty(3).pin_memory()

    def step(i):
        host.copy_(x, non_blocking=True)

    return step


def faulty_nonzero(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return x.nonzero()  # host-sync-nonzero

    return step


def mended_nonzero(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return (x != 0).float()

    return step


def faulty_where_with_one_argument(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.where(x > 1)[0]  # host-sync-nonzero

    return step


def mended_where_with_one_argument(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.where(x > 1, x, 0)

    return step


def faulty_unique(device):
    x = torch.arange(3, device=device)

    def step(i):
        return torch.unique(x)  # host-sync-nonzero

    return step


def mended_unique(device):
    x = torch.arange(3, device=device)

    def step(i):
        return x.sort().values

    return step


def faulty_masked_select(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return torch.masked_select(x, x > 0).sum()  # host-sync-nonzero

    return step


def mended_masked_select(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return (x * (x > 0)).sum()

    return step


def faulty_a_mask_as_index(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return x[x > 0].mean()  # host-sync-boolindex

    return step


def mended_a_mask_as_index(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        mask = x > 0
        return (x * mask).sum() / mask.sum()

    return step


def faulty_writing_a_tensor_through_a_mask(device):
    x, values = torch.arange(3.0, device=device), torch.ones(2, device=device)

    def step(i):
        x[torch.tensor([True, False, True], device=device)] = values  # host-sync-boolindex h2d-index

    return step


def mended_writing_a_tensor_through_a_mask(device):
    x, values = torch.arange(3.0, device=device), torch.ones(3, device=device)
    mask = torch.tensor([True, False, True], device=device)

    def step(i):
        x.copy_(torch.where(mask, values, x))

    return step


def faulty_print(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        print(x)  # host-sync-print

    return step


def mended_print(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        print(x.shape, x.device, x.dtype)

    return step


def faulty_f_string(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return f"loss {x.sum():.3f}"  # host-sync-print

    return step


def mended_f_string(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        return f"loss of step {i:.3f}"

    return step


def faulty_synchronize(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        x.add_(1)
        torch.cuda.synchronize()  # host-sync-explicit

    return step


def mended_synchronize(device):
    x, event = torch.arange(3.0, device=device), None

    def step(i):
        nonlocal event
        x.add_(1)
        if event is not None:
            event.synchronize()
        event = torch.cuda.Event()
        event.record()

    return step


def faulty_waiting_for_an_event_at_once(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        x.add_(1)
        done = torch.cuda.Event()
        done.record()
        done.synchronize()  # host-sync-explicit

    return step


def mended_waiting_for_an_event_at_once(device):
    x = torch.arange(3.0, device=device)

    def step(i):
        x.add_(1)
        done = torch.cuda.Event()
        done.record()
        torch.cuda.current_stream().wait_event(done)

    return step


def faulty_gradscaler(device):
    net = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    scaler = torch.amp.GradScaler(device.type)

    def step(i):
        optimizer.zero_grad()
        scaler.scale(net(torch.ones(8, 4, device=device)).sum()).backward()
        scaler.step(optimizer)  # host-sync-scaler
        scaler.update()

    return step


def mended_gradscaler(device):
    net = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)

    def step(i):
        optimizer.zero_grad()
        net(torch.ones(8, 4, device=device)).sum().backward()
        optimizer.step()

    return step


def faulty_zeros_made_on_the_host(device):
    def step(i):
        return torch.zeros(8, 4).to(device)  # h2d-fresh

    return step


def mended_zeros_made_on_the_host(device):
    def step(i):
        return torch.zeros(8, 4, device=device)

    return step


def faulty_noise_of_the_host(device):
    x = torch.zeros(8, device=device)

    def step(i):
        noise = torch.randn(8)
        return x + noise.to(device)  # h2d-fresh

    return step


def mended_noise_of_the_host(device):
    x = torch.zeros(8, device=device)
    generator = torch.Generator(device=device).manual_seed(0)

    def step(i):
        return x + torch.randn(8, device=device, generator=generator)

    return step


def faulty_a_list_made_into_a_tensor(device):
    def step(i):
        return torch.tensor([1.0, 2.0, i], device=device)  # h2d-fresh

    return step


def mended_a_list_made_into_a_tensor(device):
    weights = torch.tensor([1.0, 2.0, 3.0], device=device)

    def step(i):
        return weights * i

    return step


def faulty_an_array_of_numpy(device):
    def step(i):
        return torch.from_numpy(np.ones(4)).to(device)  # h2d-fresh

    return step


def mended_an_array_of_numpy(device):
    ones = torch.from_numpy(np.ones(4)).to(device)

    def step(i):
        return ones + i

    return step


def faulty_a_list_as_index(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        return x[[0, 2]]  # h2d-index

    return step


def mended_a_list_as_index(device):
    x, places = torch.arange(5.0, device=device), torch.tensor([0, 2], device=device)

    def step(i):
        return x[places]

    return step


def faulty_a_host_tensor_as_index(device):
    x, order = torch.arange(5.0, device=device), torch.tensor([3, 1])

    def step(i):
        return x[order]  # h2d-index

    return step


def mended_a_host_tensor_as_index(device):
    x, order = torch.arange(5.0, device=device), torch.tensor([3, 1]).to(device)

    def step(i):
        return x[order]

    return step


def faulty_a_permutation_of_the_host(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        order = torch.randperm(5)
        return x[order]  # h2d-index

    return step


def mended_a_permutation_of_the_host(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        order = torch.randperm(5, device=device)
        return x[order]

    return step


def faulty_a_batch_that_is_not_pinned(device):
    batches = torch.randn(9, 4, 2)

    def step(i):
        return batches[i].to(device, non_blocking=True)  # h2d-pageable

    return step


def mended_a_batch_that_is_not_pinned(device):
    batches = torch.randn(9, 4, 2).pin_memory()

    def step(i):
        return batches[i].to(device, non_blocking=True)

    return step


def faulty_a_batch_of_a_loader_that_does_not_pin(device):
    from torch.utils.data import DataLoader

    data = iter(DataLoader(torch.arange(64.0), batch_size=4))

    def step(i):
        x = next(data)
        return x.to(device, non_blocking=True)  # h2d-pageable

    return step


def mended_a_batch_of_a_loader_that_does_not_pin(device):
    from torch.utils.data import DataLoader

    data = iter(DataLoader(torch.arange(64.0), batch_size=4, pin_memory=True))

    def step(i):
        x = next(data)
        return x.to(device, non_blocking=True)

    return step


def faulty_through_numpy_and_back(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        host = x.cpu().numpy()  # roundtrip
        host = np.sin(host)
        return torch.from_numpy(host).to(device)  # roundtrip

    return step


def mended_through_numpy_and_back(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        return torch.sin(x)

    return step


def faulty_a_rollout_in_a_list(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        rollout = []
        for _ in range(4):
            x.add_(1)
            rollout.append(x.cpu())  # d2h-accumulate
        return torch.stack(rollout)

    return step


def mended_a_rollout_in_a_list(device):
    x, rollout = torch.arange(5.0, device=device), torch.empty(4, 5, device=device)

    def step(i):
        for t in range(4):
            x.add_(1)
            rollout[t] = x

    return step


def faulty_weights_to_the_host(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)

    def step(i):
        return {name: value.cpu() for name, value in net.state_dict().items()}  # state-copy

    return step


def mended_weights_to_the_host(device):
    net = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)
    old = nn.Sequential(nn.Linear(4, 8), nn.Linear(8, 2)).to(device)

    def step(i):
        with torch.no_grad():
            for mine, other in zip(old.parameters(), net.parameters()):
                mine.copy_(other)

    return step


def faulty_a_module_moved_in_each_step(device):
    def step(i):
        nn.Linear(4, 2).to(device)  # state-copy

    return step


def mended_a_module_moved_in_each_step(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        net.to(device)

    return step


def faulty_a_library_that_reads(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        torch.testing.assert_close(x, x)  # host-sync-bool host-sync-item

    return step


def mended_a_library_that_reads(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        torch.nn.functional.mse_loss(x, x)

    return step


def harmless_host_tensors(device):
    x, there = torch.arange(5.0), torch.zeros(5, device=device)

    def step(i):
        there.add_(1)
        if x.sum() > 0 and x[x > 1].mean().item() > 0 and x.nonzero().tolist():
            return x.cpu().numpy().tolist(), f"{x.mean():.2f}", x.clone().copy_(x)

    return step


def harmless_masks_filled_with_one_value(device):
    x = torch.arange(5.0, device=device)

    def step(i):
        x[x > 2] = 0
        x.masked_fill_(x > 1, 3.0)
        x[x > 3] = torch.tensor(1.0)

    return step


def harmless_an_asynchronous_read_back(device):
    ring = [torch.empty(2).pin_memory(), torch.empty(2, pin_memory=True)]
    events, x = [None, None], torch.arange(2.0, device=device)

    def step(i):
        x.add_(1)
        ring[i % 2].copy_(x, non_blocking=True)
        events[i % 2] = torch.cuda.Event()
        events[i % 2].record()
        if i and events[(i - 1) % 2].query():
            ring[(i - 1) % 2].tolist()

    return step


def harmless_work_of_the_first_call(device):
    net = nn.Linear(4, 2).to(device)
    optimizer, scale = torch.optim.Adam(net.parameters()), None

    def step(i):
        nonlocal scale
        if scale is None:
            scale = float(net.weight.detach().abs().max())
            torch.zeros(4).to(device)
        optimizer.zero_grad()
        (net(torch.ones(3, 4, device=device)).sum() / scale).backward()
        optimizer.step()

    return step


def harmless_methods_of_other_classes(device):
    class Reading:
        def item(self):
            return 1

        def cpu(self):
            return self

        def numpy(self):
            return [1]

        def tolist(self):
            return [1]

        def nonzero(self):
            return [1]

    x = torch.arange(5.0, device=device)

    def step(i):
        reading = Reading()
        reading.item(), reading.cpu().numpy(), reading.tolist(), reading.nonzero()
        return x.add(1), np.ones(3).tolist(), np.float32(1).item()

    return step


def harmless_single_values_of_the_host(device):
    x, rate = torch.arange(5.0, device=device), torch.tensor(0.5)

    def step(i):
        x[0:1] = 2.0
        x[x > 3.0] = rate
        x[1].fill_(rate)
        return x * rate + torch.full((), 2.0, device=device) + torch.full((5,), 3.0, device=device)

    return step


def harmless_copies_of_no_elements(device):
    x, none, pinned = torch.arange(5.0, device=device), torch.empty(0), torch.empty(0).pin_memory()

    def step(i):
        x[:0] = none
        here = none.to(device), torch.tensor([], device=device), pinned.to(device, non_blocking=True)
        return here, here[0].cpu(), here[0].tolist(), x[:0].cpu().numpy()

    return step


def harmless_fixed_shapes_and_gathers(device):
    x = torch.arange(6.0, device=device).view(2, 3)
    rows = torch.tensor([1, 0], device=device)

    def step(i):
        y = x.index_select(0, rows) + x[rows] + x[i % 2] + x[:, :2].sum() + x.gather(0, rows.view(1, 2))[0, 0]
        y.scatter_add_(0, rows.view(1, 2), y[:1, :2].clone())
        return y.topk(2), y.sort(), y.argmax(), y.cumsum(0), y.max(), torch.cat([y, y]), y.to(torch.float16)

    return step


def harmless_dropout_batch_norm_attention(device):
    net = nn.Sequential(nn.Linear(8, 8), nn.BatchNorm1d(8), nn.Dropout(0.5), nn.GELU(), nn.LayerNorm(8)).to(device)
    attention = nn.MultiheadAttention(8, 2, batch_first=True).to(device)

    def step(i):
        x = net(torch.randn(4, 8, device=device))[None]
        attention(x, x, x)[0].sum().backward()

    return step


def harmless_recurrent_networks(device):
    cells = [kind(3, 4).to(device) for kind in (nn.LSTM, nn.GRU, nn.RNN)]

    def step(i):
        x = torch.randn(5, 2, 3, device=device)
        sum(cell(x)[0].sum() for cell in cells).backward()

    return step


def harmless_convolutions_and_a_loss(device):
    net = nn.Sequential(nn.Conv2d(3, 4, 3), nn.ReLU(), nn.AdaptiveAvgPool2d(1), nn.Flatten(), nn.Linear(4, 5))
    net = net.to(device)
    labels = torch.tensor([0, 1], device=device)

    def step(i):
        F.cross_entropy(net(torch.randn(2, 3, 8, 8, device=device)), labels).backward()

    return step


def harmless_a_batch_moved_between_devices_of_one_kind(device):
    x = torch.arange(4.0, device=device)

    def step(i):
        return x.to(device).to(torch.float64).contiguous().to(x.device)

    return step


def harmless_activation_checkpointing(device):
    from torch.utils.checkpoint import checkpoint

    net = nn.Sequential(nn.Linear(4, 8), nn.Dropout(0.1), nn.Linear(8, 2)).to(device)

    def step(i):
        x = torch.randn(3, 4, device=device, requires_grad=True)
        checkpoint(net, x, use_reentrant=False).sum().backward()

    return step


def harmless_vmap_and_grad(device):
    x = torch.arange(6.0, device=device).view(2, 3)

    def step(i):
        torch.vmap(torch.func.grad(lambda row: (row**2).sum()))(x)

    return step
