"""Lines of training code as people write them. Written before what judges them had seen them.

A function makes a step on `device`. A line to blame ends in `# <kind>`; those called `mended_…` and `harmless_…` have
none.
"""

import numpy as np
import torch
from torch import nn
from torch.nn import functional as F


def faulty_accuracy_of_an_evaluation(device):
    net = nn.Linear(4, 3).to(device)
    x, y = torch.randn(8, 4).to(device), torch.randint(0, 3, (8,)).to(device)

    @torch.no_grad()
    def step(i):
        correct = 0
        predicted = net(x).argmax(dim=1)
        correct += predicted.eq(y).sum().item()  # host-sync-item
        return correct / len(y)

    return step


def faulty_topk_accuracy_as_in_torchvision(device):
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

    return step


def faulty_a_meter_that_takes_floats(device):
    class Meter:
        def __init__(self):
            self.total = 0.0

        def update(self, value):
            self.total += float(value)  # host-sync-float

    meter, x = Meter(), torch.ones(3).to(device)

    def step(i):
        meter.update(x.mean())

    return step


def faulty_maximum_by_python(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        return max(x)  # host-sync-bool

    return step


def faulty_sorted_by_python(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        return sorted(x, key=lambda value: value)  # host-sync-bool

    return step


def faulty_sum_of_a_comparison_as_number(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        return range(int((x > 1).sum()))  # host-sync-float

    return step


def faulty_range_over_a_tensor(device):
    n, x = torch.tensor(3).to(device), torch.zeros(2).to(device)

    def step(i):
        for _ in range(n):  # host-sync-float
            x.add_(1)

    return step


def faulty_membership(device):
    seen = torch.arange(4).to(device)

    def step(i):
        return 3 in seen  # host-sync-bool

    return step


def faulty_while_not_converged(device):
    x = torch.full((2,), 4.0).to(device)

    def step(i):
        x.fill_(4.0)
        while x.abs().max() > 1:  # host-sync-bool
            x.mul_(0.5)

    return step


def faulty_conditional_expression(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        return 1.0 if x.sum() > 2 else 0.0  # host-sync-bool

    return step


def faulty_and_of_tensors(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        return (x.sum() > 2) and (x.max() < 9)  # host-sync-bool

    return step


def faulty_assert_on_a_tensor(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        assert (x >= 0).all(), "negative"  # host-sync-bool

    return step


def faulty_math_of_a_tensor(device):
    import math

    x = torch.arange(4.0).to(device)

    def step(i):
        return math.sqrt(x.sum())  # host-sync-float

    return step


def faulty_perplexity(device):
    import math

    loss = torch.tensor(1.5).to(device)

    def step(i):
        return math.exp(loss.item())  # host-sync-item

    return step


def faulty_numpy_of_a_loss_detached(device):
    net = nn.Linear(4, 1).to(device)
    losses = []

    def step(i):
        loss = net(torch.ones(2, 4, device=device)).mean()
        losses.append(loss.detach().cpu().numpy())  # d2h-accumulate

    return step


def faulty_numpy_function_on_a_tensor(device):
    x = torch.arange(4.0).to(device)

    def step(i):
        return np.mean(x.cpu().numpy())  # host-sync-copy

    return step


def faulty_tensor_of_a_list_of_tensors(device):
    parts = [torch.tensor(1.0).to(device), torch.tensor(2.0).to(device)]

    def step(i):
        return torch.tensor(parts)  # host-sync-item host-sync-float

    return step


def faulty_tensor_from_a_list_with_a_device(device):
    def step(i):
        return torch.tensor([0.1 * i, 0.2], device=device)  # h2d-fresh

    return step


def faulty_as_tensor_of_an_array(device):
    actions = np.arange(4)

    def step(i):
        return torch.as_tensor(actions, device=device)  # h2d-fresh

    return step


def faulty_floattensor_to_the_device(device):
    def step(i):
        return torch.FloatTensor([1.0, 2.0]).to(device)  # h2d-fresh

    return step


def faulty_an_observation_of_an_environment(device):
    class Env:
        def step(self, action):
            return np.zeros(4, np.float32), 1.0, False

    env, net = Env(), nn.Linear(4, 2).to(device)
    state = {"obs": torch.zeros(4).to(device)}

    def step(i):
        with torch.no_grad():
            action = net(state["obs"]).argmax()
        obs, reward, done = env.step(action.item())  # host-sync-item
        state["obs"] = torch.from_numpy(obs).to(device)  # h2d-fresh

    return step


def faulty_replay_of_an_array(device):
    buffer = np.zeros((100, 4), np.float32)
    random = np.random.default_rng(0)

    def step(i):
        rows = random.integers(0, 100, 8)
        return torch.tensor(buffer[rows], device=device)  # h2d-fresh

    return step


def faulty_replay_on_the_device_indexed_by_the_host(device):
    buffer = torch.zeros(100, 4).to(device)
    random = np.random.default_rng(0)

    def step(i):
        return buffer[random.integers(0, 100, 8)]  # h2d-index

    return step


def faulty_epsilon_greedy(device):
    q = torch.randn(8, 3).to(device)

    def step(i):
        explore = torch.rand(8, device=device) < 0.1
        action = q.argmax(1)
        count = int(explore.sum())  # host-sync-float
        action[explore] = torch.randint(0, 3, (count,), device=device)  # host-sync-boolindex
        return action

    return step


def faulty_resetting_worlds_that_are_done(device):
    state, done = torch.randn(8, 3).to(device), torch.arange(8).to(device) % 2 == 0

    def step(i):
        places = done.nonzero(as_tuple=True)[0]  # host-sync-nonzero
        state[places] = 0.0  # h2d-fresh

    return step


def faulty_averaged_model_of_torch_which_counts_on_the_host(device):
    net = nn.Linear(4, 2).to(device)
    average = torch.optim.swa_utils.AveragedModel(net, multi_avg_fn=torch.optim.swa_utils.get_ema_multi_avg_fn(0.9))

    def step(i):
        average.update_parameters(net)  # h2d-fresh

    return step


def faulty_any_world_done(device):
    done = torch.zeros(8, dtype=torch.bool).to(device)

    def step(i):
        if torch.any(done):  # host-sync-bool
            done.zero_()

    return step


def faulty_kl_early_stop(device):
    kl = torch.tensor(0.1).to(device)

    def step(i):
        for epoch in range(2):
            if kl > 0.5:  # host-sync-bool
                break

    return step


def faulty_sampling_a_normal_policy(device):
    mean, std = torch.zeros(4).to(device), torch.ones(4).to(device)

    def step(i):
        return torch.distributions.Normal(mean, std).sample()  # host-sync-bool

    return step


def faulty_a_batch_of_a_dict(device):
    from torch.utils.data import default_collate

    rows = [{"x": torch.ones(3), "y": 1} for _ in range(4)]

    def step(i):
        batch = default_collate(rows)
        batch = {k: v.to(device) for k, v in batch.items()}  # h2d-fresh
        return batch["x"]

    return step


def faulty_a_loader_moved_by_cuda_like_call(device):
    from torch.utils.data import DataLoader, TensorDataset

    loader = DataLoader(TensorDataset(torch.ones(64, 3), torch.ones(64)), batch_size=4)
    batches = iter(loader)

    def step(i):
        x, y = next(batches)
        x, y = x.to(device), y.to(device)  # h2d-fresh

    return step


def faulty_labels_moved_non_blocking_from_pageable_memory(device):
    labels = torch.arange(8)

    def step(i):
        return labels.to(device, non_blocking=True)  # h2d-pageable

    return step


def faulty_copying_a_batch_into_a_static_buffer(device):
    static, batch = torch.zeros(8, 4).to(device), torch.ones(8, 4)

    def step(i):
        static.copy_(batch)  # h2d-fresh

    return step


def faulty_ema_on_the_host(device):
    net = nn.Linear(4, 2).to(device)
    shadow = {name: value.detach().cpu() for name, value in net.named_parameters()}

    def step(i):
        for name, value in net.named_parameters():
            shadow[name].mul_(0.9).add_(value.detach().cpu(), alpha=0.1)  # state-copy

    return step


def faulty_weights_sent_to_workers(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        weights = {k: v.cpu().numpy() for k, v in net.state_dict().items()}  # state-copy

    return step


def faulty_gradient_norm_for_the_log(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        net(torch.ones(2, 4, device=device)).sum().backward()
        norm = sum(p.grad.norm().item() ** 2 for p in net.parameters())  # host-sync-item

    return step


def faulty_clip_and_read(device):
    net = nn.Linear(4, 2).to(device)

    def step(i):
        net(torch.ones(2, 4, device=device)).sum().backward()
        norm = nn.utils.clip_grad_norm_(net.parameters(), 1.0)
        return {"grad_norm": norm.item()}  # host-sync-item

    return step


def faulty_skipping_steps_that_are_not_finite(device):
    net = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.Adam(net.parameters())

    def step(i):
        optimizer.zero_grad()
        loss = net(torch.ones(2, 4, device=device)).sum()
        loss.backward()
        if not torch.isfinite(loss):  # host-sync-bool
            return
        optimizer.step()

    return step


def faulty_plateau_scheduler(device):
    net = nn.Linear(4, 2).to(device)
    optimizer = torch.optim.SGD(net.parameters(), 0.1)
    plateau = torch.optim.lr_scheduler.ReduceLROnPlateau(optimizer)

    def step(i):
        loss = net(torch.ones(2, 4, device=device)).sum()
        loss.backward()
        optimizer.step()
        plateau.step(loss.detach())  # host-sync-float

    return step


def faulty_gradscaler_with_unscaling(device):
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

    return step


def faulty_lbfgs(device):
    x = torch.ones(3).to(device).requires_grad_()
    optimizer = torch.optim.LBFGS([x], max_iter=2)

    def closure():
        optimizer.zero_grad()
        loss = ((x - 5) ** 4).sum()
        loss.backward()
        return loss

    def step(i):
        optimizer.step(closure)  # host-sync-float host-sync-bool host-sync-item

    return step


def faulty_confusion_matrix_by_bincount(device):
    true, guess = torch.arange(3).to(device), torch.arange(3).to(device)

    def step(i):
        return torch.bincount(3 * true + guess, minlength=9).view(3, 3)  # host-sync-item

    return step


def faulty_dropping_padded_tokens(device):
    logits, labels = torch.randn(2, 5, 7).to(device), torch.tensor([[1, 2, -100, -100, 3]] * 2).to(device)

    def step(i):
        active = labels.view(-1) != -100
        return F.cross_entropy(logits.view(-1, 7)[active], labels.view(-1)[active])  # host-sync-boolindex

    return step


def faulty_longest_of_a_batch(device):
    mask = torch.ones(2, 5, dtype=torch.long).to(device)
    ids = torch.ones(2, 5, dtype=torch.long).to(device)

    def step(i):
        longest = mask.sum(1).max().item()  # host-sync-item
        return ids[:, :longest]

    return step


def faulty_packing_sequences(device):
    rnn = nn.GRU(3, 4, batch_first=True).to(device)
    x, lengths = torch.randn(2, 5, 3).to(device), torch.tensor([5, 3]).to(device)

    def step(i):
        packed = nn.utils.rnn.pack_padded_sequence(x, lengths.cpu(), batch_first=True)  # host-sync-copy
        return rnn(packed)[1]

    return step


def faulty_generation_until_the_end_token(device):
    net = nn.Linear(4, 6).to(device)

    def step(i):
        tokens = []
        x = torch.ones(1, 4, device=device)
        for _ in range(3):
            token = net(x).argmax(-1)
            tokens.append(token)
            if token == 9:  # host-sync-bool
                break

    return step


def faulty_decoding_tokens(device):
    tokens = torch.arange(4).to(device)
    names = "abcd"

    def step(i):
        return "".join(names[token] for token in tokens)  # host-sync-float

    return step


def faulty_dict_keyed_by_values(device):
    labels = torch.arange(3).to(device)

    def step(i):
        counts = {}
        for label in labels.cpu().numpy():  # host-sync-copy
            counts[label] = counts.get(label, 0) + 1

    return step


def faulty_unique_with_counts(device):
    labels = torch.arange(3).to(device)

    def step(i):
        values, counts = labels.unique(return_counts=True)  # host-sync-nonzero

    return step


def faulty_unique_along_an_axis(device):
    edges = torch.arange(6).view(3, 2).to(device)

    def step(i):
        return torch.unique(edges, dim=0)  # host-sync-nonzero

    return step


def faulty_unique_of_runs(device):
    labels = torch.tensor([1, 1, 2]).to(device)

    def step(i):
        return torch.unique_consecutive(labels)  # host-sync-nonzero

    return step


def faulty_argwhere(device):
    x = torch.eye(3).to(device)

    def step(i):
        return torch.argwhere(x > 0)  # host-sync-nonzero

    return step


def faulty_adding_through_a_mask(device):
    x, mask = torch.zeros(4).to(device), torch.tensor([True, False, True, True]).to(device)

    def step(i):
        x[mask] += 1  # host-sync-boolindex

    return step


def faulty_two_masks(device):
    x, rows = torch.zeros(3, 3).to(device), torch.tensor([True, False, True]).to(device)

    def step(i):
        return x[rows][:, rows]  # host-sync-boolindex

    return step


def faulty_boolean_list_as_index(device):
    x = torch.arange(3.0).to(device)

    def step(i):
        return x[[True, False, True]]  # h2d-index host-sync-boolindex

    return step


def faulty_uint8_mask_built_on_the_host(device):
    x, mask = torch.arange(3.0).to(device), torch.tensor([True, False, True])

    def step(i):
        return x[mask.to(device)]  # h2d-index host-sync-boolindex

    return step


def faulty_index_select_by_a_list(device):
    x = torch.arange(5.0).to(device)

    def step(i):
        return torch.index_select(x, 0, torch.tensor([1, 3]).to(device))  # h2d-fresh h2d-index

    return step


def faulty_f_string_of_a_mean(device):
    x = torch.arange(3.0).to(device)

    def step(i):
        text = f"step {i}: mean {x.mean()}"  # host-sync-print

    return step


def faulty_percent_formatting(device):
    x = torch.arange(3.0).to(device)

    def step(i):
        text = "loss %.3f" % x.mean()  # host-sync-float

    return step


def faulty_str_format(device):
    x = torch.arange(3.0).to(device)

    def step(i):
        text = "loss {:.3f}".format(x.mean())  # host-sync-print

    return step


def faulty_logging(device):
    import logging

    log, x = logging.getLogger("field"), torch.arange(3.0).to(device)
    log.addHandler(logging.NullHandler())
    log.setLevel(logging.INFO)
    log.propagate = False
    handler = logging.StreamHandler(__import__("io").StringIO())
    log.addHandler(handler)

    def step(i):
        log.info("loss %s", x.mean())  # host-sync-print

    return step


def faulty_json_of_metrics(device):
    import json

    x = torch.arange(3.0).to(device)

    def step(i):
        return json.dumps({"loss": x.mean().item(), "all": x.tolist()})  # host-sync-item

    return step


def faulty_round(device):
    x = torch.arange(3.0).to(device)

    def step(i):
        return round(x.mean().item(), 2)  # host-sync-item

    return step


def faulty_explicit_timing(device):
    import time

    x = torch.ones(3).to(device)

    def step(i):
        start = time.perf_counter()
        x.mul_(2)
        torch.cuda.synchronize()  # host-sync-explicit
        return time.perf_counter() - start

    return step


def faulty_stream_synchronised(device):
    x = torch.ones(3).to(device)

    def step(i):
        x.mul_(1)
        torch.cuda.current_stream().synchronize()  # host-sync-explicit

    return step


def faulty_positions_of_a_transformer_on_the_host(device):
    def step(i):
        half = torch.exp(torch.arange(0, 8, 2) * -0.5)
        angles = torch.arange(5)[:, None] * half
        table = torch.cat([angles.sin(), angles.cos()], 1).to(device)  # h2d-fresh
        return table

    return step


def faulty_causal_mask_made_on_the_host(device):
    def step(i):
        mask = torch.triu(torch.ones(4, 4), 1).bool()
        return mask.to(device=device)  # h2d-fresh

    return step


def faulty_noise_of_numpy(device):
    random, x = np.random.default_rng(0), torch.zeros(4).to(device)

    def step(i):
        return x + torch.as_tensor(random.normal(size=4), dtype=torch.float32).to(device)  # h2d-fresh

    return step


def faulty_mixup(device):
    random = np.random.default_rng(0)
    x = torch.randn(4, 3).to(device)

    def step(i):
        share, order = random.beta(0.2, 0.2), torch.randperm(4)
        return share * x + (1 - share) * x[order]  # h2d-index

    return step


def faulty_repeat_interleave_of_counts(device):
    x, counts = torch.arange(3.0).to(device), torch.tensor([2, 1, 1]).to(device)

    def step(i):
        return torch.repeat_interleave(x, counts, dim=0)  # host-sync-item

    return step


def faulty_one_hot_of_labels(device):
    labels = torch.arange(3).to(device)

    def step(i):
        return F.one_hot(labels).float()  # host-sync-item

    return step


def faulty_split_by_sizes_on_the_device(device):
    x, sizes = torch.arange(6.0).to(device), torch.tensor([2, 4]).to(device)

    def step(i):
        return torch.split(x, sizes.tolist())  # host-sync-item

    return step


def faulty_a_size_from_a_tensor(device):
    n = torch.tensor(3).to(device)

    def step(i):
        return torch.zeros(n, device=device)  # host-sync-item host-sync-float

    return step


def faulty_arange_to_a_tensor(device):
    n = torch.tensor(3).to(device)

    def step(i):
        return torch.arange(n, device=device)  # host-sync-item host-sync-float

    return step


def faulty_a_graph_s_edges_filtered(device):
    edges = torch.tensor([[0, 1, 2], [1, 2, 0]]).to(device)
    keep = torch.tensor([True, False, True]).to(device)

    def step(i):
        return edges[:, keep]  # host-sync-boolindex

    return step


def faulty_masked_scatter_with_counts(device):
    x, mask = torch.zeros(3).to(device), torch.tensor([True, False, True]).to(device)

    def step(i):
        values = torch.ones(int(mask.sum()), device=device)  # host-sync-float
        return x.masked_scatter(mask, values)

    return step


def faulty_cholesky(device):
    x = torch.eye(3).to(device)

    def step(i):
        return torch.linalg.cholesky(x)  # host-sync-bool host-sync-item

    return step


def faulty_backward_of_a_mask(device):
    x = torch.arange(4.0).to(device).requires_grad_()
    mask = torch.tensor([True, False, True, True]).to(device)

    def step(i):
        chosen = x[mask].sum()  # host-sync-boolindex
        chosen.backward()  # host-sync-boolindex

    return step


def faulty_deep_copy_to_the_host_for_the_best_model(device):
    import copy

    net = nn.Linear(4, 2).to(device)

    def step(i):
        best = copy.deepcopy(net).cpu()  # state-copy

    return step


def faulty_saving_in_each_step(device):
    import io

    net = nn.Linear(4, 2).to(device)

    def step(i):
        torch.save(net.state_dict(), io.BytesIO())  # state-copy host-sync-copy

    return step


def faulty_device_to_numpy_and_back_with_clipping(device):
    x = torch.randn(6).to(device)

    def step(i):
        array = x.detach().cpu().numpy()  # roundtrip
        array = np.clip(array, -1, 1)
        return torch.from_numpy(array).to(device)  # roundtrip

    return step


def faulty_plot_data(device):
    history, x = [], torch.ones(3).to(device)

    def step(i):
        history.extend(x.cpu().tolist())  # d2h-accumulate

    return step


def faulty_loss_list_of_floats(device):
    losses, x = [], torch.ones(3).to(device)

    def step(i):
        losses.append(x.sum().item())  # host-sync-item

    return step
