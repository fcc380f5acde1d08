"""Simulations in run folders, for the commands that use them: resume, show, export, report, compare."""

import contextlib
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen import run
from denizen._atomic import status_now
from denizen._printing import Console, Table, bold, give, say
from denizen.app._folders import resume_command
from denizen.app._interventions import scales
from denizen.app._models import build, fits, found_again, source
from denizen.app._options import settings
from denizen.app._origin import origin_of
from denizen.app._report import plotting, typed, write_at_end
from denizen.app._rescue import safe_in
from denizen.app._run import RunConfig, from_mapping
from denizen.app._settings import Given, blamed, within
from denizen.app._target import Target, known, model, named_again
from denizen.errors import ConfigError, DataError, MissingExtra
from denizen.run import Run, SavedRun
from denizen.run import _manifest as manifest
from denizen.zoo import ModelEntry

if TYPE_CHECKING:
    from denizen.app._cli import Resume, Show
    from denizen.app._export import Export
    from denizen.report import Page
    from denizen.report._simulation import Simulated

PLOT = "plot.png"


def resume(command: "Resume", console: Console) -> None:
    """`denizen resume` of a simulation."""
    saved = run.load(command.run)
    within("--steps", command.steps, 0)
    config, facts = _begun_with(saved)
    found = _model_again(command, saved, config.model)
    with blamed(Given(f"{command.run}/manifest.json: settings")):
        config.check(found.entry)
        values = settings(config.model, found.entry, config.pairs())
    wanted = max(saved.manifest.wanted, config.steps or 0)
    missing = wanted - saved.steps if command.steps is None else command.steps
    if missing <= 0:
        told = f"all its {saved.steps} steps; --steps MORE runs further ones"
        if saved.steps < wanted:  # --steps 0
            told = f"{saved.steps} of its {wanted} steps; without --steps the rest runs"
        say(console, f"{command.run} has {told}")
        tell(saved, command.run, console)
        return
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(config.model, found.entry, found_again(config.contacts(), facts))
        fits(made, facts, str(command.run))
        built = build(config.model, found.entry, made, values)
    say(console, f"{command.run}: going on after step {saved.steps} with {missing} more")
    with safe_in(command.run, saved.steps, command.target):
        results = run.resume(
            command.run,
            built,
            # Where the manifest knows what is wanted, it counts: another process may have gone on meanwhile.
            None if command.steps is None and saved.manifest.wanted == wanted else missing,
            interventions=scales(config.scales(), built.time_unit),
            log=config.log(found.entry),
            device=None if command.device == "auto" else command.device,
            compile=config.compiled(),
            progress=not console.quiet,
        )
    tell(results, command.run, console)


def show(command: "Show", console: Console) -> None:
    """`denizen show` of a simulation."""
    saved = run.load(command.run)
    console.print(_card(saved))
    tell(saved, command.run, console)


def export(command: "Export", console: Console) -> Callable[[str, Path], None]:
    """`denizen export` of a simulation."""
    from denizen.run._event_files import stems
    from denizen.run._table import columns, write_netcdf, write_table

    saved = run.load(command.run)
    logged = stems(list(saved.manifest.setup.log or ()))

    def write(form: str, file: Path) -> None:
        if form == "netcdf":
            write_netcdf(saved.to_xarray(), file)
            return
        rows = {event: file.with_name(f"{file.stem}-{stem}{file.suffix}") for event, stem in logged.items()}
        for beside in rows.values():
            if beside.exists():
                raise ConfigError(f"export: {beside} exists already; remove it, or give another name with --out")
        write_table(columns(saved), file)
        for event, beside in rows.items():
            write_table(saved.events(event).columns, beside)
            say(console, str(beside))

    return write


def report(folders: Sequence[Path]) -> "Page":
    """`denizen report` of simulations."""
    return _page([(folder, run.load(folder)) for folder in folders])


def _page(runs: Sequence[tuple[Path, Run | SavedRun]]) -> "Page":
    """The page of simulations in folders whose series are at hand."""
    from denizen.report import Page
    from denizen.report._simulation import about, simulations

    told = [simulated(folder, results) for folder, results in runs]
    title = " and ".join(dict.fromkeys(results.name for _, results in runs))
    page = Page(title, about(told[0]) if len(told) == 1 else f"{len(told)} runs beside each other")
    simulations(page, told)
    return page


def simulated(folder: Path, results: Run | SavedRun) -> "Simulated":
    """A simulation in a folder, whose series are at hand, as reports take it."""
    from denizen.report._simulation import Simulated

    facts = manifest.read(folder)[0]
    return Simulated(str(folder), results, facts, status_now(folder, facts.status), _command(facts.settings))


def _command(kept: dict[str, Any] | None) -> str:
    """What to type to run the same again; "" for a run that was begun from Python."""
    if not kept or not isinstance(kept.get("config"), dict):
        return ""
    config = from_mapping(kept["config"], "manifest.json: settings")
    given = {"set": config.pairs(), "scale": config.scales()}
    return typed("run", config, {key: [f"{n}={text}" for n, text in of.items()] for key, of in given.items()})


def tell(results: Run | SavedRun, folder: Path, console: Console) -> None:
    """Table, curves and the folder's path."""
    if results.series_names and results.steps:
        console.print(results.summary())
        if isinstance(results, Run) and (stats := results.stats())["path"] != "eager":
            ready = stats["seconds_compile"] + stats["seconds_capture"]
            say(console, f"steps       {stats['path']}, ready in {ready:.1f} s")
        with plotting(console), contextlib.suppress(MissingExtra):  # the page has them, too
            results.plot(folder / PLOT)
            say(console, f"curves      {folder / PLOT}")
        write_at_end(folder, console, lambda: _page([(folder, results)]))
    if console.quiet:
        give(folder)
    else:
        say(console, f"run folder  {folder}")


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


def _model_again(command: "Resume", saved: SavedRun, word: str) -> Target[ModelEntry]:
    """The model of a run: one of the zoo, or that of the file which the command line names again."""
    before = origin_of(saved.manifest.settings, command.run)
    named_again(before, command.run, command.target, "resume")
    if before is None:
        if command.target:
            raise ConfigError(f"{command.run} was begun with {word} of the zoo; leave {command.target} out")
        return Target(word, known(word, ModelEntry))
    found = model(command.target)
    before.unchanged(found.origin, command.run, f"denizen.run.resume({str(command.run)!r}, model)")
    return found


def _card(saved: SavedRun) -> Any:
    facts, setup = saved.manifest, saved.manifest.setup
    kept = facts.settings or {}
    card = Table.grid(padding=(0, 2))
    rows = {
        "model": facts.model["class"] + (f", {facts.model['agents']:,} agents" if facts.model["agents"] else ""),
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
