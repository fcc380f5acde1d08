"""What the source of a line says: the loops around it."""

import ast
import functools
import linecache
from typing import TypeGuard

# Functions that call another one for each of many things.
_CALLS = {"map", "filter", "reduce", "starmap", "accumulate", "tree_map"}
_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)


_lines: dict[str, list[str]] = {}  # of files that were looked at, as they were then


@functools.lru_cache(64)
def _tree(file: str) -> ast.AST | None:
    _lines[file] = linecache.getlines(file)
    try:
        return ast.parse("".join(_lines[file]))
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(64)
def _functions(file: str) -> list[ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda]:
    """Functions of a file, but those that a loop is given as an argument: their lines are the loop's."""
    nodes = list(ast.walk(_tree(file) or ast.Module([], [])))
    given = {id(argument) for node in nodes if _is_loop(node) for argument in getattr(node, "args", ())}
    kinds = ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda
    return [node for node in nodes if isinstance(node, kinds) and id(node) not in given]


@functools.lru_cache(4096)
def loops_around(file: str, line: int) -> tuple[int, ...]:
    """First lines of the loops around a line, within its function, the innermost last."""
    tree = _tree(file)
    if tree is None:
        return ()
    around = [f for f in _functions(file) if f.lineno <= line <= (f.end_lineno or 0)]
    scope = max(around, key=lambda f: f.lineno) if around else tree
    heads = {
        node.lineno
        for node in ast.walk(scope)
        if _is_loop(node) and node.lineno <= line <= (node.end_lineno or node.lineno)
    }
    return tuple(sorted(heads))


def _is_loop(node: ast.AST) -> TypeGuard[ast.stmt | ast.expr]:
    if isinstance(node, ast.Call):
        return getattr(node.func, "attr", getattr(node.func, "id", "")) in _CALLS
    return isinstance(node, _LOOPS)


@functools.lru_cache(4096)
def clock_attributes(file: str, line: int) -> tuple[str, str]:
    """Attributes that a line keeps a clock's reading in (``self.t = time()``) and takes one from; "" for none."""
    kept = taken = ""
    for node in ast.walk(_tree(file) or ast.Module([], [])):
        if line != getattr(node, "lineno", 0):
            continue
        if isinstance(node, ast.Assign) and isinstance(node.value, ast.Call):
            kept = next((target.attr for target in node.targets if isinstance(target, ast.Attribute)), kept)
        if isinstance(node, ast.BinOp) and isinstance(node.op, ast.Sub) and isinstance(node.left, ast.Call):
            taken = getattr(node.right, "attr", taken)
    return kept, taken


def read_anew() -> None:
    """Forget sources where a file was edited since the doctor last looked, as in a notebook."""
    linecache.checkcache()
    if all(linecache.getlines(file) == lines for file, lines in _lines.items()):
        return
    _lines.clear()
    _tree.cache_clear()
    _functions.cache_clear()
    loops_around.cache_clear()
    clock_attributes.cache_clear()
