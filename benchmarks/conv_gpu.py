"""Convolutions of the foraging policy on CUDA, in bfloat16: checks them, then times them beside cuDNN's.

    python benchmarks/conv_gpu.py [--sweep] [--out RESULT.json]

Checked first, in the same call: values and gradients of the network against plain layers in float32, by the share of
the norm that differs, beside the share by which plain layers in bfloat16 differ. Times are microseconds of a captured
call, the best of five. `--sweep` tries tiles, warps and loads under way (40 s
on 16 cores); the defaults are in `denizen.nn.kernels._cuda_*`.
"""

import argparse
import contextlib
import copy
import functools
import json
import multiprocessing
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from torch import nn
from torch.nn import functional as F
from triton.runtime.jit import JITFunction

from denizen.nn import kernels
from denizen.nn.kernels import _cuda_conv, _cuda_conv_encoder, _cuda_linear_gradient
from denizen.rl._layers import ConvEncoder

PROCESSES = 14
LAYERS = ((2, 32), (32, 64), (64, 64))  # channels in and out
HIDDEN = 512
LOOKS = 24576
PROCESSES = 14


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


def given(looks, inputs, outputs):
    """Numbers for one layer: (input, gradient of the output, weight, bias)."""
    make = {"device": "cuda", "dtype": torch.bfloat16}
    x, grad = torch.randn(looks, 11, 11, inputs, **make).relu_(), torch.randn(looks, 11, 11, outputs, **make)
    return x, grad, torch.randn(9, inputs, outputs, **make) / 8, torch.zeros(outputs, device="cuda")


def cases(looks):
    """(name, call, 10^9 operations) of each kernel."""
    planes = (torch.rand(looks, 2, 11, 11, device="cuda") < 0.03).to(torch.bfloat16)
    layers = [given(looks, *layer) for layer in LAYERS]
    weights = [layer[2] for layer in layers]
    weights[0], biases = weights[0][0].repeat_interleave(9, 0), [layer[3] for layer in layers]
    works = [2 * looks * 121 * inputs * outputs * 9 / 1e9 for inputs, outputs in LAYERS]
    for count in (1, 2, 3):
        yield f"{count} layers", lambda n=count: kernels.conv(planes, weights[:n], biases[:n]), sum(works[:count])
    few = planes[:192].contiguous()
    yield "3 layers, 192 looks", lambda: kernels.conv(few, weights, biases), sum(works) * 192 / looks
    yield "2-32 weight", lambda: kernels.conv_first_gradient(planes, layers[0][1]), works[0]
    for (inputs, outputs), (x, grad, weight, _), work in list(zip(LAYERS, layers, works, strict=True))[1:]:
        name = f"{inputs}-{outputs}"
        yield f"{name} weight", lambda x=x, g=grad: kernels.conv_weight_gradient(x, g), work
        yield f"{name} input", lambda x=x, g=grad, w=weight: kernels.conv_input_gradient(g, w, x), work
        image, slope = x.permute(0, 3, 1, 2), grad.permute(0, 3, 1, 2)  # channels last
        kernel = weight.permute(2, 1, 0).unflatten(2, (3, 3)).contiguous(memory_format=torch.channels_last)
        for what, mask in (("weight", (False, True, False)), ("input", (True, False, False))):
            yield (
                f"{name} {what} cuDNN",
                lambda i=image, s=slope, k=kernel, m=mask: torch.ops.aten.convolution_backward(
                    s, i, k, None, [1, 1], [1, 1], [1, 1], False, [0, 0], 1, m
                ),
                work,
            )
        yield f"{name} forward cuDNN", lambda i=image, k=kernel: F.conv2d(i, k, padding=1), work
    grad, shown = torch.randn(looks, HIDDEN, device="cuda").to(torch.bfloat16), layers[-1][1]
    weight = torch.randn(HIDDEN, shown[0].numel(), device="cuda").to(torch.bfloat16)
    work = 2 * looks * weight.numel() / 1e9
    yield "linear", lambda: kernels.linear_gradient(grad, weight, shown), work
    yield "linear cuBLAS, unmasked", lambda: grad @ weight, work


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


def settings():
    """(kernel, module, what to set there) to try, beside what is set."""
    for warps, cells, stages in ((4, 128, 3), (8, 128, 3), (8, 128, 4), (4, 128, 4), (4, 128, 2), (8, 256, 3)):
        for name in ("3 layers", "2 layers", "3 layers, 192 looks"):
            yield name, _cuda_conv_encoder, {"_WARPS": warps, "_CELLS": cells, "_stages": lambda x, n=stages: n}
    for warps, cells, stages in ((4, 128, 3), (4, 128, 4), (4, 128, 2), (8, 128, 3), (4, 64, 3)):
        for name in ("64-64 input", "32-64 input"):
            yield name, _cuda_conv, {"_WARPS": warps, "_CELLS": cells, "_stages": lambda x, n=stages: n}
    for row in (((256, 256, 64), 64, 8, 2), ((256, 256, 64), 32, 8, 4), ((256, 256, 64), 32, 8, 5)):
        yield "64-64 weight", _cuda_conv, {"_MUCH": {64: row}}
    for row in (
        ((128, 128, 32), 32, 4, 4),
        ((128, 128, 32), 64, 4, 2),
        ((128, 128, 32), 32, 4, 3),
        ((256, 32, 0), 64, 8, 3),
        ((256, 32, 0), 32, 4, 4),
    ):
        yield "32-64 weight", _cuda_conv, {"_MUCH": {32: row}}
    for deep, programs, warps in ((64, 528, 4), (128, 528, 4), (128, 1056, 4), (32, 1056, 2), (128, 528, 8)):
        yield "2-32 weight", _cuda_conv_encoder, {"_DEEP": deep, "_PROGRAMS": programs, "_WARPS": warps}
    for rows, columns, deep, warps, stages in (
        (128, 256, 64, 8, 3),
        (128, 256, 64, 8, 4),
        (128, 128, 64, 4, 3),
        (128, 128, 64, 8, 4),
        (256, 128, 64, 8, 3),
    ):
        there = {"_ROWS": rows, "_COLUMNS": columns, "_DEEP": deep, "_WARPS": warps, "_STAGES": stages}
        yield "linear", _cuda_linear_gradient, there


@contextlib.contextmanager
def put(module, there):
    """Meanwhile these are a module's."""
    before = {name: getattr(module, name) for name in there}
    vars(module).update(there)
    yield
    vars(module).update(before)


def compiled(share):
    """In a process of its own: compile this share of the settings into Triton's cache, and launch nothing."""
    run = JITFunction.run
    JITFunction.run = lambda kernel, *args, warmup, **options: run(kernel, *args, warmup=True, **options)
    calls = {name: call for name, call, _ in cases(LOOKS)}
    for name, module, there in list(settings())[share::PROCESSES]:
        with put(module, there), contextlib.suppress(Exception):
            calls[name]()


def sweep():
    """Microseconds by what is set; and the share of the norm by which results differ from those of what was set."""
    began = time.perf_counter()
    with multiprocessing.get_context("spawn").Pool(PROCESSES) as pool:
        pool.map(compiled, range(PROCESSES))
    print(f"compiled in {time.perf_counter() - began:.1f} s", flush=True)
    calls = {name: (call, work) for name, call, work in cases(LOOKS)}

    def whole(found):
        return (
            found if isinstance(found, torch.Tensor) else found[-1] if isinstance(found, list) else found[0]
        ).float()

    for name, module, there in settings():
        call, work = calls[name]
        row = {"kernel": name, **{key: value(None) if callable(value) else value for key, value in there.items()}}
        try:
            expected = whole(call())
            with put(module, there):
                row["wrong"] = float((whole(call()) - expected).norm() / expected.norm())
                row["us"] = microseconds(call, 5)
                row["TFLOPS"] = work / row["us"] * 1e3
        except Exception as error:  # Triton's error for too much shared memory is of a type of its own
            row["error"] = type(error).__name__
        print(row, flush=True)
        yield row


def main():
    parser = argparse.ArgumentParser()
    parser.add_argument("--sweep", action="store_true")
    parser.add_argument("--out", type=Path)
    given = parser.parse_args()
    torch.manual_seed(0)
    net = ConvEncoder((2, 11, 11), (32, 64, 64), 512).cuda()
    plain = nn.Sequential(*[copy.deepcopy(layer) for layer in net])
    seen, grad = (torch.rand(2048, 2, 11, 11, device="cuda") < 0.01).float(), torch.randn(2048, 512, device="cuda")
    torch.backends.cudnn.deterministic = True
    facts = {"card": torch.cuda.get_device_name(), "torch": torch.__version__, "check": check(net, plain, seen, grad)}
    print(facts, flush=True)
    print("cuDNN's weight gradient repeats its bits:", repeats(LOOKS), flush=True)
    rows = []
    for name, call, work in cases(LOOKS):
        found = microseconds(call)
        rows.append({"kernel": name, "us": found, "TFLOPS": work / found * 1e3})
        print(rows[-1], flush=True)
    seen = (torch.rand(LOOKS, 2, 11, 11, device="cuda") < 0.01).float()
    grad = torch.randn(LOOKS, 512, device="cuda")
    for name, one in (("network", net), ("plain layers", plain)):
        call = functools.partial(learn, torch.compile(one, dynamic=False), seen, grad, torch.bfloat16)
        rows.append({"kernel": name, "us": microseconds(call, 2)})
        print(rows[-1], flush=True)
    if given.sweep:
        rows += sweep()
    if given.out:
        given.out.write_text(json.dumps({**facts, "rows": rows}, indent=1))


if __name__ == "__main__":
    main()
