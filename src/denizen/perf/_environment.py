"""What of a machine and its torch makes loops fast or slow: each setting with its evidence and what to change."""

import dataclasses
import importlib.util
import json
import os
import platform
import shutil
import sys
import time
from collections.abc import Callable, Iterator
from pathlib import Path
from typing import Any

import torch

from denizen.errors import expect_function
from denizen.perf._profile.profile import profile
from denizen.perf._profile.report import ProfileReport
from denizen.perf.watch._compiler import graphs_compiled
from denizen.perf.watch._host import available_cores

OK, NOTE, CHANGE = "ok", "note", "change"


@dataclasses.dataclass(frozen=True)
class Fact:
    """One setting.

    Attributes:
        name: such as ``"TF32 in matrix products"``.
        value: what it is.
        level: ``"ok"``, ``"note"`` or ``"change"``.
        evidence: what was read or measured.
        advice: what to change; "" where nothing.
    """

    name: str
    value: str
    level: str
    evidence: str
    advice: str = ""


@dataclasses.dataclass(frozen=True)
class Environment:
    """What was found; print it.

    Attributes:
        facts: one for each setting.
    """

    facts: tuple[Fact, ...]

    @property
    def to_change(self) -> tuple[Fact, ...]:
        """Those that had better be changed."""
        return tuple(fact for fact in self.facts if fact.level == CHANGE)

    def __getitem__(self, name: str) -> Fact:
        return {fact.name: fact for fact in self.facts}[name]

    def to_dict(self) -> dict[str, Any]:
        """For JSON."""
        return dataclasses.asdict(self)

    def to_json(self) -> str:
        """As JSON."""
        return json.dumps(self.to_dict(), indent=1)

    def __str__(self) -> str:
        width = max((len(fact.name) for fact in self.facts), default=0)
        lines = []
        for fact in self.facts:
            lines.append(f"{fact.level:6}  {fact.name:{width}}  {fact.value}  ({fact.evidence})")
            lines += [f"{'':8}{'':{width}}  -> {fact.advice}"] if fact.advice else []
        return "\n".join(lines)


def environment(step: Callable[[], Any] | None = None) -> Environment:
    """Whether CUDA is there and used, whether compilation works, and every setting that changes speed.

    Args:
        step: one step of your loop. With it is told where it really computes and whether compiled code runs in it;
            it is called four times, and really trains. Without it only the machine and torch's settings are examined.

    Returns:
        Facts; `Environment.to_change` holds those to act on.
    """
    if step is not None:
        expect_function("environment: step", step)

    return Environment(tuple(found(step)))


TENSOR_CORES = (8, 0)  # compute capability from which there are TF32 and bfloat16
SMALL_SHM = 1 << 30  # bytes; containers often have 64 MiB, and workers of loaders hand over batches through it


def found(step: Callable[[], Any] | None) -> Iterator[Fact]:
    """All facts, in the order in which they are shown."""
    yield versions()
    yield cuda()
    if torch.cuda.is_available():
        yield from cards()
        yield from processes()
    if step is not None:
        yield from of_step(step)
    yield compiler()
    yield from tf32()
    yield from cudnn()
    yield bf16()
    yield from attention()
    yield from allocator()
    yield threads()
    yield from byte_code()
    yield from shared_memory()
    yield from slow_switches()


def versions() -> Fact:
    """Of torch and what came with it."""
    parts = [f"torch {torch.__version__}", f"Python {platform.python_version()}"]
    parts += [f"CUDA {torch.version.cuda}"] if torch.version.cuda else []
    parts += [f"ROCm {torch.version.hip}"] if torch.version.hip else []
    if torch.backends.cudnn.is_available():
        parts.append(f"cuDNN {torch.backends.cudnn.version()}")
    triton = _version("triton")
    parts += [f"Triton {triton}"] if triton else []
    return Fact("versions", ", ".join(parts), OK, "torch.__version__, torch.version")


def cuda() -> Fact:
    """Whether there is a GPU that torch can use."""
    name, evidence = "CUDA", f"torch.cuda.is_available() is {torch.cuda.is_available()}"
    driver = driver_version()
    if torch.cuda.is_available():
        devices = torch.cuda.device_count()
        return Fact(name, f"{devices} device{'s' * (devices != 1)}, driver {driver or 'unknown'}", OK, evidence)
    built = torch.version.cuda or torch.version.hip
    if driver and not built:
        advice = "this torch was built without CUDA: install one with it (pytorch.org, 'Get started')"
        return Fact(name, f"not usable, though there is a driver {driver}", CHANGE, evidence, advice)
    if driver or os.environ.get("CUDA_VISIBLE_DEVICES") in ("", "-1"):
        hidden = os.environ.get("CUDA_VISIBLE_DEVICES")
        advice = "CUDA_VISIBLE_DEVICES hides every device: unset it" if hidden is not None else ""
        advice = advice or f"the driver may be too old for CUDA {built}, or hold no device: see nvidia-smi"
        return Fact(name, f"not usable (driver {driver or 'unknown'})", CHANGE, evidence, advice)
    return Fact(name, "no device", NOTE, f"{evidence}; no NVIDIA driver", "everything runs on the CPU")


def cards() -> Iterator[Fact]:
    """What each device is."""
    for number in range(torch.cuda.device_count()):
        card = torch.cuda.get_device_properties(number)
        memory, capability = card.total_memory / 2**30, f"{card.major}.{card.minor}"
        level, advice = OK, ""
        if (card.major, card.minor) < TENSOR_CORES and torch.version.hip is None:
            level, advice = NOTE, "no TF32 and no bfloat16 before 8.0: use float16 with a scaler (dz.tools.Amp does)"
        value = f"{card.name}, {memory:.0f} GiB, compute capability {capability}"
        yield Fact(f"device {number}", value, level, "torch.cuda.get_device_properties", advice)


def processes() -> Iterator[Fact]:
    """Whether several devices are put to use."""
    devices = torch.cuda.device_count()
    if devices < 2:
        return
    dist = torch.distributed
    if dist.is_available() and dist.is_initialized():
        yield Fact("processes", f"{dist.get_world_size()}, {devices} devices here", OK, "torch.distributed")
        return
    advice = f"torchrun --nproc-per-node {devices} with DistributedDataParallel, once one device is busy"
    yield Fact("processes", f"1, {devices} devices", NOTE, "torch.distributed is not initialised", advice)


def compiler() -> Fact:
    """Whether torch.compile can work here."""
    off = [name for name in ("TORCHDYNAMO_DISABLE", "TORCH_COMPILE_DISABLE") if os.environ.get(name) == "1"]
    if off:
        return Fact("torch.compile", "switched off", CHANGE, f"{off[0]}=1", f"unset {off[0]}")
    if torch.cuda.is_available():
        triton = _version("triton")
        if not triton:
            return Fact("torch.compile", "not usable on CUDA", CHANGE, "triton is not installed", "pip install triton")
        return Fact("torch.compile", f"usable, Triton {triton}", OK, "triton is installed")
    cxx = os.environ.get("CXX") or next((name for name in ("g++", "clang++") if shutil.which(name)), "")
    if not cxx or not shutil.which(cxx):
        advice = "install g++ (Debian: apt install g++), or stay with eager code"
        return Fact("torch.compile", "not usable", NOTE, "there is no C++ compiler", advice)
    return Fact("torch.compile", f"usable, {cxx}", OK, f"{shutil.which(cxx)}")


def tf32() -> Iterator[Fact]:
    """Whether float32 products and convolutions may use TF32."""
    from denizen.perf.watch._tf32 import tf32_switch

    matter = torch.cuda.is_available() and torch.version.hip is None
    matter = matter and torch.cuda.get_device_capability() >= TENSOR_CORES
    wanted = [("TF32 in matrix products", torch.backends.cuda.matmul, "torch.backends.cuda.matmul")]
    wanted += [("TF32 in convolutions", torch.backends.cudnn, "torch.backends.cudnn")]
    for name, owner, path in wanted:
        field, on = tf32_switch(owner)
        value = getattr(owner, field)
        state, evidence = "on" if value == on else "off", f"{path}.{field} is {value!r}"
        if not matter:
            yield Fact(name, state, OK, f"{evidence}; no device here that has it")
        elif value == on:
            yield Fact(name, state, OK, evidence)
        else:
            advice = "dz.tools.set_fast_defaults(): float32 products many times as fast, factors rounded to 10 bits"
            yield Fact(name, state, CHANGE, evidence, advice)


def cudnn() -> Iterator[Fact]:
    """Whether cuDNN is used, and its trials."""
    backend = torch.backends.cudnn
    if not torch.cuda.is_available():
        return
    if not backend.is_available() or not backend.enabled:
        why = "torch.backends.cudnn.enabled is False" if backend.is_available() else "it is not there"
        yield Fact("cuDNN", "not used", CHANGE, why, "torch.backends.cudnn.enabled = True")
        return
    yield Fact("cuDNN", "used", OK, "torch.backends.cudnn.enabled is True")
    evidence = f"torch.backends.cudnn.benchmark is {backend.benchmark}"
    if torch.version.hip is not None:
        yield Fact("cuDNN trials", "on" if backend.benchmark else "off", OK, evidence)
    elif backend.benchmark:
        yield Fact("cuDNN trials", "on", OK, evidence)
    else:
        advice = "pays for convolutions whose shapes repeat: dz.tools.set_fast_defaults()"
        yield Fact("cuDNN trials", "off", NOTE, evidence, advice)


def bf16() -> Fact:
    """Whether the hardware computes in bfloat16."""
    if torch.cuda.is_available():
        usable = torch.cuda.is_bf16_supported(including_emulation=False)
        advice = "" if usable else "use float16 with a scaler (dz.tools.Amp chooses)"
        return Fact("bfloat16", "yes" if usable else "no", OK, "torch.cuda.is_bf16_supported", advice)
    capabilities = getattr(torch.cpu, "get_capabilities", dict)()
    names = [name for name in ("avx512_bf16", "amx_bf16", "sve_bf16") if capabilities.get(name)]
    if names:
        return Fact("bfloat16", "yes, on the CPU", OK, ", ".join(names))
    advice = "autocast would be many times slower than float32 on this CPU: leave it off (dz.tools.Amp does)"
    return Fact("bfloat16", "no", NOTE, "the CPU has neither AVX512-BF16 nor AMX nor SVE-BF16", advice)


def attention() -> Iterator[Fact]:
    """Which kernels `scaled_dot_product_attention` may choose on CUDA."""
    if not torch.cuda.is_available():
        return
    backend = torch.backends.cuda
    kinds = {
        "flash": backend.flash_sdp_enabled() and backend.is_flash_attention_available(),
        "memory-efficient": backend.mem_efficient_sdp_enabled(),
        "cuDNN": backend.cudnn_sdp_enabled(),
        "plain": backend.math_sdp_enabled(),
    }
    value = ", ".join(name for name, on in kinds.items() if on) or "none"
    evidence = "torch.backends.cuda.*_sdp_enabled(); a mask, float32 or an odd head size rules flash out"
    if kinds["flash"] and kinds["plain"]:
        yield Fact("attention", value, OK, evidence)
    elif not kinds["plain"]:
        advice = "inputs that the others do not take will fail: torch.backends.cuda.enable_math_sdp(True)"
        yield Fact("attention", value, NOTE, evidence, advice)
    else:
        yield Fact("attention", value, NOTE, evidence, "torch.backends.cuda.enable_flash_sdp(True) where it is there")


def allocator() -> Iterator[Fact]:
    """Settings of CUDA's allocator."""
    if os.environ.get("PYTORCH_NO_CUDA_MEMORY_CACHING"):
        value = "every allocation asks the driver"
        yield Fact("allocator", value, CHANGE, "PYTORCH_NO_CUDA_MEMORY_CACHING is set", "unset it outside debugging")
        return
    if not torch.cuda.is_available():
        return
    names = ("PYTORCH_ALLOC_CONF", "PYTORCH_CUDA_ALLOC_CONF")
    text = next((f"{name}={os.environ[name]}" for name in names if os.environ.get(name)), "")
    advice = "" if text else "where memory is fragmented: PYTORCH_ALLOC_CONF=expandable_segments:True"
    evidence = text or "PYTORCH_ALLOC_CONF is not set"
    yield Fact("allocator", torch.cuda.get_allocator_backend(), OK, evidence, advice)


def threads() -> Fact:
    """Threads of torch against the cores that this process may use."""
    used, cores = torch.get_num_threads(), int(min(available_cores(), quota() or float("inf")) or 1)
    value = f"{used} for operators, {torch.get_num_interop_threads()} between them; {cores} cores"
    evidence = "torch.get_num_threads(), the affinity and the quota of the process"
    if used > cores:
        advice = f"more threads than cores make each other wait: torch.set_num_threads({cores})"
        return Fact("threads", value, CHANGE, evidence, advice)
    if used < cores and not torch.cuda.is_available():
        set_by = next((f"{n}={os.environ[n]}" for n in ("OMP_NUM_THREADS", "MKL_NUM_THREADS") if n in os.environ), "")
        advice = f"where the machine is yours alone: torch.set_num_threads({cores})"
        return Fact("threads", value, NOTE, set_by or evidence, advice)
    return Fact("threads", value, OK, evidence)


def quota() -> float | None:
    """Cores that the container may use; None without a limit."""
    try:
        limit, period = Path("/sys/fs/cgroup/cpu.max").read_text().split()
        return None if limit == "max" else max(1.0, int(limit) / int(period))
    except (OSError, ValueError):
        return None


def byte_code() -> Iterator[Fact]:
    """Whether each process compiles torch's Python sources anew, as in containers that keep no byte code."""
    kept = importlib.util.cache_from_source(str(torch.__file__))
    if Path(str(torch.__file__)).suffix != ".py" or os.path.exists(kept):
        return
    by = "PYTHONDONTWRITEBYTECODE" if sys.dont_write_bytecode else "its folder cannot be written"
    advice = (
        "each start compiles torch's sources, which takes seconds: python -m compileall -q "
        f"{Path(str(torch.__file__)).parent}, or PYTHONDONTWRITEBYTECODE= PYTHONPYCACHEPREFIX=FOLDER"
    )
    yield Fact("byte code of torch", "none", NOTE, f"{kept} is missing; {by}", advice)


def shared_memory() -> Iterator[Fact]:
    """Room for batches of workers."""
    try:
        size = os.statvfs("/dev/shm")
    except (AttributeError, OSError):  # Windows has no such call, macOS no such place
        return
    total = size.f_blocks * size.f_frsize
    advice = "workers of a loader may die with a bus error: docker run --shm-size=8g" if total < SMALL_SHM else ""
    yield Fact("/dev/shm", f"{total / 2**30:.2g} GiB", CHANGE if advice else OK, "os.statvfs", advice)


def slow_switches() -> Iterator[Fact]:
    """Debugging that was left on."""
    launch = os.environ.get("CUDA_LAUNCH_BLOCKING") == "1"
    checks: list[tuple[str, bool, str, str, str]] = [
        ("blocking launches", launch, "CUDA_LAUNCH_BLOCKING=1", "unset it: every launch waits for its kernel", CHANGE),
        (
            "anomaly detection",
            torch.is_anomaly_enabled(),
            "torch.is_anomaly_enabled()",
            "torch.autograd.set_detect_anomaly(False): it checks every gradient, reading it on the host",
            CHANGE,
        ),
        (
            "deterministic algorithms",
            torch.are_deterministic_algorithms_enabled(),
            "torch.are_deterministic_algorithms_enabled()",
            "some operators are slower, some refuse; off if not meant",
            NOTE,
        ),
        (
            "deterministic cuDNN",
            torch.backends.cudnn.deterministic and torch.cuda.is_available(),
            "torch.backends.cudnn.deterministic",
            "convolutions may be slower; off if not meant",
            NOTE,
        ),
        (
            "tracing of Python",
            sys.gettrace() is not None,
            "sys.gettrace()",
            "a debugger or a coverage tool slows every line: measure without",
            NOTE,
        ),
        (
            "checks of distributions",
            _distributions_checked(),
            "Distribution._validate_args",
            "validate_args=False, or python -O: on a GPU each check of an argument is a host read",
            NOTE,
        ),
    ]
    if torch.cuda.is_available():
        mode = torch.cuda.get_sync_debug_mode()
        checks.append(
            ("sync debug mode", mode != 0, f"it is {mode}", "torch.cuda.set_sync_debug_mode('default')", NOTE)
        )
    on = [check for check in checks if check[1]]
    for name, _, evidence, advice, level in on:
        yield Fact(name, "on", level, evidence, advice)
    if not on:
        yield Fact("debugging", "off", OK, ", ".join(name for name, *_ in checks))


def driver_version() -> str:
    """Of NVIDIA's kernel driver; "" where there is none or it does not say."""
    try:
        words = Path("/proc/driver/nvidia/version").read_text().partition("\n")[0].split()
        return next((word for word in words if word.count(".") >= 1 and word[0].isdigit()), "")
    except OSError:
        return ""


def _distributions_checked() -> bool:
    """Only where distributions are used: importing them for the answer would cost more than it."""
    module = sys.modules.get("torch.distributions.distribution")
    return bool(module is not None and module.Distribution._validate_args) and torch.cuda.is_available()


def _version(package: str) -> str:
    from importlib.metadata import PackageNotFoundError, version

    try:
        return version(package)
    except PackageNotFoundError:
        return ""


REGION = "Torch-Compiled Region"  # what torch's profiler calls a call of compiled code


def of_step(step: Callable[[], Any]) -> Iterator[Fact]:
    """Facts of one step, which is called four times: once alone, three times by `profile`."""
    graphs, began = graphs_compiled(), time.perf_counter()
    step()
    if torch.cuda.is_available():
        torch.cuda.synchronize()
    first, graphs = time.perf_counter() - began, graphs_compiled() - graphs
    report = profile(step, plain=1, warm_up=1, active=1)
    yield used(report)
    yield compiled(report, graphs, first, report.plain_times[0])
    yield from products(report)


def used(report: ProfileReport) -> Fact:
    """Whether the GPU does the work."""
    ops = sum(op.calls for op in report.operators if op.name.startswith("aten::"))
    if report.on_device:
        share = f"busy {report.busy_share:.0%} of the step" if report.busy_share is not None else "nothing measured"
        return Fact("CUDA used", "yes", OK, f"{report.kernels} kernels on {report.device} in a step, {share}")
    if not torch.cuda.is_available():
        return Fact("CUDA used", "no", NOTE, f"{ops} operators in a step, all on the CPU: there is no CUDA device")
    advice = "move the model and every batch there: model.to('cuda'), batch.to('cuda', non_blocking=True)"
    return Fact("CUDA used", "no", CHANGE, f"{ops} operators in a step and not one kernel on a GPU", advice)


def compiled(report: ProfileReport, graphs: int, first: float, later: float) -> Fact:
    """Whether compiled code runs in the step."""
    regions = sum(op.calls for op in report.operators if op.name.startswith(REGION))
    times = f"first call {_time(first)}, later ones {_time(later)}"
    if regions:
        new = f", {graphs} compiled in the first call" if graphs else ", compiled before"
        return Fact("compile active", "yes", OK, f"{regions} calls of compiled code in a step{new}; {times}")
    advice = "step = torch.compile(step) where launching costs more than computing; dz.doctor(step) says"
    if graphs:
        evidence = f"{graphs} graphs were compiled in the first call, and none runs in later ones; {times}"
        return Fact("compile active", "no", CHANGE, evidence, "look for recompilations: dz.doctor(step)")
    return Fact("compile active", "no", NOTE, f"no compiled region runs in a step; {times}", advice)


def _time(seconds: float) -> str:
    return f"{seconds:.3g} s" if seconds >= 1 else f"{1e3 * seconds:.3g} ms"


def products(report: ProfileReport) -> Iterator[Fact]:
    """By which kernels float32 products are done, as their names say; nothing where the names do not."""
    names = [kernel.name.lower() for kernel in report.device_ops]
    gemms = [name for name in names if "gemm" in name]
    tensor_cores = [name for name in gemms if "tf32" in name or "tensorop_s1688gemm" in name]
    plain = [name for name in gemms if "sgemm" in name or "f32f32_f32f32" in name]
    if tensor_cores:
        yield Fact("matrix products", "TF32", OK, f"kernel {tensor_cores[0][:60]}")
    elif plain:
        advice = "dz.tools.set_fast_defaults() for TF32, dz.tools.Amp for bfloat16; check with dz.perf.equivalent"
        yield Fact("matrix products", "float32 without tensor cores", CHANGE, f"kernel {plain[0][:60]}", advice)
