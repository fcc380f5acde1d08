"""An agent attention network written agent by agent, time by time and head by head, from the formulae alone."""

import math

import torch


def rms(v, gain, eps):
    return gain * v / torch.sqrt((v * v).sum() / v.numel() + eps)


def attend(q, keys, values, biases):
    scores = [torch.dot(q, k) / math.sqrt(q.numel()) + b for k, b in zip(keys, biases, strict=True)]
    top = max(float(s.detach()) for s in scores)
    parts = [torch.exp(s - top) for s in scores]
    total = sum(parts[1:], parts[0])
    out = parts[0] / total * values[0]
    for part, value in zip(parts[1:], values[1:], strict=True):
        out = out + part / total * value
    return out


def bias_entries(model):
    """N[a][a'] as a mapping; absent pairs are not in it."""
    bias, agents = model.bias, model.config.num_agents
    if bias is None:
        return {(a, c): 0.0 for a in range(agents) for c in range(agents)}
    known = {
        (int(a), int(c)): bias.theta[i]
        for i, (a, c) in enumerate(zip(bias.receiver, bias.sender, strict=True))
        if i < bias.theta.numel()
    }
    if getattr(bias, "symmetric", False):
        known = {(a, c): (known[a, c] + known[c, a]) / 2 for (a, c) in known}
    return {**known, **{(a, a): 1.0 for a in range(agents)}}


def project(model, name, u, a):
    def v_of(w):
        return w if model.config.shared_v else w[a]

    p = dict(model.named_parameters())
    return u @ p[f"{name}_q"][a], u @ p[f"{name}_k"][a], u @ v_of(p[f"{name}_v"])


def mlp(model, name, u, a):
    p = dict(model.named_parameters())
    inner = u @ p[f"{name}_in"][a] + p[f"{name}_in_bias"][a]
    return (inner * torch.sigmoid(inner)) @ p[f"{name}_out"][a] + p[f"{name}_out_bias"][a]


def run(model, views):
    """`views` [A, T, M] of one sample; returns h [T, A, H] and y [T, A, y]."""
    c, p = model.config, dict(model.named_parameters())
    agents, times = views.shape[:2]
    d = c.hidden // c.num_heads
    cut = [slice(n * d, (n + 1) * d) for n in range(c.num_heads)]
    pairs = bias_entries(model)
    h = {(t, a): rms(views[a, t] @ p["embed"][a], p["embed_gain"], c.eps) for t in range(times) for a in range(agents)}
    for _ in range(c.message_steps):
        if c.memory:
            qkv = {(t, a): project(model, "memory", rms(h[t, a], p["memory_gain"], c.eps), a) for t, a in h}
            h = {
                (t, a): h[t, a]
                + torch.cat(
                    [
                        attend(
                            qkv[t, a][0][s],
                            [qkv[r, a][1][s] for r in range(t + 1)],
                            [qkv[r, a][2][s] for r in range(t + 1)],
                            [0.0] * (t + 1),
                        )
                        for s in cut
                    ]
                )
                for t, a in h
            }
        if c.talks:
            qkv = {(t, a): project(model, "social", rms(h[t, a], p["social_gain"], c.eps), a) for t, a in h}
            new = {}
            for t, a in h:
                others = [e for e in range(agents) if (a, e) in pairs]
                said = [
                    attend(
                        qkv[t, a][0][s],
                        [qkv[t, e][1][s] for e in others],
                        [qkv[t, e][2][s] for e in others],
                        [pairs[a, e] for e in others],
                    )
                    for s in cut
                ]
                new[t, a] = h[t, a] + torch.cat(said)
            h = new
        if c.isolated_width:
            h = {(t, a): h[t, a] + mlp(model, "alone", rms(h[t, a], p["alone_gain"], c.eps), a) for t, a in h}
        h = {(t, a): h[t, a] + mlp(model, "mlp", rms(h[t, a], p["mlp_gain"], c.eps), a) for t, a in h}
    y = {(t, a): rms(h[t, a], p["head_gain"], c.eps) @ p["head"][a] + p["head_bias"][a] for t, a in h}
    stack = lambda found: torch.stack([torch.stack([found[t, a] for a in range(agents)]) for t in range(times)])
    return stack(h), stack(y)
