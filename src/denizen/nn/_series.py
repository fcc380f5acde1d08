"""Series of low rank to learn from: hidden factors that move slowly or fast, and columns that mix them.

A process is one draw of covariances and mixing weights; a realisation one draw of factors from it. All drawn on the
device from one seed. Splits are by process, so that nothing of a test process was seen in training.
"""

import dataclasses

import torch
from torch import Tensor

from denizen._arguments import whole
from denizen.errors import DataError, InputError
from denizen.nn._covariance import Kernel, Matern
from denizen.ops import rounding

_JITTERS = (1e-8, 1e-6, 1e-5, 1e-4, 1e-3)  # added to the diagonal, growing where Cholesky fails
_SMALLEST_SUM = 0.1
_MOST = 2**25  # entries of covariances at a time


@dataclasses.dataclass(frozen=True)
class RandomMixing:
    """Columns mix factors with weights N(1, 1) divided by their sum; sums below 0.1 are drawn again."""

    def draw(self, processes: int, features: int, rank: int, generator: torch.Generator) -> tuple[Tensor, int]:
        """(`[processes, features, rank]` float64, number of rows that were drawn again)."""
        shape, device = (processes, features, rank), generator.device
        weights = 1 + torch.randn(shape, dtype=torch.float64, generator=generator, device=device)
        redrawn = 0
        while (small := weights.sum(-1).abs() < _SMALLEST_SUM).any():
            count = int(small.sum())
            redrawn += count
            weights[small] = 1 + torch.randn((count, rank), dtype=torch.float64, generator=generator, device=device)
        return weights / weights.sum(-1, keepdim=True), redrawn


@dataclasses.dataclass(frozen=True)
class BlockMixing:
    """Each factor has a group of columns that it leads: softmax of N(0, 1), there of N(3, 0.75); columns shuffled."""

    def draw(self, processes: int, features: int, rank: int, generator: torch.Generator) -> tuple[Tensor, int]:
        """As of `RandomMixing`; nothing is drawn again."""
        shape, device = (processes, features, rank), generator.device
        logits = torch.randn(shape, dtype=torch.float64, generator=generator, device=device)
        leads = (torch.arange(features, device=device) * rank // features)[:, None] == torch.arange(rank, device=device)
        strong = 3 + 0.75 * torch.randn(shape, dtype=torch.float64, generator=generator, device=device)
        weights = torch.softmax(torch.where(leads, strong, logits), -1)
        order = torch.rand(shape[:2], generator=generator, device=device).argsort(-1)
        return weights.gather(1, order[..., None].expand(shape)), 0


Mixing = RandomMixing | BlockMixing


@dataclasses.dataclass(frozen=True, eq=False)
class Series:
    """Series and where they come from.

    Attributes:
        values: float32 `[series, times, features]`, each of standard deviation 1.
        process: int64 `[series]`, the process of each.
        std: float32 `[series]`, what each was divided by.
        redrawn: rows of mixing weights that were drawn again.
        facts: seed, kernel, mixing, rank, sizes: what a data file records.
    """

    values: Tensor
    process: Tensor
    std: Tensor
    redrawn: int
    facts: dict[str, object]


def draw_series(
    num_processes: int,
    times: int = 50,
    features: int = 25,
    *,
    rank: int = 4,
    realisations: int = 1,
    kernel: Kernel = Matern(),  # noqa: B008, RUF100
    mixing: Mixing = RandomMixing(),  # noqa: B008, RUF100
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Series:
    """Series X = U V^T of rank `rank`, divided by the standard deviation of each whole matrix.

    Args:
        num_processes: draws of covariances and mixing weights.
        times: rows of a series.
        features: columns of a series.
        rank: hidden factors; thirds of them are slow, medium and fast, fewer kinds below three.
        realisations: series of each process.
        kernel: `Matern()`, `Cauchy()` or `WhiteNoise()`.
        mixing: `RandomMixing()` or `BlockMixing()`.
        seed: equal seeds give equal series on one kind of device.
        device: where they are drawn and stay.

    Raises:
        InputError: a size below 1, or a rank above the smaller side.
        DataError: a covariance that cannot be factored.
    """
    _check_sizes(
        "draw_series", num_processes=num_processes, times=times, features=features, rank=rank, realisations=realisations
    )
    if rank > min(times, features):
        raise InputError(f"draw_series: rank={rank}, expected at most the smaller side of {times} x {features}")
    generator = torch.Generator(device).manual_seed(seed)
    weights, redrawn = mixing.draw(num_processes, features, rank, generator)
    speed = torch.arange(rank) * min(rank, 3) // rank
    lags = torch.arange(times, dtype=torch.float64, device=device)
    covariance = kernel.covariance(lags, speed.repeat(num_processes), generator)
    apart = (lags[:, None] - lags).abs().long()
    noise = torch.randn(
        num_processes, realisations, rank, times, 1, dtype=torch.float64, generator=generator, device=device
    )
    found, some = [], max(1, _MOST // (rank * times**2))  # processes at a time: covariances of all would fill a memory
    for rows, own in zip(covariance.view(num_processes, rank, times).split(some), noise.split(some), strict=True):
        root = _root(rows.flatten(0, 1)[:, apart]).view(-1, rank, times, times)
        found.append((root[:, None] @ own)[..., 0].transpose(-1, -2))
    factors = torch.cat(found)  # [processes, realisations, times, rank]
    return _finished(
        factors @ weights[:, None].transpose(-1, -2),
        redrawn,
        {
            "seed": seed,
            "rank": rank,
            "kernel": type(kernel).__name__,
            "mixing": type(mixing).__name__,
        },
    )


def draw_unstructured(
    num_series: int,
    times: int = 32,
    features: int = 32,
    *,
    rank: int = 2,
    seed: int = 0,
    device: torch.device | str = "cpu",
) -> Series:
    """Matrices U V^T with U and V uniform on (0, 1), each a process of its own: for matrix completion."""
    _check_sizes("draw_unstructured", num_series=num_series, times=times, features=features, rank=rank)
    generator = torch.Generator(device).manual_seed(seed)
    u, v = (
        torch.rand(num_series, 1, side, rank, dtype=torch.float64, generator=generator, device=device)
        for side in (times, features)
    )
    return _finished(u @ v.transpose(-1, -2), 0, {"seed": seed, "rank": rank, "kernel": "none", "mixing": "uniform"})


def _finished(values: Tensor, redrawn: int, facts: dict[str, object]) -> Series:
    processes, realisations, times, features = values.shape
    values = values.flatten(0, 1)
    std, size = values.flatten(1).std(1, correction=0), values.flatten(1).abs().amax(1)
    if bool((values.flatten(1).amax(1) - values.flatten(1).amin(1) <= rounding(size, values.dtype)).any()):
        raise InputError(
            f"times={times}, features={features}: a series has no spread beyond rounding, and it is divided by its "
            f"standard deviation; ask for more times or features"
        )
    process = torch.arange(processes, device=values.device).repeat_interleave(realisations)
    facts |= {"processes": processes, "realisations": realisations, "times": times, "features": features}
    return Series((values / std[:, None, None]).float(), process, std.float(), redrawn, facts)


def _root(covariance: Tensor) -> Tensor:
    """Cholesky factors; the diagonal grows where they do not exist."""
    eye = torch.eye(covariance.shape[-1], dtype=covariance.dtype, device=covariance.device)
    root, info = torch.linalg.cholesky_ex(covariance + _JITTERS[0] * eye)
    for jitter in _JITTERS[1:]:
        failed = info > 0
        if not failed.any():
            return root
        root[failed], info[failed] = torch.linalg.cholesky_ex(covariance[failed] + jitter * eye)
    if (info > 0).any():
        raise DataError(f"{int((info > 0).sum())} covariances are not positive definite, even with {_JITTERS[-1]} more")
    return root


def _check_sizes(caller: str, **sizes: int) -> None:
    for name, value in sizes.items():
        whole(caller, name, value, low=1)


def split_processes(
    process: Tensor, shares: tuple[float, ...] = (0.6, 0.2, 0.2), *, seed: int | None = 0
) -> tuple[Tensor, ...]:
    """Rows of each part, every process in one part only.

    Args:
        process: int64 `[series]`, the process of each.
        shares: of the parts, adding up to 1; each gets at least one process.
        seed: of the order in which processes are dealt out; None keeps their own (a sequential split).

    Returns:
        int64 row numbers for each part.

    Raises:
        InputError: shares that do not add up to 1, or fewer processes than parts.
    """
    if any(not share > 0 for share in shares) or abs(sum(shares) - 1) > 1e-6:
        raise InputError(f"split_processes: shares={shares}, expected shares above 0 that add up to 1")
    names = process.unique()
    if len(names) < len(shares):
        raise InputError(
            f"split_processes: {len(names)} processes cannot fill {len(shares)} parts: draw more processes"
        )
    if seed is not None:
        order = torch.randperm(len(names), generator=torch.Generator().manual_seed(seed))
        names = names[order.to(names.device)]
    ends, begin, parts = torch.tensor(shares).cumsum(0).mul(len(names)).round().long().tolist(), 0, []
    for number, end in enumerate(ends):
        end = min(max(end, begin + 1), len(names) - (len(shares) - 1 - number))
        parts.append(torch.isin(process, names[begin:end]).nonzero()[:, 0])
        begin = end
    return tuple(parts)
