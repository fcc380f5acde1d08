"""A run of a model from the command line: built, introduced, simulated, told."""

import dataclasses
import math
from pathlib import Path

import torch

from denizen import ops
from denizen._printing import Console, say
from denizen.app._folders import run_folder, stem
from denizen.app._interventions import scales
from denizen.app._models import Source, build, source
from denizen.app._options import settings
from denizen.app._rescue import made_folder, safe_in
from denizen.app._run import RunConfig
from denizen.app._simulated import tell
from denizen.app._target import model
from denizen.model import Model
from denizen.population import Population
from denizen.run import Snapshots, choose_device, simulate
from denizen.run._folder import check_free
from denizen.space import Grid

PLACES = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))  # columns of a population that say where people are


def run(config: RunConfig, console: Console) -> None:
    """What `denizen run` does."""
    word = config.model
    found = model(word)
    config.check(found.entry)
    values = settings(word, found.entry, config.pairs())
    config = config.completed(found)
    if config.out is not None:
        check_free(Path(config.out))
    device, reason = choose_device(None if config.device == "auto" else config.device, "denizen run")
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(word, found.entry, config.contacts())
        built = build(word, found.entry, made, values)
    config = dataclasses.replace(config, device="cuda" if device.type == "cuda" else "cpu")
    kept = {"config": config.to_json(), "source": made.facts, **(found.origin.settings() if found.origin else {})}
    where = f"{device} ({reason}; ops: {ops.variant(device)})"
    go_on = config.model if found.origin else ""
    with run_folder(config.out, stem(config.model)) as out, made_folder(out), safe_in(out, 0, go_on):
        introduce(config, made, built, where, console)
        time = math.ceil((config.steps or 0) * config.dt - 1e-9)
        for note in (*made.notes, *(found.entry.notes(built, time) if found.entry.notes else ())):
            console.print(f"  note: {note}")
        results = simulate(
            built,
            config.steps or 0,
            replicates=config.replicates,
            seed=config.seed,
            dt=config.dt,
            start=config.start,
            interventions=scales(config.scales(), built.time_unit),
            device=device,
            snapshots=_placed(config.snapshots(), made),
            log=config.log(found.entry),
            compile=config.compiled(),
            progress=not console.quiet,
            out=out,
            settings=kept,
        )
    tell(results, out, console)


def _placed(snapshots: Snapshots | None, made: Source) -> Snapshots | None:
    """Snapshots with the places of the population's people, where it has columns of them."""
    columns = made.contacts.columns if isinstance(made.contacts, Population) else {}
    for names in PLACES:
        if snapshots is not None and all(name in columns for name in names):
            x, y = (torch.from_numpy(columns[name].astype("float32")) for name in names)
            return dataclasses.replace(snapshots, places=(x, y))
    return snapshots


def introduce(config: RunConfig, made: Source, built: Model, where: str, console: Console) -> None:
    """Say what is going to run."""
    name = type(built).__name__
    sizes = [f"{built.num_agents:,} agents"] if built.num_agents else []
    held = (getattr(built, field) for field in built.field_names)
    sizes += [f"{grid.num_cells:,} cells" for grid in held if isinstance(grid, Grid)]
    if made.contacts is not None:
        name, sizes = f"{name} on {made.name}", [*sizes, f"{made.edges:,} contacts"]
    say(console, (name, "bold"), f": {', '.join(sizes)}" if sizes else "")
    time = f"{(config.steps or 0) * config.dt:.10g} {built.time_unit}s"
    time += "" if config.dt == 1 else f" in steps of {config.dt:g}"
    time += f" from {config.start}" if config.start else ""
    say(console, f"{time} × {config.replicates} replicates, seed {config.seed}, on {where}")
