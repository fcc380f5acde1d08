"""Compiles every Triton kernel of ops and nn.kernels for an H100 on a machine without one; prints their names.

The interpreter accepts what the compiler does not. Ops run on CPU tensors; instead of launching, Triton compiles.
Matrix products that the assembler has left out, as that of CUDA 12.8 once did (docs/log.md), are an error.
"""

import contextlib
import itertools
import json
import re
import subprocess
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import triton
from test_near import program
from triton.backends.compiler import GPUTarget
from triton.runtime.jit import JITFunction

from denizen import ops
from denizen.nn import kernels
from denizen.nn.kernels import (
    _adam,
    _conv_encoder,
    _cuda_device_clock,
    _cuda_message_steps,
    _mlp,
    _rows,
    _sum_tree,
    _two_layers,
)
from denizen.ops import (
    _appending,
    _attribution,
    _codes,
    _couples,
    _cuda_pairs,
    _draws,
    _forming,
    _moves,
    _neighbours,
    _pairs,
)
from denizen.space import Graph
from denizen.space.generators import erdos_renyi

compiled: set[str] = set()
looked_at: set[str] = set()
DISASSEMBLER = Path(triton.__file__).parent / "backends/nvidia/bin/nvdisasm"


def pretend() -> None:
    """Tell Triton that there is an H100, and to compile only."""
    driver = SimpleNamespace(
        get_current_target=lambda: GPUTarget("cuda", 90, 32),
        get_current_device=lambda: 0,
        get_current_stream=lambda device: 0,
        get_active_torch_device=lambda: torch.device("cpu"),
    )
    triton.runtime.driver.set_active(driver)
    run = JITFunction.run

    def compile_only(kernel: Any, *args: Any, grid: Any, warmup: bool, **kwargs: Any) -> Any:
        compiled.add(kernel.fn.__name__)
        made = run(kernel, *args, grid=grid, warmup=True, **kwargs)
        if hasattr(made, "result"):  # a thread compiles it
            return made
        if made.hash not in looked_at:
            looked_at.add(made.hash)
            keeps_products(kernel.fn.__name__, made.asm)
        return made

    JITFunction.run = compile_only
    others = (_adam, _conv_encoder, _mlp, _rows, _sum_tree, _two_layers)
    own = (_appending, _attribution, _codes, _couples, _draws, _forming, _moves, _neighbours, _pairs)
    for module in (*own, *others):
        module.variant = lambda device: "triton"


def keeps_products(name: str, code: dict[str, Any]) -> None:
    """Matrix products that Triton wrote are still there, but for a few that are the same as others."""
    written = len(re.findall(r"wgmma\.mma_async|mma\.sync\.aligned\.m", code["ptx"]))
    if not written or not DISASSEMBLER.exists():
        return
    with tempfile.NamedTemporaryFile(suffix=".cubin") as file:
        file.write(code["cubin"])
        file.flush()
        told = subprocess.run([DISASSEMBLER, "-c", file.name], capture_output=True, text=True, check=True).stdout
    kept = len(re.findall(r"H(?:G)?MMA\.\S+ R(?!Z)", told))
    assert kept >= written * 3 / 4, f"{name}: of {written} matrix products, {kept} were left by the assembler"


@contextlib.contextmanager
def nothing_new() -> Iterator[None]:
    """All kernels that are launched are there already."""
    compile_one, made = JITFunction._do_compile, []
    JITFunction._do_compile = lambda *args, **more: made.append(args[0].fn.__name__) or compile_one(*args, **more)
    yield
    JITFunction._do_compile = compile_one
    assert not made, made


def draws() -> None:
    """Words and masks, of one agent, few, and many, with ids and without, and a stream of 1."""
    step = torch.tensor(3)
    for worlds, num in ((1, 1), (3, 5), (2, 5000)):
        key = torch.ones(worlds, 2, dtype=torch.int64)
        for ids in (key.new_empty(0), torch.zeros(1, num, dtype=torch.int64), torch.zeros(worlds, num).long()):
            for stream in (1, 2**32 - 1):
                ops.draw_words(ids, num, key, step, stream)
                for hazard in (True, False):
                    ops.draw_mask(torch.rand(worlds, num), hazard, ids, key, step, stream)


def sums() -> None:
    """Over neighbours, both ways, with and without weights."""
    for weighted in (False, True):
        plain = Graph.from_edges(erdos_renyi(300, 5.0, seed=1))
        arrays = (plain.in_ptr, plain.in_idx, plain.out_ptr, plain.out_idx)
        weight = torch.rand(plain.in_idx.numel()) if weighted else None
        edge = torch.arange(plain.in_idx.numel(), dtype=torch.int32) if weighted else torch.empty(0, dtype=torch.int32)
        mask, real = torch.ones(2, 300, dtype=torch.int8), torch.rand(2, 300)
        for way in ("push", "pull", None):
            with ops.direction(way):
                ops.sum_counts(mask, mask, *arrays)
                ops.sum_counts(mask, None, *arrays)
                ops.sum_fixed(real, mask, weight, *arrays, edge, 38, 4.0)
        torch.ops.denizen.pull(real, weight, plain.in_ptr, plain.in_idx, edge)
        traffic = ops.Traffic(torch.zeros(2, 4, dtype=torch.int32), torch.zeros(2, 4, dtype=torch.int32), 0.5)
        for dtype in (torch.uint8, torch.int32, torch.int64):
            total = torch.zeros(2, 300, dtype=dtype)
            for way in ("push", "pull", None):
                with ops.direction(way):
                    ops.add_counts(total, total, mask, mask, traffic, *arrays)
        for way in ("push", "pull", None):
            with ops.direction(way):
                ops.add_fixed(total, total, traffic.seen, real, weight, traffic, *arrays, edge, 38, 4.0)


def events() -> None:
    """Who caused them, and their rows: with weights and without, of agents with ids and without."""
    graph, step, key = Graph.from_edges(erdos_renyi(300, 5.0, seed=1)), torch.tensor(3), torch.ones(2, 2).long()
    mask, real, flag = torch.ones(2, 300, dtype=torch.int8), torch.rand(2, 300), torch.ones(2, 300, dtype=torch.bool)
    for ids in (key.new_empty(0), torch.zeros(1, 300, dtype=torch.int64), torch.zeros(2, 300, dtype=torch.int64)):
        for weights in ([torch.empty(0)], [torch.rand(graph.num_edges), torch.empty(0)]):
            arrays = ([graph.in_ptr] * len(weights), [graph.in_idx] * len(weights), ids, key, step)
            for values in (mask, real):
                for streams in ([1, 2], [2**32 - 1, 1]):
                    given = [values] * len(weights), [mask] * len(weights), torch.ones(2, 2), weights, *arrays
                    ops.attribute(*given, streams[: len(weights)])
                    race = ops.Race(*given, streams, 0, 1)
                    rows = [torch.zeros(2, 50, dtype=kind) for kind in (*[torch.int64] * 3, torch.int8)]
                    ops.append_events(key[0], rows, ids, step, 0, [ops.Happened(mask, [None, None], race)] * 2)
        for columns in ([], [real, mask.int(), flag, mask, mask, mask]):
            kinds = (torch.int64, torch.int64, *(column.dtype for column in columns))
            rows = [torch.zeros(2, 50, dtype=kind) for kind in kinds]
            ops.append_events(key[0], rows, ids, step, 1 if columns else -1, [ops.Happened(mask, columns)])


def tables() -> None:
    """Histograms, few bins and many."""
    codes = torch.zeros(2, 3000, dtype=torch.int8)
    group = torch.zeros(1, 3000, dtype=torch.uint8)
    for bins in (5, 2000):
        ops.histogram(codes, None, 1, bins)
        ops.histogram(codes, group, 3, bins)


def couples() -> None:
    """Pairs within pools and across sides, with ids and without."""
    pool, word = torch.zeros(2, 3000, dtype=torch.int32), torch.zeros(2, 3000, dtype=torch.int64)
    for ids in (word.new_empty(0), word[:1], word):
        for sides in (False, True):
            ops.couples(pool, word, ids, 2, sides)
            slots, step = torch.zeros(2, 3000, 3, dtype=torch.int32), torch.tensor(3)
            ops.form_ties(slots, slots, pool, pool.float(), ids, word[:, :2], step, step, 2**31 + 1, 2, sides)


def moves() -> None:
    """Rows over others, of every width and both layouts."""
    for dtype in (torch.bool, torch.int16, torch.float32, torch.int64):
        for buffer in (torch.zeros(9, 5000, dtype=dtype), torch.zeros(5000, 9, dtype=dtype).t()):
            ops.move_rows(buffer, torch.arange(9))


def near() -> None:
    """Sums over near pairs in every shape of space, and the nearest."""
    for size, torus in (((9.0,), True), ((9.0, 2.0), True), ((9.0, 9.0, 9.0), True), ((9.0, 9.0), False)):
        counts, dims = [int(side // 3) * 3 or 1 for side in size], len(size)
        position, there = torch.rand(2, 70, dims), torch.ones(2, 70, dtype=torch.int8)
        for key, present in ((torch.arange(70)[None], None), (torch.empty(1, 0).long(), there)):
            _cuda_pairs._GATHERED = 0 if present is None else 10_000
            binned = ops.bin_agents(position, key, present, list(size), counts)
        fields = torch.rand(2, 70, 2), torch.rand(2, 70, 1), torch.rand(2, 1)
        ops.sum_pairs(position, *fields, *binned, list(size), counts, torus, 1.0, program(dims))
        ops.nearest_agent(*binned, list(size), counts, torus, 1.0)


def rows() -> None:
    """What learning needs."""
    for count in (1, 300, 20_000):
        kernels.first_flagged(torch.ones(count, dtype=torch.bool), max(1, count // 8))
        kernels.backward_sums(torch.rand(1, count), torch.rand(1, count))
        for dtype in (torch.float32, torch.float64):
            kernels.backward_sums(torch.rand(7, count, dtype=dtype), torch.rand(7, count, dtype=dtype))
        tree, leaves = kernels.sum_tree(70 * count, torch.device("cpu")), torch.arange(count)
        kernels.tree_set(tree, 70 * count, leaves, leaves)
        kernels.tree_find(tree, 70 * count, leaves)
        flat = [torch.rand(count) for _ in range(4)]
        for bits in (1, 2, 4):
            packed = torch.empty(3, -(-count * bits // 8), dtype=torch.uint8)
            ops.pack(torch.zeros(3, count, dtype=torch.int8), bits, packed)
            beside = packed.view(-1)[1 : 1 + packed[0].numel()]
            with nothing_new():  # which could not be loaded while a graph is recorded
                ops.pack(torch.zeros(count, dtype=torch.int8), bits, beside)
        for norm in (None, 0.5):
            kernels.adam(
                *flat,
                torch.zeros(()),
                torch.tensor(0.1),
                torch.tensor(False),
                max_norm=norm,
                betas=(0.9, 0.999),
                eps=1e-5,
            )


def laps() -> None:
    """The device's clock."""
    _cuda_device_clock.launch(torch.zeros(1, dtype=torch.int64), torch.zeros(1))


def layers() -> None:
    """Towers, narrow and wide, one and two, of numbers and of bytes."""
    for rows, inputs, width, heads in (
        (1, 1, 1, (1,)),
        (300, 4, 64, (2, 1)),
        (20_000, 64, 64, (64, 1)),
        (300, 400, 64, (3, 1)),
        (20_000, 99, 64, (2,)),
    ):
        for dtype in _mlp.MLP_INPUTS:
            x = torch.ones(rows, inputs, dtype=dtype)
            weights = [
                torch.rand(shape)
                for head in heads
                for shape in ((width, inputs), (width,), (width, width), (width,), (head, width), (head,))
            ]
            for activation in _mlp.ACTIVATIONS:
                y, first = kernels.mlp(x, weights, activation)
                _mlp.mlp_gradients(y, x, first, weights, activation)


def convolutions() -> None:
    """Those of a network, in every precision."""
    sizes = (2, 32, 64, 64)
    for dtype in _conv_encoder.DTYPES:
        seen = [torch.rand(8, 11, 11, size).to(dtype) for size in sizes]
        planes = seen[0].permute(0, 3, 1, 2).contiguous()
        weights = [torch.rand(9, *pair).to(dtype) for pair in itertools.pairwise(sizes)]
        kernels.conv(planes, [weights[0].flatten(0, 1), *weights[1:]], [torch.rand(size) for size in sizes[1:]])
        kernels.conv_first_gradient(planes, seen[1])
        for x, grad, weight in zip(seen[1:], seen[2:], weights[1:], strict=False):
            kernels.conv_input_gradient(grad, weight, x)
            kernels.conv_weight_gradient(x, grad)
        kernels.linear_gradient(torch.rand(8, 512).to(dtype), torch.rand(512, seen[-1][0].numel()).to(dtype), seen[-1])
        kernels.linear_gradient(torch.rand(8, 32).to(dtype), torch.rand(32, seen[-1][0].numel()).to(dtype), seen[-1])
    kernels.conv_input_gradient(torch.rand(3, 5, 4, 16), torch.rand(9, 8, 16), torch.rand(3, 5, 4, 8))


def few_rows() -> None:
    """What a rollout's step needs."""
    for rows, inputs, width, count in ((1, 1, 1, 1), (192, 7744, 512, 8), (70, 300, 130, 24)):
        for dtype in (torch.bfloat16, torch.float16):
            shapes = (rows, inputs), (width, inputs), (width,), (count, width), (count,)
            kernels.two_layers(*[torch.rand(shape).to(dtype) for shape in shapes])


def ahead() -> None:
    """In threads, of tensors without memory: what is launched then is there."""
    shapes = [(18, 32), (9, 32, 64), (9, 64, 64), (48, 64 * 121)]
    sizes = [one[-1] for one in shapes[:-1]] + [48]
    kinds = [*[torch.float32] * 3, torch.float16]

    def call(device: str, run: Any, rows: int) -> None:
        weights = [torch.ones(shape, dtype=torch.float16, device=device) for shape in shapes]
        biases = [torch.ones(size, dtype=kind, device=device) for size, kind in zip(sizes, kinds, strict=True)]
        run(torch.ones(rows, 2, 11, 11, dtype=torch.float16, device=device), weights, biases)

    def learn(planes: Any, weights: Any, biases: Any) -> None:
        learnt = [one.requires_grad_() for one in (*weights, *biases)]
        kernels.encode(planes, [one.detach() for one in weights], [one.detach() for one in biases], learnt)[
            -1
        ].sum().backward()

    def towers(device: str, inputs: int, run: Any) -> None:
        shapes = [(64, inputs), (64,), (64, 64), (64,)]
        weights = [torch.rand(shape, device=device) for head in (2, 1) for shape in (*shapes, (head, 64), (head,))]
        run(torch.rand(64, inputs, device=device), torch.rand(2048, inputs, device=device), weights, "tanh")

    def taken(acting: Any, learning: Any, weights: Any, activation: str) -> None:
        kernels.mlp(acting, weights, activation)
        y, first = kernels.mlp(learning, weights, activation)
        _mlp.mlp_gradients(y, learning, first, weights, activation)

    with kernels.precompiling() as begun:
        assert begun
        call("meta", kernels.precompile_encode, 32)
        towers("meta", 4, kernels.precompile_mlp)
        towers("meta", 80, kernels.precompile_mlp)
        kernels.precompile_adam([3001, 4096], 0.5, (0.9, 0.999), 1e-5)
    with nothing_new():
        call("cpu", learn, 32)
        towers("cpu", 4, taken)
        towers("cpu", 80, taken)
        for size in (3001, 4096):
            moved = [torch.ones(size) for _ in range(4)]
            rest = torch.zeros(()), torch.zeros(()), torch.zeros((), dtype=torch.bool)
            kernels.adam(*moved, *rest, max_norm=0.5, betas=(0.9, 0.999), eps=1e-5)


def messages() -> None:
    """Message steps of 2 agents, forward and backward; sizes of 1 are constants to Triton."""
    for samples, times, width, dtype, own, rate in (
        (1, 1, 16, torch.bfloat16, torch.float32, 0.1),
        (3, 7, 32, torch.float16, torch.float16, 0.0),
    ):
        h = torch.zeros(2, samples * times, width, dtype=dtype)
        gain, wide, square = (
            torch.zeros(shape, dtype=own) for shape in ((width,), (2, width, 3 * width), (2, width, width))
        )
        bias, each = torch.zeros(2, 2, dtype=own), torch.zeros(2, width, dtype=own)
        seed = torch.tensor([3]) if rate else None
        sizes = seed, times, width // 16, 1, rate, 1e-6
        weights = [gain, wide, gain, wide, bias, gain, square, each, square, each]
        _, between, qkvs, *matrices = _cuda_message_steps.forward(h, weights, *sizes, True)
        for place, matrix in zip((1, 3, 6, 8), matrices, strict=True):
            weights[place] = matrix
        _cuda_message_steps.backward(h, h, between, qkvs, weights, *sizes)


if __name__ == "__main__":
    pretend()
    ahead()
    for part in (
        draws,
        sums,
        events,
        tables,
        couples,
        moves,
        near,
        rows,
        layers,
        convolutions,
        few_rows,
        laps,
        messages,
    ):
        part()
    print(json.dumps(sorted(compiled)))
