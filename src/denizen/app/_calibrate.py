"""`denizen calibrate`, and what `denizen resume` and `denizen show` do with the folder of a calibration."""

import contextlib
import dataclasses
import re
from collections.abc import Callable, Iterator, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

import numpy as np
from tyro.conf import FlagCreatePairsOff, Positional, UseAppendAction, arg

from denizen import fit
from denizen._printing import Table, bold, give, say
from denizen.app._exit import DONE
from denizen.app._report import typed
from denizen.app._run import RunConfig, hint
from denizen.app._train import Pairs
from denizen.errors import ConfigError, DataError, DenizenError, InputError, nearest

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen._run_folder import StateFolder
    from denizen.app._cli import Resume, Show
    from denizen.app._export import Export
    from denizen.fit import CalibrationFolder
    from denizen.model import Model
    from denizen.report import Page

# Words of `--method`, and the class of `dz.fit` that each means: "gauss-newton" for GaussNewton.
METHODS = {
    re.sub(r"(?<=[a-z])(?=[A-Z])", "-", name).lower(): name
    for name, one in vars(fit).items()
    if isinstance(one, type) and hasattr(one, "solve") and one is not fit.Method
}
NOISES = {"poisson": "Poisson", "negative-binomial": "NegativeBinomial", "normal": "Normal"}
PRIORS = ("Beta", "Exponential", "Gamma", "HalfNormal", "InverseGamma", "LogNormal", "Normal", "Uniform")
# What messages of `dz.calibrate` advise, and the flag for it.
FLAGS = {
    r"priors=\{'([\w.]+)': torch\.distributions\.LogNormal\(mean, sd\)\}": r'--fit "\1=LogNormal(-3,0.5)"',
    r"for example dz\.fit\.Target\(values, noise=dz\.fit\.NegativeBinomial\(10\)\)": "--noise negative-binomial:10",
    r"choose another folder for out=": "choose another folder for --out",
    r"\b(holdout|steps|start|replicates)=": r"--\1 ",
}
NUMBERS = {"report", "people", "delay", "size", "sd"}  # of a target, which `--fit` names beside parameters of the model


@dataclasses.dataclass(frozen=True)
class Calibrate:
    """What `denizen calibrate` does; the fields are its flags, and a part of a manifest."""

    about: ClassVar[
        str
    ] = """Fit parameters of a model to observed series: estimates, intervals, a forecast and its score.

examples:
  denizen calibrate sir --targets cases.csv --column cases --every 7 --fit infect_rate,infectious_days
  denizen calibrate covid --targets city.csv --column daily_infected=positive --date week --every 7 --fit R --holdout 4
  denizen calibrate sir --targets cases.csv --column cases --fit "infect_rate=LogNormal(-3,0.5)"
  denizen calibrate city.py:Epidemic --targets cases.csv --column cases --method cmaes --option runs=500
  denizen resume runs/sir-fit-20261128-120000        go on after Ctrl-C, a crash or a full disk
  denizen show runs/sir-fit-20261128-120000          the estimates again"""

    model: Annotated[Positional[str], arg(metavar="MODEL", help_behavior_hint="")] = ""
    """A name of `denizen models`, or FILE.py:NAME. Its values, as `--set` gives them, are where the search begins."""
    targets: Annotated[Path | None, arg(metavar="FILE.csv", help_behavior_hint="(needed)")] = None
    """Observed series: a CSV file with a header, or a Parquet file. An empty cell is a gap."""
    column: Annotated[
        UseAppendAction[tuple[tuple[str, ...], ...]], arg(metavar="SERIES[=COLUMN]", help_behavior_hint="(repeatable)")
    ] = ()
    """Series of the model, and the column of the file that each is fitted to, where that has another name."""
    date: Annotated[str | None, arg(metavar="COLUMN", help_behavior_hint="(default: none)")] = None
    """Column with the date of each row, its first day. One that is left out is refused, see --missing."""
    start: Annotated[str | None, arg(metavar="YYYY-MM-DD", help_behavior_hint="(default: the first date)")] = None
    """Date of the model's first step, with --date."""
    missing: Annotated[
        Literal["gap", "zero"] | None, arg(metavar="{gap,zero}", help_behavior_hint="(default: they are refused)")
    ] = None
    """What dates mean that are left out: nothing was observed, or nothing happened."""
    every: Annotated[int, arg(metavar="N")] = 1
    """Steps in a row of the file: 7 for weekly values of a model that steps by the day."""
    first: Annotated[int, arg(metavar="N")] = 1
    """Step at which the first row begins."""
    people: Annotated[float | None, arg(metavar="X", help_behavior_hint="(default: 1)")] = None
    """How many people an agent stands for."""
    report: Annotated[float | None, arg(metavar="SHARE", help_behavior_hint="(default: all)")] = None
    """Share that is observed."""
    noise: Annotated[str | None, arg(metavar="NAME[:X]", help_behavior_hint="(default: none)")] = None
    """Scatter of what is written down: poisson, negative-binomial:SIZE or normal:SD."""
    fit: Annotated[str | None, arg(metavar="NAME[=PRIOR],…", help_behavior_hint="(default: all that may be)")] = None
    """Parameters to fit, some with a prior, such as infect_rate,infectious_days=LogNormal(2,0.5)."""
    method: Annotated[Literal[tuple(METHODS)], arg()] = "gauss-newton"  # type: ignore[valid-type]
    """How to search."""
    option: Pairs = ()
    """Settings of the method, such as iterations=10."""
    holdout: Annotated[int, arg(metavar="N")] = 0
    """Last rows that are kept back, to score the forecast of them."""
    replicates: Annotated[int, arg(metavar="N")] = 16
    """Worlds of the last iterations."""
    steps: Annotated[int | None, hint("until the last row ends")] = None
    """Steps of each run."""
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
    """Seed of the random numbers, 0 to 4294967295. The same seed gives the same fit."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Device to run on. auto takes DENIZEN_DEVICE where it is set, else a CUDA device that works, else the CPU."""
    set: Pairs = ()
    """Parameters and options of the model, as `denizen run` takes them."""
    out: Annotated[str | None, arg(metavar="FOLDER", help_behavior_hint="(default: runs/MODEL-fit-DATE-TIME)")] = None
    """Run folder to write. It must be new or empty, or hold this calibration, which goes on."""
    quiet: FlagCreatePairsOff[bool] = False
    """Print only the path of the run folder."""

    def __call__(self, console: "Console") -> int:
        """Fit, and tell what came out."""
        import denizen as dz
        from denizen.app._folders import run_folder, stem
        from denizen.app._settings import within

        for name, low in (("every", 1), ("first", 1), ("holdout", 0), ("replicates", 2), ("steps", 1), ("seed", 0)):
            within(f"--{name}", getattr(self, name), low)
        if self.out == "":
            raise ConfigError("--out is empty; leave it out, or give a value")
        targets = self.observed()
        priors = fitted(self.fit, list(targets))
        method = method_of(self.method, self.option)
        config = self.config()
        built, kept, target = _built(config, console)
        kept["command"] = typed("calibrate", self)
        device = None if self.device == "auto" else self.device
        with run_folder(self.out, f"{stem(config.model)}-fit") as out, safe_in(out, target):
            found = dz.calibrate(
                built,
                targets,
                priors=priors,
                method=method,
                steps=self.steps,
                replicates=self.replicates,
                holdout=self.holdout,
                start=self.start,
                seed=self.seed,
                device=device,
                out=out,
                settings=kept,
                progress=not console.quiet,
            )
        tell(found, out, console)
        return DONE

    def config(self) -> RunConfig:
        """What it says of the model, as `denizen run` takes it."""
        names = ("model", "population", "network", "symmetrize", "agents", "mean_degree", "seed", "set")
        return RunConfig(**{name: getattr(self, name) for name in names})

    def observed(self) -> dict[str, Any]:
        """The targets.

        Raises:
            ConfigError: a flag that cannot be meant, or a file that cannot be read.
        """
        from denizen.app import _observed

        if self.targets is None:
            raise ConfigError("--targets FILE.csv is needed: the observed series")
        columns: dict[str, str] = {}
        for text in (text for group in self.column for text in group):
            series, equals, column = (part.strip() for part in text.partition("="))
            if not series or (equals and not column) or series in columns:
                raise ConfigError(f"--column {text}: expected SERIES or SERIES=COLUMN, each series once")
            columns[series] = column or series
        if not columns:
            raise ConfigError("--column SERIES[=COLUMN] is needed: which column is fitted, and to which series")
        if self.start is not None:
            _observed.day(self.start, "--start", timed=False)
        if self.date is None and (self.start or self.missing):
            raise ConfigError(f"--{'start' if self.start else 'missing'}: give --date COLUMN too")
        numbers, dates, places = _observed.read(self.targets, list(columns.values()), self.date)
        options: dict[str, Any] = {"every": self.every, "dates": dates, "noise": noise_of(self.noise)}
        if self.date is None or self.first != 1:
            options["first"] = self.first
        named = ("people", "report", "missing")
        options |= {name: getattr(self, name) for name in named if getattr(self, name) is not None}
        found = {}
        for series, column in columns.items():
            try:
                found[series] = fit.Target(numbers[column], **options)
            except InputError as error:
                raise ConfigError(self._told(str(error), column, numbers[column], places)) from error
        return found

    def _told(self, error: str, column: str, rows: np.ndarray, places: list[str]) -> str:
        """What a target says of its arguments, in the words of the command line: flags, and lines of the file."""
        at = re.match(r"Target: values(?:\[.*\] is (\S+),| has)", error)
        if at is not None:
            # By the number, for a target has entries of its own where dates are left out.
            place = next((place for place, value in zip(places, rows, strict=True) if f"{value:g}" == at[1]), None)
            line = "" if place is None else f", {place}: {at[1]},"
            told = f"--targets {self.targets}: column {column!r}{line}{':' * (place is None)}{error[at.end() :]}"
            told = told.replace(", or scale='identity'", "; correct it, or leave a gap empty")
            told = re.sub(r"\bor noise=dz\.fit\.Normal\(sd\)", "or --noise normal:SD", told)
            return re.sub(r"\bnoise=\w+", f"--noise {self.noise}", told)
        told = re.sub(r"^Target: (people|report|first)=", r"--\1 ", error)
        return re.sub(r"\b(missing|every)='?(\w+)'?", r"--\1 \2", told)


def fitted(text: str | None, series: list[str]) -> dict[str, Any] | None:
    """Priors by name of the parameter, None for those without; None: all that may be fitted.

    Raises:
        ConfigError: what is no name, or no distribution.
    """
    if text is None:
        return None
    found: dict[str, Any] = {}
    for part in re.split(r",(?![^(]*\))", text):
        name, equals, prior = (word.strip() for word in part.partition("="))
        if not name or (equals and not prior) or name in found:
            raise ConfigError(f"--fit {text}: expected different names with commas between, some with =PRIOR")
        if name in NUMBERS:
            if len(series) > 1:
                raise ConfigError(f"--fit {name}: of which series? {' or '.join(f'{one}.{name}' for one in series)}")
            name = f"{series[0]}.{name}"
        found[name] = _prior(prior, f"--fit {part.strip()}") if prior else None
    return found


def _prior(text: str, where: str) -> Any:
    import torch

    found = re.fullmatch(r"(\w+)\((.*)\)", text)
    if found is None or found[1] not in PRIORS:
        raise ConfigError(f"{where}: expected a distribution such as LogNormal(-3,0.5); {nearest(text, PRIORS)}")
    made = getattr(torch.distributions, found[1])
    try:
        return made(*map(float, found[2].split(",")), validate_args=True)
    except (TypeError, ValueError) as error:
        takes = ", ".join(made.arg_constraints)
        raise ConfigError(f"{where}: expected {found[1]}({takes}) with numbers that it takes") from error


def noise_of(text: str | None) -> Any:
    """The noise of observation that a word means.

    Raises:
        ConfigError: none.
    """
    if text is None:
        return None
    name, colon, value = text.partition(":")
    if name not in NOISES or (colon and name == "poisson") or (not colon and name == "normal"):
        told = "poisson, negative-binomial:SIZE or normal:SD"
        raise ConfigError(f"--noise {text}: expected {told}; {nearest(name, NOISES)}")
    try:
        return getattr(fit, NOISES[name])(*([float(value)] if colon else []))
    except ValueError as error:
        raise ConfigError(f"--noise {text}: expected a number above 0 behind {name}:") from error


def method_of(word: str, options: Any) -> Any:
    """The method that a word means, with settings.

    Raises:
        ConfigError: an unknown setting, or a value that is none of its type.
    """
    from denizen.app._settings import fill, pairs

    return fill(getattr(fit, METHODS[word]), pairs(options, "--option"), "--option")


# --- models -----------------------------------------------------------------------------------------------------------


def _built(config: RunConfig, console: "Console") -> tuple["Model", dict[str, Any], str]:
    """(the model that flags mean, what a manifest keeps of it, what names its file again)."""
    from denizen.app._target import model

    found = model(config.model)
    config.check(found.entry)
    config = config.completed(found)
    built, facts = _made(config, found.entry, config.contacts(), console)
    kept = {"config": config.to_json(), "source": facts, **(found.origin.settings() if found.origin else {})}
    return built, kept, config.model if found.origin else ""


def _made(config: RunConfig, entry: Any, contacts: Any, console: "Console") -> tuple["Model", dict[str, Any]]:
    from denizen.app._models import build, source
    from denizen.app._settings import settings

    values = settings(config.model, entry, config.pairs())
    with console.status(f"reading {config.population or 'a random graph'} …"):
        made = source(config.model, entry, contacts)
        return build(config.model, entry, made, values), made.facts


def model_again(folder: "CalibrationFolder", word: str, verb: str, console: "Console") -> "Model":
    """The model of a calibration, as it was; see `again`."""
    reads = f"dz.fit.Fit.load({str(folder.path)!r}, model)"
    return again(folder, word, verb, console, _made, "dz.calibrate", reads)


def again(
    folder: "StateFolder",
    word: str,
    verb: str,
    console: "Console",
    made: Callable[[RunConfig, Any, Any, "Console"], tuple[Any, dict[str, Any]]],
    door: str,
    reads: str,
) -> Any:
    """What a folder was begun with, built again.

    Args:
        folder: of a calibration or a sweep.
        word: the file that the command line names again; "" for none.
        verb: the command.
        console: shows what is read.
        made: function of (configuration, entry, contacts, console) that builds it, and gives the contacts' facts.
        door: what began it in Python.
        reads: what reads the folder in Python.

    Raises:
        ConfigError: it was begun from Python, or with a file that is not named.
        DataError: its file or its population has changed.
    """
    from denizen.app._models import found_again
    from denizen.app._run import from_mapping
    from denizen.app._target import Target, known, model, named_again, origin_of
    from denizen.zoo import ModelEntry

    path, kept = folder.path, folder.manifest["settings"]
    if kept is None:
        raise ConfigError(
            f"{path} was begun from Python, so its model is not known here; in Python the same call of {door} with "
            f"out={str(path)!r} goes on, and {reads} reads it"
        )
    if not isinstance(kept.get("config"), dict) or not isinstance(kept.get("source"), dict):
        raise DataError(f"{path}/manifest.json: settings has no config and source")
    config = from_mapping(kept["config"], f"{path}/manifest.json: settings")
    before = origin_of(kept, path)
    named_again(before, path, word, verb)
    if before is None and word:
        raise ConfigError(f"{path} was begun with {config.model} of the zoo; leave {word} out")
    found = Target(config.model, known(config.model, ModelEntry)) if before is None else model(word)
    if before is not None:
        before.unchanged(found.origin, path, reads)
    built, facts = made(config, found.entry, found_again(config.contacts(), kept["source"]), console)
    if facts.get("digest") != kept["source"].get("digest"):
        raise DataError(
            f"{facts.get('name', 'the population')} has changed since {path} was begun with it; bring it back, or "
            f"begin anew"
        )
    return built


# --- folders ----------------------------------------------------------------------------------------------------------


def resume(command: "Resume", console: "Console") -> None:
    """`denizen resume` of a calibration."""
    import denizen as dz
    from denizen.fit import CalibrationFolder

    if command.steps is not None:
        raise ConfigError("--steps: a calibration has its number of steps; leave it out")
    path = command.run
    folder = CalibrationFolder.open(path)
    built = model_again(folder, command.target, "resume", console)
    given = folder.given({}, simulates=True, searches=True)
    say(console, f"{path}: {folder.status}, {folder.launches} launches")
    device = None if command.device == "auto" else command.device
    kept = folder.manifest["settings"]
    with safe_in(path, command.target):
        found = dz.calibrate(built, **given, device=device, out=path, settings=kept, progress=not console.quiet)
    tell(found, path, console)


def show(command: "Show", console: "Console") -> None:
    """`denizen show` of a calibration: how it stands, and the fit where there is one."""
    from denizen.fit import CalibrationFolder

    show_folder(CalibrationFolder.open(command.run), console)


def show_folder(folder: "CalibrationFolder", console: "Console") -> None:
    """How a search stands, and what it found where it has."""
    from denizen.app._folders import resume_command
    from denizen.app._target import origin_of

    path, manifest = folder.path, folder.manifest
    model = manifest["model"]
    card = Table.grid(padding=(0, 2))
    agents = f", {model['agents']:,} agents" if "agents" in model else ""
    rows = {
        "model": f"{model.get('class', model.get('function'))}{agents}",
        "status": f"{folder.status}, {folder.launches} {folder.COUNT}",
        "device": manifest["device"],
        "written": f"{manifest['created']} to {manifest['updated']}",
        "versions": ", ".join(f"{name} {version}" for name, version in manifest["versions"].items()),
        "commit": manifest["commit"] or "",
    }
    for name, text in rows.items():
        if text:
            card.add_row(bold(name), text)
    if folder.status in ("killed", "interrupted", "failed") and manifest["settings"] is not None:
        origin = origin_of(manifest["settings"], path)
        card.add_row(bold("go on"), resume_command(path, f"{origin.file}:{origin.name}" if origin else ""))
    console.print(card)
    if isinstance(manifest.get("report"), str):
        say(console, manifest["report"])


def export(command: "Export", console: "Console") -> Callable[[str, Path], None]:
    """`denizen export` of a calibration: draws of its parameters."""
    from denizen._results import numbered, write_netcdf, write_table
    from denizen.app._export import DRAWS

    found = fit.Fit.load(command.run)

    def write(form: str, file: Path) -> None:
        if form == "netcdf":
            write_netcdf(found.to_xarray(), file)
            return
        columns: dict[str, Any] = {}
        for name, values in found.samples(DRAWS).items():
            columns |= numbered(name, np.asarray(values))
        write_table(columns, file)

    return write


@contextlib.contextmanager
def safe_in(folder: Path, target: str) -> Iterator[None]:
    """Around a search: Ctrl-C says how to go on, and messages name flags.

    Args:
        folder: of the calibration.
        target: what to name beside the folder to go on; "" where nothing is needed.
    """
    from denizen._run_folder import kind_of
    from denizen.app._folders import Interrupted
    from denizen.fit import CalibrationFolder

    try:
        yield
    except InputError as error:
        told = str(error)
        for python, flag in FLAGS.items():
            told = re.sub(python, flag, told)
        raise ConfigError(told) from error
    except KeyboardInterrupt:
        if kind_of(folder) is None:
            raise
        raise Interrupted(folder, f"{CalibrationFolder.open(folder).launches} launches", target) from None


def report(folders: Sequence[Path]) -> "Page":
    """`denizen report` of calibrations."""
    return _page(folders, [None] * len(folders))


def _page(folders: Sequence[Path], fits: Sequence[fit.Fit | None]) -> "Page":
    """The page of calibrations; a fit that is not at hand is read."""
    from denizen.fit import CalibrationFolder
    from denizen.report import Page
    from denizen.report._calibration import Calibrated, about, calibrations

    told = []
    for path, found in zip(folders, fits, strict=True):
        folder = CalibrationFolder.open(path)
        simulates = found is not None
        if found is None and folder.manifest.get("found") is not None:
            found, simulates = _read(folder)
        kept = folder.manifest["settings"] or {}
        words = kept.get("command") if isinstance(kept.get("command"), str) else ""
        told.append(
            Calibrated(str(path), found, folder.manifest, folder.status, folder.launches, simulates, words or "")
        )
    models = (one.manifest["model"] for one in told)
    names = dict.fromkeys(str(one.get("class", one.get("function"))).rpartition(".")[2] for one in models)
    title = f"{' and '.join(names)}: calibration"
    page = Page(title, about(told[0]) if len(told) == 1 else f"{len(told)} calibrations beside each other")
    calibrations(page, told)
    return page


def _read(folder: "CalibrationFolder") -> tuple[fit.Fit, bool]:
    """The fit in a folder, and whether it has its model: a file of the user's runs only where it is named."""
    from denizen._printing import Console
    from denizen.app._target import origin_of

    kept = folder.manifest["settings"]
    if kept is None or origin_of(kept, folder.path) is not None:
        return fit.Fit.load(folder.path), False
    return fit.Fit.load(folder.path, model_again(folder, "", "report", Console(quiet=True))), True


def tell(found: fit.Fit, folder: Path, console: "Console") -> None:
    """Estimates, scores, pictures, the page, and the folder's path."""
    from denizen.app._report import write_at_end

    say(console, str(found))
    if found.held_out:
        with _or_told("scores", console):
            console.print(_scores(found))
    for name, draw in (("fit.png", found.plot), ("corner.png", found.corner)):
        with _or_told("picture", console):
            draw(folder / name)
            say(console, f"picture     {folder / name}")
    write_at_end(folder, console, lambda: _page([folder], [found]))
    if console.quiet:
        give(folder)
    else:
        say(console, f"run folder  {folder}")


@contextlib.contextmanager
def _or_told(what: str, console: "Console") -> Iterator[None]:
    """What cannot be had of a fit is a line, as where the model fails at a draw of a wide interval: the fit is safe."""
    try:
        yield
    except DenizenError as error:
        say(console, f"no {what}: {error}")


def _scores(found: fit.Fit) -> Any:
    """How good the forecast of what was held out was, as a table."""
    table = Table("held out", "CRPS", "of persistence", "WIS", "within 50 %", "within 90 %", box=None)
    for name, one in found.score().items():
        losses = (f"{loss:.4g}" for loss in (one.crps, one.persistence_crps, one.wis))
        inside = (f"{share:.0%}" for share in (one.coverage_50, one.coverage_90))
        count = len(found.held_out[name])
        table.add_row(f"{name}, {count} value{'s' * (count != 1)}", *losses, *inside)
    return table
