"""What blocks hold for the backward pass, what recomputing them costs, and whether a step is still the same."""

import contextlib
import dataclasses
import time
from collections.abc import Callable, Generator
from typing import Any

import torch
from torch import Tensor, nn

from denizen import _tree
from denizen.errors import InputError
from denizen.perf.state import Snapshot
from denizen.perf.watch import clean, out_of_memory, peak_bytes, wait, without_frames

ROUNDS = 3
# Share of the largest value in a tensor: kernels that add in no fixed order differ by so much.
TOLERANCES = {torch.float64: 1e-7, torch.float32: 1e-5, torch.bfloat16: 1.6e-2, torch.float16: 1e-3}


@dataclasses.dataclass(frozen=True)
class BlockCost:
    """What checkpointing a block saves, and what that costs.

    Attributes:
        name: of the block.
        saved_bytes: that it holds for the backward pass, besides its inputs and outputs, which are held anyway.
        recompute_ms: milliseconds of its forward pass, all calls in a step together.
    """

    name: str
    saved_bytes: int
    recompute_ms: float


@dataclasses.dataclass(frozen=True)
class Run:
    """A step as it was seen.

    Attributes:
        peak_bytes: the most that it held at once beyond what was held before, when the optimizer has its state.
        milliseconds: its time, the best of several.
        values: gradients, loss and buffers of the first step, on the CPU, by name.
    """

    peak_bytes: int
    milliseconds: float
    values: dict[str, Tensor]


def run(model: nn.Module, step: Callable[[], object], snapshot: Snapshot, device: torch.device) -> Run | None:
    """From the state of the snapshot; None if memory runs out."""
    snapshot.restore()
    result = None
    try:
        values = _values(model, step)
        with peak_bytes(device) as peak:
            step()
        times = [_timed(step, device) for _ in range(ROUNDS)]
        result = Run(peak.nbytes, min(times), values)
    except Exception as error:
        if not out_of_memory(error):
            raise
        without_frames(error)
    snapshot.restore()
    if result is None:
        clean(device)
    return result


def _timed(step: Callable[[], object], device: torch.device) -> float:
    wait(device)
    began = time.perf_counter()
    step()
    wait(device)
    return (time.perf_counter() - began) * 1e3


def _values(model: nn.Module, step: Callable[[], object]) -> dict[str, Tensor]:
    """Gradients as they are accumulated, so that the step may clear them; the loss if it returns it; buffers after."""
    values: dict[str, Tensor] = {}
    handles = []
    for name, parameter in model.named_parameters():
        if parameter.requires_grad:

            def note(weight: Tensor, name: str = name) -> None:
                assert weight.grad is not None
                values[f"the gradient of {name}"] = weight.grad.detach().to("cpu", copy=True)

            handles.append(parameter.register_post_accumulate_grad_hook(note))
    try:
        loss = step()
    finally:
        for handle in handles:
            handle.remove()
    if isinstance(loss, Tensor):
        values["the returned value"] = loss.detach().to("cpu", copy=True)
    for name, buffer in model.named_buffers():
        values[f"the buffer {name}"] = buffer.detach().to("cpu", copy=True)
    return values


def compared(before: Run | None, after: Run) -> str:
    """``"bit-equal"`` or ``"within tolerance"``.

    Raises:
        InputError: something differs; names it.
    """
    if before is None:
        return "not compared: the plain step runs out of memory"
    bits = True
    for name in sorted(before.values.keys() | after.values.keys()):
        a, b = before.values.get(name), after.values.get(name)
        if a is not None and b is not None and torch.equal(a, b):
            continue
        bits = False
        if a is None or b is None or not _close(a, b):
            raise InputError(
                f"checkpointing changes {name}: a block computes something else when it runs a second time (it changes "
                "a buffer, or draws from a generator of its own); leave that block out of blocks="
            )
    return "bit-equal" if bits else "within tolerance"


def _close(a: Tensor, b: Tensor) -> bool:
    if a.shape != b.shape or a.dtype not in TOLERANCES:
        return False
    share = TOLERANCES[a.dtype]
    return torch.allclose(a, b, share, share * float(a.abs().max()), equal_nan=True)


# --- single blocks ----------------------------------------------------------------------------------------------------


def block_costs(
    blocks: dict[str, nn.Module], step: Callable[[], object], snapshot: Snapshot, device: torch.device
) -> list[BlockCost]:
    """Of each block, from one step in which every call of a block is preceded by trial calls that are thrown away."""
    calls: dict[str, list[tuple[int, float]]] = {name: [] for name in blocks}
    handles = []
    for name, block in blocks.items():

        def probe(module: nn.Module, args: Any, options: Any, seen: list[Any] = calls[name]) -> None:
            if torch.is_grad_enabled():
                seen.append(_probed(module, args, options, device))

        handles.append(block.register_forward_pre_hook(probe, with_kwargs=True))
    snapshot.restore()
    try:
        step()
    finally:
        for handle in handles:
            handle.remove()
        snapshot.restore()
    return [BlockCost(name, sum(n for n, _ in seen), sum(ms for _, ms in seen)) for name, seen in calls.items()]


def _probed(module: nn.Module, args: Any, options: Any, device: torch.device) -> tuple[int, float]:
    """Bytes that checkpointing one call would save, and milliseconds of its forward pass."""
    inputs = _tree.map_tensors(_detached, (args, options))
    plain = type(module).__mro__[2].forward  # pyrefly: ignore
    saved: list[Tensor] = []

    def pack(tensor: Tensor) -> Tensor:
        saved.append(tensor)
        return tensor.detach()  # itself, an output would hold the node that holds it, for ever

    with _draws_given_back(device):
        with torch.autograd.graph.saved_tensors_hooks(pack, lambda tensor: tensor):
            out = plain(module, *inputs[0], **inputs[1])
        held = _blocks(saved)
        given = _blocks(_tree.tensors(inputs))
        kept = given | _blocks(_tree.tensors(out)) | _blocks([*module.parameters(), *module.buffers()])
        nbytes = sum(held[key] for key in held if key not in kept)
        # The inputs are held for the recomputation, also where the plain block does not need them.
        nbytes -= sum(nbytes for key, nbytes in given.items() if key not in held)
        del out, saved[:], held
        times = []
        for _ in range(ROUNDS):
            times.append(_timed(lambda: plain(module, *inputs[0], **inputs[1]), device))
    return nbytes, min(times)


def _detached(tensor: Tensor) -> Tensor:
    return tensor.detach().requires_grad_(tensor.requires_grad)


def _blocks(tensors: list[Tensor]) -> dict[int, int]:
    """Bytes by block of memory."""
    storages = [tensor.untyped_storage() for tensor in tensors if tensor.layout is torch.strided]
    return {storage.data_ptr(): storage.nbytes() for storage in storages}


@contextlib.contextmanager
def _draws_given_back(device: torch.device) -> Generator[None]:
    with torch.random.fork_rng(devices=[device] if device.type == "cuda" else []):
        yield
