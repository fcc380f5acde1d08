"""Models and worlds as functions that build a step, which `doctor`, `bench` and `profile` look at."""

from collections.abc import Callable
from typing import Any

from denizen.zoo import ModelEntry, WorldEntry

Make = Callable[..., Callable[[], Any]]
REACH = 1.0  # actions of a space without bounds lie within ± that


def of_model(word: str, entry: ModelEntry) -> Make:
    """One step of a run; a batch is a number of replicates.

    Args:
        word: what names the model.
        entry: how it is built; its contacts are those that `denizen run` takes by default.
    """

    def make(batch_size: int = 1, device: Any = None) -> Callable[[], Any]:
        from denizen import simulate
        from denizen.app._models import Contacts, build, source

        made = build(word, entry, source(word, entry, Contacts(entry.population)), {})
        run = simulate(made, 0, replicates=batch_size, device=device, compile=False)
        run_state = run._run_state

        def step() -> None:  # without the looks at the device between chunks, which are denizen's and not the model's
            nonlocal run_state
            run_state, _ = run._stepper.advance(run_state, {})

        return step

    return make


def of_world(word: str, entry: WorldEntry) -> Make:
    """One step of worlds under random actions; a batch is a number of worlds."""

    def make(batch_size: int = 64, device: Any = None) -> Callable[[], Any]:
        import torch

        from denizen import _tree
        from denizen._spaces import drawn
        from denizen.app._build import make_world
        from denizen.rl import Worlds

        worlds = Worlds(make_world(word, entry, {}), batch_size, device=device)
        worlds.reset()
        actors = worlds.env.num_actors
        lead = (batch_size, *(() if actors is None else (actors,)))
        action = drawn(worlds.env.action_space, lead, REACH, torch.Generator().manual_seed(0))
        action = _tree.map_tensors(lambda part: part.to(worlds.device), action)
        return lambda: worlds.step(action)

    return make
