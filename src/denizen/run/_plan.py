"""What a run will do, before or while it does it."""

from typing import TYPE_CHECKING, Any

from denizen import _tree, ops
from denizen._fingerprint import describe
from denizen._results import Shown
from denizen.model import stages
from denizen.run._compile import AUTO_COMPILE_SECONDS

if TYPE_CHECKING:
    from denizen.run._run import Run


def plan(run: "Run", kernels: bool) -> Shown:
    """See `Run.plan`."""
    from rich.console import Group

    from denizen._printing import Table, as_it_is, bold

    facts = Table.grid(padding=(0, 2))
    for name, text in _facts(run).items():
        facts.add_row(bold(name), text)
    if not kernels:  # finding them takes a few steps of a copy
        facts.add_row(bold("kernels"), "run.plan(kernels=True) lists those of a step, in order")
    fields = Table(title="state", title_justify="left", title_style="bold", header_style="")
    for head in ("field", "kind", "axes", "dtype", "shape of a replicate", "bytes of all"):
        fields.add_column(head, justify="right" if head.startswith("bytes") else "left")
    for row in _fields(run):
        fields.add_row(*row)
    tables = [facts, fields, *([as_it_is(_kernels(run))] if kernels else [])]
    return Shown(Group(*tables), _memory(run))


def _kernels(run: "Run") -> Any:
    from denizen._printing import Table
    from denizen.run._stats import step_kernels

    what = "operations of a step" if run.device.type == "cpu" else "kernels of a step"
    note = ", as it was before it was compiled" if run.device.type == "cpu" and run._path != "eager" else ""
    if not run._timed_steps:
        return f"{what}: none was run; call run.extend(1) first"
    table = Table(title=f"{what}, in order{note}", title_justify="left", title_style="bold", header_style="")
    timed = run.device.type != "cpu"
    table.add_column("name", overflow="fold")
    for head in ("times", "µs each") if timed else ("times",):
        table.add_column(head, justify="right")
    for name, times, micros in step_kernels(run):
        table.add_row(name, str(times), *([f"{micros:.2f}"] if timed and micros is not None else []))
    return table


def _facts(run: "Run") -> dict[str, str]:
    setting, memory = run._stepper.setting, _memory(run)
    agents, worlds = run._stepper.ids.numel(), len(run.worlds)
    sizes = ", ".join(f"{name} {size(count)}" for name, count in memory.items())
    parts = stages(run.model)
    told = {"stages": ", then ".join(parts)} if parts else {}
    return {
        "model": f"{run.name}: {agents:,} agents × {worlds} replicate{'s' if worlds > 1 else ''}, seed {run.seed}",
        **told,
        "time": f"{run.steps} steps done, each {run.dt:g} {run.time_unit}",
        "device": f"{run.device} ({run._device_reason}), ops: {ops.variant(run.device)}",
        "path": _path(run),
        "draws": "hard" if setting.relax is None else f"relaxed by {describe(setting.relax)}",
        "series": ", ".join(f"{name} ({run.kinds[name]})" for name in run.series_names) or "none",
        "interventions": "; ".join(describe(i) for i in setting.interventions) or "none",
        "snapshots": str(run._snapshots) if run._snapshots else "none",
        "folder": str(run.folder) if run.folder else "none; pass out= to simulate or call run.save(path)",
        "memory": f"about {size(sum(memory.values()))}: {sizes}",
    }


def _path(run: "Run") -> str:
    if run._path == "captured":
        return "compiled and captured in CUDA graphs"
    if run._path == "compiled":
        return "compiled"
    if run._path == "native":
        return "native: written as loops, which numba compiled"
    if run._compile:
        return "eager for the first steps, then compiled, as asked"
    if run._compile is False:
        return "eager: as asked, because compiling failed, or, on CUDA, because an intervention asks the host"
    worth = AUTO_COMPILE_SECONDS.get(run.device.type, AUTO_COMPILE_SECONDS["cpu"])
    return f"eager; compiled where more than {worth:.0f} s of stepping lie ahead"


def _fields(run: "Run") -> list[tuple[str, ...]]:
    rows, state = [], run.state
    for name, kind in state.kinds.items():
        parts = _tree.tensors(state.__dict__[name])  # a relaxed history has one for never and one for each age
        dtype, shape = str(parts[0].dtype).removeprefix("torch."), str(list(parts[0].shape[1:]))
        shape = shape if len(parts) == 1 else f"{len(parts)} × {shape}"
        rows.append((name, kind.name, ", ".join(kind.axes), dtype, shape, size(sum(map(_bytes, parts)))))
    return rows


def _memory(run: "Run") -> dict[str, int]:
    """Bytes by what holds them: a step has the old and the new state, and about two float32 an entry besides."""
    leaves = run._run_state.leaves
    memory = {
        "model": sum(map(_bytes, _tree.tensors(run.model))),
        "state": 2 * sum(_bytes(leaf) for leaf in leaves),
        "a step's values": sum(8 * leaf.numel() for leaf in leaves),
        "series so far": sum(_bytes(chunk) for chunks in run._chunks.values() for chunk in chunks),
    }
    if run._snapshots:
        memory["snapshots" if run.device.type == "cpu" else "snapshots (on the host)"] = run._snapshots.nbytes
    return memory


def _bytes(tensor: Any) -> int:
    return tensor.numel() * tensor.element_size()


def size(count: int) -> str:
    """Bytes for people."""
    for unit, scale in (("GiB", 1 << 30), ("MiB", 1 << 20), ("KiB", 1 << 10)):
        if count >= scale:
            return f"{count / scale:.3g} {unit}"
    return f"{count} B"
