"""Writes and assembles the kernels of a captured step for an H100 on a machine without one; run as a script.

    python without_gpu.py MODEL:REPLICATES … [--narrow]

Prints a line of JSON for each: launches of the compiled body, calls of operations that were not fused, and, over the
kernels and several numbers of warps, instructions on pairs of 16-bit integers. Torch is told that there is a GPU by
patching its functions, in a process of its own, when every model is traced; nothing is launched.
"""

import contextlib
import importlib.util
import json
import re
import sys
import tempfile
from collections.abc import Iterator
from pathlib import Path
from types import SimpleNamespace
from typing import Any

import torch
import torch._subclasses.fake_tensor as fake
import triton
from torch import Tensor
from torch._inductor import graph as inductor_graph
from torch._inductor.debug import DebugContext
from torch._inductor.decomposition import select_decomp_table
from torch._inductor.runtime.hints import DeviceProperties
from torch._inductor.virtualized import V
from torch.fx import GraphModule
from torch.fx.experimental.proxy_tensor import make_fx
from triton.backends.compiler import GPUTarget
from triton.compiler import ASTSource

import denizen as dz
from denizen import ops
from denizen.ops import _codes
from denizen.run import _program
from denizen.run._chunks import Chunks
from denizen.run._engine import INDUCTOR
from denizen.run._trace import trace
from denizen.zoo.covid import covid
from denizen.zoo.seir import seir
from denizen.zoo.sir import sir

TARGET = GPUTarget("cuda", 90, 32)
AGENTS = 20_001  # rows of 339 agents in blocks of 512: some lanes are masked out whatever the program
LIMITS = {
    "multi_processor_count": 132,
    "major": 9,
    "regs_per_multiprocessor": 65536,
    "max_threads_per_block": 1024,
    "warp_size": 32,
}


def pretend() -> None:
    """Tell torch and Triton that there is an H100."""
    limits = {**LIMITS, "max_threads_per_multi_processor": 2048}
    made = DeviceProperties(type="cuda", index=0, cc=90, **limits)
    DeviceProperties.create = classmethod(lambda cls, device: made)
    card = SimpleNamespace(name="NVIDIA H100", minor=0, total_memory=80 << 30, L2_cache_size=50 << 20, **limits)
    torch.cuda.get_device_properties = lambda *device: card
    torch.cuda.get_device_capability = lambda *device: (9, 0)
    torch.cuda.current_device = lambda: 0
    torch.cuda.is_available = lambda: True
    torch.cuda.device_count = lambda: 1
    torch.cuda._lazy_init = lambda: None
    torch.cuda.device = lambda *device: contextlib.nullcontext()
    fake.init_gpu_context = lambda device: None
    driver = SimpleNamespace(
        get_current_target=lambda: TARGET,
        get_current_device=lambda: 0,
        get_device_interface=lambda: torch.cuda,
        get_active_torch_device=lambda: torch.device("cuda", 0),
    )
    triton.runtime.driver.set_active(driver)


def body(model: dz.Model, replicates: int) -> tuple[GraphModule, list[Tensor]]:
    """The body of a captured step, traced on the CPU in the form that CUDA takes, and its arguments."""
    run = dz.simulate(model, 3, replicates=replicates, device="cpu")
    _codes._as_op = lambda codes: False
    program = _program.build(trace(run._stepper, run._run_state), run._stepper.masks)
    chunks = Chunks(program, run._run_state, 4, lambda module: module)
    now = chunks._now(chunks._static.leaves, chunks._static.switches, chunks._steps[0, 0])
    chunks._sum(0, now, [argument.clone() for argument in chunks._arguments])
    return program.body.module, chunks._resolve(program.body, now)


def written(module: GraphModule, inputs: list[Tensor]) -> str:
    """Inductor's code for a function of CUDA tensors."""
    with torch.no_grad():
        traced = make_fx(lambda *args: module(*args), decomposition_table=select_decomp_table())(*inputs)
    mode = fake.FakeTensorMode(allow_non_fake_inputs=True)

    def moved(value: Any) -> Any:
        if isinstance(value, tuple | list):
            return type(value)(moved(part) for part in value)
        if not isinstance(value, Tensor):
            return value
        with mode:
            return torch.empty_strided(value.shape, value.stride(), dtype=value.dtype, device="cuda:0")

    for node in traced.graph.nodes:
        if "device" in node.kwargs:
            node.update_kwarg("device", torch.device("cuda", 0))
        if "val" in node.meta:
            node.meta["val"] = moved(node.meta["val"])
    traced.graph.eliminate_dead_code()
    traced.recompile()
    arguments = [moved(value) for value in inputs]
    lowered = inductor_graph.GraphLowering(traced, example_inputs=arguments, is_inference=True)
    # As `one_graph` compiles; the layout of a buffer is told to its writer and its readers at different times.
    options = torch._inductor.config.patch(INDUCTOR)
    with options, V.set_fake_mode(mode), V.set_graph_handler(lowered), V.set_debug_handler(DebugContext()):
        lowered.run(*arguments)
        code = lowered.codegen()
    code = code[0] if isinstance(code, tuple) else code
    return getattr(code, "value", code)


def assembled(code: str, folder: Path) -> Iterator[tuple[str, int, str]]:
    """(kernel, warps, PTX) of every kernel in inductor's code."""
    for number, match in enumerate(re.finditer(r"async_compile\.triton\('(\w+)', '''(.*?)''', device_str", code, re.S)):
        name, source = match.groups()
        types = eval(re.search(r"'signature': (\{[^}]*\})", source).group(1))  # written by inductor, just now
        path = folder / f"kernel{number}.py"
        imports = "import triton\nimport triton.language as tl\nfrom torch._inductor.runtime import triton_helpers\n"
        imports += "from torch._inductor.runtime.triton_helpers import libdevice, math as tl_math\n"
        path.write_text(imports + source[source.index("@triton.jit") :])
        spec = importlib.util.spec_from_file_location(path.stem, path)
        module = importlib.util.module_from_spec(spec)
        spec.loader.exec_module(module)
        function = getattr(module, name)
        sizes = {"XBLOCK": 1, "R0_BLOCK": 1024} if "reduction" in source.split("\n@triton.jit")[0] else {"XBLOCK": 1024}
        places = {name: place for place, name in enumerate(function.arg_names)}
        constants = {(places[name],): size for name, size in sizes.items() if name in places}
        aligned = {(places[n],): [["tt.divisibility", 16]] for n, kind in types.items() if kind.startswith("*")}
        for warps in (2, 4, 8):
            kernel = triton.compile(
                ASTSource(function, {n: types[n] for n in function.arg_names}, constants, aligned),
                target=TARGET,
                options={"num_warps": warps},
            )
            yield name, warps, kernel.asm["ptx"]


def counted(module: GraphModule, inputs: list[Tensor]) -> dict[str, Any]:
    """What is told of one body; see the head of this file."""
    code = written(module, inputs)
    with tempfile.TemporaryDirectory() as folder:
        pairs = {
            f"{kernel} {warps}": len(re.findall(r"[su]16x2", ptx))
            for kernel, warps, ptx in assembled(code, Path(folder))
        }
    called = code[code.index("def call") :]
    unfused = re.findall(r"torch\.ops\.\w+\.\w+|extern_kernels\.\w+", called)
    padded = [
        made
        for made in re.findall(r"empty_strided_cuda\(\((\d+), (\d+)\), \((\d+), 1\)", called)
        if int(made[1]) != int(made[2])
    ]
    return {"launches": called.count(".run("), "unfused": unfused, "pairs": pairs, "padded": padded}


def main() -> None:
    """See the head of this file."""
    cases = [word.split(":") for word in sys.argv[1:] if word != "--narrow"]
    if "--narrow" in sys.argv:
        _program.widen = lambda traced: None
    people = dz.population.synthetic("astoria", AGENTS)
    graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(AGENTS, 10.0, seed=1))
    models = {
        "sir": sir(graph),
        "seir": seir(graph),
        "covid": covid(people, sample_deaths=True, isolation=0.2),
        "covid-expected": covid(people),
    }
    bodies = [body(models[name], int(replicates)) for name, replicates in cases]
    pretend()
    assert ops.fuse_draws()
    for module, inputs in bodies:
        print(json.dumps(counted(module, inputs)))


if __name__ == "__main__":
    main()
