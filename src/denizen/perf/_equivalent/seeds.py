"""Whether two implementations that draw other random numbers give the same distributions: many seeds, one test."""

from collections.abc import Callable, Iterator
from typing import Any

import torch
from torch import Tensor, nn

from denizen._arguments import whole
from denizen.perf._equivalent.compare import DIFFERENT, STATISTICALLY, Compared, Rule
from denizen.perf._equivalent.sides import Side

LEVEL = 1e-3  # how often two that are the same are called different
SHUFFLES = 3999  # of the labels a and b; the least p is one over this plus one
MOST = 1024  # elements of a tensor that are examined; its mean besides
LEAST = 20  # seeds

Rearranged = Callable[[dict[str, Tensor]], dict[str, Tensor]]


def same_distribution(
    sides: tuple[Side, Side],
    batches: list[Any],
    rearranged: Rearranged,
    rule: Rule,
    seed: int,
    seeds: int,
    reseed: Callable[[int], None],
) -> Compared:
    """Compare outputs, losses and gradients over seeds, none of which both sides share.

    Each number is scaled by its standard deviation over both sides; the statistic is the largest difference of means,
    over all numbers and their squares. Its distribution comes from shuffling which side a run belongs to, so the error
    level holds whatever the numbers are and however they hang together, for all of them at once.

    Args:
        sides: reference and candidate, with equal weights.
        batches: of inputs; all are used with each seed.
        rearranged: names the reference's gradients as the candidate's.
        rule: tolerances, below which differences are rounding.
        seed: the first one.
        seeds: of each side.
        reseed: seeds every generator.
    """
    runs: list[list[Tensor]] = [[], []]
    names: list[list[str]] = [[], []]
    seen: dict[str, Tensor] = {}
    for place, side in enumerate(sides):
        for number in range(seeds):
            seen = {}
            for batch_number, batch in enumerate(batches):
                reseed(seed + 1 + place * seeds + number)
                for name, tensor in _seen(side, batch, seed, None if place else rearranged):
                    seen[f"{name} of batch {batch_number}" if len(batches) > 1 else name] = tensor
            names[place] = [f"{name} {[*tensor.shape]}" for name, tensor in seen.items()]
            runs[place].append(torch.cat([_numbers(tensor) for tensor in seen.values()]))
    title = f"distribution over {seeds} seeds"
    if names[0] != names[1]:
        odd = next((pair for pair in zip(*names, strict=False) if pair[0] != pair[1]), (names[0][-1:], names[1][-1:]))
        return Compared(title, 0, DIFFERENT, float("inf"), share_outside=1.0, why=f"{odd[0]} against {odd[1]}")
    widths = [_numbers(tensor).numel() for tensor in seen.values()]
    columns = [name for name, width in zip(names[0], widths, strict=True) for _ in range(width)]
    return _judged(title, torch.stack(runs[0]), torch.stack(runs[1]), columns, rule)


def checked(seeds: Any) -> int:
    """A number of seeds; 0 for none.

    Raises:
        InputError: it is neither 0 nor `LEAST` or more.
    """
    if isinstance(seeds, int) and not isinstance(seeds, bool) and seeds == 0:
        return 0
    return whole("equivalent", "seeds", seeds, low=LEAST, hint=", or 0 for none; 200 tell most faults")


def _seen(side: Side, batch: Any, seed: int, rearranged: Rearranged | None) -> Iterator[tuple[str, Tensor]]:
    """What one run gives, by name; gradients as one number each, by fixed signs."""
    if side.module is None:
        seen = side.calls(batch, seed)
        yield from seen.outputs.items()
        yield from ((f"gradient of {name}", tensor) for name, tensor in seen.gradients.items())
        return
    yield from ((f"{name} in eval mode", tensor) for name, tensor in side.evaluate(batch, seed).outputs.items())
    seen = side.train(batch, seed)
    yield from seen.outputs.items()
    gradients = seen.gradients if rearranged is None else rearranged(seen.gradients)
    generator = torch.Generator().manual_seed(0)
    for name, tensor in gradients.items():
        signs = torch.randint(0, 2, tensor.shape, generator=generator) * 2 - 1
        yield f"gradient of {name}", (tensor.detach().cpu().double() * signs).sum()[None]


def _numbers(tensor: Tensor) -> Tensor:
    """Elements, evenly spaced where there are many, and their mean."""
    flat = tensor.detach().cpu()
    flat = (torch.view_as_real(flat.to(torch.complex128)) if flat.is_complex() else flat.double()).flatten()
    if flat.numel() <= MOST:
        return flat
    return torch.cat([flat[torch.linspace(0, flat.numel() - 1, MOST).long()], flat.mean()[None]])


def _judged(title: str, a: Tensor, b: Tensor, columns: list[str], rule: Rule) -> Compared:
    both = torch.cat([a, b])
    if not bool(torch.isfinite(both).all()):
        odd = (torch.isfinite(a).all(0) & torch.isfinite(b).all(0)).logical_not().nonzero()[0]
        return Compared(title, 0, DIFFERENT, float("inf"), why=f"{columns[int(odd)]}: values that are not finite")
    rounding = rule._allowed(both.mean(0), torch.float32, 0.0)
    scaled = (both - both.mean(0)) / both.std(0).clamp_min(1e-300)
    squares = scaled.square()
    squares = (squares - squares.mean(0)) / squares.std(0).clamp_min(1e-300)
    kept = both.std(0) > rounding  # the others do not vary, or by rounding alone
    scaled, squares = scaled[:, kept], squares[:, kept]
    if not scaled.shape[1]:
        return Compared(title, 0, STATISTICALLY, why="nothing varies from seed to seed, and all values agree")
    features = torch.cat([scaled, squares], dim=1).float()
    count, generator = a.shape[0], torch.Generator().manual_seed(0)
    label = torch.cat([torch.full((count,), 1.0 / count), torch.full((count,), -1.0 / count)])
    shuffled = label[torch.rand(SHUFFLES, 2 * count, generator=generator).argsort(1)]
    tops = (shuffled @ features).abs().amax(1)
    apart = (label @ features).abs()
    top, place = apart.max(0)
    p = (1 + int((tops >= top * (1 - 1e-5)).sum())) / (SHUFFLES + 1)
    seen_from = float(tops.quantile(1 - LEVEL))
    where = [name for name, keep in zip(columns, kept.tolist(), strict=True) if keep][int(place) % scaled.shape[1]]
    of = "means" if int(place) < scaled.shape[1] else "spreads"
    why = (
        f"p {p:.2g} by {SHUFFLES:,} shuffles, error level {LEVEL:g}; largest difference of {of}: {where}, "
        f"{float(top):.2g} standard deviations (from {seen_from:.2g} on it would be told)"
    )
    outside = float((apart > seen_from).double().mean())
    level = DIFFERENT if p <= LEVEL else STATISTICALLY
    return Compared(title, 0, level, float(top), share_outside=outside if level == DIFFERENT else 0.0, why=why)


def without_steps(name: str, call: Any, loss: Callable[[Any], Tensor] | None) -> Side:
    """A side whose training steps leave the weights as they are."""
    return Side(
        name, call, loss, (lambda weights: torch.optim.SGD(weights, 0.0)) if isinstance(call, nn.Module) else None
    )
