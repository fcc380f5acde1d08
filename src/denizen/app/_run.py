"""`denizen run`: its flags and `--config` file, the run itself, and what other commands do with its folder."""

import contextlib
import dataclasses
import datetime
import math
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import torch
from tyro.conf import Fixed, FlagCreatePairsOff, Positional, Suppress, UseAppendAction, arg

from denizen import ops, run
from denizen._atomic import status_now
from denizen._printing import Console, Table, bold, give, say
from denizen._run_folder import check_free
from denizen.app import _observed
from denizen.app._exit import DONE
from denizen.app._folders import made_folder, resume_command, run_folder, safe_in, stem
from denizen.app._models import Contacts, Source, build, fits, found_again, source
from denizen.app._report import plotting, typed, write_at_end
from denizen.app._settings import (
    Given,
    blamed,
    fields_of,
    of_file,
    options,
    pairs,
    parameters,
    read_toml,
    scales,
    settings,
    whole,
    within,
)
from denizen.app._target import Target, known, model, named_again, origin_of
from denizen.errors import ConfigError, DataError, MissingExtra
from denizen.model import Model
from denizen.population import Population
from denizen.run import EventLog, Run, SavedRun, Snapshots, choose_device, read_manifest, simulate
from denizen.space import Grid
from denizen.zoo import ModelEntry, entries

if TYPE_CHECKING:
    from denizen.app._cli import Resume, Show
    from denizen.app._export import Export
    from denizen.report import Page
    from denizen.report._simulation import Simulated


MAX_WHOLE = 2**32 - 1
DTYPES = ("int8", "uint8", "int16", "int32", "float16", "bfloat16", "float32")
NOT_KEPT = ("config", "out", "quiet", "file")  # by a manifest
Set = tuple[tuple[str, ...], ...]


def hint(text: str) -> Any:
    """A flag that takes a number, with what help says of its default."""
    return arg(metavar="N", help_behavior_hint=f"(default: {text})")


@dataclasses.dataclass(frozen=True)
class RunConfig:
    """What `denizen run` does; the fields are its flags, the keys of a `--config` file, and part of a manifest."""

    about: ClassVar[str] = """Run a model. It shows progress, a table and curves, and keeps everything in a run folder.

examples:
  denizen run covid
  denizen run covid --population synthetic:astoria:200000 --steps 60 --replicates 4
  denizen run covid --population my/folder --network 0 --symmetrize --set mortality=0.02
  denizen run covid --set R=3.5,4.2,5.6 --set reference=true --steps 21
  denizen run seir --agents 100000 --mean-degree 12 --set infect_rate=0.03 latent_days=4
  denizen run sir --events caught
  denizen run sir --scale infect_rate=0.5@20:40
  denizen run city.py:Epidemic --agents 5000 --set infect_rate=0.1
  denizen run --config city.toml --seed 7
  denizen run plan.py:Plan

Campaigns, courses, triggers and whatever else --scale cannot say stand in a file: plan.py holds
  class Plan(SIR):
      interventions = (Course(target="infect_rate", values=[0.05, 0.01], days=[0, 30]),)

A --config file has the names of the flags as keys, and parameters under [set]:
  model = "covid"
  replicates = 64
  [set]
  R = [3.5, 4.2, 5.6]"""

    model: Annotated[Positional[str], arg(metavar="MODEL", help_behavior_hint="")] = ""
    """A name of `denizen models`, or FILE.py:NAME: a class, an object, or a function that returns a model."""
    population: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="(default: the model's, or none)")] = None
    """The population: a folder, a table, a .npz file, or synthetic:astoria[:SIZE]."""
    network: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: 0, or the only one)")] = None
    """The contact network of the population, or several that act together: family,work."""
    symmetrize: FlagCreatePairsOff[bool] = False
    """Add the reverse of every contact, for a population that lists each contact once."""
    agents: Annotated[int | None, hint("10000 without a population")] = None
    """Number of agents in a random graph, where no population is given."""
    mean_degree: Annotated[float | None, arg(metavar="C", help_behavior_hint="(default: 10)")] = None
    """Mean number of contacts of an agent in the random graph."""
    steps: Annotated[int | None, hint("the model's, or 100")] = None
    """Number of steps. A step of covid, sir and seir is one day, or --dt of one."""
    dt: Annotated[float, arg(metavar="TIME")] = 1.0
    """Length of a step in the model's unit of time."""
    start: Annotated[str | None, arg(metavar="YYYY-MM-DD", help_behavior_hint="(default: none)")] = None
    """Date of the first step. Tables and curves show dates then."""
    replicates: Annotated[int, arg(metavar="N")] = 16
    """Number of independent runs. They differ in their random numbers."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the random numbers, 0 to 4294967295. The same seed gives the same numbers."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on. auto takes DENIZEN_DEVICE where it is set, else a CUDA device that works, else the CPU."""
    set: Annotated[UseAppendAction[Set], arg(metavar="NAME=VALUE", help_behavior_hint="(repeatable)")] = ()
    """Parameters and options of the model, for example R=3.5,4.2,5.6 reference=true."""
    scale: Annotated[
        UseAppendAction[Set], arg(metavar="NAME=FACTOR@FROM:UNTIL", help_behavior_hint="(repeatable)")
    ] = ()
    """Multiply a parameter, or a layer such as contacts.school, from a day or date until before another."""
    config: Annotated[Path | None, arg(metavar="FILE.toml", help_behavior_hint="")] = None
    """File with settings. Flags override it."""
    out: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/MODEL-DATE-TIME)")] = None
    """Run folder to write. It must be new or empty."""
    events: Annotated[str | None, arg(metavar="NAME,…", help_behavior_hint="(default: none)")] = None
    """Events that are kept as rows, one for each agent: caught of sir and seir, with who infected whom."""
    snapshots_every: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: none)")] = None
    """Keep the state of all agents every N steps."""
    snapshot_fields: Annotated[
        str | None, arg(metavar="NAME[:DTYPE],…", help_behavior_hint="(default: all fields as they are)")
    ] = None
    """Fields that snapshots keep. A field may get a narrower dtype, for example stage,wealth:float16."""
    compile: FlagCreatePairsOff[bool] = False
    """Compile the step at once. By default a step is compiled where the run is long enough to gain by it."""
    no_compile: FlagCreatePairsOff[bool] = False
    """Never compile the step."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the run folder."""
    file: Annotated[Any, Fixed, Suppress] = None
    """What the `--config` file alone means; no flag."""

    def __call__(self, console: Console) -> int:
        """Run, and tell what came out."""
        with blamed(of_file(self, self.file)):
            _run(self, console)
        return DONE

    def place(self) -> str | None:
        """The population, its size written out: `synthetic:astoria:1e3` is `synthetic:astoria:1000`."""
        stem, _, size = (self.population or "").rpartition(":")
        if not stem.startswith("synthetic:"):
            return self.population
        with contextlib.suppress(ValueError):
            return f"{stem}:{whole(size)}"
        return self.population

    def pairs(self) -> dict[str, str]:
        """What is set, by name; flags come after the `--config` file and win over it.

        Raises:
            ConfigError: something that is not NAME=VALUE.
        """
        found: dict[str, str] = {}
        for group in self.set:
            found |= pairs([group], "--set")
        return found

    def scales(self) -> dict[str, str]:
        """Factors by name of a parameter or a layer; flags win over the `--config` file, as with `pairs`."""
        found: dict[str, str] = {}
        for group in self.scale:
            found |= pairs([group], "--scale")
        return found

    def snapshots(self) -> Snapshots | None:
        """What snapshots are asked for.

        Raises:
            ConfigError: a field that is named twice, or something that is no dtype.
        """
        if self.snapshots_every is None:
            return None
        fields: dict[str, Any] = {}
        for text in (self.snapshot_fields or "").split(",") if self.snapshot_fields is not None else ():
            name, colon, dtype = (part.strip() for part in text.partition(":"))
            if not name or name in fields or (colon and dtype not in DTYPES):
                raise ConfigError(
                    f"--snapshot-fields {self.snapshot_fields}: expected different NAMEs or NAME:DTYPEs with commas "
                    f"between, DTYPE one of {', '.join(DTYPES)}; got {text.strip()!r}"
                )
            fields[name] = getattr(torch, dtype) if colon else None
        return Snapshots(self.snapshots_every, fields or None)

    def log(self, chosen: ModelEntry) -> EventLog | None:
        """What is logged, with what the model's entry finds out of it.

        Raises:
            ConfigError: something that is no list of different names.
        """
        if self.events is None:
            return None
        names = [name.strip() for name in self.events.split(",")]
        if not all(names) or len(set(names)) < len(names):
            raise ConfigError(f"--events {self.events}: expected different names with commas between, such as caught")
        return EventLog({name: chosen.events.get(name) for name in names})

    def contacts(self) -> Contacts:
        """What it says of contacts."""
        place, network, agents = self.place(), self.network, self.agents
        return Contacts(place, network, self.symmetrize, agents, self.mean_degree, self.seed)

    def check(self, chosen: ModelEntry) -> None:
        """Raise `ConfigError` where a value cannot be meant for a model; the message names the flag."""
        for name, low in (("steps", 0), ("replicates", 1), ("seed", 0), ("agents", 1), ("snapshots_every", 1)):
            within(flag(name), getattr(self, name), low, MAX_WHOLE)
        if not 0 < self.dt < math.inf:
            raise ConfigError(f"--dt {self.dt:g}: expected a number above 0")
        if self.start is not None:
            _observed.day(self.start, "--start", timed=False)
        for name in ("population", "network", "out"):  # such as "$CITY" of a shell that knows no CITY
            if getattr(self, name) == "":
                raise ConfigError(f"{flag(name)} is empty; leave it out, or give a value")
        if self.snapshot_fields is not None and self.snapshots_every is None:
            raise ConfigError("--snapshot-fields chooses what snapshots keep; give --snapshots-every N too")
        self.snapshots()
        self.log(chosen)
        scales(self.scales(), chosen.model.time_unit)
        if self.compile and self.no_compile:
            raise ConfigError("--compile and --no-compile: give one of the two")
        graph = [flag(name) for name in ("agents", "mean_degree") if getattr(self, name) is not None]
        if graph and chosen.population is not None:
            raise ConfigError(
                f"{graph[0]}: {self.model} needs a population, not a random graph; for example "
                f"--population synthetic:astoria:{self.agents or 1000}"
            )
        if graph and self.population is not None:
            raise ConfigError(f"{graph[0]} makes a random graph, --population reads one: give one of the two")
        if self.population is None and chosen.population is None and (self.network is not None or self.symmetrize):
            raise ConfigError(
                "--network and --symmetrize choose among the networks of a population; give --population too"
            )

    def completed(self, found: Target[ModelEntry]) -> "RunConfig":
        """With the defaults that depend on the model."""
        return dataclasses.replace(
            self,
            model=found.word,
            population=self.place() or found.entry.population,
            steps=math.ceil(found.entry.steps / self.dt - 1e-9) if self.steps is None else self.steps,
        )

    def compiled(self) -> bool | None:
        """Whether steps are compiled; None: as `simulate` sees fit."""
        return True if self.compile else False if self.no_compile else None

    def to_json(self) -> dict[str, Any]:
        """What a manifest keeps; `from_mapping` reads it."""
        kept = {f.name: getattr(self, f.name) for f in dataclasses.fields(self) if f.name not in NOT_KEPT}
        return {**kept, "set": self.pairs(), "scale": self.scales()}


def from_file(path: Path) -> RunConfig:
    """The configuration of a TOML file over the defaults.

    Raises:
        ConfigError: the file cannot be read, is not TOML, or holds an unknown key or a value of the wrong type.
    """
    return from_mapping(read_toml(path), f"--config {path}")


def from_mapping(raw: Mapping[str, Any], where: str) -> RunConfig:
    """The configuration of a mapping of plain values; `set` is a mapping of its own.

    Raises:
        ConfigError: names the key, the value and what was expected.
    """
    start = raw.get("start")
    if isinstance(start, datetime.datetime):
        raise ConfigError(f"{where}: start is {start.isoformat()}, expected a day such as {start.date()}")
    if isinstance(start, datetime.date):  # TOML has dates
        raw = {**raw, "start": start.isoformat()}
    return RunConfig(**fields_of(RunConfig, raw, where, _perhaps_parameter))


def _perhaps_parameter(key: str) -> str:
    owners = [name for name, one in entries(ModelEntry).items() if key in parameters(one) or key in options(one)]
    return f". {key} is a parameter of {' and '.join(owners)}: write it under [set]" if owners else ""


def with_file(command: RunConfig) -> RunConfig:
    """A command as it was parsed, where its switches win over those of the `--config` file.

    Raises:
        ConfigError: a name that flags set twice.
    """
    file = command.file or RunConfig()
    pairs(command.set[len(file.set) :], "--set")
    pairs(command.scale[len(file.scale) :], "--scale")
    if command.compile or command.no_compile:
        return command
    return dataclasses.replace(command, compile=file.compile, no_compile=file.no_compile)


def flag(name: str) -> str:
    """A field as a flag."""
    return f"--{name.replace('_', '-')}"


# --- the run ----------------------------------------------------------------------------------------------------------


PLACES = (("x", "y"), ("lon", "lat"), ("longitude", "latitude"))  # columns of a population that say where people are


def _run(config: RunConfig, console: Console) -> None:
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
    ops.stop_compilers()
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


# --- its folder, for resume, show, export, report and compare ---------------------------------------------------------


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
    from denizen._results import columns, write_netcdf, write_table
    from denizen.run._event_files import stems

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

    facts = read_manifest(folder)
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
