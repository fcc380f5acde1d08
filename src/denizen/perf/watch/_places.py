"""Which line of the user's caused what happens now: the stack above torch, libraries and this package's counting."""

import ast
import dataclasses
import dis
import itertools
import linecache
import os
import sys
import sysconfig
import warnings
from types import CodeType, FrameType, ModuleType

import torch

KIT, LIBRARY, USER = "kit", "library", "user"

_PERF = os.path.dirname(os.path.dirname(__file__))
_COUNTING = tuple(os.path.join(_PERF, name) + os.sep for name in ("watch", "simulated", "_budget", "_doctor"))
_PACKAGE = os.path.dirname(_PERF) + os.sep
STDLIB = sysconfig.get_paths()["stdlib"] + os.sep
PACKAGES = (f"{os.sep}site-packages{os.sep}", f"{os.sep}dist-packages{os.sep}")  # lie within it, often
_LIBRARIES = (os.path.dirname(torch.__file__) + os.sep, STDLIB, _PACKAGE)
# Code without a file: torch.fx writes graphs, Python's importer and NumPy have frames of their own.
_GENERATED = ("<frozen ", "<eval_with_key>", "<__array_function__", "<attrs generated ")
_WRAPPERS = ("torch/_compile.py", "torch/_dynamo/eval_frame.py")  # torch's around every dispatch mode
# How torch calls a mode and takes operations apart: on every way from a line to this package.
_PLUMBING = tuple(
    os.path.join(os.path.dirname(torch.__file__), *parts)
    for parts in (("_compile.py",), ("_dynamo", "eval_frame.py"), ("_ops.py",))
)
_REGISTERS = ("torch/library.py", "torch/_library/utils.py")  # torch's around what is registered for a device
DEEPEST = 12  # library frames remembered of one event

_roles: dict[str, str] = {}
_BY_OPCODE = (("FORMAT_", "__format__"), ("POP_JUMP_", "__bool__"), ("JUMP_IF_", "__bool__"), ("UNARY_NOT", "__bool__"))
_BY_OPCODE += (("TO_BOOL", "__bool__"), ("CONTAINS_OP", "__contains__"))
_BY_NAME = {"float": "__float__", "int": "__int__", "bool": "__bool__", "complex": "__complex__", "range": "__index__"}
_BY_NAME |= {"print": "__repr__", "repr": "__repr__", "str": "__repr__", "format": "__format__"}
_BY_NAME |= {"allclose": "__bool__", "is_nonzero": "__bool__", "array": "numpy", "asarray": "numpy"}


@dataclasses.dataclass(frozen=True)
class Place:
    """Where something happened.

    Attributes:
        file: of the line that is the user's; of the innermost library where no frame is.
        line: in that file.
        function: that the line is in.
        libraries: library functions between that line and the event, innermost first: (file, line, function).
        method: the tensor method through which a value left (``"__bool__"``, ``"item"``), "" where it is not known.
    """

    file: str
    line: int
    function: str
    libraries: tuple[tuple[str, int, str], ...] = ()
    method: str = ""

    @property
    def code(self) -> str:
        """The line's text; "" where the file cannot be read."""
        return linecache.getline(self.file, self.line).strip()

    @property
    def via(self) -> str:
        """The library line that did it, as ``file:line in function``; "" where the user's line itself did."""
        if not self.libraries:
            return ""
        file, line, function = self.libraries[0]
        return f"{short(file)}:{line} in {function}"

    def passes(self, tail: str, function: str = "") -> bool:
        """Whether a library file that ends so (and such a function of it) lies between."""
        return any(file.endswith(tail) and function in ("", name) for file, _, name in self.libraries)


def short(file: str) -> str:
    """A library's path from its package on."""
    for part in PACKAGES:
        if part in file:
            return file.rsplit(part, 1)[1]
    return os.path.relpath(file, os.path.dirname(os.path.dirname(_PACKAGE))) if file.startswith(_PACKAGE) else file


def shown(file: str) -> str:
    """A file for people; a cell of a notebook has the name that its tracebacks have, such as ``Cell In[2]``."""
    shell = getattr(sys.modules.get("IPython"), "get_ipython", lambda: None)()
    name = None if shell is None else shell.compile.format_code_name(file)
    return file if name is None else " ".join(name)


def locate(methods: frozenset[str] = frozenset(), thread: int | None = None) -> Place:
    """The line to blame for what the caller does now.

    Args:
        methods: names of this package's functions that stand for tensor methods.
        thread: whose stack to look at where this thread has no line of the user's (autograd's threads run backward
            passes while the thread that asked waits).
    """
    place = _walk(sys._getframe(1), methods)
    if place is None or role(place.file) != USER:
        other = sys._current_frames().get(thread) if thread is not None else None
        elsewhere = _walk(other, methods) if other is not None else None
        if elsewhere is not None and (place is None or role(elsewhere.file) == USER):
            return elsewhere
    return place or Place("<unknown>", 0, "")


def _walk(start: FrameType | None, methods: frozenset[str]) -> Place | None:
    libraries: list[tuple[str, int, str]] = []
    method, frame = "", start
    while frame is not None:
        code = frame.f_code
        kind = role(code.co_filename)
        if kind == USER and is_user(code):
            return Place(code.co_filename, frame.f_lineno, code.co_name, tuple(libraries), method)
        if kind == KIT:
            if code.co_name in methods:
                method = code.co_name
        elif len(libraries) < DEEPEST and (libraries or not code.co_filename.endswith(_WRAPPERS)):
            libraries.append((code.co_filename, frame.f_lineno, code.co_name))
        frame = frame.f_back
    return Place(*libraries[0], tuple(libraries), method) if libraries else None


def is_user(code: CodeType) -> bool:
    """Whether code is the user's; not what `dataclass` makes."""
    return role(code.co_filename) == USER and not made_by_dataclass(code)


def made_by_dataclass(code: CodeType) -> bool:
    """Whether `dataclass` wrote a method, such as `__repr__`: into text without a file, as that of `python -c` is."""
    return code.co_filename == "<string>" and code.co_qualname.startswith("__create_fn__.")


def written(depth: int = 1) -> str:
    """The tensor method that the code of the innermost frame outside of this package calls now, read from its text.

    Where tensors are torch's own, values leave them through methods that have no frame: the position of the running
    instruction tells `loss.item()` from `float(loss)` and `if loss:`. "" where it does not.
    """
    frame: FrameType | None = sys._getframe(depth)
    while frame is not None and (role(frame.f_code.co_filename) == KIT or _is_of_warnings(frame)):
        frame = frame.f_back
    if frame is None or frame.f_lasti < 0:
        return ""
    code = frame.f_code
    opcode = dis.opname[code.co_code[frame.f_lasti]]
    for part, method in _BY_OPCODE:
        if opcode.startswith(part):
            return method
    place = next(itertools.islice(code.co_positions(), frame.f_lasti // 2, None), (None,) * 4)
    return _meant(_expression(code.co_filename, *place), frame)


def instruction(any: bool = False) -> tuple[int, int]:
    """Frame and position of the user's instruction that runs: the same for all that torch does for it.

    Args:
        any: the innermost one, which may be a library's.
    """
    frame: FrameType | None = sys._getframe(1)
    while frame is not None and not (_calls_torch(frame.f_code) if any else is_user(frame.f_code)):
        frame = frame.f_back
    return (id(frame), frame.f_lasti) if frame is not None else (0, 0)


def _calls_torch(code: CodeType) -> bool:
    return role(code.co_filename) != KIT and not code.co_filename.endswith(_REGISTERS)


def _is_of_warnings(frame: FrameType) -> bool:
    return frame.f_code.co_filename == warnings.__file__


def _expression(file: str, first: int | None, last: int | None, start: int | None, end: int | None) -> ast.expr | None:
    """What a piece of code says; None where its text is not to be had."""
    if first is None or last is None or start is None or end is None:
        return None
    lines = [linecache.getline(file, line).encode() for line in range(first, last + 1)]
    lines[-1] = lines[-1][:end]
    lines[0] = lines[0][start:]
    try:
        return ast.parse(b"".join(lines).decode().strip(), mode="eval").body
    except (SyntaxError, ValueError):
        return None


def _meant(said: ast.expr | None, frame: FrameType) -> str:
    """The tensor method that an expression comes to; "" where it does not tell."""
    if isinstance(said, ast.Subscript):
        return "__getitem__" if _is_tensor(said.value, frame) else "__index__"
    if isinstance(said, ast.BinOp) and isinstance(said.op, ast.Mod):
        return "__float__"  # of a text: tensors divide without a word
    if not isinstance(said, ast.Call):
        return ""
    if isinstance(said.func, ast.Attribute):
        owner = _value(said.func.value, frame)
        foreign = isinstance(owner, ModuleType) and owner.__name__ in ("math", "cmath", "statistics")
        return "__float__" if foreign else _BY_NAME.get(said.func.attr, said.func.attr)
    name = getattr(said.func, "id", "")
    return _BY_NAME.get(name, name)


def _is_tensor(said: ast.expr, frame: FrameType) -> bool:
    """Whether an expression is a tensor, as far as names tell; what they do not tell of is held for one."""
    value = _value(said, frame)
    return isinstance(value, torch.Tensor) if value is not None else not isinstance(said, ast.Name)


def _value(said: ast.expr, frame: FrameType) -> object:
    """What a name holds, or what is under a name in an object; None where it is not known without running code."""
    if isinstance(said, ast.Attribute):
        return getattr(_value(said.value, frame), "__dict__", {}).get(said.attr)
    name = getattr(said, "id", "")
    return frame.f_locals.get(name, frame.f_globals.get(name))


def role(file: str) -> str:
    """Whose code a file holds: this package's counting, a library's (torch, the standard library), the user's."""
    try:  # asked for each frame under each operation: a call of `get` would take longer than the rest
        return _roles[file]
    except KeyError:
        pass
    if file.startswith(_COUNTING) or file in _PLUMBING:
        known = KIT
    elif file.startswith((*_LIBRARIES, *_GENERATED)) or any(part in file for part in PACKAGES):
        known = LIBRARY
    else:
        known = USER
    _roles[file] = known
    return known
