"""Schelling with denizen's zoo model: one world, or several at once, of which a world's share of the time is taken."""

import torch
from _worker import serve

import denizen as dz
from denizen.zoo.schelling import schelling

held = {}


def setup(worlds, compiled, **options):
    """Build the model, and run it once: kernels come from numba's cache or are compiled now."""
    torch.set_num_threads(1)
    held.update(model=schelling(**options), worlds=worlds, compiled=compiled)
    dz.simulate(held["model"], 2, replicates=worlds, compile=False)


def run(first, steps, seed):
    """A run whose first steps, with which it is compiled, lie before the clock starts."""
    begun = dz.simulate(held["model"], first, seed=seed, replicates=held["worlds"], compile=held["compiled"])

    def finish(run):
        alike, unhappy = run["segregation"].double(), run["unhappy"].double()
        return {"unhappy": unhappy.mean(0).tolist(), "segregation": float(alike[:, -1].mean())}

    return lambda: begun.extend(steps), finish


if __name__ == "__main__":
    serve(setup, run, {"denizen": dz.__version__, "torch": torch.__version__})
