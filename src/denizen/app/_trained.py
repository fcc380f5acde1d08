"""Trainings in run folders, for the commands that use them: evaluate, watch, compare, resume, show."""

import contextlib
import dataclasses
import json
import shlex
from collections.abc import Callable, Mapping, Sequence
from pathlib import Path
from typing import TYPE_CHECKING, Any

from denizen._printing import give, say
from denizen.app._target import Target, named_again, origin_of
from denizen.app._target import world as find
from denizen.errors import ConfigError, DataError
from denizen.zoo import WorldEntry

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.app._cli import Resume, Show
    from denizen.app._export import Export
    from denizen.report import Page

FEW = 1_000  # agents of a world whose steps torch alone takes quickly enough
# Of a film in a report: steps, steps a second, pixels of its longer side and bytes, at most.
FILM_STEPS, FILM_SPEED, FILM_SIDE, FILM_BYTES = 120, 15, 400, 1_500_000


@dataclasses.dataclass(frozen=True)
class Saved:
    """A training in a folder, ready for use.

    Attributes:
        env: the environment.
        policy: with the saved weights, on the CPU.
        manifest: of the folder.
        path: the folder.
        note: what to know of the world; "" for nothing.
    """

    env: Any
    policy: Any
    manifest: dict[str, Any]
    path: Path
    note: str = ""


def folders(path: Path, verb: str) -> list[Path]:
    """The folder itself, or those of several seeds within it.

    Args:
        path: what a command names.
        verb: the command.

    Raises:
        ConfigError: it holds a run of another kind.
        DataError: it holds none.
    """
    from denizen.app._folders import expect

    expect(path, verb)
    held = [file for file in path.glob("seed-*/manifest.json") if file.parent.name[5:].isdecimal()]
    if (path / "manifest.json").exists() or not held:  # of the latter reading its manifest tells
        return [path]
    return [file.parent for file in sorted(held, key=lambda file: int(file.parent.name[5:]))]


def load(
    path: Path, best: bool, world: Sequence[Sequence[str]] = (), target: str = "", verb: str = "evaluate"
) -> Saved:
    """The training in a folder.

    Args:
        path: of one training.
        best: the best policy rather than the last.
        world: groups of NAME=VALUE: options of the world in place of those of the training.
        target: another world, by a name of the zoo or as FILE.py:NAME; "" for that of the training.
        verb: the command, for messages.

    Raises:
        ConfigError: an option that the world does not take, or that the policy does not fit.
        DataError: there is none, it is damaged, or it was not begun by `denizen train`.
    """
    from denizen.app._settings import pairs
    from denizen.rl._training_folder import TrainingFolder

    folder = TrainingFolder.open(path)
    settings = folder.manifest["settings"]
    if not settings:
        raise DataError(f"{path} was not begun by `denizen train`; use dz.rl.resume and dz.rl.evaluate from Python")
    changes = pairs(world, "--world")
    origin = origin_of(settings, path)
    named_again(origin, path, target, verb)
    other = find(target) if target else None
    made = built(folder.manifest, path, changes, other)
    for name in changes.keys() & made.params.keys():
        raise ConfigError(f"--world {name}={changes[name]}: nothing is trained here; give one value")
    tensors = folder.load("best" if best else "checkpoint")
    weights = {name.removeprefix("policy."): t for name, t in tensors.items() if name.startswith("policy.")}
    try:
        made.policy.load_state_dict(weights)
    except RuntimeError as error:
        if not changes and not target:
            raise DataError(f"{path}: its policy is another one than its manifest tells of: {error}") from error
        told = " ".join(f"{name}={value}" for name, value in changes.items())
        raise ConfigError(
            f"{f'--world {told}' if told else target}: the policy was trained for other observations or actions than "
            f"this world has; leave out what changes their number"
        ) from error
    same = other is None or origin is None or other.origin == origin
    note = "" if same else f"{other.word} is not what it was when {path} was trained with it"  # type: ignore[union-attr]
    return Saved(made.env, made.policy, folder.manifest, path, note)


def built(
    manifest: dict[str, Any],
    path: Path,
    changes: Mapping[str, str] | None = None,
    world: Target[WorldEntry] | None = None,
) -> Any:
    """What a manifest means, as `_build.build` makes it.

    Args:
        manifest: of a training that has settings.
        path: its folder.
        changes: options of the world in place of those of the training.
        world: what the command line names; None: the training's, which is one of the zoo.

    Raises:
        ConfigError: a change does not fit.
        DataError: the manifest's settings are damaged.
    """
    from denizen.app._build import build
    from denizen.app._settings import PAIRS, Given, blamed

    settings, changes = manifest["settings"], changes or {}
    try:
        names = {name: settings.get(name, {}).keys() for name in PAIRS}
        names["world"] = names["world"] - changes.keys()
        with blamed(Given(f"{path / 'manifest.json'}: settings", None, names)):
            return build({**settings, "world": {**settings["world"], **changes}}, manifest["seed"], world)
    except (KeyError, TypeError, AttributeError) as error:
        raise DataError(f"{path / 'manifest.json'} is damaged: its settings build nothing ({error!r})") from error


def described(manifest: dict[str, Any]) -> str:
    """A line about a training."""
    settings = manifest["settings"] or {}
    options = " ".join(f"{name}={value}" for name, value in settings.get("world", {}).items())
    name = settings.get("world_name", "a world") + (options and f" {options}")
    return f"{name}, {manifest['updates']:,} updates, seed {manifest['seed']}"


def make_room(path: Path, flag: str) -> None:
    """Make the folder that a file goes into.

    Raises:
        ConfigError: it cannot be made, or the file is a folder.
    """
    try:
        path.parent.mkdir(parents=True, exist_ok=True)
        path.open("ab").close()
    except OSError as error:
        told = f"{path.parent} is no folder" if isinstance(error, FileExistsError) else error.strerror
        raise ConfigError(f"{flag} {path} cannot be written: {told}") from error


def to_json(path: Path, content: Any) -> None:
    """Write results as JSON."""
    make_room(path, "--json")
    path.write_text(json.dumps(content, indent=1) + "\n")


def report(runs: Sequence[Path]) -> "Page":
    """`denizen report` of trainings."""
    return page_of([(run, folders(run, "report"), _film_of(run)) for run in runs])


def page_of(runs: Sequence[tuple[Path, Sequence[Path], tuple[bytes, str] | None]]) -> "Page":
    """The page of trainings.

    Args:
        runs: for each its folder, those of its seeds, and a film of its policy, if there is one.
    """
    from denizen._atomic import status_now
    from denizen.report import Page
    from denizen.report._training import Training, about, trainings
    from denizen.rl import read_manifest, read_metrics

    found = []
    for run, seeds, film in runs:
        manifests = [read_manifest(seed) for seed in seeds]
        statuses = [status_now(seed, one["status"]) for seed, one in zip(seeds, manifests, strict=True)]
        settings = manifests[0]["settings"] or {}
        known = {"algo", "world_name"} <= settings.keys()
        metrics = [read_metrics(seed) for seed in seeds]
        found.append(Training(str(run), manifests, metrics, statuses, command(manifests[0]) if known else "", film))
    classes = (one.seeds[0]["env"].get("class", "a world").rpartition(".")[2] for one in found)
    title = f"{' and '.join(dict.fromkeys(classes))}: training"
    page = Page(title, about(found[0]) if len(found) == 1 else f"{len(found)} trainings beside each other")
    trainings(page, found)
    return page


def _film_of(run: Path) -> tuple[bytes, str] | None:
    """A film of a training in a world of the zoo; a file of the user's runs only where it is named."""
    from denizen.errors import DenizenError
    from denizen.rl import read_manifest

    seed = folders(run, "report")[0]
    manifest = read_manifest(seed)
    if not manifest["settings"] or origin_of(manifest["settings"], seed) is not None:
        return None
    try:
        saved = load(seed, best=False, verb="report")
    except DenizenError:  # as where weights were saved by a program with other networks: the numbers are there
        return None
    return film(saved.env, saved.policy)


def film(env: Any, policy: Any) -> tuple[bytes, str] | None:
    """A short film of a policy in its world, small enough for a page: (file, mime type).

    None where the world cannot draw itself, or the library for pictures is not installed.
    """
    import copy
    import io
    import sys

    from denizen.app._watch import as_images
    from denizen.model import can_draw
    from denizen.ops import reference_only
    from denizen.rl import play

    if not can_draw(env):
        return None
    try:
        # For few draws numba would take longer to load, and on a fresh machine to compile, than torch takes to draw.
        small = "numba" not in sys.modules and env.num_agents <= FEW
        with reference_only() if small else contextlib.nullcontext():
            played = play(env, copy.deepcopy(policy).to("cpu"), FILM_STEPS)  # the training's own may be on a GPU
            pictures = [picture for picture, _ in played]
        images = as_images(pictures, FILM_SIDE)
    except Exception:  # no Pillow, or the world's own drawing fails; a training of hours does not end by that
        return None
    while images:
        file = io.BytesIO()
        images[0].save(file, "GIF", save_all=True, append_images=images[1:], duration=1000 / FILM_SPEED, loop=0)
        if file.tell() <= FILM_BYTES:
            return file.getvalue(), "image/gif"
        images = images[: len(images) // 2]
    return None


def resume(command: "Resume", console: "Console") -> None:
    """`denizen resume` of a training, or of those of several seeds that are not finished."""
    from denizen import _processes as processes
    from denizen._atomic import status_now
    from denizen.app._settings import within
    from denizen.app._together import together
    from denizen.app._train import sinks_of, tell
    from denizen.rl import Patience, read_manifest

    path, target, quiet = command.run, command.target, command.quiet
    found = folders(path, "resume")
    manifest = read_manifest(found[0])
    within("--steps", command.steps, 1)
    if command.steps is not None and found != [path] and _not_begun(found):
        raise ConfigError(
            f"--steps {command.steps}: seeds {', '.join(map(str, _not_begun(found)))} have not begun; leave it out to "
            f"finish all, and lengthen them afterwards"
        )
    with together(command.device, console) as chosen:
        env: Any = None  # of one of them: they are alike
        results: list[Any] = []
        world = _found_again(manifest, found[0], path, target)
        finished = all(read_manifest(folder)["status"] == "finished" for folder in found) and not _not_begun(found)
        if finished and command.steps is None:
            if processes.rank() == 0:
                _tell_finished(command, console)
            return
        for folder in found:
            manifest = read_manifest(folder)
            if not manifest["settings"]:
                raise DataError(f"{folder} was not begun by `denizen train`; use dz.rl.resume from Python")
            made = built(manifest, folder, world=world)
            env = made.env
            say(console, f"{folder}: {described(manifest)}, {status_now(folder, manifest['status'])}")
            results.append(
                made.resume(
                    folder,
                    steps=command.steps,
                    device=chosen,
                    validation_env=made.validation.get("env"),
                    sinks=sinks_of(manifest["settings"], folder),
                    progress=not quiet,
                )
            )
        for seed in _not_begun(found) if found != [path] else ():  # of several within the folder
            settings = manifest["settings"]
            made, folder = built({**manifest, "seed": seed}, found[0], world=world), path / f"seed-{seed}"
            say(console, f"{folder}: begins")
            patience = manifest["patience"] and Patience(**manifest["patience"])
            results.append(
                made.train(
                    seed=seed,
                    folder=folder,
                    settings=settings,
                    device=chosen,
                    compile=manifest["compile"],
                    validate_every=manifest["validate_every"],
                    patience=patience,
                    validation=made.validation,
                    sinks=sinks_of(settings, folder),
                    progress=not quiet,
                )
            )
        first = processes.rank() == 0
    if first:
        tell(results, path, console, env, target)
        if quiet:
            give(path)


def _found_again(manifest: dict[str, Any], folder: Path, path: Path, target: str) -> Target[WorldEntry] | None:
    """The world that the command line names again; None for one of the zoo."""
    before = origin_of(manifest["settings"], folder)
    named_again(before, path, target, "resume")
    if before is None:
        if target:
            raise ConfigError(f"{path} was not begun with a file; leave {target} out")
        return None
    world = find(target)
    before.unchanged(world.origin, path, f"dz.rl.resume({str(folder)!r}, env, policy, algorithm)")
    return world


def _tell_finished(command: "Resume", console: "Console") -> None:
    say(console, f"{command.run} is finished: nothing is missing; --steps MORE trains it further")
    show(command, console)
    if command.quiet:
        give(command.run)


def command(manifest: Mapping[str, Any]) -> str:
    """What begins a training like one in a folder."""
    from denizen.app._train import TABLES

    settings = manifest["settings"]
    first, seeds = settings.get("seeds", (manifest["seed"], 1))
    given = {
        "algo": settings["algo"],
        "steps": max(manifest["total_steps"], manifest["updates"] * manifest["samples"]),
        "seed": first,
        "seeds": seeds,
        "validate-every": manifest.get("validate_every"),
        "patience": (manifest.get("patience") or {}).get("updates"),
    }
    words = [word for name, value in given.items() if value is not None for word in (f"--{name}", str(value))]
    for name in TABLES:
        pairs = [f"{key}={value}" for key, value in (settings.get(name) or {}).items()]
        words += [f"--{name}", *pairs] if pairs else []
    return shlex.join(["denizen", "train", settings["world_name"], *words])


def _not_begun(found: Sequence[Path]) -> list[int]:
    """Seeds of the command that wrote these folders of trainings which it did not come to."""
    from denizen.rl import read_manifest

    first, count = (read_manifest(found[0])["settings"] or {}).get("seeds", (0, 1))
    begun = {folder.name for folder in found}
    return [] if count == 1 else [seed for seed in range(first, first + count) if f"seed-{seed}" not in begun]


def export(command: "Export", console: "Console") -> Callable[[str, Path], None]:
    """`denizen export` of a training: a row for each update, and for each seed where there are several."""
    from denizen._results import write_table
    from denizen.app._export import of_rows
    from denizen.rl import read_manifest, read_metrics

    found = folders(command.run, "export")

    def write(form: str, file: Path) -> None:
        if form == "netcdf":
            raise ConfigError("--netcdf is for simulations and calibrations; of a training take --csv or --parquet")
        rows = [
            ({"seed": read_manifest(folder)["seed"]} if len(found) > 1 else {}) | row
            for folder in found
            for row in read_metrics(folder)
        ]
        write_table(of_rows(rows), file)

    return write


def show(command: "Show | Resume", console: "Console") -> None:
    """`denizen show` of a training: what its folder holds, and its curves again."""
    from denizen._atomic import status_now
    from denizen.app._curves import draw
    from denizen.rl import read_manifest, read_metrics

    path = command.run
    found = folders(path, "show")
    for folder in found:
        manifest = read_manifest(folder)
        say(console, f"{folder}: {described(manifest)}, {status_now(folder, manifest['status'])}")
        say(console, f"  {manifest['algorithm']}")
        rows = read_metrics(folder)
        if not rows:
            say(console, f"  no update is saved yet; go on: denizen resume {shlex.quote(str(folder))}")
        for row in rows[-1:]:
            told = [f"{name} {value:.4g}" for name, value in row.items() if isinstance(value, int | float)]
            say(console, "  last update: " + ", ".join(told))
    picture = draw(found, path / "curves.png", console)
    if picture is not None:
        say(console, f"curves: {picture}")
