"""SEIR in JAX: the whole run is one jitted `lax.scan`, pressure is a `segment_sum` over edges sorted by target.

Two ways of summing are offered: `segment_sum` (a scatter on the CPU) and prefix sums over the sorted edges, whose
differences at the row borders are the same sums. Compilation happens in `setup` and is not timed.
"""

import functools

import jax
import jax.numpy as jnp
import numpy as np
from _worker import serve

graph = {}


@functools.partial(jax.jit, static_argnames=("steps", "agents", "latent", "infectious", "sums"))
def epidemic(key, source, target, pointer, *, steps, agents, latent, infectious, b, seeds, sums):
    start, key = jax.random.split(key)
    age = jnp.where(jax.random.bernoulli(start, seeds, (agents,)), latent + 1, 0).astype(jnp.int8)

    def step(age, key):
        active = (age > latent) & (age <= latent + infectious)
        if sums == "segment":
            pressure = jax.ops.segment_sum(active[source].astype(jnp.int32), target, agents, indices_are_sorted=True)
        else:
            running = jnp.concatenate([jnp.zeros(1, jnp.int32), jnp.cumsum(active[source].astype(jnp.int32))])
            pressure = running[pointer[1:]] - running[pointer[:-1]]
        prob = -jnp.expm1(jnp.log1p(-b) * pressure)
        caught = (age == 0) & (jax.random.uniform(key, (agents,)) < prob)
        age = jnp.where(age > 0, jnp.minimum(age + 1, latent + infectious + 1), caught).astype(jnp.int8)
        return age, caught.sum()

    return jax.lax.scan(step, age, jax.random.split(key, steps))


def setup(path, agents, steps, sums, bits, threads, **disease):
    edges = np.load(path)
    pointer = np.searchsorted(edges["target"], np.arange(agents + 1)).astype(np.int32)
    arrays = [jnp.asarray(edges["source"]), jnp.asarray(edges["target"]), jnp.asarray(pointer)]
    graph.update(arrays=arrays, bits=bits, settings=dict(agents=agents, sums=sums, steps=steps, **disease))
    jax.block_until_ready(epidemic(jax.random.key(0, impl=bits), *arrays, **graph["settings"]))


def run(steps, seed):
    key = jax.random.key(seed, impl=graph["bits"])
    settings = {**graph["settings"], "steps": steps}
    return (
        lambda: jax.block_until_ready(epidemic(key, *graph["arrays"], **settings)),
        lambda out: {"attack": float((out[0] > 0).mean()), "cases": np.asarray(out[1]).tolist()},
    )


serve(setup, run, {"jax": jax.__version__})
