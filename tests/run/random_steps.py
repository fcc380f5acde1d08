"""Random steps over a few fields of random dtypes and shapes, for what is written anew from a recorded step."""

import random
from typing import Any

import torch
from torch import Tensor

DTYPES = (
    *(torch.bool, torch.int8, torch.uint8, torch.int16, torch.int32, torch.int64),
    *(torch.float32, torch.float64),
)
SCALARS = (0, 1, 2, 3, 7, -1, 100, 0.5, 0.1, -2.5, 200, 2**25 + 1, 1e10, True)
ENDS = ((-1, 0, 0.5, float("nan"), -0.0), (1, 3, 2.5, 0, -2, float("inf")))
TWO = "add sub mul true_divide bitwise_and bitwise_or bitwise_xor maximum minimum logical_and logical_or logical_xor"
ONE = "neg abs reciprocal bitwise_not logical_not floor ceil trunc round sqrt sign isnan"
COMPARED = "eq ne lt le gt ge"
SPECIAL = (float("nan"), float("inf"), -float("inf"), -0.0, 0.0, 0.5, 2.5, -1.5)


def values(dtype: torch.dtype, shape: tuple[int, ...], chance: random.Random) -> Tensor:
    """Small, large, extreme or all 0."""
    noise = torch.Generator().manual_seed(chance.randrange(2**31))
    kind = chance.random()
    if kind < 0.2:
        return torch.zeros(shape, dtype=dtype)
    if dtype == torch.bool:
        return torch.rand(shape, generator=noise) < 0.5
    if dtype.is_floating_point:
        real = torch.randn(shape, generator=noise, dtype=torch.float64) * 10.0 ** chance.choice((0, 0, 1, 4, 8, 20))
        which = torch.randint(0, 12 if kind > 0.6 else 1, shape, generator=noise)
        for place, one in enumerate(SPECIAL, 1):
            real = torch.where(which == place, one, real)
        return real.to(dtype)
    ends = torch.iinfo(dtype)
    if kind < 0.6:
        return torch.randint(max(ends.min, -5), 6, shape, generator=noise).to(dtype)
    extreme = torch.tensor([ends.min, ends.max, 0, 1, min(ends.max, 2**24 + 1), ends.max - 1])
    return extreme[torch.randint(0, 6, shape, generator=noise)].to(dtype)


class RandomStepper:
    """What a recorder asks of a stepper; `batched_step` is one random program, always the same."""

    def __init__(self, seed: int) -> None:
        self.chance = chance = random.Random(seed)
        self.worlds = chance.choice((1, 2, 3, 5))
        self.keys = torch.zeros(self.worlds, 2, dtype=torch.int64)
        self.values: dict[str, Tensor] = {}
        self.logged, self.num_logged = (), 0
        agents, parts = chance.choice((1, 2, 3, 5, 7)), chance.choice((1, 2, 3))
        shapes = [(), (agents,), (agents,), (agents, parts), (agents, parts), (parts,)]
        self._form = [(chance.choice(DTYPES), chance.choice([*shapes, (0,), (agents, 0)])) for _ in range(3)]
        wide = values(chance.choice(DTYPES), (3, *chance.choice(shapes)), chance)
        self._constants = [wide[1], torch.randint(0, 6, (parts, agents)).t(), torch.arange(9).view(3, 3)]
        self._program, self._length = chance.randrange(2**31), chance.choice((4, 8, 16))
        self.tried: list[bool] = []  # whether torch took each operation

    def state(self) -> list[Tensor]:
        """Another one."""
        return [values(dtype, (self.worlds, *shape), self.chance) for dtype, shape in self._form]

    def batched_step(
        self, leaves: list[Tensor], switches: Tensor, keys: Tensor, values: dict[str, Tensor], step: Tensor, _: Any
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """Of all worlds."""
        self.tried = []
        if self.worlds > 1:
            leaves, record, bad = torch.vmap(self._one, (0, None))(leaves, step)
        else:
            leaves, record, bad = self._one([leaf[0] for leaf in leaves], step)
            leaves, record, bad = [leaf[None] for leaf in leaves], record[None], bad[None]
        return leaves, switches, [record], bad

    def _one(self, leaves: list[Tensor], step: Tensor) -> tuple[list[Tensor], Tensor, Tensor]:
        chance = random.Random(self._program)
        pool = [*leaves, *self._constants, step]
        while len(self.tried) < 4 * self._length and len(pool) < self._length + 7:
            try:
                pool.append(self._operation(pool, chance))
            except (RuntimeError, IndexError):  # shapes or dtypes that do not fit
                self.tried.append(False)
            else:
                self.tried.append(True)
        new = []
        for (dtype, shape), leaf in zip(self._form, leaves, strict=True):
            fitting = [one for one in pool if _fits(one.shape, shape)]
            one = chance.choice(fitting[-5:]) if fitting else leaf
            new.append(_cast(one, dtype).expand(shape))
        return new, pool[-1], torch.zeros(1, dtype=torch.int8)

    def _operation(self, pool: list[Tensor], chance: random.Random) -> Tensor:
        one = chance.choice(pool[-8:] if chance.random() < 0.6 else pool)
        other, number = chance.choice(pool), chance.choice(SCALARS)
        kind = chance.randrange(12)
        if kind < 2:
            return getattr(torch, chance.choice(TWO.split()))(one, other)
        if kind == 2:
            name = chance.choice(TWO.split()[:7])
            turned = {"sub": lambda: number - one, "true_divide": lambda: number / one}.get(name)
            return turned() if turned and chance.random() < 0.4 else getattr(torch, name)(one, number)
        if kind == 3:
            return getattr(torch, chance.choice(COMPARED.split()))(one, chance.choice((number, other)))
        if kind == 4:
            return torch.where(other != 0, one, chance.choice([chance.choice(pool), number]))
        if kind == 5:
            low, high = map(chance.choice, ENDS)
            return one.clamp(*chance.choice(((low, high), (low, None), (None, high))))
        if kind == 6:
            return getattr(torch, chance.choice(ONE.split()))(one)
        if kind == 7:
            if chance.random() < 0.4:
                return _cast(one, chance.choice(DTYPES))
            name = chance.choice(("any", "all", "amax" if one.dtype.is_floating_point else "sum"))
            dim = {"dim": chance.randrange(one.dim()), "keepdim": chance.random() < 0.4} if one.dim() else {}
            return getattr(one, name)(**dim) if chance.random() < 0.6 else getattr(one, name)()
        if kind < 10:
            return self._whole(one, other, chance) if kind == 8 else self._rearranged(one, other, chance)
        return self._at_places(one, other, chance.choice(pool), chance)

    def _whole(self, one: Tensor, other: Tensor, chance: random.Random) -> Tensor:
        """By a number, or one after the other."""
        dim, number = chance.randrange(max(one.dim(), 1)), chance.choice((1, 2, 3, 7, 25, 100, -3, 0, 2.5))
        ways = (
            *(lambda: one.remainder(number), lambda: one % other, lambda: one >> number, lambda: one << number),
            *(lambda: torch.div(one, number, rounding_mode="floor"), lambda: one.cumsum(dim)),
            *(lambda: torch.div(one, number, rounding_mode="trunc"), lambda: one // number),
        )
        return chance.choice(ways)()

    def _at_places(self, one: Tensor, other: Tensor, third: Tensor, chance: random.Random) -> Tensor:
        """Entries at places that are given or behind an edge; negative and repeated ones, now and then none."""
        dim = chance.randrange(max(one.dim(), 1))
        size = one.shape[dim] if one.dim() else 1
        places = _cast(other, chance.choice((torch.int64, torch.int64, torch.int32)))
        if not places.dim():  # torch reads one that is alone
            raise IndexError
        if chance.random() < 0.95:
            places = places.remainder(max(size, 1))
        before = places - size if chance.random() < 0.5 else places
        where = [slice(None)] * dim
        pads = [chance.choice((0, 1, 2)) for _ in range(2 * chance.choice((1, 1, 2)))]
        same = _cast(third, one.dtype)
        ways = (
            *(lambda: one[(*where, before)], lambda: one[before, ..., chance.choice((0, -1))], lambda: one[before]),
            *(lambda: one[before, before], lambda: one[before[:, None], places], lambda: one[before, :, places]),
            *(lambda: one.gather(dim, places), lambda: torch.take_along_dim(one, places, dim)),
            *(lambda: one.gather(dim, places.expand_as(one)), lambda: one.scatter(dim, places, same)),
            *(lambda: one.scatter_add(dim, places.expand_as(one), same.expand_as(one)),) * 2,
            *(lambda: one.scatter_add(dim, places, same), lambda: one.scatter(dim, places, 3)),
            *(
                lambda: one.scatter(dim, places.expand_as(one), same.expand_as(one)),
                lambda: one.index_select(dim, places),
            ),
            *(lambda: torch.nn.functional.pad(one, pads, value=chance.choice((0, 1, -1, 0.5, 300))),) * 2,
        )
        made = chance.choice(ways)()
        if made.numel() > 200:
            raise IndexError
        return made

    def _rearranged(self, one: Tensor, other: Tensor, chance: random.Random) -> Tensor:
        dim = chance.randrange(max(one.dim(), 1))
        ways = (
            *(lambda: one[1:], lambda: one[:2], lambda: one[::2], lambda: one.transpose(0, 1), lambda: one.reshape(-1)),
            *(lambda: one.unsqueeze(dim), lambda: one.flip(dim), lambda: one.select(dim, 0), lambda: one.squeeze(dim)),
            *(lambda: one.unbind(dim)[-1], lambda: one.split(2, dim)[0], lambda: torch.cat([one, other])),
            *(lambda: torch.stack([one, other]), lambda: one.roll(1, 0), lambda: one.expand(2, *one.shape)),
        )
        made = chance.choice(ways)()
        if made.numel() > 200:
            raise IndexError
        return made


def _cast(one: Tensor, dtype: torch.dtype) -> Tensor:
    """Without what no integer stands for."""
    if one.dtype.is_floating_point and not dtype.is_floating_point and dtype != torch.bool:
        one = torch.where(one.abs() < 100, one, 0.0)
    return one.to(dtype)


def _fits(given: torch.Size, wanted: tuple[int, ...]) -> bool:
    try:
        return torch.broadcast_shapes(given, wanted) == torch.Size(wanted)
    except RuntimeError:
        return False
