"""`denizen sweep`, and what `denizen resume` and `denizen show` do with the folder of a sweep."""

import contextlib
import dataclasses
import os
import re
import shlex
import subprocess
import sys
from collections.abc import Callable, Iterator, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen import sweeps
from denizen._printing import Table, bold, give, say
from denizen.app._exit import DONE
from denizen.app._report import write_at_end
from denizen.app._run import RunConfig, hint
from denizen.app._train import Pairs
from denizen.errors import ConfigError, DataError, InputError, MissingExtra
from denizen.sweeps import Sweep
from denizen.sweeps._results import SUMMARY, TABLE

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.app._cli import Resume, Show
    from denizen.app._export import Export
    from denizen.report import Page
    from denizen.sweeps import Builder, Design

SPREAD = {"random": sweeps.Random, "latin": sweeps.Latin, "sobol": sweeps.Sobol}
Points = Annotated[tuple[str, ...], arg(metavar="N NAME[=LOW..HIGH]…", help_behavior_hint="(default: none)")]
# What messages of `dz.sweeps` say, and what they are on the command line.
WORDS = {
    r"^(Grid|Random|Latin|Sobol): ": lambda found: f"--{found[1].lower()}: ",
    r"^Saltelli: ": lambda found: "--sobol: ",
    r"^Listed(\.from_csv)?: ": lambda found: "--from: ",
    r"^sweep: ": lambda found: "",
    r"\{'([^']+)': \(1, 4\)\}": lambda found: f"{found[1]}=1..4",
    r"\bkeep fewer series \(series=\)": lambda found: "keep fewer with --series",
    r"^series has ": lambda found: "--series has ",
    r"\bchoose another folder for out=": lambda found: "choose another folder for --out",
}


@dataclasses.dataclass(frozen=True)
class SweepConfig:
    """What `denizen sweep` does; the fields are its flags."""

    about: ClassVar[
        str
    ] = """Run a model under many sets of parameters, each in the same worlds: tables, pictures, one folder.

examples:
  denizen sweep sir --grid infect_rate=0.02,0.04,0.06 infectious_days=4,7 --replicates 64
  denizen sweep covid --grid R=2,3,4 isolation=0,0.3 --steps 100
  denizen sweep sir --from sets.csv                                a line for each set, names in the header
  denizen sweep sir --sobol 128 infect_rate=0.01..0.1 infectious_days=3..10
  denizen sweep sir --sobol 128 infect_rate=0.01..0.1 infectious_days=3..10 --indices    what matters how much
  denizen sweep city.py:Epidemic --latin 100 infect_rate=0.01..0.1 --ranks 4    in 4 processes
  denizen resume runs/sir-sweep-20261128-120000                    go on after Ctrl-C, a crash or a full disk"""

    model: Annotated[Positional[str], arg(metavar="MODEL", help_behavior_hint="")] = ""
    """A name of `denizen models`, or FILE.py:NAME."""
    grid: Annotated[Pairs, arg(metavar="NAME=V,V,…", help_behavior_hint="(repeatable)")] = ()
    """Every combination of these values of parameters and options, as `--set` takes them."""
    from_: Annotated[Path | None, arg(name="from", metavar="FILE.csv", help_behavior_hint="(default: none)")] = None
    """Sets from a CSV file: a header with names, and a line for each set."""
    random: Points = ()
    """N independent points of these ranges. A name alone has the range between the bounds that the model declares."""
    latin: Points = ()
    """N points of a Latin hypercube over these ranges."""
    sobol: Points = ()
    """N points of a Sobol sequence over these ranges; N is a power of two."""
    indices: FlagCreatePairsOff[bool] = False
    """With --sobol: Sobol's sensitivity indices of every series, from N times (names + 2) sets."""
    steps: Annotated[int | None, hint("the model's, or 100")] = None
    """Number of steps of each run."""
    dt: Annotated[float, arg(metavar="TIME")] = 1.0
    """Length of a step in the model's unit of time."""
    start: Annotated[str | None, arg(metavar="YYYY-MM-DD", help_behavior_hint="(default: none)")] = None
    """Date of the first step. Tables and curves show dates then."""
    replicates: Annotated[int, arg(metavar="N")] = 16
    """Worlds of each set. All sets have the same worlds."""
    series: Annotated[str | None, arg(metavar="NAME,…", help_behavior_hint="(default: all)")] = None
    """Series that are kept."""
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
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the worlds, 0 to 4294967295."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on. auto takes DENIZEN_DEVICE where it is set, else a CUDA device that works, else the CPU."""
    set: Pairs = ()
    """Parameters and options that are the same in all sets, as `denizen run` takes them."""
    ranks: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: this one)")] = None
    """Processes of this machine that share the launches, one for each GPU. Across machines: torchrun … -m denizen."""
    ray: FlagCreatePairsOff[bool] = False
    """Let the workers of a Ray cluster take the launches (RAY_ADDRESS), or Ray on this machine where there is none."""
    out: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/MODEL-sweep-DATE-TIME)")] = None
    """Run folder to write. It must be new or empty, or hold this sweep, which goes on."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the run folder."""

    def __call__(self, console: "Console") -> int:
        """Sweep, and tell what came out."""
        from denizen.app._folders import run_folder, stem
        from denizen.app._run import introduce
        from denizen.app._settings import within
        from denizen.app._target import model
        from denizen.app._together import together
        from denizen.run import choose_device

        within("--ranks", self.ranks, 1)
        if self.out == "":
            raise ConfigError("--out is empty; leave it out, or give a value")
        design = self.design()
        if self.ranks is not None and self.ray:
            raise ConfigError("--ranks and --ray: give one of the two")
        if self.ranks is not None and "WORLD_SIZE" not in os.environ:
            return _in_processes(self)
        found = model(self.model)
        config = self.config()
        config.check(found.entry)
        with together(self.device, console) as device, _told():
            config = config.completed(found)
            builder, made = _builder(config, found.entry, config.contacts(), console)
            kept = {"config": config.to_json(), "source": made.facts, "command": self.command()}
            kept |= found.origin.settings() if found.origin else {}
            first = int(os.environ.get("RANK", "0")) == 0
            with run_folder(self.out, f"{stem(config.model)}-sweep", writes=first) as out:
                target, reason = choose_device(device, "denizen sweep")
                introduce(config, made, builder.model({}), f"{target} ({reason})", console)
                with _safe_in(out, config.model if found.origin else ""):
                    result = sweeps.sweep(
                        builder,
                        design,
                        steps=config.steps or 0,
                        replicates=config.replicates,
                        seed=config.seed,
                        dt=config.dt,
                        start=config.start,
                        series=self.series.split(",") if self.series is not None else None,
                        device=target,
                        executor=sweeps.Ray(gpus=float(target.type == "cuda")) if self.ray else None,
                        out=out,
                        settings=kept,
                        progress=not console.quiet,
                    )
                if first:
                    _report(result, out, console)
        return DONE

    def config(self) -> RunConfig:
        """What it says of the model and its runs, as `denizen run` takes it."""
        names = {field.name for field in dataclasses.fields(RunConfig)} & {f.name for f in dataclasses.fields(self)}
        return RunConfig(**{name: getattr(self, name) for name in names - {"out", "quiet"}})

    def command(self) -> str:
        """What to type to get the same again."""
        return shlex.join(["denizen", "sweep", *_words_of(dataclasses.replace(self, out=None, quiet=False))])

    def design(self) -> "Design":
        """The sets.

        Raises:
            ConfigError: none or several designs, or words that mean none.
        """
        from denizen.app._settings import pairs, whole

        given = [name for name in ("grid", "from_", "random", "latin", "sobol") if getattr(self, name)]
        if len(given) != 1:
            ways = "--grid NAME=V,V, --from FILE.csv, --random, --latin or --sobol N NAME=LOW..HIGH"
            raise ConfigError(f"which sets? give {'one' if not given else 'only one'} of {ways}")
        if self.indices and not self.sobol:
            raise ConfigError("--indices are of the design --sobol N NAME=LOW..HIGH; give that")
        with _told():
            if self.grid:
                values = pairs(self.grid, "--grid")
                return sweeps.Grid({name: [part.strip() for part in text.split(",")] for name, text in values.items()})
            if self.from_ is not None:
                return sweeps.Listed.from_csv(self.from_)
        flag = f"--{given[0]}"
        count, *words = getattr(self, given[0])
        try:
            number = whole(count)
        except ValueError:
            raise ConfigError(f"{flag} {count}: expected the number of sets first, such as {flag} 64 R=1..4") from None
        ranges: dict[str, Any] = {}
        for word in words:
            name, equals, text = (part.strip() for part in word.partition("="))
            low, dots, high = text.partition("..")
            if not name or name in ranges or (equals and not (low and dots and high)):
                raise ConfigError(f"{flag} {word}: expected different NAMEs or NAME=LOW..HIGH, such as R=1..4")
            ranges[name] = (low, high) if equals else None
        if not ranges:
            raise ConfigError(f"{flag} {count}: of what? give NAME=LOW..HIGH, such as R=1..4")
        return sweeps.Saltelli(number, ranges) if self.indices else SPREAD[given[0]](number, ranges)


# --- models -----------------------------------------------------------------------------------------------------------


def _builder(config: RunConfig, entry: Any, contacts: Any, console: "Console") -> tuple["Builder", Any]:
    """(what builds the model, its contacts): options that are swept go where `--set` puts them."""
    from denizen.app._models import build, source
    from denizen.app._settings import options, settings
    from denizen.model import Model

    values = settings(config.model, entry, config.pairs())
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(config.model, entry, contacts)
        plain = build(config.model, entry, made, values)
    takes = {name: option.default for name, option in options(entry).items()} | values
    takes = {name: value for name, value in takes.items() if name not in plain.params}

    def built(**changes: Any) -> Model:
        return build(config.model, entry, made, {**values, **changes}) if changes else plain

    return sweeps.Builder(built, takes), made


# --- folders ----------------------------------------------------------------------------------------------------------


def resume(command: "Resume", console: "Console") -> None:
    """`denizen resume` of a sweep."""
    from denizen.app._calibrate import again
    from denizen.sweeps import SweepFolder

    if command.steps is not None:
        raise ConfigError("--steps: a sweep has its number of steps; leave it out")
    path = command.run
    folder = SweepFolder.open(path)
    reads = f"dz.sweeps.load({str(path)!r})"
    builder = again(folder, command.target, "resume", console, _builder_and_facts, "dz.sweeps.sweep", reads)
    held = folder.manifest
    say(console, f"{path}: {folder.status}, {_runs(held)}")
    with _told(), _safe_in(path, command.target):
        result = sweeps.sweep(
            builder,
            folder.design(),
            steps=held["steps"],
            replicates=held["replicates"],
            seed=held["seed"],
            dt=held["dt"],
            start=held.get("start"),
            series=held["series"],
            device=None if command.device == "auto" else command.device,
            out=path,
            settings=held["settings"],
            progress=not console.quiet,
        )
    _report(result, path, console)


def _builder_and_facts(config: RunConfig, entry: Any, contacts: Any, console: "Console") -> tuple[Any, dict[str, Any]]:
    builder, made = _builder(config, entry, contacts, console)
    return builder, made.facts


def show(command: "Show", console: "Console") -> None:
    """`denizen show` of a sweep: how it stands, and the sets that are whole."""
    from denizen.app._folders import resume_command
    from denizen.app._target import origin_of
    from denizen.sweeps import SweepFolder

    path = command.run
    folder, result = SweepFolder.open(path), sweeps.load(path)
    held = folder.manifest
    card = Table.grid(padding=(0, 2))
    model = held["model"]
    agents = f", {held['agents']:,} agents" if held["agents"] is not None else ""
    rows = {
        "model": f"{model.get('class', model.get('function'))}{agents}",
        "design": f"{held['design']['kind']} of {', '.join(result.names)}: {held['sets']:,} sets",
        "status": f"{folder.status}, {_runs(held)}" + (f": {held['error']}" if held.get("error") else ""),
        "runs": f"{held['replicates']} replicates × {held['steps']} steps, seed {held['seed']}",
        "device": held["device"],
        "written": f"{held['created']} to {held['updated']}",
        "versions": ", ".join(f"{name} {version}" for name, version in held["versions"].items()),
        "commit": held["commit"] or "",
    }
    for name, text in rows.items():
        if text:
            card.add_row(bold(name), text)
    if folder.status in ("killed", "interrupted", "failed") and held["settings"] is not None:
        origin = origin_of(held["settings"], path)
        card.add_row(bold("go on"), resume_command(path, f"{origin.file}:{origin.name}" if origin else ""))
    console.print(card)
    if result.sets:
        console.print(result.summary())


def export(command: "Export", console: "Console") -> Callable[[str, Path], None]:
    """`denizen export` of a sweep."""
    from denizen._results import write_netcdf, write_table

    found = sweeps.load(command.run)

    def write(form: str, file: Path) -> None:
        if form == "netcdf":
            write_netcdf(found.to_xarray(), file)
        else:
            write_table(found.columns(), file)

    return write


def report(folders: Sequence[Path]) -> "Page":
    """`denizen report` of sweeps."""
    return _page([(folder, sweeps.load(folder)) for folder in folders])


def _page(ones: Sequence[tuple[Path, Sweep]]) -> "Page":
    from denizen.report import Page
    from denizen.report import _sweep as parts
    from denizen.sweeps import SweepFolder

    told = []
    for path, one in ones:
        folder = SweepFolder.open(path)
        command = (folder.manifest["settings"] or {}).get("command", "")
        told.append(parts.Swept(str(path), one, folder.manifest, folder.status, str(command)))
    model = told[0].manifest["model"]
    word = str(model.get("class", model.get("function"))).partition(" #")[0].rpartition(".")[2]
    page = Page(f"{word}: sweep", parts.about(told[0]) if len(told) == 1 else f"{len(told)} sweeps")
    parts.sweeps(page, told)
    return page


def _runs(held: Mapping[str, Any]) -> str:
    return f"{held['rows']:,} of {held['sets'] * held['replicates']:,} runs"


@contextlib.contextmanager
def _told() -> Iterator[None]:
    """Messages of `dz.sweeps` in words of the command line."""
    try:
        yield
    except (ConfigError, DataError):
        raise
    except InputError as error:
        told = str(error)
        for python, here in WORDS.items():
            told = re.sub(python, here, told)
        raise ConfigError(told) from error


@contextlib.contextmanager
def _safe_in(folder: Path, target: str) -> Iterator[None]:
    """Around launches: Ctrl-C says how to go on."""
    from denizen._run_folder import kind_of
    from denizen.app._folders import Interrupted
    from denizen.sweeps import SweepFolder

    try:
        yield
    except KeyboardInterrupt:
        if kind_of(folder) is None:
            raise
        raise Interrupted(folder, _runs(SweepFolder.open(folder).manifest), target) from None


def _report(result: Sweep, folder: Path, console: "Console") -> None:
    """Table, pictures, indices, and the folder's path."""
    from denizen.app._report import plotting

    console.print(result.summary())
    for note in result.notes:
        say(console, f"note: {note}")
    with plotting(console):
        result.plot(folder / "plot.png")
        say(console, f"curves      {folder / 'plot.png'}")
    if result.design["kind"] == "Saltelli":
        for name in result.series_names:
            with plotting(console):
                _tell_indices(result, name, folder, console)
    write_at_end(folder, console, lambda: _page([(folder, result)]))
    if console.quiet:
        give(folder)
    else:
        tables = [folder / name for name in (TABLE, SUMMARY)]
        say(console, f"tables      {', '.join(str(file) for file in tables if file.exists())}")
        say(console, f"run folder  {folder}")


def _tell_indices(result: Sweep, name: str, folder: Path, console: "Console") -> None:
    try:
        found = result.indices(name, result.measures(name)[0])
    except MissingExtra:
        raise
    except InputError as error:  # a series that is the same in every set
        say(console, f"no indices: {error}")
        return
    console.print(found)
    found.plot(folder / f"indices-{name}.png")
    say(console, f"indices     {folder / f'indices-{name}.png'}")


# --- processes --------------------------------------------------------------------------------------------------------


def _in_processes(config: SweepConfig) -> int:
    """The same command in several processes of torchrun's; the exit code."""
    words = [sys.executable, "-m", "torch.distributed.run", "--standalone", f"--nproc-per-node={config.ranks}"]
    done = subprocess.run([*words, "-m", "denizen", "sweep", *_words_of(config)])
    return done.returncode


def _words_of(config: SweepConfig) -> list[str]:
    """The flags that a command was made of."""
    words = [config.model] if config.model else []
    for field in dataclasses.fields(config):
        value = getattr(config, field.name)
        if value == field.default or field.name in ("model", "ranks"):
            continue
        words.append(f"--{field.name.rstrip('_').replace('_', '-')}")
        if isinstance(value, tuple):
            words += [word for group in value for word in (group if isinstance(group, tuple) else [group])]
        elif value is not True:
            words.append(str(value))
    return words
