"""Triton kernels of the message steps; `_message_steps` says what they compute.

Layouts: `[agents, rows, width]`, row-major. Columns of `qkv` are ordered head, part (query, key, value), place in the
head.
"""

import triton
import triton.language as tl


@triton.jit
def _mixed(x):
    """A permutation of 32-bit numbers without pattern (Wellons' lowbias32)."""
    x = x ^ (x >> 16)
    x = x * 0x7FEB352D
    x = x ^ (x >> 15)
    x = x * 0x846CA68B
    return x ^ (x >> 16)


@triton.jit
def _dropped(value, place, seed, layer, threshold, DROP: tl.constexpr):
    """`value` of float32 after dropout; `place` numbers its elements."""
    if DROP:
        key = _mixed(tl.load(seed).to(tl.uint32) + layer.to(tl.uint32))
        bits = _mixed(_mixed(place.to(tl.uint32) ^ key) + key)
        keep = (bits >> 8).to(tl.int32) >= threshold
        return tl.where(keep, value * (16777216.0 / (16777216 - threshold)), 0.0)
    return value


@triton.jit
def _normed(x, eps, WIDTH: tl.constexpr):
    """(x over its root mean square, 1 over that) in float32."""
    inverse = 1.0 / tl.sqrt(tl.sum(x * x, 1) / WIDTH + eps)
    return x * inverse[:, None], inverse


@triton.jit
def _norm_gradient(du, x, gain, eps, WIDTH: tl.constexpr):
    """(gradient of x, gain * normed(x), share of the gain's gradient) from the gradient of gain * normed(x)."""
    hat, inverse = _normed(x, eps, WIDTH)
    scaled = du * gain[None, :]
    dx = inverse[:, None] * (scaled - hat * (tl.sum(scaled * hat, 1) / WIDTH)[:, None])
    return dx, hat * gain[None, :], tl.sum(du * hat, 0)


@triton.jit
def _gather(place, value, add):
    """Store `value`, added to what is there already if `add` says so: what each step gives comes together in place."""
    if add:
        value += tl.load(place)
    tl.store(place, value)


@triton.jit
def _project_kernel(
    h,
    gain,
    weight,
    out,
    rows,
    eps,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    PARTS: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    r, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    live = (r < rows)[:, None]
    x = tl.load(h + (agent * rows + r)[:, None] * WIDTH + k[None, :], mask=live, other=0.0).to(tl.float32)
    hat, _ = _normed(x, eps, WIDTH)
    u = (hat * tl.load(gain + k).to(tl.float32)[None, :]).to(weight.dtype.element_ty)
    for part in range(PARTS):
        column = (tl.program_id(2) * PARTS + part) * WIDTH + k
        w = tl.load(weight + agent * 3 * WIDTH * WIDTH + k[:, None] * 3 * WIDTH + column[None, :])
        y = tl.dot(u, w, input_precision="ieee")
        place = out + (agent * rows + r)[:, None] * 3 * WIDTH + column[None, :]
        tl.store(place, y.to(out.dtype.element_ty), mask=live)


@triton.jit(do_not_specialize=["add"])
def _project_backward_kernel(
    dqkv,
    weight,
    h,
    gain,
    dafter,
    dh,
    u_out,
    dgain,
    rows,
    eps,
    add,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    r, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    live = (r < rows)[:, None]
    at = (agent * rows + r)[:, None]
    du = tl.zeros((ROWS, WIDTH), tl.float32)
    for part in range(3):
        column = part * WIDTH + k
        y = tl.load(dqkv + at * 3 * WIDTH + column[None, :], mask=live, other=0.0)
        w = tl.load(weight + agent * 3 * WIDTH * WIDTH + k[:, None] * 3 * WIDTH + column[None, :])
        du = tl.dot(y, tl.trans(w), du, input_precision="ieee")
    x = tl.load(h + at * WIDTH + k[None, :], mask=live, other=0.0).to(tl.float32)
    dx, u, share = _norm_gradient(du, x, tl.load(gain + k).to(tl.float32), eps, WIDTH)
    tl.store(u_out + at * WIDTH + k[None, :], u.to(u_out.dtype.element_ty), mask=live)
    dx += tl.load(dafter + at * WIDTH + k[None, :], mask=live, other=0.0).to(tl.float32)
    tl.store(dh + at * WIDTH + k[None, :], dx.to(dh.dtype.element_ty), mask=live)
    _gather(dgain + (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * WIDTH + k, share, add)


@triton.jit
def _add(h, value, out, here, live, seed, layer, threshold, DROP: tl.constexpr):
    """Store the states `h` and what a sublayer adds to them, after dropout."""
    new = tl.load(h + here, mask=live, other=0.0).to(tl.float32)
    new += _dropped(value, here, seed, layer, threshold, DROP)
    tl.store(out + here, new.to(out.dtype.element_ty), mask=live)


@triton.jit
def _load_qkv(place, live, HEAD: tl.constexpr):
    """Queries, keys and values of a head, from the place of its queries."""
    q = tl.load(place, mask=live, other=0.0)
    k = tl.load(place + HEAD, mask=live, other=0.0)
    v = tl.load(place + 2 * HEAD, mask=live, other=0.0)
    return q, k, v


@triton.jit
def _store_qkv(place, q, k, v, live, HEAD: tl.constexpr):
    """As of `_load_qkv`."""
    small = place.dtype.element_ty
    tl.store(place, q.to(small), mask=live)
    tl.store(place + HEAD, k.to(small), mask=live)
    tl.store(place + 2 * HEAD, v.to(small), mask=live)


@triton.jit
def _attention(q, k, bias, scale):
    """Weights `[to, from]` in float32; `bias` is -inf where nothing passes."""
    scores = tl.dot(q, tl.trans(k), input_precision="ieee") * scale + bias
    parts = tl.exp(scores - tl.max(scores, 1)[:, None])
    return parts / tl.sum(parts, 1)[:, None]


@triton.jit
def _attention_gradient(weights, q, k, v, dsaid, scale):
    """(dq, dk, dv, gradient of the scores) in float32."""
    small = weights.to(q.dtype)
    dv = tl.dot(tl.trans(small), dsaid, input_precision="ieee")
    dweights = tl.dot(dsaid, tl.trans(v), input_precision="ieee")
    dscores = weights * (dweights - tl.sum(weights * dweights, 1)[:, None])
    ds = (dscores * scale).to(q.dtype)
    dq = tl.dot(ds, k, input_precision="ieee")
    dk = tl.dot(tl.trans(ds), q, input_precision="ieee")
    return dq, dk, dv, dscores


@triton.jit
def _causal(times, TIMES: tl.constexpr):
    """What is added to scores: -inf for times to come, and beyond the last time."""
    t = tl.arange(0, TIMES)
    past = (t[None, :] <= t[:, None]) & (t[None, :] < times)
    return tl.where(past, 0.0, float("-inf"))


@triton.jit(do_not_specialize=["layer"])
def _remember_kernel(
    qkv,
    h,
    out,
    seed,
    layer,
    threshold,
    rows,
    times,
    scale,
    WIDTH: tl.constexpr,
    HEAD: tl.constexpr,
    TIMES: tl.constexpr,
    DROP: tl.constexpr,
):
    agent, head = tl.program_id(1).to(tl.int64), tl.program_id(2)
    t, j = tl.arange(0, TIMES), tl.arange(0, HEAD)
    live = (t < times)[:, None]
    at = (agent * rows + tl.program_id(0) * times + t)[:, None]
    place = at * 3 * WIDTH + head * 3 * HEAD + j[None, :]
    q, k, v = _load_qkv(qkv + place, live, HEAD)
    weights = _attention(q, k, _causal(times, TIMES), scale)
    said = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
    here = at * WIDTH + head * HEAD + j[None, :]
    _add(h, said, out, here, live, seed, layer, threshold, DROP)


@triton.jit(do_not_specialize=["layer"])
def _remember_backward_kernel(
    qkv,
    dafter,
    dqkv,
    seed,
    layer,
    threshold,
    rows,
    times,
    scale,
    WIDTH: tl.constexpr,
    HEAD: tl.constexpr,
    TIMES: tl.constexpr,
    DROP: tl.constexpr,
):
    agent, head = tl.program_id(1).to(tl.int64), tl.program_id(2)
    t, j = tl.arange(0, TIMES), tl.arange(0, HEAD)
    live = (t < times)[:, None]
    at = (agent * rows + tl.program_id(0) * times + t)[:, None]
    place = at * 3 * WIDTH + head * 3 * HEAD + j[None, :]
    q, k, v = _load_qkv(qkv + place, live, HEAD)
    here = at * WIDTH + head * HEAD + j[None, :]
    dsaid = tl.load(dafter + here, mask=live, other=0.0).to(tl.float32)
    dsaid = _dropped(dsaid, here, seed, layer, threshold, DROP).to(v.dtype)
    weights = _attention(q, k, _causal(times, TIMES), scale)
    dq, dk, dv, _ = _attention_gradient(weights, q, k, v, dsaid, scale)
    _store_qkv(dqkv + place, dq, dk, dv, live, HEAD)


@triton.jit
def _bias_tile(bias, agents, AGENTS: tl.constexpr):
    """The social bias, -inf towards agents that are not there; rows of such agents are 0, so that none is all -inf."""
    i = tl.arange(0, AGENTS)
    there = (i[:, None] < agents) & (i[None, :] < agents)
    found = tl.load(bias + i[:, None] * agents + i[None, :], mask=there, other=float("-inf"))
    return tl.where(i[:, None] < agents, found, 0.0)


@triton.jit(do_not_specialize=["layer"])
def _talk_kernel(
    qkv,
    bias,
    h,
    out,
    seed,
    layer,
    threshold,
    rows,
    agents,
    scale,
    WIDTH: tl.constexpr,
    HEAD: tl.constexpr,
    AGENTS: tl.constexpr,
    ROWS: tl.constexpr,
    DROP: tl.constexpr,
):
    head, i, j = tl.program_id(1), tl.arange(0, AGENTS), tl.arange(0, HEAD)
    biases = _bias_tile(bias, agents, AGENTS)
    for step in range(ROWS):
        r = tl.program_id(0) * ROWS + step
        live = (i < tl.where(r < rows, agents, 0))[:, None]
        at = (i.to(tl.int64) * rows + r)[:, None]
        place = at * 3 * WIDTH + head * 3 * HEAD + j[None, :]
        q, k, v = _load_qkv(qkv + place, live, HEAD)
        weights = _attention(q, k, biases, scale)
        said = tl.dot(weights.to(v.dtype), v, input_precision="ieee")
        here = at * WIDTH + head * HEAD + j[None, :]
        _add(h, said, out, here, live, seed, layer, threshold, DROP)


@triton.jit(do_not_specialize=["layer", "add"])
def _talk_backward_kernel(
    qkv,
    bias,
    dafter,
    dqkv,
    dbias,
    seed,
    layer,
    threshold,
    rows,
    agents,
    scale,
    add,
    WIDTH: tl.constexpr,
    HEAD: tl.constexpr,
    AGENTS: tl.constexpr,
    ROWS: tl.constexpr,
    DROP: tl.constexpr,
):
    head, i, j = tl.program_id(1), tl.arange(0, AGENTS), tl.arange(0, HEAD)
    biases = _bias_tile(bias, agents, AGENTS)
    there = (i[:, None] < agents) & (i[None, :] < agents)
    program = (tl.program_id(0) * tl.num_programs(1) + head).to(tl.int64)
    sums = dbias + program * agents * agents + i[:, None] * agents + i[None, :]
    total = tl.zeros((AGENTS, AGENTS), tl.float32)
    if add:
        total = tl.load(sums, mask=there, other=0.0)
    for step in range(ROWS):
        r = tl.program_id(0) * ROWS + step
        live = (i < tl.where(r < rows, agents, 0))[:, None]
        at = (i.to(tl.int64) * rows + r)[:, None]
        place = at * 3 * WIDTH + head * 3 * HEAD + j[None, :]
        q, k, v = _load_qkv(qkv + place, live, HEAD)
        here = at * WIDTH + head * HEAD + j[None, :]
        dsaid = tl.load(dafter + here, mask=live, other=0.0).to(tl.float32)
        dsaid = _dropped(dsaid, here, seed, layer, threshold, DROP).to(v.dtype)
        weights = _attention(q, k, biases, scale)
        dq, dk, dv, dscores = _attention_gradient(weights, q, k, v, dsaid, scale)
        total += dscores
        _store_qkv(dqkv + place, dq, dk, dv, live, HEAD)
    tl.store(sums, total, mask=there)


@triton.jit(do_not_specialize=["layer"])
def _think_kernel(
    h,
    gain,
    inner,
    inner_bias,
    outer,
    outer_bias,
    out,
    seed,
    layer,
    threshold,
    rows,
    eps,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    DROP: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    r, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    live = (r < rows)[:, None]
    here = (agent * rows + r)[:, None] * WIDTH + k[None, :]
    square = agent * WIDTH * WIDTH + k[:, None] * WIDTH + k[None, :]
    hat, _ = _normed(tl.load(h + here, mask=live, other=0.0).to(tl.float32), eps, WIDTH)
    u = (hat * tl.load(gain + k).to(tl.float32)[None, :]).to(inner.dtype.element_ty)
    z = tl.dot(u, tl.load(inner + square), input_precision="ieee")
    z += tl.load(inner_bias + agent * WIDTH + k).to(tl.float32)[None, :]
    s = (z * tl.sigmoid(z)).to(inner.dtype.element_ty)
    o = tl.dot(s, tl.load(outer + square), input_precision="ieee")
    o += tl.load(outer_bias + agent * WIDTH + k).to(tl.float32)[None, :]
    _add(h, o, out, here, live, seed, layer, threshold, DROP)  # reads again: it was not held over the products


@triton.jit(do_not_specialize=["layer", "add"])
def _think_backward_kernel(
    h,
    gain,
    inner,
    inner_bias,
    outer,
    dafter,
    dh,
    u_out,
    s_out,
    dz_out,
    do_out,
    dgain,
    seed,
    layer,
    threshold,
    rows,
    eps,
    add,
    WIDTH: tl.constexpr,
    ROWS: tl.constexpr,
    DROP: tl.constexpr,
):
    small = inner.dtype.element_ty
    agent = tl.program_id(1).to(tl.int64)
    r, k = tl.program_id(0) * ROWS + tl.arange(0, ROWS), tl.arange(0, WIDTH)
    live = (r < rows)[:, None]
    here = (agent * rows + r)[:, None] * WIDTH + k[None, :]
    square = agent * WIDTH * WIDTH + k[:, None] * WIDTH + k[None, :]
    hat, _ = _normed(tl.load(h + here, mask=live, other=0.0).to(tl.float32), eps, WIDTH)
    gains = tl.load(gain + k).to(tl.float32)
    u = (hat * gains[None, :]).to(small)
    tl.store(u_out + here, u, mask=live)
    z = tl.dot(u, tl.load(inner + square), input_precision="ieee")
    z += tl.load(inner_bias + agent * WIDTH + k).to(tl.float32)[None, :]
    gate = tl.sigmoid(z)
    tl.store(s_out + here, (z * gate).to(small), mask=live)
    slope = gate * (1 + z * (1 - gate))
    do = tl.load(dafter + here, mask=live, other=0.0).to(tl.float32)
    do = _dropped(do, here, seed, layer, threshold, DROP).to(small)
    tl.store(do_out + here, do, mask=live)
    dz = (tl.dot(do, tl.trans(tl.load(outer + square)), input_precision="ieee") * slope).to(small)
    tl.store(dz_out + here, dz, mask=live)
    du = tl.dot(dz, tl.trans(tl.load(inner + square)), input_precision="ieee")
    # Read again what is needed again: to hold it over the products would take more registers than there are.
    x = tl.load(h + here, mask=live, other=0.0).to(tl.float32)
    dx, _, share = _norm_gradient(du, x, gains, eps, WIDTH)
    dx += tl.load(dafter + here, mask=live, other=0.0).to(tl.float32)
    tl.store(dh + here, dx.to(dh.dtype.element_ty), mask=live)
    _gather(dgain + (tl.program_id(1) * tl.num_programs(0) + tl.program_id(0)) * WIDTH + k, share, add)


@triton.jit(do_not_specialize=["add"])
def _weight_gradient_kernel(
    x,
    y,
    dweight,
    dbias,
    rows,
    columns,
    add,
    WIDTH: tl.constexpr,
    COLUMNS: tl.constexpr,
    ROWS: tl.constexpr,
    BIAS: tl.constexpr,
):
    agent = tl.program_id(1).to(tl.int64)
    k, c = tl.arange(0, WIDTH), tl.program_id(0) * COLUMNS + tl.arange(0, COLUMNS)
    total = tl.zeros((WIDTH, COLUMNS), tl.float32)
    sums = tl.zeros((COLUMNS,), tl.float32)
    for start in range(0, rows, ROWS):
        r = start + tl.arange(0, ROWS)
        live = (r < rows)[:, None]
        at = (agent * rows + r)[:, None]
        u = tl.load(x + at * WIDTH + k[None, :], mask=live, other=0.0)
        g = tl.load(y + at * columns + c[None, :], mask=live, other=0.0)
        if BIAS:
            sums += tl.sum(g.to(tl.float32), 0)
        total = tl.dot(tl.trans(u), g, total, input_precision="ieee")
    _gather(dweight + agent * WIDTH * columns + k[:, None] * columns + c[None, :], total, add)
    if BIAS:
        _gather(dbias + agent * columns + c, sums, add)
