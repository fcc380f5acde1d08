"""What the commands do."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from denizen import run
from denizen._printing import Console, Table, bold, give, say
from denizen.app import _trained
from denizen.app._blame import Given, blamed, of_file
from denizen.app._cli import Resume, Show, resume_command
from denizen.app._config import RunConfig, from_mapping
from denizen.app._folders import run_folder
from denizen.app._models import MODELS, entry, notes, settings, shown
from denizen.app._source import Source, fits, found_again, source
from denizen.errors import ConfigError, DataError, DenizenError, StorageError
from denizen.run import Run, SavedRun
from denizen.run._device import choose_device, device_failed
from denizen.run._folder import check_free

PLOT = "plot.png"


class Interrupted(KeyboardInterrupt):
    """A run was interrupted and is safe in its folder."""

    def __init__(self, folder: Path, steps: int) -> None:
        self.folder, self.steps = folder, steps


def run_model(config: RunConfig, console: Console) -> None:
    """`denizen run`."""
    with blamed(of_file(config, config.file)):
        _run_model(config, console)


def _run_model(config: RunConfig, console: Console) -> None:
    config.check()
    chosen, pairs = entry(config.model), settings(config.model, config.pairs())
    config = _complete(config)
    if config.out is not None:
        check_free(Path(config.out))
    device = None if config.device == "auto" else config.device
    choose_device(device, "denizen run")  # one that is not there is refused before anything is read
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(config)
        model = chosen.build(made.contacts, **made.arguments, **pairs)
        started = run.simulate(
            model,
            0,
            replicates=config.replicates,
            seed=config.seed,
            device=device,
            snapshots=config.snapshots(),
            compile=True if config.compile else False if config.no_compile else None,
        )
    config = dataclasses.replace(config, device="cuda" if started.device.type == "cuda" else "cpu")
    with run_folder(config.out, config.model) as out:
        started.save(out, settings={"config": config.to_json(), "source": made.facts})
    steps = config.steps or 0
    _introduce(config, made, started, steps, console)
    _go(started, steps, console)
    _report(started, out, console)


def resume(command: Resume, console: Console) -> None:
    """`denizen resume`."""
    from denizen.rl._training_folder import unsaved

    dotgat = _trained.is_dotgat(command.run)
    if dotgat or _trained.is_training(command.run) or unsaved(command.run):
        if command.steps is not None:
            raise ConfigError("--steps: a training has its number of steps, which its schedules go by; leave it out")
        if dotgat:
            from denizen.app import _train_dotgat

            return _train_dotgat.resume(command.run, command.device, command.quiet, console)
        return _trained.resume(command.run, command.device, command.quiet, console)
    saved = run.load(command.run)
    if command.steps is not None and command.steps < 0:
        raise ConfigError(f"--steps {command.steps}: expected a whole number, at least 0")
    config, facts = _begun_with(saved)
    with blamed(Given(f"{command.run}/manifest.json: settings")):
        config.check()
        pairs = settings(config.model, config.pairs())
    config = found_again(config, facts)
    wanted = max(saved.manifest.wanted, config.steps or 0)
    missing = wanted - saved.steps if command.steps is None else command.steps
    if missing <= 0:
        told = f"all its {saved.steps} steps; --steps MORE runs further ones"
        if saved.steps < wanted:  # --steps 0
            told = f"{saved.steps} of its {wanted} steps; without --steps the rest runs"
        say(console, f"{command.run} has {told}")
        _report(saved, command.run, console)
        return
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(config)
        fits(made, facts, str(command.run))
        model = entry(config.model).build(made.contacts, **made.arguments, **pairs)
        resumed = run.resume(
            command.run,
            model,
            0,
            device=None if command.device == "auto" else command.device,
            compile=True if config.compile else False if config.no_compile else None,
        )
    if command.steps is None:
        missing = wanted - resumed.steps  # another process may have gone on while the model was built
    say(console, f"{command.run}: going on after step {resumed.steps} with {missing} more")
    _go(resumed, missing, console)
    _report(resumed, command.run, console)


def show(command: Show, console: Console) -> None:
    """`denizen show`."""
    if _trained.is_dotgat(command.run):
        from denizen.app import _train_dotgat

        return _train_dotgat.show(command.run, console)
    if _trained.is_training(command.run):
        return _trained.show(command.run, console)
    saved = run.load(command.run)
    console.print(_card(saved))
    _report(saved, command.run, console)


def models(console: Console) -> None:
    """`denizen models`."""
    for name, model in MODELS.items():
        where = model.population or "a random graph"
        title = Text.assemble((name, "bold"), f": {model.about}. {model.steps} days on {where} by default")
        table = Table(title=title, title_justify="left", title_style="", header_style="bold", expand=False)
        for head in ("--set", "default", "bounds", "unit", "about"):
            table.add_column(head, no_wrap=head == "--set", overflow="fold")
        for key, spec in model.parameters.items():
            table.add_row(key, shown(model, key), spec.bounds(), spec.unit, spec.about)
        for key in model.options:
            table.add_row(key, shown(model, key), "", "", model.about_option(key))
        console.print(table, "")


# --- parts ------------------------------------------------------------------------------------------------------------


def _complete(config: RunConfig) -> RunConfig:
    """With the defaults that depend on the model."""
    chosen = entry(config.model)
    return dataclasses.replace(
        config,
        population=config.place() or chosen.population,
        steps=chosen.steps if config.steps is None else config.steps,
    )


def _go(current: Run, steps: int, console: Console) -> None:
    """Run the steps; whatever ends them, nothing that was computed is lost without a word."""
    assert current.folder is not None
    begun = current.steps
    try:
        current.extend(steps, progress=not console.quiet)
    except KeyboardInterrupt:
        raise Interrupted(current.folder, current.steps) from None
    except StorageError as error:
        what = (
            str(error).partition(" Nothing is lost in memory")[0].partition("; run.save(")[0]
        )  # the rest is for Python
        saved = current.steps == begun  # as where another process writes to the folder: there is nothing new to save
        raise StorageError(what if saved else f"{what}\n{_rescue(current)}") from error
    except DenizenError as error:
        error.add_note(f"{current.folder} holds the {current.steps} steps before it")
        raise
    except RuntimeError as error:
        if not device_failed(error):
            raise
        first = str(error).partition("\n")[0]
        raise DenizenError(
            f"the device failed: {first}\n{run.load(current.folder).steps} steps are safe, go on with: "
            f"{resume_command(current.folder)}"
        ) from error


def _rescue(current: Run) -> str:
    """Save elsewhere what the full or vanished disk did not take; says where, or that it could not."""
    for place in (tempfile.gettempdir(), str(Path.home())):
        with contextlib.suppress(DenizenError, OSError):
            folder = Path(tempfile.mkdtemp(prefix="denizen-rescued-", dir=place))
            current.save(folder)
            return f"All {current.steps} steps were saved to {folder} instead; go on with: {resume_command(folder)}"
    return "No other place could be written either."


def _begun_with(saved: SavedRun) -> tuple[RunConfig, dict[str, Any]]:
    kept = saved.manifest.settings
    if kept is None:
        raise ConfigError(
            f"{saved.path} was begun from Python, so its model is not known here; go on in Python with "
            f"denizen.run.resume({str(saved.path)!r}, model)"
        )
    where = f"{saved.path}/manifest.json: settings"
    if not isinstance(kept.get("config"), dict) or not isinstance(kept.get("source"), dict):
        raise DataError(f"{where} has no config and source")
    return from_mapping(kept["config"], where), kept["source"]


def _introduce(config: RunConfig, made: Source, started: Run, steps: int, console: Console) -> None:
    stats = started.stats()
    name = f"{type(started.model).__name__} on {made.name}"
    say(console, (name, "bold"), f": {stats['agents']:,} agents, {made.edges:,} contacts")
    where = f"{stats['device']} ({stats['device_reason']}; ops: {stats['ops']})"
    say(console, f"{steps} {started.time_unit}s × {config.replicates} replicates, seed {config.seed}, on {where}")
    for note in (*made.notes, *notes(config.model, started.model, steps)):
        console.print(f"  note: {note}")


def _report(results: Run | SavedRun, folder: Path, console: Console) -> None:
    """Table, curves and the folder's path."""
    if results.series_names and results.steps:
        console.print(results.summary())
        with _plotting(console):
            results.plot(folder / PLOT)
            say(console, f"curves      {folder / PLOT}")
    if console.quiet:
        give(folder)
    else:
        say(console, f"run folder  {folder}")


@contextlib.contextmanager
def _plotting(console: Console) -> Iterator[None]:
    """A plot that cannot be drawn or written is a line, not a failure: the run is safe by then."""
    try:
        yield
    except (ImportError, StorageError) as error:
        say(console, f"no curves: {error}")


def _card(saved: SavedRun) -> Any:
    facts, setup = saved.manifest, saved.manifest.setup
    kept = facts.settings or {}
    card = Table.grid(padding=(0, 2))
    rows = {
        "model": f"{facts.model['class']}, {facts.model['agents']:,} agents",
        "population": str(kept.get("source", {}).get("name", "")) if isinstance(kept.get("source"), dict) else "",
        "status": f"{saved.status}, {facts.steps} of {facts.wanted} steps"
        + (f": {facts.error}" if facts.error else ""),
        "replicates": f"{len(setup.worlds)}, seed {setup.seed}",
        "device": setup.device,
        "snapshots": f"{len(facts.snapshots.steps)}, every {facts.snapshots.every} steps" if facts.snapshots else "",
        "written": f"{facts.created} to {facts.updated}",
        "versions": ", ".join(f"{name} {version}" for name, version in facts.versions.items()),
        "commit": facts.commit or "",
    }
    for name, text in rows.items():
        if text:
            card.add_row(bold(name), text)
    if saved.status in ("killed", "interrupted", "failed"):
        card.add_row(bold("go on"), resume_command(saved.path))
    return card
