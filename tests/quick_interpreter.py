"""Triton's interpreter in half of its time: it does once what it does anew for every call of a function of a kernel.

It computes the same: what is left out has no effect, what is kept depends on nothing else.
"""

import dataclasses
from collections.abc import Callable
from typing import Any


def hasten() -> None:
    """Patch the interpreter of this process; older ones than Triton 3.7's stay as they are."""
    from triton.runtime import interpreter

    if not hasattr(interpreter, "_LangPatchScope"):
        return
    for part in (_without_idle_checks, _patches_once, _dtypes_once, _shapes_once):
        part(interpreter)


def _without_idle_checks(interpreter: Any) -> None:
    """Overflows are looked for in every sum and product, and asserted by kernels in debug mode alone."""
    builder = interpreter.interpreter_builder
    if not builder.options.debug:
        builder.options = dataclasses.replace(builder.options, sanitize_overflow=False)


def _patches_once(interpreter: Any) -> None:
    """Each launch patched Triton's language and took that back, each call of a function looked through all its names.

    Nothing but the interpreter asks for it in this process, so it stays patched.
    """
    patch_lang, scope_type = interpreter._patch_lang, interpreter._LangPatchScope
    language, core = interpreter.tl, interpreter.tl.core
    members: dict[int, tuple[Any, list[tuple[str, Any]]]] = {}
    patched: set[str] = set()

    def langs(function: Any) -> frozenset[str]:
        names = [name for name in ("tl", "core", "language") if name in function.__globals__]
        found = {id(function.__globals__[name]) for name in names}
        return frozenset(name for name, lang in (("tl", language), ("core", core)) if id(lang) in found)

    def patch_builtin(package: Any, builder: Any, scope: Any) -> None:
        if id(package) not in members:
            found = interpreter.inspect.getmembers(package)
            members[id(package)] = (package, [(n, m) for n, m in found if core.is_builtin(m)])
        for name, member in members[id(package)][1]:
            interpreter._patch_attr(package, name, member, builder, scope)

    def patch(function: Any) -> Any:
        wanted = langs(function)
        if wanted and wanted <= patched:
            return scope_type()  # nothing to restore
        scope = patch_lang(function)
        if wanted:
            patched.update(wanted)
            scope._changes.clear()
        return scope

    interpreter._patch_builtin = patch_builtin
    interpreter._patch_lang = patch


def _dtypes_once(interpreter: Any) -> None:
    """NumPy's type of a type of Triton was looked up in a table that was built for it."""
    of, known = interpreter._get_np_dtype, {}

    def np_dtype(dtype: Any) -> Any:
        key = (dtype.__class__, dtype.scalar.__class__, dtype.scalar.name)
        if key not in known:
            known[key] = of(dtype)
        return known[key]

    interpreter._get_np_dtype = np_dtype


def _shapes_once(interpreter: Any) -> None:
    """Shapes were checked and wrapped for each value that has them."""
    core = interpreter.tl.core
    plain: Callable[..., None] = core.block_type.__init__
    shapes: dict[tuple[Any, ...], tuple[Any, ...]] = {}
    wrapped: dict[tuple[int, ...], tuple[Any, Any]] = {}

    def block_type(self: Any, element_ty: Any, shape: Any) -> None:
        key = tuple(shape) if type(shape) in kinds else None
        if key is None or any(type(size) is not int for size in key):
            plain(self, element_ty, shape)
            return
        key = (element_ty.__class__, element_ty.name, *key)
        if key not in shapes:
            plain(self, element_ty, shape)
            shapes[key] = (self.shape, self.numel, self.name)
        self.element_ty = element_ty
        self.shape, self.numel, self.name = shapes[key]

    def tensor(self: Any, handle: Any, type: Any) -> None:
        shape = tuple(type.shape) if type.is_block() else ()
        if shape not in wrapped:
            init(self, handle, type)
            wrapped[shape] = (self.shape, self.numel)
        self.handle, self.type, self.dtype = handle, type, type.scalar
        self.shape, self.numel = wrapped[shape]

    kinds = (list, tuple, core.tuple)  # a block's shape is Triton's own kind
    init = core.tensor.__init__
    core.block_type.__init__ = block_type
    core.tensor.__init__ = tensor
