"""Steps a second of PPO in plain JAX with PureJaxRL's settings, to stand beside `train_gpu.py` on the same card.

    python benchmarks/jax_ppo.py [--parts cartpole few breakout] [--rounds 5] [--out F.json]
    python benchmarks/jax_ppo.py --learn 0     # CartPole by CleanRL's recipe until 475, for `cartpole_cpu.py`

PPO as PureJaxRL has it: separate networks 64-64 (tanh; ReLU for Breakout), 128 steps, 4 epochs of 4 minibatches, whole
updates in one jitted scan, learning rate annealed, gradients clipped to 0.5 as a whole, advantages normalised in each
minibatch, no difference between the end of a life and its time limit, a fresh world computed for all in every step.
Written anew with nothing but JAX, so that it runs where JAX does. The fastest of `--rounds` calls of `--updates`
updates counts; compilation is told apart (`ready_s`). `DENIZEN_BENCH_LOCK` makes it take turns with other benchmarks.
"""

import argparse
import dataclasses
import functools
import json
import math
import sys
import time
from collections.abc import Callable
from pathlib import Path
from typing import Any, NamedTuple

sys.path.insert(0, str(Path(__file__).resolve().parent))

import jax
import jax.numpy as jnp
from _turns import turn

BATCHES = 4  # minibatches
EPOCHS, GAMMA, LAMBDA, CLIP, ENTROPY, VALUE, NORM = 4, 0.99, 0.95, 0.2, 0.01, 0.5, 0.5


@dataclasses.dataclass(frozen=True)
class Task:
    """A world: `fresh(key)` gives a state, `step(state, action)` the next one, its reward and whether it ended."""

    fresh: Callable[[Any], Any]
    step: Callable[[Any, Any], Any]
    observe: Callable[[Any], Any]
    inputs: int
    actions: int
    limit: int
    activation: Callable[[Any], Any] = jnp.tanh


class Pole(NamedTuple):
    """A cart with its pole."""

    x: Any
    speed: Any
    angle: Any
    turn: Any


def pole_fresh(key):
    return Pole(*jax.random.uniform(key, (4,), minval=-0.05, maxval=0.05))


def pole_step(now, action):
    """As in Gymnasium's CartPole-v1: Euler steps of 0.02 s."""
    force = jnp.where(action == 1, 10.0, -10.0)
    cosine, sine = jnp.cos(now.angle), jnp.sin(now.angle)
    push = (force + 0.05 * now.turn**2 * sine) / 1.1
    turning = (9.8 * sine - cosine * push) / (0.5 * (4 / 3 - 0.1 * cosine**2 / 1.1))
    speeding = push - 0.05 * turning * cosine / 1.1
    new = Pole(
        now.x + 0.02 * now.speed, now.speed + 0.02 * speeding, now.angle + 0.02 * now.turn, now.turn + 0.02 * turning
    )
    return new, jnp.float32(1), (jnp.abs(new.x) > 2.4) | (jnp.abs(new.angle) > 12 * math.pi / 180)


class Board(NamedTuple):
    """Paddle, ball and bricks."""

    paddle: Any
    x: Any
    y: Any
    right: Any
    down: Any
    trail_x: Any
    trail_y: Any
    struck: Any
    bricks: Any


def board_fresh(key):
    side = jax.random.randint(key, (), 0, 2)
    x, row = side * 9, jnp.int32(3)
    return Board(jnp.int32(4), x, row, side == 0, jnp.bool_(True), x, row, jnp.bool_(False), jnp.ones((3, 10), bool))


def board_step(now, action):
    """MinAtar's Breakout; actions are nothing, left and right."""
    paddle = jnp.clip(now.paddle + (action == 2) - (action == 1), 0, 9)
    x, y = now.x + jnp.where(now.right, 1, -1), now.y + jnp.where(now.down, 1, -1)
    wall = (x < 0) | (x > 9)
    x, right = jnp.clip(x, 0, 9), now.right ^ wall
    aim = (jnp.arange(3)[:, None] == y - 1) & (jnp.arange(10)[None, :] == x)
    brick = (now.bricks & aim).any()
    breaks = brick & ~now.struck
    floor = y == 9
    above = floor & (now.x == paddle)
    corner = floor & ~above & (x == paddle)
    bricks = now.bricks | (floor & ~now.bricks.any())
    back = breaks | above | corner
    new = Board(
        paddle,
        x,
        jnp.where(back, now.y, jnp.maximum(y, 0)),
        right ^ corner,
        now.down ^ ((y < 0) | back),
        now.x,
        now.y,
        brick,
        bricks & ~(breaks & aim),
    )
    return new, breaks.astype(jnp.float32), floor & ~above & ~corner


def board_observe(now):
    place = jnp.arange(100)
    bricks = jnp.zeros((10, 10), bool).at[1:4].set(now.bricks).ravel()
    planes = [place == 90 + now.paddle, place == now.trail_y * 10 + now.trail_x, bricks, place == now.y * 10 + now.x]
    return jnp.concatenate(planes).astype(jnp.float32)


TASKS = {
    "cartpole": Task(pole_fresh, pole_step, jnp.stack, 4, 2, 500),
    "breakout": Task(board_fresh, board_step, board_observe, 400, 3, 1000, jax.nn.relu),
}


def network(key, task):
    """Weights of actor and critic."""
    parts = []
    for outputs, last in ((task.actions, 0.01), (1, 1.0)):
        sizes, gains = (task.inputs, 64, 64, outputs), (math.sqrt(2), math.sqrt(2), last)
        for before, after, gain in zip(sizes, sizes[1:], gains, strict=False):
            key, own = jax.random.split(key)
            parts.append((jax.nn.initializers.orthogonal(gain)(own, (before, after)), jnp.zeros(after)))
    return parts[:3], parts[3:]


def judge(weights, seen, activation):
    """Log-probabilities and values."""

    def tower(layers):
        out = seen
        for weight, bias in layers[:-1]:
            out = activation(out @ weight + bias)
        return out @ layers[-1][0] + layers[-1][1]

    return jax.nn.log_softmax(tower(weights[0])), tower(weights[1])[..., 0]


def loss_of(weights, part, activation):
    seen, action, old_log, old_value, advantage, target = part
    logs, value = judge(weights, seen, activation)
    log = jnp.take_along_axis(logs, action[:, None], 1)[:, 0]
    ratio = jnp.exp(log - old_log)
    near = old_value + jnp.clip(value - old_value, -CLIP, CLIP)
    value_loss = 0.5 * jnp.maximum((value - target) ** 2, (near - target) ** 2).mean()
    gain = (advantage - advantage.mean()) / (advantage.std() + 1e-8)
    surrogate = -jnp.minimum(ratio * gain, jnp.clip(ratio, 1 - CLIP, 1 + CLIP) * gain).mean()
    return surrogate + VALUE * value_loss + ENTROPY * (jnp.exp(logs) * logs).sum(-1).mean()


def adam(weights, moments, gradient, rate):
    """Clipped by the norm of everything, then a step of Adam."""
    leaves, shape = jax.tree.flatten(gradient)
    norm = jnp.sqrt(sum((leaf**2).sum() for leaf in leaves))
    scale = jnp.minimum(1.0, NORM / jnp.maximum(norm, 1e-12))
    first, second, count = moments
    count += 1
    first = jax.tree.map(lambda m, g: 0.9 * m + 0.1 * g * scale, first, gradient)
    second = jax.tree.map(lambda v, g: 0.999 * v + 0.001 * (g * scale) ** 2, second, gradient)
    early, late = 1 - 0.9**count, 1 - 0.999**count
    weights = jax.tree.map(lambda w, m, v: w - rate * (m / early) / (jnp.sqrt(v / late) + 1e-5), weights, first, second)
    return weights, (first, second, count)


def step_all(task, worlds, action, key):
    """A step of all worlds; those that ended begin anew. Returns also the return of each life that ended, or NaN."""
    state, age, total = worlds
    new, reward, over = jax.vmap(task.step)(state, action)
    age, total = age + 1, total + reward
    done = over | (age >= task.limit)
    fresh = jax.vmap(task.fresh)(jax.random.split(key, age.shape[0]))

    def begin(a, b):
        return jnp.where(done.reshape(-1, *(1,) * (b.ndim - 1)), a, b)

    ended = jnp.where(done, total, jnp.nan)
    return (jax.tree.map(begin, fresh, new), age * ~done, total * ~done), reward, done, ended


@functools.partial(jax.jit, static_argnames=("task", "envs", "steps", "updates", "total", "rate"))
def train(held, *, task, envs, steps, updates, total, rate):
    """So many updates; the returns of the lives that ended: `[updates, steps, envs]`, NaN elsewhere."""

    def rollout(held, key):
        weights, worlds = held
        seen = jax.vmap(task.observe)(worlds[0])
        logs, value = judge(weights, seen, task.activation)
        drawn, anew = jax.random.split(key)
        action = jax.random.categorical(drawn, logs)
        log = jnp.take_along_axis(logs, action[:, None], 1)[:, 0]
        worlds, reward, done, ended = step_all(task, worlds, action, anew)
        return (weights, worlds), (seen, action, log, value, reward, done, ended)

    def update(held, _):
        weights, moments, worlds, number, key = held
        key, acting, shuffling = jax.random.split(key, 3)
        (_, worlds), kept = jax.lax.scan(rollout, (weights, worlds), jax.random.split(acting, steps))
        seen, action, log, value, reward, done, ended = kept
        last = judge(weights, jax.vmap(task.observe)(worlds[0]), task.activation)[1]

        def back(later, now):
            advantage, after = later
            one_reward, one_value, one_done = now
            delta = one_reward + GAMMA * after * ~one_done - one_value
            advantage = delta + GAMMA * LAMBDA * ~one_done * advantage
            return (advantage, one_value), advantage

        _, advantage = jax.lax.scan(back, (jnp.zeros_like(last), last), (reward, value, done), reverse=True, unroll=16)
        batch = (seen, action, log, value, advantage, advantage + value)
        batch = jax.tree.map(lambda each: each.reshape(steps * envs, *each.shape[2:]), batch)
        now_rate = rate * (1 - number / total)

        def minibatch(learnt, part):
            weights, moments = learnt
            gradient = jax.grad(loss_of)(weights, part, task.activation)
            return adam(weights, moments, gradient, now_rate), None

        def epoch(learnt, key):
            order = jax.random.permutation(key, steps * envs)
            parts = jax.tree.map(lambda each: each[order].reshape(BATCHES, -1, *each.shape[1:]), batch)
            return jax.lax.scan(minibatch, learnt, parts)[0], None

        (weights, moments), _ = jax.lax.scan(epoch, (weights, moments), jax.random.split(shuffling, EPOCHS))
        return (weights, moments, worlds, number + 1, key), ended

    return jax.lax.scan(update, held, None, length=updates)


def first(task, envs, seed):
    """Weights, moments, worlds, number of updates, key."""
    key, own, worlds = jax.random.split(jax.random.key(seed), 3)
    weights = network(own, task)
    zeros = jax.tree.map(jnp.zeros_like, weights)
    states = jax.vmap(task.fresh)(jax.random.split(worlds, envs))
    moments = (zeros, jax.tree.map(jnp.zeros_like, weights), jnp.float32(0))
    return weights, moments, (states, jnp.zeros(envs, jnp.int32), jnp.zeros(envs)), jnp.float32(0), key


def speed(name, envs, given):
    """A row as `train_gpu.py` has it."""
    task, steps = TASKS[name], 128
    rate = 5e-3 if name == "breakout" else 2.5e-4
    go = functools.partial(train, task=task, envs=envs, steps=steps, updates=given.updates, total=1e6, rate=rate)
    began = time.perf_counter()
    held, _ = jax.block_until_ready(go(first(task, envs, 0)))
    ready = time.perf_counter() - began
    found = []
    with turn():
        held, _ = jax.block_until_ready(go(held))
        for _ in range(given.rounds):
            began = time.perf_counter()
            held, ended = jax.block_until_ready(go(held))
            found.append((time.perf_counter() - began) / given.updates)
    return {
        "part": f"JAX PPO {name} {envs} x {steps}",
        "path": "jit",
        "steps_per_second": envs * steps / min(found),
        "spread": max(found) / min(found),
        "ready_s": ready,
        "ms_per_update": min(found) * 1e3,
        "late": float(jnp.nanmean(ended)),
    }


def learn(seed, total=500_000, chunk=20, goal=475.0):
    """Steps of CartPole by CleanRL's recipe until 100 lives in a row had a mean of 475; "never" if none had."""
    envs, steps, lives = 4, 128, []
    updates = total // (envs * steps)
    go = functools.partial(
        train, task=TASKS["cartpole"], envs=envs, steps=steps, updates=chunk, total=float(updates), rate=2.5e-4
    )
    held = first(TASKS["cartpole"], envs, seed)
    for number in range(1, updates // chunk + 1):
        held, ended = go(held)
        lives = [*lives, *(one for one in ended.reshape(-1).tolist() if one == one)][-100:]
        if len(lives) == 100 and sum(lives) / 100 >= goal:
            return number * chunk * envs * steps
    return "never"


def measured(given):
    large = 4096 if jax.default_backend() == "gpu" else 256
    if "cartpole" in given.parts:
        yield speed("cartpole", large, given)
    if "few" in given.parts:
        yield speed("cartpole", 64, given)
    if "breakout" in given.parts:
        yield speed("breakout", large, given)


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--parts", nargs="+", default=["cartpole", "few", "breakout"])
    parser.add_argument("--rounds", type=int, default=5)
    parser.add_argument("--updates", type=int, default=50, help="in one call")
    parser.add_argument("--learn", type=int, metavar="SEED", help="only train CartPole until its mean return is 475")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    if given.learn is not None:
        print(learn(given.learn))
        return
    facts = {"card": jax.devices()[0].device_kind, "jax": jax.__version__, "backend": jax.default_backend()}
    print(facts, flush=True)
    rows = []
    for row in measured(given):
        rows.append(row)
        print("  ".join(f"{k}={v:,.4g}" if isinstance(v, float) else f"{v}" for k, v in row.items()), flush=True)
        if given.out:
            given.out.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
