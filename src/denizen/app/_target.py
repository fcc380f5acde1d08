"""What a word of the command line stands for: a name of the zoo, `FILE.py:NAME` or `package.module:NAME`.

Every command that takes a model, a world or a step finds it here. Code of a file runs only because somebody named the
file on the command line (or in the `--config` file that they named there): what a run folder says of a file is shown
and compared, and never run by itself.
"""

import ast
import dataclasses
import importlib
import importlib.util
import inspect
import shlex
import sys
from collections.abc import Callable, Mapping
from pathlib import Path
from types import ModuleType
from typing import Any, Generic, TypeVar

from denizen._atomic import digest
from denizen.app._failures import their_code
from denizen.app._settings import returned
from denizen.errors import ConfigError, DataError, nearest
from denizen.model import Env, Model
from denizen.perf.watch import USER, role
from denizen.zoo import ModelEntry, WorldEntry, entries, entry

KEY = "origin"  # of a manifest's settings: where the model of a run, of whatever kind, came from a file
EXPECTED = "FILE.py:NAME or package.module:NAME"
Entry = TypeVar("Entry", ModelEntry, WorldEntry)
_scripts: set[str] = set()  # names of modules that were run from files here


@dataclasses.dataclass(frozen=True)
class Origin:
    """A file of the user's, as it was when a run began.

    Attributes:
        file: absolute path.
        name: what was taken from it.
        digest: BLAKE2b of its content.
    """

    file: str
    name: str
    digest: str

    @classmethod
    def of(cls, file: Path | str, name: str) -> "Origin":
        """A file as it is now.

        Raises:
            ConfigError: it cannot be read.
        """
        path = Path(file).absolute()
        try:
            return cls(str(path), name, digest(path.read_bytes()))
        except OSError as error:
            raise ConfigError(f"{file} cannot be read: {error.strerror}") from error

    def settings(self) -> dict[str, Any]:
        """What goes into a manifest's settings."""
        return {KEY: dataclasses.asdict(self)}

    def unchanged(self, now: "Origin | None", folder: Path | str, instead: str) -> None:
        """Refuse to go on where the file is not what it was.

        Args:
            now: the file that the command line names, as it is now.
            folder: what was begun with it.
            instead: how to go on all the same in Python.

        Raises:
            DataError: it is another file, or it has changed.
        """
        ways = f"begin a new run, or go on all the same in Python: {instead}"
        if now is None or now.name != self.name:
            found = "a name of the zoo" if now is None else f"{now.file}:{now.name}"
            raise DataError(f"{folder} was begun with {self.file}:{self.name}, not with {found}; name that, {ways}")
        if now.digest != self.digest:
            raise DataError(
                f"{self.file} has changed since {folder} was begun with it (content {now.digest}, then "
                f"{self.digest}); bring it back, {ways}"
            )


@dataclasses.dataclass(frozen=True)
class Target(Generic[Entry]):
    """What a word stands for.

    Attributes:
        word: as it was typed, a path made absolute.
        entry: how it is built.
        origin: the file that it came from; None for the zoo.
    """

    word: str
    entry: Entry
    origin: Origin | None = None


def model(word: str) -> Target[ModelEntry]:
    """The model that a word names: a class, an object, or a function that returns one.

    Raises:
        ConfigError: it names nothing, or something else.
        TheirsError: the file raised something.
    """
    if not word:
        raise ConfigError(f"which model? {', '.join(entries(ModelEntry))}, or FILE.py:NAME; such as: denizen run covid")
    return _target(word, ModelEntry, "model", _is_model, _model_entry)


def world(word: str) -> Target[WorldEntry]:
    """The same of a world."""
    if not word:
        raise ConfigError(
            f"which world? {', '.join(entries(WorldEntry))}, or FILE.py:NAME; such as: denizen train cartpole"
        )
    return _target(word, WorldEntry, "world", _is_world, _world_entry)


def either(word: str) -> Target[Any]:
    """The model or the world that a word names.

    Raises:
        ConfigError: it names nothing, or something else; a function must say by its annotation that it returns a world.
    """
    found: Any = entry(word)
    if found is not None:
        return Target(word, found)
    if not (_is_place(word) or ":" in word):
        names = nearest(word, [*entries(ModelEntry), *entries(WorldEntry)])
        raise ConfigError(f"{word!r} does not exist; {names}, or FILE.py:NAME")
    with their_code():
        place, name, module = _opened(word)
        name = name or _only(word, place, module, is_either, None, "model or world")
        value = _found(word, place, module, name, lambda value: is_either(value) or inspect.isfunction(value))
    made = _entry_of(value)
    if made is None:
        raise ConfigError(_none(word, name, value, "a dz.Model or dz.Env"))
    return _of_code(place, name, module, made)


def listed(word: str) -> dict[str, Any]:
    """The entries of models and worlds that a word names: one, or all of a file that is named alone.

    Raises:
        ConfigError: it names nothing, or something else.
        TheirsError: the file raised something.
    """
    if ":" in word or not _is_place(word):
        found = either(word)
        return {word: found.entry}
    with their_code():
        place, _, module = _opened(word)
    if hasattr(module, "ENTRY"):
        return {word: either(word).entry}

    def fits(value: Any) -> bool:
        made = returned(value) if inspect.isfunction(value) else None
        return is_either(value) or (isinstance(made, type) and (_is_model(made) or _is_world(made)))

    names = _of(module, fits)
    if not names:
        raise ConfigError(
            f"{place} has no dz.Model, no dz.Env, and no function that says that it returns one: def make() -> Epidemic"
        )
    return {f"{place}:{name}": _entry_of(getattr(module, name)) for name in names}


def _entry_of(value: Any) -> Any:
    """How to build what a name is; None where it is no model, no world and no function."""
    made = returned(value) if inspect.isfunction(value) else None
    if isinstance(value, ModelEntry | WorldEntry):
        return value
    if _is_world(value) or (isinstance(made, type) and _is_world(made)):
        return _world_entry(value)
    return _model_entry(value) if _is_model(value) or inspect.isfunction(value) else None


def known(name: str, kind: type[Entry]) -> Entry:
    """What the zoo has of a name that a run folder tells; no file is read.

    Raises:
        ConfigError: there is none; names the nearest.
    """
    found = entry(name)
    if not isinstance(found, kind):
        what = "model" if kind is ModelEntry else "world"
        raise ConfigError(f"{what} {name!r} does not exist; {nearest(name, entries(kind))}")
    return found


def origin_of(settings: Mapping[str, Any] | None, folder: Path | str) -> Origin | None:
    """Where the model of a run folder came from; None where it is one of denizen's own, or began from Python.

    Raises:
        DataError: the manifest's entry is damaged.
    """
    held = (settings or {}).get(KEY)
    if held is None:
        return None
    names = [field.name for field in dataclasses.fields(Origin)]
    if not isinstance(held, dict) or sorted(held) != sorted(names) or not all(isinstance(held[n], str) for n in names):
        raise DataError(f"{folder}/manifest.json: settings: {KEY} is {held!r}, expected texts for {', '.join(names)}")
    return Origin(**held)


def named_again(origin: Origin | None, folder: Path, word: str, verb: str) -> None:
    """Refuse to run the file of a folder that the command line does not name.

    Args:
        origin: the file that the folder remembers; None where it was made with a name of the zoo.
        folder: a run folder.
        word: what the command line names beside the folder; "" for nothing.
        verb: the command.

    Raises:
        ConfigError: the file is not named.
    """
    if origin is not None and not word:
        named = shlex.quote(f"{origin.file}:{origin.name}")
        again = f"add --model {named}" if verb == "compare" else f"denizen {verb} {shlex.quote(str(folder))} {named}"
        raise ConfigError(
            f"{folder} was made with {origin.file}:{origin.name}; a file runs only where you name it: {again}"
        )


def function(word: str, default: str = "make") -> Callable[..., Any]:
    """The function or class that a word names.

    Args:
        word: ``FILE.py:NAME`` or ``package.module:NAME``.
        default: name where there is none.

    Raises:
        ConfigError: there is no such file, module or function.
    """
    place, name, module = _opened(word)
    found = _found(word, place, module, name or default, callable)
    if not callable(found):
        raise ConfigError(f"{word}: expected a function; {name or default!r} has type {type(found).__name__}")
    return found


def maker(word: str) -> Callable[..., Any]:
    """The function that builds a step: one of the user's, or that of a model or a world, by name or from a file.

    Raises:
        ConfigError: there is no such name, file, module or function.
    """
    found: Any = entry(word)
    if found is None:
        if not (_is_place(word) or ":" in word or "." in word):
            names = nearest(word, [*entries(ModelEntry), *entries(WorldEntry)])
            raise ConfigError(f"{word!r} names nothing; expected {EXPECTED}, or a name of the zoo; {names}")
        place, name, module = _opened(word)
        name = name or _only(word, place, module, is_either, "make")
        found = _found(word, place, module, name, lambda value: is_either(value) or callable(value))
        if _is_model(found):
            found = _model_entry(found)
        elif _is_world(found):
            found = _world_entry(found)
        elif not isinstance(found, ModelEntry | WorldEntry):
            if not callable(found):
                raise ConfigError(f"{word}: expected a function; {name!r} has type {type(found).__name__}")
            return found
    return steps_of_model(word, found) if isinstance(found, ModelEntry) else steps_of_world(word, found)


# --- names ------------------------------------------------------------------------------------------------------------


def _target(
    word: str, kind: type[Entry], what: str, fits: Callable[[Any], bool], made: Callable[[Any], Entry]
) -> Target[Entry]:
    found = entry(word)
    if isinstance(found, kind):
        return Target(word, found)
    if found is not None:
        is_world = isinstance(found, WorldEntry)
        told = (
            f"is a world, to train in: denizen train {word}" if is_world else f"is a model, to run: denizen run {word}"
        )
        raise ConfigError(f"{word} {told}")
    if not (_is_place(word) or ":" in word):
        here = f"{word}.py is a file: name it as {word}.py; " if Path(f"{word}.py").is_file() else ""
        raise ConfigError(f"{what} {word!r} does not exist; {here}{nearest(word, entries(kind))}, or FILE.py:NAME")

    def both(value: Any) -> bool:
        return isinstance(value, kind) or fits(value)

    with their_code():
        place, name, module = _opened(word)
        name = name or _only(word, place, module, both, None, what)
        value = _found(word, place, module, name, lambda value: both(value) or inspect.isfunction(value))
    if not (both(value) or inspect.isfunction(value)):
        raise ConfigError(_none(word, name, value, "a dz.Model" if kind is ModelEntry else "a dz.Env"))
    return _of_code(place, name, module, value if isinstance(value, kind) else made(value))


def _none(word: str, name: str, value: Any, wanted: str) -> str:
    """What to say of a name that is nothing of a kind."""
    is_class = isinstance(value, type)
    held = f"the class {value.__name__}" if is_class else f"of type {type(value).__name__}"
    hint = ""
    if _is_world(value) or isinstance(value, WorldEntry):
        hint = f"; it is a world, to train in: denizen train {word}"
    elif _is_model(value) or isinstance(value, ModelEntry):
        hint = f"; it is a model, to simulate: denizen run {word}"
    return f"{word}: {name} is {held}, expected {wanted}, or a function that returns one{hint}"


def _of_code(place: str, name: str, module: ModuleType, found: Entry) -> Target[Entry]:
    file = Path(module.__file__ or "").absolute()
    typed = f"{file if _is_place(place) else place}:{name}"
    top = _top(file)
    origin = Origin.of(file, name) if top is None else Origin(str(file), name, _digest(top))
    return Target(typed, found, origin)


def _is_place(word: str) -> bool:
    """Whether a word is the path of a file or folder rather than a module."""
    place = word.rpartition(":")[0] if ":" in word else word
    return place.endswith(".py") or "/" in place or (bool(place) and (Path(place) / "__init__.py").is_file())


def _opened(word: str) -> tuple[str, str, ModuleType]:
    """(place, name or "", module) of a word."""
    place, _, name = word.rpartition(":") if ":" in word else (word, "", "")
    return place, name, _run(Path(place), word) if _is_place(place) else _import(place, word)


def _found(word: str, place: str, module: ModuleType, name: str, fits: Callable[[Any], bool]) -> Any:
    """What a module has of a name, which may have dots; the message for a wrong one lists what fits."""
    found: Any = module
    for part in name.split("."):
        if not hasattr(found, part):
            raise ConfigError(f"{word}: {place} has no {name!r}; {nearest(name, _of(module, fits))}")
        found = getattr(found, part)
    return found


def _only(
    word: str, place: str, module: ModuleType, fits: Callable[[Any], bool], default: str | None, what: str = "step"
) -> str:
    """The name that is meant where none was given: the file's `ENTRY`, the default, or the only one that fits.

    Where nothing fits but there is one function, that is meant.
    """
    for name in ("ENTRY", default):
        if name and hasattr(module, name):
            return name
    names = _of(module, fits) or _of(module, inspect.isfunction)
    if len(names) != 1:
        others = ", ".join(_of(module, is_either))
        told = f"has no {what}" + (f"; it has {others}, of another kind" if others else "")
        if names:
            told = f"has {', '.join(names)}; say which, such as {place}:{names[0]}"
        raise ConfigError(f"{place} {told}")
    return names[0]


def _of(module: ModuleType, fits: Callable[[Any], bool]) -> list[str]:
    """Public names of a module's own that fit: what it imports is not its own."""
    return [
        name
        for name, value in vars(module).items()
        if not name.startswith("_") and fits(value) and getattr(value, "__module__", module.__name__) == module.__name__
    ]


# --- kinds ------------------------------------------------------------------------------------------------------------


def _is_model(value: Any) -> bool:
    cls = value if isinstance(value, type) else type(value)
    return issubclass(cls, Model) and not issubclass(cls, Env)


def _is_world(value: Any) -> bool:
    return issubclass(value if isinstance(value, type) else type(value), Env)


def is_either(value: Any) -> bool:
    """Whether something is a model or a world, or says how to build one."""
    return isinstance(value, ModelEntry | WorldEntry) or _is_model(value) or _is_world(value)


def _model_entry(value: Any) -> ModelEntry:
    if isinstance(value, type):
        return ModelEntry(about=_about(value), model=value, build=value)
    if isinstance(value, Model):
        return ModelEntry(about=_about(type(value)), model=type(value), build=lambda: value)
    return ModelEntry(about=_about(value), model=Model, build=value)  # its class shows once it was called


def _world_entry(value: Any) -> WorldEntry:
    if not isinstance(value, Env):
        return WorldEntry(about=_about(value), build=value)

    def build(**changes: Any) -> Any:
        return value.replace(**changes)

    build.__annotations__["return"] = type(value)  # whose fields are its options
    return WorldEntry(about=_about(type(value)), build=build)


def _about(value: Any) -> str:
    """The first line of its own docstring: not of what it inherits, nor what dataclasses write where there is none."""
    text = vars(value).get("__doc__") or "" if isinstance(value, type) else inspect.getdoc(value) or ""
    written = isinstance(value, type) and text.startswith(f"{value.__name__}(")
    return "" if written else inspect.cleandoc(text).partition("\n")[0].rstrip(".")


# --- files ------------------------------------------------------------------------------------------------------------


def _run(path: Path, word: str) -> ModuleType:
    """The module of a file, or of a folder with `__init__.py`.

    A script is run as a module of its own name, with its folder first on the path, so that its imports work and what it
    defines can be sent to other processes; its ``if __name__ == "__main__":`` part does not run. One that imports from
    its folder by dots (``from .model import …``) is run as a part of its package.
    """
    file = path / "__init__.py" if path.is_dir() else path
    if path.is_dir() and not file.is_file():
        raise ConfigError(f"{word}: {path} is a folder; expected {EXPECTED}")
    if not file.is_file():
        raise ConfigError(f"{word}: there is no file {file}")
    top = _top(file)
    folder = (file if top is None else top).resolve().parent
    sys.path.insert(0, str(folder))
    if top is None:
        return _executed(file, file.stem)
    parts = file.resolve().relative_to(folder).with_suffix("").parts
    return _part_of(top, [part for part in parts if part != "__init__"])


def _part_of(top: Path, parts: list[str]) -> ModuleType:
    """A module of a package in a folder, which a package of the same name that was imported before does not hide.

    Raises:
        ConfigError: the one that was imported before is a library, whose other users would find the folder's.
    """
    held = sys.modules.get(parts[0])
    file = getattr(held, "__file__", None) or ""
    if held is None or Path(file).resolve() != (top / "__init__.py").resolve():
        if held is not None and role(file) != USER:
            raise ConfigError(f"{top} has the name of a library that is in use, {parts[0]}; rename the folder")
        for name in [name for name in sys.modules if name.partition(".")[0] == parts[0]]:
            del sys.modules[name]
    return importlib.import_module(".".join(parts))


def _top(file: Path) -> Path | None:
    """The folder of the outermost package that a file is a part of; None for a script."""
    if file.name != "__init__.py" and not _imports_by_dots(file):
        return None
    folder = file.resolve().parent
    while (folder.parent / "__init__.py").is_file():
        folder = folder.parent
    return folder if (folder / "__init__.py").is_file() else None


def _imports_by_dots(file: Path) -> bool:
    try:
        tree = ast.parse(file.read_bytes())
    except (SyntaxError, ValueError):
        return False  # running it tells
    return any(isinstance(node, ast.ImportFrom) and node.level for node in ast.walk(tree))


def _executed(file: Path, name: str) -> ModuleType:
    spec = importlib.util.spec_from_file_location(name, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    kept, words = sys.modules.get(name), sys.argv
    sys.argv = [str(file)]  # a script that reads words reads none of ours
    if kept is None or name in _scripts:  # a library of that name, as for random.py, stays what others import
        _scripts.add(name)
        sys.modules[name] = module  # dataclasses and pickles look it up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if kept is not None:
            sys.modules[name] = kept
        else:
            del sys.modules[name]
        raise
    finally:
        sys.argv = words
    return module


def _import(name: str, word: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{word!r} names nothing; expected {EXPECTED}")
    if Path(name).is_dir():  # Python would import it, with nothing in it
        raise ConfigError(f"{word}: {name} is a folder; expected {EXPECTED}")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # something that it imports is missing
        raise ConfigError(f"{word}: there is no module {name}; expected {EXPECTED}") from error


def _digest(package: Path) -> str:
    """Of all Python files of a package."""
    parts = [
        (str(part.relative_to(package)).encode(), part.read_bytes())
        for part in sorted(package.rglob("*.py"))
        if part.is_file()
    ]
    return digest(b"".join(b"%s %d %s" % (name, len(data), data) for name, data in parts))


# --- one as a function that builds a step, which doctor, bench and profile look at ------------------------------------


Make = Callable[..., Callable[[], Any]]
REACH = 1.0  # actions of a space without bounds lie within ± that


def steps_of_model(word: str, entry: ModelEntry) -> Make:
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


def steps_of_world(word: str, entry: WorldEntry) -> Make:
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
