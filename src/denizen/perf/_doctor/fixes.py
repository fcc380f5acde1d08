"""What to write instead, for each kind of fault; data (performance kit, section 4)."""

from denizen.perf.watch import _faults

FIXES = {
    **_faults.FIXES,
    "loader-workers": "DataLoader(..., num_workers=4, persistent_workers=True), or dz.tools.PrefetchLoader; data that "
    "fits into the device's memory: put it there once and index it",
    "loader-persistent": "DataLoader(..., persistent_workers=True): the workers are kept from one pass to the next",
    "loader-pin": "DataLoader(..., pin_memory=True) and .to(device, non_blocking=True), or dz.tools.PrefetchLoader",
    "loader-collate": "give the dataset __getitems__(indices), which makes a whole batch by indexing, and collate_fn "
    "= a function that returns it as it is",
    "compile-overhead": "call torch.compile once, outside of the step, and keep what it returns",
    "optimizer-unfused": "fused=True (or foreach=True) when the optimizer is made; for one of your own the "
    "torch._foreach_* functions over all parameters at once",
    "grad-memset": "optimizer.zero_grad(set_to_none=True): no fill, and the first gradient is written, not added",
    "dtype-fp32": "torch.set_float32_matmul_precision('high'), or torch.autocast(device, torch.bfloat16); check with "
    "dz.perf.equivalent that results stay within tolerance",
    "dtype-fp64": "cast to float32 where it comes in (NumPy's default is float64)",
    "dtype-wide-int": "store it in the narrow type, cast within the step where it is used",
    "launch-bound": "do it for all at once with tensor operations (a batched dimension, torch.stack before the loop, "
    "foreach), or torch.compile the loop, or capture it in a CUDA graph",
    "alloc-churn": "preallocate and write slices or out=; drop the clone; no empty_cache in the loop",
    "graph-retention": "detach() what is kept over steps (or .item() it every N steps); backward() once, without "
    "retain_graph",
    "no-grad-missing": "with torch.no_grad(): (or inference_mode) around it: nothing differentiates this",
    "dense-quadratic": "keep the pairs that touch: CSR or an edge list, a cell list, or chunks of rows",
    "timing-async": "record torch.cuda.Event(enable_timing=True) on both sides and read elapsed_time later, or "
    "synchronise before both clock readings when measuring only",
    "debug-left-on": "switch it off outside of debugging",
    "eval-mode-missing": "model.eval() before, model.train() after: dropout is on and batch norm learns from this data",
    "inplace-possible": "the in-place form (name with _, or out=) saves an allocation; only where no gradient needs "
    "the old value",
}

# What one of a kind takes from a GPU, in rough microseconds: for the order of findings whose cost is not measured, and
# shown nowhere. A wait drains the queue, a launch is about five, a leak or a compilation ends a run.
ROUGHLY = {
    "host-sync": 30,
    "roundtrip": 40,
    "d2h-accumulate": 40,
    "state-copy": 20,
    "h2d": 15,
    "loader": 500,
    "graph-break": 50,
    "recompile": 1000,
    "compile-overhead": 4000,
    "launch-bound": 5,
    "optimizer-unfused": 5,
    "grad-memset": 3,
    "alloc-churn": 10,
    "graph-retention": 1000,
    "no-grad-missing": 50,
    "eval-mode-missing": 1000,
    "dense-quadratic": 100,
    "debug-left-on": 500,
    "dtype": 50,
    "timing-async": 1,
}


def roughly(kind: str) -> float:
    """See `ROUGHLY`."""
    return next((micros for name, micros in ROUGHLY.items() if kind.startswith(name)), 1)
