"""Kinds of fault that counting can see, and what to write instead; data (performance kit, section 4)."""

from denizen.perf.watch._places import Place

FIXES = {
    "host-sync-item": "keep the value on the device: add it up there and read it every N steps (in `allow`), or one "
    "step late",
    "host-sync-float": "keep it a 0-dim tensor and do the arithmetic on the device",
    "host-sync-bool": "choose with torch.where, clamp or a mask; check every N steps (in `allow`); switch validation "
    "off (validate_args=False, error_if_nonfinite=False, cholesky_ex, inv_ex and solve_ex of torch.linalg); "
    "mean + std * torch.randn_like(mean) instead of torch.normal and Normal.sample",
    "host-sync-copy": "read back late: copy_ into pinned memory with non_blocking=True, record an event, read after it "
    "one step later",
    "host-sync-nonzero": "keep shapes fixed: a mask instead of a list of places, weighted sums, sort with a capacity",
    "host-sync-boolindex": "torch.where, or multiply by the mask and divide by its sum",
    "host-sync-print": "print numbers that a late read-back brought to the host, every N steps (in `allow`)",
    "host-sync-explicit": "wait for an event where the value is needed; synchronise once, after the measurement",
    "host-sync-scaler": "bfloat16 needs no GradScaler; with float16, a fused optimizer reads the flag on the device",
    "h2d-fresh": "make it on the device (device=..., a generator of the device), or once before the loop; batches: "
    "pin_memory() and non_blocking=True, or a prefetching loader",
    "h2d-index": "keep the indices on the device",
    "h2d-pageable": "pin the source (pin_memory=True in the loader): from pageable memory non_blocking=True waits",
    "roundtrip": "do it in torch, on the device: this value came from there and goes back",
    "d2h-accumulate": "write into a buffer on the device, preallocated for all steps, and copy it once at the end",
    "state-copy": "keep a second module on the device and copy_ into it in place, or swap the two",
    "graph-break": "move it out of compiled code, or keep tensors (torch.where; torch.cond reads its condition)",
    "recompile": "pass numbers as tensors, mark changing sizes with torch._dynamo.mark_dynamic, pad or bucket shapes",
    "recompile-limit": "this function now runs without compilation: make it recompile less (tensors for numbers, "
    "mark_dynamic), or raise torch._dynamo.config.recompile_limit",
    "alloc-churn": "preallocate and write slices or out=; drop the clone; no empty_cache in the loop",
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
    return FIXES.get(kind, "")


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
