"""What the commands do."""

import contextlib
import dataclasses
import tempfile
from collections.abc import Iterator
from pathlib import Path
from typing import Any

from rich.text import Text

from denizen import ops, run
from denizen._printing import Console, Table, bold, give, say
from denizen.app._blame import Given, blamed, of_file
from denizen.app._cli import Models, Resume, Show, resume_command
from denizen.app._config import RunConfig, from_mapping
from denizen.app._failures import raise_theirs
from denizen.app._folders import run_folder
from denizen.app._models import (
    Source,
    about_option,
    build,
    fits,
    found_again,
    options,
    parameters,
    settings,
    shown,
    source,
)
from denizen.app._origin import origin_of
from denizen.app._target import Target, known, model, named_again
from denizen.errors import ConfigError, DataError, DenizenError, StorageError
from denizen.model import Model
from denizen.run import Run, SavedRun
from denizen.run._device import choose_device, device_failed
from denizen.run._folder import check_free
from denizen.zoo import ModelEntry, entries

PLOT, MANIFEST = "plot.png", "manifest.json"


class Interrupted(KeyboardInterrupt):
    """A run was interrupted and is safe in its folder."""

    def __init__(self, folder: Path, steps: int, target: str) -> None:
        self.folder, self.steps, self.target = folder, steps, target


def run_model(config: RunConfig, console: Console) -> None:
    """`denizen run`."""
    with blamed(of_file(config, config.file)):
        _run_model(config, console)


def _run_model(config: RunConfig, console: Console) -> None:
    word = config.model
    found = model(word)
    config.check(found.entry)
    pairs = settings(word, found.entry, config.pairs())
    config = _complete(config, found)
    if config.out is not None:
        check_free(Path(config.out))
    device, reason = choose_device(None if config.device == "auto" else config.device, "denizen run")
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(word, found.entry, config.contacts())
        built = build(word, found.entry, made, pairs)
    config = dataclasses.replace(config, device="cuda" if device.type == "cuda" else "cpu")
    kept = {"config": config.to_json(), "source": made.facts, **(found.origin.settings() if found.origin else {})}
    where = f"{device} ({reason}; ops: {ops.variant(device)})"
    go_on = config.model if found.origin else ""
    with run_folder(config.out, _stem(config.model)) as out, _made(out), _safe_in(out, 0, go_on):
        _introduce(config, made, built, where, console)
        for note in (*made.notes, *(found.entry.notes(built, config.steps or 0) if found.entry.notes else ())):
            console.print(f"  note: {note}")
        results = run.simulate(
            built,
            config.steps or 0,
            replicates=config.replicates,
            seed=config.seed,
            device=device,
            snapshots=config.snapshots(),
            compile=_compile(config),
            progress=not console.quiet,
            out=out,
            settings=kept,
        )
    _report(results, out, console)


def resume(command: Resume, console: Console) -> None:
    """`denizen resume` of a simulation."""
    saved = run.load(command.run)
    if command.steps is not None and command.steps < 0:
        raise ConfigError(f"--steps {command.steps}: expected a whole number, at least 0")
    config, facts = _begun_with(saved)
    found = _found_again(command, saved, config.model)
    with blamed(Given(f"{command.run}/manifest.json: settings")):
        config.check(found.entry)
        pairs = settings(config.model, found.entry, config.pairs())
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
        made = source(config.model, found.entry, found_again(config.contacts(), facts))
        fits(made, facts, str(command.run))
        built = build(config.model, found.entry, made, pairs)
    say(console, f"{command.run}: going on after step {saved.steps} with {missing} more")
    with _safe_in(command.run, saved.steps, command.target):
        results = run.resume(
            command.run,
            built,
            # Where the manifest knows what is wanted, it counts: another process may have gone on meanwhile.
            None if command.steps is None and saved.manifest.wanted == wanted else missing,
            device=None if command.device == "auto" else command.device,
            compile=_compile(config),
            progress=not console.quiet,
        )
    _report(results, command.run, console)


def show(command: Show, console: Console) -> None:
    """`denizen show` of a simulation."""
    saved = run.load(command.run)
    console.print(_card(saved))
    _report(saved, command.run, console)


def models(command: Models, console: Console) -> None:
    """`denizen models`."""
    if command.target:
        console.print(_table(command.target, model(command.target).entry), "")
        return
    for name, entry in entries(ModelEntry).items():
        console.print(_table(name, entry), "")


def _table(name: str, entry: ModelEntry) -> Any:
    where = entry.population or "a random graph"
    title = Text.assemble((name, "bold"), f": {entry.about}. {entry.steps} days on {where} by default")
    table = Table(title=title, title_justify="left", title_style="", header_style="bold", expand=False)
    for head in ("--set", "default", "bounds", "unit", "about"):
        table.add_column(head, no_wrap=head == "--set", overflow="fold")
    for key, spec in parameters(entry).items():
        table.add_row(key, shown(entry, key), spec.bounds(), spec.unit, spec.about)
    for key in options(entry):
        table.add_row(key, shown(entry, key), "", "", about_option(entry, key))
    return table


# --- parts ------------------------------------------------------------------------------------------------------------


def _complete(config: RunConfig, found: Target[ModelEntry]) -> RunConfig:
    """With the defaults that depend on the model."""
    return dataclasses.replace(
        config,
        model=found.word,
        population=config.place() or found.entry.population,
        steps=found.entry.steps if config.steps is None else config.steps,
    )


def _compile(config: RunConfig) -> bool | None:
    return True if config.compile else False if config.no_compile else None


def _stem(word: str) -> str:
    """What a new run folder is called by: the model's own name where it is one of a file."""
    return word.rpartition(":")[2].replace(".", "-") or "run"


def _found_again(command: Resume, saved: SavedRun, word: str) -> Target[ModelEntry]:
    """The model of a run: one of the zoo, or that of the file which the command line names again."""
    before = origin_of(saved.manifest.settings, command.run)
    named_again(before, command.run, command.target, "resume")
    if before is None:
        if command.target:
            raise ConfigError(f"{command.run} was begun with {word}, which is no file; leave {command.target} out")
        return Target(word, known(word, ModelEntry))
    found = model(command.target)
    before.unchanged(found.origin, command.run, f"denizen.run.resume({str(command.run)!r}, model)")
    return found


@contextlib.contextmanager
def _made(folder: Path) -> Iterator[None]:
    """A run folder, made before anything is said of the run; removed where nothing was written to it.

    Raises:
        StorageError: it cannot be made.
    """
    try:
        folder.mkdir(parents=True, exist_ok=True)
    except OSError as error:
        raise StorageError(f"run folder {folder} cannot be written: {error.strerror or error}") from error
    try:
        yield
    finally:
        with contextlib.suppress(OSError):
            folder.rmdir()  # fails where it holds something


@contextlib.contextmanager
def _safe_in(folder: Path, begun: int, target: str) -> Iterator[None]:
    """Around steps: whatever ends them, nothing that was computed is lost without a word.

    Args:
        folder: of the run.
        begun: steps that it has already.
        target: what to name beside the folder to go on; "" where nothing is needed.
    """
    try:
        yield
    except KeyboardInterrupt:
        if not (folder / MANIFEST).exists():
            raise
        raise Interrupted(folder, run.load(folder).steps, target) from None
    except StorageError as error:
        current = error.run
        if current is None:
            raise
        what = (
            str(error).partition(" Nothing is lost in memory")[0].partition("; run.save(")[0]
        )  # the rest is for Python
        saved = current.steps == begun  # as where another process writes to the folder: there is nothing new to save
        raise StorageError(what if saved else f"{what}\n{_rescue(current, target)}") from error
    except DenizenError as error:
        if (folder / MANIFEST).exists():
            error.add_note(f"{folder} holds the {run.load(folder).steps} steps before it")
        raise
    except Exception as error:
        if not device_failed(error):
            raise_theirs(error)
            raise
        told = f"the device failed: {str(error).partition(chr(10))[0]}"
        if (folder / MANIFEST).exists():
            told += f"\n{run.load(folder).steps} steps are safe, go on with: {resume_command(folder, target)}"
        raise DenizenError(told) from error


def _rescue(current: Run, target: str) -> str:
    """Save elsewhere what the full or vanished disk did not take; says where, or that it could not."""
    for place in (tempfile.gettempdir(), str(Path.home())):
        with contextlib.suppress(DenizenError, OSError):
            folder = Path(tempfile.mkdtemp(prefix="denizen-rescued-", dir=place))
            current.save(folder)
            return (
                f"All {current.steps} steps were saved to {folder} instead; go on with: "
                f"{resume_command(folder, target)}"
            )
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


def _introduce(config: RunConfig, made: Source, built: Model, where: str, console: Console) -> None:
    name = type(built).__name__
    if made.contacts is None:
        say(console, (name, "bold"), f": {built.num_agents:,} agents")
    else:
        say(console, (f"{name} on {made.name}", "bold"), f": {built.num_agents:,} agents, {made.edges:,} contacts")
    say(console, f"{config.steps} {built.time_unit}s × {config.replicates} replicates, seed {config.seed}, on {where}")


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
        origin = origin_of(facts.settings, saved.path)
        target = f"{origin.file}:{origin.name}" if origin else ""
        card.add_row(bold("go on"), resume_command(saved.path, target))
    return card
