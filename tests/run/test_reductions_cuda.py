"""Sums of reals on a card: the same bits in each process, whatever inductor measured there."""

import pytest
import torch
import torch._inductor.config as config
from tests.run.played import one_graph, own_code
from torch import Tensor
from torch._inductor.runtime.triton_heuristics import CachingAutotuner
from torch._inductor.utils import fresh_cache

pytestmark = pytest.mark.cuda


def sums(values: Tensor) -> tuple[Tensor, ...]:
    """Reductions that inductor writes in several ways: rows, columns, all at once, and with others within."""
    gaps = values - values.mean(1, True)
    return values.sum(1), values.sum(0), values.mean(), values.softmax(1), gaps.square().sum(1)


@pytest.mark.parametrize("shape", [(64, 700), (3000, 48), (33, 40_000)])
def test_no_bit_depends_on_what_was_fastest(shape: tuple[int, int], monkeypatch: pytest.MonkeyPatch) -> None:
    plain, timed = CachingAutotuner.benchmark_all_configs, []

    def benchmark_all_configs(self: CachingAutotuner, *args: object, **kwargs: object) -> object:
        timed.append(self.heuristic_type.name)
        return plain(self, *args, **kwargs)

    monkeypatch.setattr(CachingAutotuner, "benchmark_all_configs", benchmark_all_configs)
    torch.manual_seed(0)
    values, found = torch.randn(shape, device="cuda"), []
    for distorted in ("", "inverse"):  # takes the slowest for the fastest
        with fresh_cache(), config.patch({"test_configs.distort_benchmarking_result": distorted}):
            found.append(one_graph(own_code(sums), "inductor")(values))
    for first, second in zip(*found, strict=True):
        assert torch.equal(first, second)
    assert set(timed) <= {"POINTWISE"}
