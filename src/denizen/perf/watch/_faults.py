"""Kinds of fault, what to write instead of each, and the kind of a read or a copy; data."""

import dataclasses

from denizen.perf.watch._places import Place


@dataclasses.dataclass(frozen=True)
class Fault:
    """A kind of fault.

    Attributes:
        fix: what to write instead.
        micros: what one takes from a GPU, in rough microseconds: for the order of findings whose cost is not measured,
            and shown nowhere. A wait drains the queue, a launch is about five, a leak or a compilation ends a run.
    """

    fix: str
    micros: float = 1


FAULTS = {
    # What counting hears of, under a budget and the doctor.
    "host-sync-item": Fault(
        "keep the value on the device: add it up there and read it every N steps (in `allow`), or one step late",
        30,
    ),
    "host-sync-float": Fault("keep it a 0-dim tensor and do the arithmetic on the device", 30),
    "host-sync-bool": Fault(
        "choose with torch.where, clamp or a mask; check every N steps (in `allow`); switch validation off "
        "(validate_args=False, error_if_nonfinite=False, cholesky_ex, inv_ex and solve_ex of torch.linalg); mean "
        "+ std * torch.randn_like(mean) instead of torch.normal and Normal.sample",
        30,
    ),
    "host-sync-copy": Fault(
        "read back late: copy_ into pinned memory with non_blocking=True, record an event, read after it one step"
        " later",
        30,
    ),
    "host-sync-nonzero": Fault(
        "keep shapes fixed: a mask instead of a list of places, weighted sums, sort with a capacity",
        30,
    ),
    "host-sync-boolindex": Fault("torch.where, or multiply by the mask and divide by its sum", 30),
    "host-sync-print": Fault(
        "print numbers that a late read-back brought to the host, every N steps (in `allow`)",
        30,
    ),
    "host-sync-explicit": Fault(
        "wait for an event where the value is needed; synchronise once, after the measurement",
        30,
    ),
    "host-sync-scaler": Fault(
        "bfloat16 needs no GradScaler; with float16, a fused optimizer reads the flag on the device",
        30,
    ),
    "h2d-fresh": Fault(
        "make it on the device (device=..., a generator of the device), or once before the loop; batches: "
        "pin_memory() and non_blocking=True, or a prefetching loader",
        15,
    ),
    "h2d-index": Fault("keep the indices on the device", 15),
    "h2d-pageable": Fault(
        "pin the source (pin_memory=True in the loader): from pageable memory non_blocking=True waits",
        15,
    ),
    "roundtrip": Fault("do it in torch, on the device: this value came from there and goes back", 40),
    "d2h-accumulate": Fault(
        "write into a buffer on the device, preallocated for all steps, and copy it once at the end",
        40,
    ),
    "state-copy": Fault(
        "keep a second module on the device and copy_ into it in place, or swap the two",
        20,
    ),
    "graph-break": Fault(
        "move it out of compiled code, or keep tensors (torch.where; torch.cond reads its condition)",
        50,
    ),
    "recompile": Fault(
        "pass numbers as tensors, mark changing sizes with torch._dynamo.mark_dynamic, pad or bucket shapes",
        1000,
    ),
    "recompile-limit": Fault(
        "this function now runs without compilation: make it recompile less (tensors for numbers, mark_dynamic), "
        "or raise torch._dynamo.config.recompile_limit",
        1000,
    ),
    "alloc-churn": Fault(
        "preallocate and write slices or out=; drop the clone; no empty_cache in the loop",
        10,
    ),
    # What only the doctor sees: one rule of `denizen.perf._doctor.rules` for each.
    "loader-workers": Fault(
        "DataLoader(..., num_workers=4, persistent_workers=True), or dz.tools.PrefetchLoader; data that fits into"
        " the device's memory: put it there once and index it",
        500,
    ),
    "loader-persistent": Fault(
        "DataLoader(..., persistent_workers=True): the workers are kept from one pass to the next",
        500,
    ),
    "loader-pin": Fault(
        "DataLoader(..., pin_memory=True) and .to(device, non_blocking=True), or dz.tools.PrefetchLoader",
        500,
    ),
    "loader-collate": Fault(
        "give the dataset __getitems__(indices), which makes a whole batch by indexing, and collate_fn = a "
        "function that returns it as it is",
        500,
    ),
    "compile-overhead": Fault("call torch.compile once, outside of the step, and keep what it returns", 4000),
    "optimizer-unfused": Fault(
        "fused=True (or foreach=True) when the optimizer is made; for one of your own the torch._foreach_* "
        "functions over all parameters at once",
        5,
    ),
    "grad-memset": Fault(
        "optimizer.zero_grad(set_to_none=True): no fill, and the first gradient is written, not added",
        3,
    ),
    "dtype-fp32": Fault(
        "torch.set_float32_matmul_precision('high'), or torch.autocast(device, torch.bfloat16); check with "
        "dz.perf.equivalent that results stay within tolerance",
        50,
    ),
    "dtype-fp64": Fault("cast to float32 where it comes in (NumPy's default is float64)", 50),
    "dtype-wide-int": Fault("store it in the narrow type, cast within the step where it is used", 50),
    "launch-bound": Fault(
        "do it for all at once with tensor operations (a batched dimension, torch.stack before the loop, "
        "foreach), or torch.compile the loop, or capture it in a CUDA graph",
        5,
    ),
    "graph-retention": Fault(
        "detach() what is kept over steps (or .item() it every N steps); backward() once, without retain_graph",
        1000,
    ),
    "no-grad-missing": Fault(
        "with torch.no_grad(): (or inference_mode) around it: nothing differentiates this",
        50,
    ),
    "dense-quadratic": Fault(
        "keep the pairs that touch: CSR or an edge list, a cell list, or chunks of rows",
        100,
    ),
    "timing-async": Fault(
        "record torch.cuda.Event(enable_timing=True) on both sides and read elapsed_time later, or synchronise "
        "before both clock readings when measuring only",
        1,
    ),
    "debug-left-on": Fault("switch it off outside of debugging", 500),
    "eval-mode-missing": Fault(
        "model.eval() before, model.train() after: dropout is on and batch norm learns from this data",
        1000,
    ),
    "inplace-possible": Fault(
        "the in-place form (name with _, or out=) saves an allocation; only where no gradient needs the old value",
        1,
    ),
}

_INSTEAD = {  # of what reads by itself, where the line or the operation names it
    "repeat_interleave": "give repeat_interleave its output_size",
    "one_hot": "give one_hot its num_classes",
    "bincount": "scatter_add_ ones into zeros of a fixed size",
    "histc": "give histc its bounds",
    "nanmedian": "median over a fixed number of sorted values, or read it every N steps (in `allow`)",
}

_BY_METHOD = {
    "item": "host-sync-item",
    "tolist": "host-sync-item",
    "__float__": "host-sync-float",
    "__int__": "host-sync-float",
    "__index__": "host-sync-float",
    "__complex__": "host-sync-float",
    "__bool__": "host-sync-bool",
    "__contains__": "host-sync-bool",
    "__repr__": "host-sync-print",
    "__str__": "host-sync-print",
    "__format__": "host-sync-print",
    "numpy": "host-sync-copy",
    "__array__": "host-sync-copy",
    "__reduce_ex__": "host-sync-copy",
    "synchronize": "host-sync-explicit",
}
METHODS = frozenset(_BY_METHOD)
_BY_OP = {
    "aten::nonzero": "host-sync-nonzero",
    "aten::masked_select": "host-sync-nonzero",
    "aten::_unique2": "host-sync-nonzero",
    "aten::unique_dim": "host-sync-nonzero",
    "aten::unique_consecutive": "host-sync-nonzero",
    "aten::index": "host-sync-boolindex",
    "aten::index_put": "host-sync-boolindex",
    "aten::index_put_": "host-sync-boolindex",
    "aten::equal": "host-sync-bool",
    "aten::allclose": "host-sync-bool",
    "aten::normal": "host-sync-bool",
    "aten::_linalg_check_errors": "host-sync-bool",
    "aten::_linalg_eigh": "host-sync-bool",
    "aten::_linalg_svd": "host-sync-bool",
}


def fix_of(kind: str, op: str, code: str) -> str:
    """What to write instead; "" for a kind that is none of a fault."""
    if kind == "host-sync-item" and ".item(" not in code and ".tolist(" not in code:
        for word, fix in _INSTEAD.items():
            if word in op or word in code:
                return fix
    return FAULTS[kind].fix if kind in FAULTS else ""


def kind_of_read(schema: str, place: Place, logical: bool) -> str:
    """The kind of an operation that makes the host wait.

    Args:
        schema: its name, such as ``"aten::nonzero"``.
        place: where it happened.
        logical: whether the value read is a bool, as in `allclose` and validation.
    """
    if place.passes("torch/amp/grad_scaler.py"):
        return "host-sync-scaler"
    if place.passes("torch/_tensor_str.py"):  # which selects and counts what it prints
        return "host-sync-print"
    if schema in _BY_OP:
        return _BY_OP[schema]
    for method in ("__contains__", "__format__"):  # written in Python, around an item()
        if place.passes("torch/_tensor.py", method):
            return _BY_METHOD[method]
    if place.method in _BY_METHOD:
        return _BY_METHOD[place.method]
    return "host-sync-bool" if logical else "host-sync-item"


def kind_of_copy(place: Place) -> str:
    """The kind of a copy to the host that is waited for."""
    if place.passes("torch/_tensor_str.py"):
        return "host-sync-print"
    return _BY_METHOD.get(place.method, "host-sync-copy")
