"""What the source of a line says: the loops around it."""

import ast
import functools
import linecache

_LOOPS = (ast.For, ast.AsyncFor, ast.While, ast.ListComp, ast.GeneratorExp, ast.DictComp, ast.SetComp)


@functools.lru_cache(64)
def _tree(file: str) -> ast.AST | None:
    try:
        return ast.parse("".join(linecache.getlines(file)))
    except (SyntaxError, ValueError):
        return None


@functools.lru_cache(4096)
def loops_around(file: str, line: int) -> tuple[int, ...]:
    """First lines of the loops around a line, within its function, the innermost last."""
    tree = _tree(file)
    if tree is None:
        return ()
    functions = [n for n in ast.walk(tree) if isinstance(n, ast.FunctionDef | ast.AsyncFunctionDef | ast.Lambda)]
    around = [f for f in functions if f.lineno <= line <= (f.end_lineno or 0)]
    scope = max(around, key=lambda f: f.lineno) if around else tree
    heads = {
        node.lineno
        for node in ast.walk(scope)
        if isinstance(node, _LOOPS) and node.lineno <= line <= (node.end_lineno or node.lineno)
    }
    return tuple(sorted(heads))


def read_anew() -> None:
    """Forget sources: a file may have been edited since the doctor last looked, as in a notebook."""
    linecache.checkcache()
    _tree.cache_clear()
    loops_around.cache_clear()
