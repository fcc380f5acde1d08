"""What a word such as `script.py:make` or `package.module:make` on the command line stands for."""

import importlib
import importlib.util
import sys
from collections.abc import Callable
from pathlib import Path
from types import ModuleType
from typing import Any

from denizen.errors import ConfigError, nearest


def load_target(word: str, default: str = "make") -> Callable[..., Any]:
    """The function that a word names.

    A script is run as a module of its own name, with its folder first on the path, so that its imports work and what it
    defines can be sent to other processes; its ``if __name__ == "__main__":`` part does not run. Errors of its own pass
    through with their traceback.

    Args:
        word: ``FILE.py:NAME`` or ``package.module:NAME``.
        default: name where there is none.

    Raises:
        ConfigError: there is no such file, module or function.
    """
    place, _, name = word.rpartition(":") if ":" in word else (word, "", default)
    is_file = place.endswith(".py") or "/" in place
    module = _run(Path(place), word) if is_file else _import(place, word)
    found: Any = module
    for part in (name or default).split("."):
        if not hasattr(found, part):
            names = [n for n, value in vars(module).items() if callable(value) and not n.startswith("_")]
            raise ConfigError(f"{word}: {place} has no {name!r}; {nearest(name, names)}")
        found = getattr(found, part)
    if not callable(found):
        raise ConfigError(f"{word}: expected a function; {name!r} has type {type(found).__name__}")
    return found


def _run(file: Path, word: str) -> ModuleType:
    if file.is_dir():
        raise ConfigError(f"{word}: {file} is a folder; expected FILE.py:NAME or package.module:NAME")
    if not file.is_file():
        raise ConfigError(f"{word}: there is no file {file}")
    sys.path.insert(0, str(file.resolve().parent))
    spec = importlib.util.spec_from_file_location(file.stem, file)
    assert spec is not None
    assert spec.loader is not None
    module = importlib.util.module_from_spec(spec)
    kept, words = sys.modules.get(file.stem), sys.argv
    sys.argv = [str(file)]  # a script that reads words reads none of ours
    sys.modules[file.stem] = module  # dataclasses and pickles look it up
    try:
        spec.loader.exec_module(module)
    except BaseException:
        if kept is not None:
            sys.modules[file.stem] = kept
        else:
            del sys.modules[file.stem]
        raise
    finally:
        sys.argv = words
    return module


def _import(name: str, word: str) -> ModuleType:
    if not all(part.isidentifier() for part in name.split(".")):
        raise ConfigError(f"{word!r} names nothing; expected FILE.py:NAME or package.module:NAME")
    if Path(name).is_dir() and not (Path(name) / "__init__.py").exists():  # Python would import it, with nothing in it
        raise ConfigError(f"{word}: {name} is a folder; expected FILE.py:NAME or package.module:NAME")
    if str(Path.cwd()) not in sys.path:
        sys.path.insert(0, str(Path.cwd()))
    try:
        return importlib.import_module(name)
    except ModuleNotFoundError as error:
        if error.name is None or not (name == error.name or name.startswith(f"{error.name}.")):
            raise  # something that it imports is missing
        raise ConfigError(f"{word}: there is no module {name}; expected FILE.py:NAME or package.module:NAME") from error
