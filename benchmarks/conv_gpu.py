"""Convolutions of the foraging policy on CUDA, in bfloat16: checks them, then times them beside cuDNN's.

    python benchmarks/conv_gpu.py [--looks 24576] [--sweep] [--out RESULT.json]

Checked first, in the same call: values and gradients of the network against plain layers in float32, by the share of
the norm that differs, beside the share by which plain layers in bfloat16 differ. Times are microseconds of a captured
call, the best of five. `--sweep` tries the kernels of `_conv_candidates` (40 s on 16 cores).
"""

import argparse
import copy
import functools
import json
import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import _conv_candidates
import torch
from torch import nn
from torch.nn import functional as F

from denizen import ops
from denizen.ops import _cuda_conv
from denizen.rl._planes import Planes

PROCESSES = 14
LAYERS = ((24, 32, 1), (32, 64, 9), (64, 64, 9))  # channels in (of the first: of its patches), out, offsets


def microseconds(call, times=20):
    """Of a call within a CUDA graph."""
    side = torch.cuda.Stream()
    side.wait_stream(torch.cuda.current_stream())
    with torch.cuda.stream(side):
        call()
    torch.cuda.current_stream().wait_stream(side)
    graph = torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        for _ in range(times):
            call()
    found = []
    for _ in range(5):
        begin, end = (torch.cuda.Event(enable_timing=True) for _ in range(2))
        begin.record()
        graph.replay()
        end.record()
        end.synchronize()
        found.append(begin.elapsed_time(end) / times * 1e3)
    return min(found)


def learn(net, given, grad, dtype):
    """Features and gradients of all parameters."""
    with torch.autocast("cuda", dtype, enabled=dtype != torch.float32, cache_enabled=False):
        shown = net(given)
    return [shown.detach(), *torch.autograd.grad(shown, list(net.parameters()), grad.to(shown.dtype))]


def check(net, plain, given, grad):
    """Largest share of a norm by which results differ from those of plain layers in float32: (here, cuDNN)."""
    exact = learn(plain, given, grad, torch.float32)
    shares = []
    for one in (net, plain):
        found = learn(one, given, grad, torch.bfloat16)
        parts = [float((a.float() - b).norm() / b.norm()) for a, b in zip(found, exact, strict=True)]
        shares.append(max(parts))
    assert shares[0] < 1.5 * shares[1], shares
    return shares


def kernels(looks):
    """(name, call, 10^9 operations) of each kernel."""
    for inputs, outputs, offsets in LAYERS:
        make = {"device": "cuda", "dtype": torch.bfloat16}
        x, grad = torch.rand(looks, 11, 11, inputs, **make), torch.randn(looks, 11, 11, outputs, **make)
        weight, bias = torch.randn(offsets, inputs, outputs, **make), torch.zeros(outputs, device="cuda")
        work = 2 * looks * 121 * inputs * outputs * offsets / 1e9
        name = f"{inputs}-{outputs} {offsets}"
        yield f"{name} forward", lambda x=x, w=weight, b=bias: ops.conv(x, w, b), work
        yield f"{name} weight", lambda x=x, g=grad, o=offsets: ops.conv_weight_gradient(x, g, o), work
        if offsets == 9:
            yield f"{name} both", lambda x=x, g=grad, w=weight: ops.conv_gradients(x, g, w), 2 * work
            image, slope = x.permute(0, 3, 1, 2), grad.permute(0, 3, 1, 2)  # channels last
            kernel = weight.permute(2, 1, 0).unflatten(2, (3, 3)).contiguous(memory_format=torch.channels_last)
            for what, mask in (("weight", (False, True, False)), ("input", (True, False, False))):
                yield f"{name} {what} cuDNN", lambda i=image, s=slope, k=kernel, m=mask: (
                    torch.ops.aten.convolution_backward(s, i, k, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, m)
                ), work  # fmt: skip
            yield f"{name} forward cuDNN", lambda i=image, k=kernel: F.conv2d(i, k, padding=1), work


def repeats(looks):
    """Whether cuDNN's weight gradient of 64 to 64 channels, asked to be deterministic, gives one graph's bits again."""
    make = {"device": "cuda", "dtype": torch.bfloat16}
    image, slope = (torch.rand(looks, 11, 11, 64, **make).permute(0, 3, 1, 2) for _ in range(2))
    kernel = torch.zeros(64, 64, 3, 3, **make).contiguous(memory_format=torch.channels_last)

    def call():
        given = (slope, image, kernel, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, (False, True, False))
        return torch.ops.aten.convolution_backward(*given)[1]

    first, graph = call().clone(), torch.cuda.CUDAGraph()
    with torch.cuda.graph(graph):
        shown = call()
    found = []
    for _ in range(4):
        graph.replay()
        found.append(torch.equal(shown, first))
    return all(found)


def compiled(share):
    """In a process of its own: compile this share of the candidates into Triton's cache."""
    _conv_candidates.compile_ahead(share, PROCESSES)


def sweep(looks):
    """Candidates of `_conv_candidates`, each checked against the operations: microseconds."""
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(compiled, range(PROCESSES))
    print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)
    make = {"device": "cuda", "dtype": torch.bfloat16}

    def timed(name, options, call, work, expected):
        try:
            wrong = float((call().float() - expected.float()).norm() / expected.float().norm())
            found = microseconds(call, 5)
        except Exception as error:  # Triton's error for too much shared memory is of a type of its own
            row = {"kernel": name, **options, "error": type(error).__name__}
        else:
            row = {"kernel": name, **options, "wrong": wrong, "us": found, "TFLOPS": work / found * 1e3}
        print(row, flush=True)
        return row

    for kind, inputs, outputs, options in _conv_candidates.turned_calls():
        x, weight = torch.rand(looks, 11, 11, inputs, **make), torch.randn(9, inputs, outputs, **make)
        bias, shown = torch.randn(outputs, device="cuda"), torch.randn(looks, 11, 11, outputs, **make).relu_()
        given = (bias, None) if kind == "forward" else (None, shown)
        call = functools.partial(_conv_candidates.turned, x, weight, *given, options)
        expected = _cuda_conv.convolved(x, weight, *given)
        work = 2 * looks * 121 * inputs * outputs * 9 / 1e9
        yield timed(f"{inputs}-{outputs} {kind}", options, lambda call=call: call()[0], work, expected)
    for inputs, options in _conv_candidates.slope_calls():
        x, grad = torch.rand(looks, 11, 11, inputs, **make), torch.randn(looks, 11, 11, 64, **make)
        call = functools.partial(_conv_candidates.slope, x, grad, options)
        work = 2 * looks * 121 * inputs * 64 * 9 / 1e9
        yield timed(f"{inputs}-64 weight", options, call, work, ops.conv_weight_gradient(x, grad, 9)[0])


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--looks", type=int, default=24576)
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    net = Planes((2, 11, 11), (32, 64, 64), 512).cuda()
    plain = nn.Sequential(*[copy.deepcopy(layer) for layer in net])
    seen, grad = (torch.rand(2048, 2, 11, 11, device="cuda") < 0.01).float(), torch.randn(2048, 512, device="cuda")
    torch.backends.cudnn.deterministic = True
    facts = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "check": check(net, plain, seen, grad)}
    print(facts, flush=True)
    print("cuDNN's weight gradient repeats its bits:", repeats(given.looks), flush=True)
    rows = []
    for name, call, work in kernels(given.looks):
        found = microseconds(call)
        rows.append({"kernel": name, "us": found, "TFLOPS": work / found * 1e3})
        print(rows[-1], flush=True)
    seen = (torch.rand(given.looks, 2, 11, 11, device="cuda") < 0.01).float()
    grad = torch.randn(given.looks, 512, device="cuda")
    for name, one in (("network", net), ("plain layers", plain)):
        call = functools.partial(learn, torch.compile(one, dynamic=False), seen, grad, torch.bfloat16)
        rows.append({"kernel": name, "us": microseconds(call, 2)})
        print(rows[-1], flush=True)
    if given.sweep:
        best = {}
        for row in sweep(given.looks):
            rows.append(row)
            best[row["kernel"]] = min(best.get(row["kernel"], row), row, key=lambda one: one["us"])
        print(*best.values(), sep="\n")
    if given.out:
        given.out.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
