"""What a step was seen to use, right or wrong: the evidence for the checklist."""

import collections
import dataclasses
import statistics
from typing import TYPE_CHECKING, Any

from denizen.perf._doctor.hooks import Drawn
from denizen.perf._doctor.ops import PRODUCTS
from denizen.perf.watch._compiled import graphs_compiled

if TYPE_CHECKING:
    from denizen.perf._doctor.doctor import Examination


@dataclasses.dataclass(frozen=True)
class Facts:
    """Of one step.

    Attributes:
        device_ops: operations on the device.
        host_ops: operations on tensors of the host.
        loaders: settings of each loader that it drew from, and seconds of waiting for a batch.
        products: FLOP of matrix products and convolutions, by type.
        autocast: whether an autocast context was open.
        graphs: that torch.compile made in this process.
        backwards: backward passes.
        without_gradients: whether any operation ran with gradients off, outside of backward passes and optimizers.
        elements: of the largest result of an operation, the median of all.
    """

    device_ops: int
    host_ops: int
    loaders: list[dict[str, Any]]
    products: dict[str, int]
    autocast: bool
    graphs: int
    backwards: int
    without_gradients: bool
    elements: int


def facts(examined: "Examination") -> Facts:
    """Of the last step whose operations were looked at."""
    looked, watched = examined.watched.operations, examined.watched
    last = looked.steps[-1] if looked.steps else -1
    ops = [op for op in looked.ops if op.step == last]
    products: collections.Counter[str] = collections.Counter()
    for op in ops:
        if op.schema in PRODUCTS and op.flops:
            products[str(op.dtype).removeprefix("torch.")] += op.flops
    return Facts(
        device_ops=len(ops),
        host_ops=looked.host_ops // max(1, len(looked.steps)),
        loaders=[_loader(drawn) for drawn in examined.timed.drawn],
        products=dict(products),
        autocast=any(op.autocast for op in ops),
        graphs=graphs_compiled(),
        backwards=sum(call.step == last for call in watched.graphs.backwards),
        without_gradients=any(op.off for op in ops),
        elements=round(statistics.median(op.numel for op in ops)) if ops else 0,
    )


def _loader(drawn: Drawn) -> dict[str, Any]:
    loader = drawn.loader
    seen = {
        name: getattr(loader, name, getattr(loader, f"_{name}", None))
        for name in ("num_workers", "pin_memory", "persistent_workers", "batch_size")
    }
    return seen | {"line": drawn.place.line, "wait_seconds": statistics.median(drawn.wait) if drawn.wait else 0.0}
