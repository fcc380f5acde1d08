"""Draws inside compiled kernels on CUDA: tells inductor how to fuse denizen's own operations into their neighbours.

Without this a draw is a kernel of its own, and the hazards before it and the transitions after it go through memory.
The arithmetic is written as PTX with explicit rounding, so that no fused multiply-add changes a bit. `wrap` becomes one
instruction that no compiler sees through. Rests on the registry of lowerings, which is private to inductor:
`fuse_draws` returns False where it is not as expected, and each operation stays a kernel of its own.
"""

import contextlib
import hashlib
import re
import struct
import sys
import threading
from pathlib import Path
from typing import Any

import torch

from denizen._garbage import uncollected
from denizen.ops._draws import COEFFICIENTS, LN2_HIGH, LN2_LOW, LOG2E, MAX_EXPONENT, MULTIPLIERS, ROUNDS, TWO32, WEYL


def _f32(value: float) -> str:
    return f"0f{struct.unpack('>I', struct.pack('>f', value))[0]:08X}"


REGISTERS = ".reg .pred q; .reg .b32 w0, w1, w2, w3, k0, k1, l0, h0, l1, h1, lane, i; .reg .b64 p0, p1;"
WORD = [  # the agent's word of its block into i
    "setp.eq.u32 q, lane, 0;",
    "selp.u32 i, w0, w3, q;",
    "setp.eq.u32 q, lane, 1;",
    "selp.u32 i, w1, i, q;",
    "setp.eq.u32 q, lane, 2;",
    "selp.u32 i, w2, i, q;",
]


def _philox(stream: int) -> list[str]:
    """Words of the block whose number is in w0 and w1 into w0 … w3, of step $3 and key words $4, $5."""
    lines = ["mov.u32 w2, $3;", f"mov.u32 w3, {stream};", "mov.u32 k0, $4;", "mov.u32 k1, $5;"]
    for _ in range(ROUNDS):
        lines += [
            f"mul.wide.u32 p0, w0, {MULTIPLIERS[0]};",
            f"mul.wide.u32 p1, w2, {MULTIPLIERS[1]};",
            "mov.b64 {l0, h0}, p0;",
            "mov.b64 {l1, h1}, p1;",
            "xor.b32 w0, h1, w1;",
            "xor.b32 w0, w0, k0;",
            "xor.b32 w2, h0, w3;",
            "xor.b32 w2, w2, k1;",
            "mov.u32 w1, l1;",
            "mov.u32 w3, l0;",
            f"add.u32 k0, k0, {WEYL[0]};",
            f"add.u32 k1, k1, {WEYL[1]};",
        ]
    return lines


def _hazard() -> list[str]:
    """The probability of an event with hazard $1 into y; see `_draws.hazard_threshold`."""
    lines = [
        f"min.f32 x, $1, {_f32(MAX_EXPONENT)};",
        f"mul.rn.f32 n, x, {_f32(LOG2E)};",
        f"add.rn.f32 n, n, {_f32(0.5)};",
        "cvt.rmi.f32.f32 n, n;",
        f"mul.rn.f32 y, n, {_f32(LN2_HIGH)};",
        "sub.rn.f32 y, y, x;",
        f"mul.rn.f32 z, n, {_f32(LN2_LOW)};",
        "add.rn.f32 y, y, z;",
        f"mov.f32 e, {_f32(COEFFICIENTS[0])};",
    ]
    for c in COEFFICIENTS[1:]:
        lines += ["mul.rn.f32 e, e, y;", f"add.rn.f32 e, e, {_f32(c)};"]
    return [
        *lines,
        "mul.rn.f32 e, e, y;",
        "mul.rn.f32 e, e, y;",
        "add.rn.f32 e, e, y;",
        "cvt.rzi.s32.f32 i, n;",
        "sub.s32 i, 127, i;",
        "shl.b32 i, i, 23;",
        "mov.b32 z, i;",
        f"sub.rn.f32 y, {_f32(1.0)}, z;",
        "mul.rn.f32 e, z, e;",
        "sub.rn.f32 y, y, e;",
    ]


def ptx(stream: int, hazard: bool) -> str:
    """PTX of a draw for one agent: 0 or 1 into $0 from value $1, id $2, step $3 and key words $4, $5.

    An agent to whom nothing can happen draws nothing.
    """
    lines = [
        REGISTERS,
        ".reg .f32 x, y, z, e, n;",
        "mov.u32 $0, 0;",
        f"setp.gt.f32 q, $1, {_f32(0.0)};",
        *([] if hazard else [f"setp.le.and.f32 q, $1, {_f32(1.0)}, q;"]),
        "@!q bra DONE;",
        "shr.u32 w0, $2, 2;",
        "mov.u32 w1, 0;",
        *_philox(stream),
        "and.b32 lane, $2, 3;",
        *WORD,
        "cvt.u64.u32 p1, i;",
        *(_hazard() if hazard else ["mov.f32 y, $1;"]),
        f"mul.rn.f32 y, y, {_f32(TWO32)};",
        "cvt.rzi.u64.f32 p0, y;",
        "setp.lt.u64 q, p1, p0;",
        "selp.u32 $0, 1, 0, q;",
        "DONE:",
    ]
    return "{ " + " ".join(lines) + " }"  # one line: inductor puts it between quotes


def ptx_word(stream: int) -> str:
    """PTX of one agent's random word into $0, from the halves $1, $2 of its id, step $3 and key words $4, $5."""
    lines = [
        REGISTERS,
        "mov.b64 p0, {$1, $2};",
        "shr.u64 p0, p0, 2;",
        "mov.b64 {w0, w1}, p0;",
        *_philox(stream),
        "and.b32 lane, $1, 3;",
        *WORD,
        "mov.u32 $0, i;",
    ]
    return "{ " + " ".join(lines) + " }"


CONSTRAINTS, CONSTRAINTS_WORD = "=&r,f,r,r,r,r", "=&r,r,r,r,r,r"
COLUMNS = 16  # that a kernel stores one by one
SIDE_BY_SIDE = "denizen_columns"  # of a graph: names of the buffers of columns, by that of each
STORE = re.compile(
    r"tl\.store\((?P<pointer>\w+) \+ \((?P<width>\d+)\*(?P<row>x\d+)\), (?P<value>\w+), (?P<mask>None|xmask)\)"
)
WRAPS = {torch.int8: "cvt.s32.s8 $0, $1;", torch.uint8: "cvt.u32.u8 $0, $1;", torch.int16: "cvt.s32.s16 $0, $1;"}


def fuse_draws() -> bool:
    """Teach inductor draws and `wrap`, once for a process; whether that worked."""
    if torch.version.hip is not None:  # AMD's compilers know no PTX
        return False
    try:
        with uncollected():
            from torch._inductor import config, ir, lowering
            from torch._inductor.virtualized import V
            from torch._inductor.virtualized import ops as inner
    except ImportError:
        return False
    if torch.ops.denizen.draw_mask.default in lowering.lowerings:
        return True
    _teach_draw_mask(ir, lowering, inner)
    _teach_draw_words(ir, lowering, inner)
    _teach_wrap(ir, lowering, inner)
    _teach_slots(ir, lowering, inner)
    _teach_columns(ir, lowering, V)
    with contextlib.suppress(ImportError):
        _join_stores(V)
    # Compiled graphs are cached on disk by the names of what they compute, which shows neither how these operations are
    # written nor what their gradients are.
    config.unsafe_marked_cacheable_functions["denizen.operations"] = _sources()
    return True


def start_compilers(device: torch.device) -> None:
    """Let inductor start the processes in which it compiles for CUDA, while the host has other things to do.

    They take seconds to be ready, and until then one kernel is compiled after the other. torch starts them with the
    first graph.
    """
    if device.type == "cuda":
        with uncollected(), contextlib.suppress(ImportError):  # private to inductor
            from torch._inductor.async_compile import maybe_warm_pool

            maybe_warm_pool()


def stop_compilers() -> None:
    """Let inductor's processes end while the host has other things to do, where nothing is compiled any more.

    They take a second for it, and torch would wait for them at the end. What is compiled later starts new ones.
    """
    compilers = sys.modules.get("torch._inductor.async_compile")
    pools, forget = (getattr(compilers, name, None) for name in ("_pool_set", "after_fork"))  # private to inductor
    if not pools or forget is None:
        return
    ending = list(pools)
    forget()  # at once, so that what is compiled next does not come to a pool that ends

    def stop() -> None:
        for pool in ending:
            pool.shutdown()

    threading.Thread(target=stop, name="denizen-stop-compilers").start()


def _sources() -> str:
    """Checksum of the code of all packages that register operations."""
    package = Path(__file__).parents[1]
    files = [file for name in ("nn", "ops") for file in sorted((package / name).glob("*.py"))]
    return hashlib.sha256(b"".join(file.read_bytes() for file in files)).hexdigest()


def _teach_draw_mask(ir: Any, lowering: Any, inner: Any) -> None:
    target = torch.ops.denizen.draw_mask.default
    unfused = lowering.fallback_handler(target, add_to_fallback_set=False)

    def lower(values: Any, hazard: bool, ids: Any, key: Any, step: Any, stream: int) -> Any:
        if values.get_device().type != "cuda" or ids.get_numel() != 0:
            return unfused(values, hazard, ids, key, step, stream)
        load, load_key, load_step = values.make_loader(), key.make_loader(), step.make_loader()

        def word(index: Any) -> Any:
            world, agent = index
            operands = [
                load(index),
                inner.index_expr(agent, torch.int32),
                inner.to_dtype(load_step([]), torch.int32),
                inner.to_dtype(load_key([world, 0]), torch.int32),
                inner.to_dtype(load_key([world, 1]), torch.int32),
            ]
            hit = inner.inline_asm_elementwise(
                *operands, asm=ptx(stream, hazard), constraints=CONSTRAINTS, dtype=torch.int32, is_pure=True, pack=1
            )
            return inner.to_dtype(hit, torch.int8)

        def bad(index: Any) -> Any:
            value = load(index)
            fine = inner.ge(value, inner.constant(0.0, torch.float32))
            if not hazard:
                fine = inner.and_(fine, inner.le(value, inner.constant(1.0, torch.float32)))
            return inner.logical_not(fine)

        size, device = values.get_size(), values.get_device()
        drawn = ir.Pointwise.create(device=device, dtype=torch.int8, inner_fn=word, ranges=size)
        wrong = ir.Pointwise.create(device=device, dtype=torch.bool, inner_fn=bad, ranges=size)
        flags = lowering.lowerings[torch.ops.aten.any.dim](wrong, 1, False)
        return drawn, lowering.to_dtype(flags, torch.int8)

    lowering.lowerings[target] = lower


def _teach_draw_words(ir: Any, lowering: Any, inner: Any) -> None:
    target = torch.ops.denizen.draw_words.default
    unfused = lowering.fallback_handler(target, add_to_fallback_set=False)

    def lower(ids: Any, num: int, key: Any, step: Any, stream: int) -> Any:
        if key.get_device().type != "cuda":
            return unfused(ids, num, key, step, stream)
        load_key, load_step = key.make_loader(), step.make_loader()
        given = ids.get_numel() != 0
        load_id, shared = ids.make_loader(), given and ids.get_size()[0] == 1

        def word(index: Any) -> Any:
            world, agent = index
            if given:
                who = load_id([0 if shared else world, agent])
                high = inner.bitwise_right_shift(who, inner.constant(32, torch.int64))
            else:
                who, high = inner.index_expr(agent, torch.int32), inner.constant(0, torch.int32)
            operands = [who, high, load_step([]), load_key([world, 0]), load_key([world, 1])]
            drawn = inner.inline_asm_elementwise(
                *[inner.to_dtype(one, torch.int32) for one in operands],
                asm=ptx_word(stream),
                constraints=CONSTRAINTS_WORD,
                dtype=torch.int32,
                is_pure=True,
                pack=1,
            )
            return inner.bitwise_and(inner.to_dtype(drawn, torch.int64), inner.constant(2**32 - 1, torch.int64))

        return ir.Pointwise.create(
            device=key.get_device(), dtype=torch.int64, inner_fn=word, ranges=[key.get_size()[0], num]
        )

    lowering.lowerings[target] = lower


def _teach_wrap(ir: Any, lowering: Any, inner: Any) -> None:
    target = torch.ops.denizen.wrap.default
    unfused = lowering.fallback_handler(target, add_to_fallback_set=False)

    def lower(values: Any, dtype: torch.dtype) -> Any:
        if values.get_device().type != "cuda":
            return unfused(values, dtype)
        load = values.make_loader()

        def wrapped(index: Any) -> Any:
            return inner.inline_asm_elementwise(
                load(index), asm=WRAPS[dtype], constraints="=r,r", dtype=torch.int32, is_pure=True, pack=1
            )

        return ir.Pointwise.create(
            device=values.get_device(), dtype=torch.int32, inner_fn=wrapped, ranges=values.get_size()
        )

    lowering.lowerings[target] = lower


def _teach_slots(ir: Any, lowering: Any, inner: Any) -> None:
    """Sums over slots ask for the values of partners alone: what a free slot holds is not read at a random place."""
    target = torch.ops.denizen.sum_in_slots.default
    unfused = lowering.fallback_handler(target, add_to_fallback_set=False)

    def lower(values: Any, who: Any, until: Any, step: Any) -> Any:
        if values.get_device().type != "cuda" or values.get_dtype() not in (torch.bool, torch.int8):
            return unfused(values, who, until, step)
        load, load_who, load_until, load_step = (one.make_loader() for one in (values, who, until, step))
        agents, slots = values.get_size()[1], who.get_size()[2]

        def total(index: Any) -> Any:
            world, agent = index
            now, found = load_step([]), inner.constant(0, torch.int32)
            for slot in range(slots):
                taken = inner.gt(inner.to_dtype(load_until([world, agent, slot]), torch.int64), now)
                partner = inner.maximum(load_who([world, agent, slot]), inner.constant(0, torch.int32))
                partner = inner.minimum(partner, inner.constant(agents - 1, torch.int32))
                place = inner.indirect_indexing(partner, agents, check=False)

                def told(place: Any = place) -> Any:
                    return inner.to_dtype(load([world, place]), torch.int32)

                found = inner.add(found, inner.masked(taken, told, 0))
            return found

        return ir.Pointwise.create(
            device=values.get_device(), dtype=torch.int32, inner_fn=total, ranges=values.get_size()
        )

    lowering.lowerings[target] = lower


def _teach_columns(ir: Any, lowering: Any, graph: Any) -> None:
    """Few float32 columns side by side (an observation) are stored by the kernel that computes them.

    By itself inductor computes, or reads, all of them for each entry, in a kernel of its own. Who asks for one of them,
    as a check of a row does, gets what was computed, where reading what was stored would be a kernel of its own too.
    """
    target = torch.ops.aten.cat.default
    usual = lowering.lowerings[target]

    class Columns(lowering.TensorBox):  # type: ignore[misc, name-defined]  # a class given as a value
        """Columns that are stored side by side and can still be had one by one."""

        columns: Any = ()

        def make_loader(self) -> Any:
            stored, columns = super().make_loader(), self.columns
            if graph.graph.mutated_buffers:  # then what a column was computed from may be something else by now
                return stored

            def load(index: Any) -> Any:
                row, column = index
                # Beyond them, where they lie beside others: a load that is masked, which computes nothing.
                known = not getattr(column, "free_symbols", ()) and 0 <= int(column) < len(columns)
                return columns[int(column)]([row, 0]) if known else stored(index)

            return load

    def lower(inputs: Any, dim: int = 0) -> Any:
        sizes = [one.get_size() for one in inputs]
        columns = 1 < len(sizes) <= COLUMNS and all(len(size) == 2 and size[1] == 1 for size in sizes)
        if (
            not columns
            or {one.get_dtype() for one in inputs} != {torch.float32}
            or dim not in (1, -1)
            or inputs[0].get_device().type != "cuda"
        ):
            return usual(inputs, dim)
        loaders = [one.make_loader() for one in inputs]
        box = Columns(ir.ConcatKernel.create(inputs, 1))
        box.columns = loaders
        names = [one.get_name() for one in box.data.data.inputs]
        graph.graph.__dict__.setdefault(SIDE_BY_SIDE, {}).update(dict.fromkeys(names, names))
        return box

    lowering.lowerings[target] = lower


def _join_stores(graph: Any) -> None:
    """Let a kernel store all columns of a row by one instruction.

    One column after the other is a store of 4 of every 16 bytes, four times.
    """
    from torch._inductor.codegen.triton import TritonKernel

    usual = TritonKernel.codegen_body

    def codegen_body(self: Any) -> Any:
        groups = graph.graph.__dict__.get(SIDE_BY_SIDE, {})
        # A kernel that reduces is out of its loop here at times, with blocks of [XBLOCK, 1].
        if groups and not self.features.is_reduction() and not {"y", "z"} & set(self.numels):
            self.stores._lines = _joined(self.stores._lines, groups)
        return usual(self)

    TritonKernel.codegen_body = codegen_body


def _joined(lines: list[Any], groups: dict[str, list[str]]) -> list[Any]:
    """Lines of a kernel with the stores of columns of one tensor, where all are there and alike, as one."""
    found = {}
    for line in lines:
        match = STORE.fullmatch(getattr(line, "line", ""))
        if match and getattr(line, "name", None) in groups:
            found[line.name] = (line, match)
    for names in {tuple(names) for names in groups.values()}:
        matches = [found[name][1] for name in names if name in found]
        alike = {match.group("width", "row", "mask") for match in matches}
        if len(matches) != len(names) or len(names) not in (2, 4, 8) or len(alike) != 1:
            continue
        width, row, mask = alike.pop()
        if int(width) != len(names):
            continue
        parts = [f"tl.broadcast_to({match['value']}, [XBLOCK])" for match in matches]
        at = f"{matches[0]['pointer']} + ({width}*{row})[:, None] + tl.arange(0, {width})[None, :]"
        mask = mask if mask == "None" else f"{mask}[:, None]"
        last = max((found[name][0] for name in names), key=lines.index)
        whole = last._new_line(f"tl.store({at}, tl.reshape({interleaved(parts)}, [XBLOCK, {width}]), {mask})")
        others = [found[name][0] for name in names]
        lines = [
            whole if line is last else line for line in lines if line is last or all(line is not o for o in others)
        ]
    return lines


def interleaved(parts: list[str]) -> str:
    """Triton's expression for blocks side by side, in which the numbers of each part follow one another."""
    if len(parts) == 1:
        return parts[0]
    return f"tl.join({interleaved(parts[::2])}, {interleaved(parts[1::2])})"
