"""Random words: the published vectors, denizen's own layout of key and counter, and numbers frozen for ever."""

import itertools
import random
from typing import Any

import pytest
import torch

from denizen import ops
from denizen.ops import _draws
from denizen.rng import stream_number

ONES = 0xFFFFFFFF
# Random123 kat_vectors, philox4x32-10: counter, key, block.
PUBLISHED = [
    ((0, 0, 0, 0), (0, 0), (0x6627E8D5, 0xE169C58D, 0xBC57AC4C, 0x9B00DBD8)),
    ((ONES,) * 4, (ONES,) * 2, (0x408F276D, 0x41C83B0E, 0xA20BC7C6, 0x6D5451FD)),
    (
        (0x243F6A88, 0x85A308D3, 0x13198A2E, 0x03707344),
        (0xA4093822, 0x299F31D0),
        (0xD16CFE09, 0x94FDCCEB, 0x5001E420, 0x24126EA1),
    ),
]


def python_philox(counter: tuple[int, ...], key: tuple[int, ...]) -> list[int]:
    """Philox-4x32-10 in Python's unbounded integers, written from the paper and sharing nothing with denizen."""
    c, k = list(counter), list(key)
    for _ in range(10):
        first, second = 0xD2511F53 * c[0], 0xCD9E8D57 * c[2]
        c = [(second >> 32) ^ c[1] ^ k[0], second & ONES, (first >> 32) ^ c[3] ^ k[1], first & ONES]
        k = [(k[0] + 0x9E3779B9) & ONES, (k[1] + 0xBB67AE85) & ONES]
    return c


def python_word(agent: int, seed: int, world: int, step: int, stream: int) -> int:
    """denizen's layout: key (seed, world), counter (block low, block high, step, stream), word id mod 4."""
    block = agent // 4
    return python_philox((block & ONES, block >> 32, step, stream), (seed, world))[agent % 4]


@pytest.mark.parametrize(("counter", "key", "block"), PUBLISHED)
def test_published_vectors(tools: Any, counter: tuple[int, ...], key: tuple[int, ...], block: tuple[int, ...]) -> None:
    words = _draws.philox4x32(tuple(torch.tensor([c]) for c in counter), tuple(torch.tensor([k]) for k in key))
    assert tuple(int(w) for w in words) == block
    assert tuple(python_philox(counter, key)) == block


@pytest.mark.parametrize("reference", [False, True])
@pytest.mark.parametrize(("counter", "key", "block"), PUBLISHED)
def test_published_vectors_reach_the_op(
    tools: Any, counter: tuple[int, ...], key: tuple[int, ...], block: tuple[int, ...], reference: bool
) -> None:
    first = 4 * (counter[0] + (counter[1] << 32))
    if first >= 2**62:  # an id that an agent cannot have: the block is looked at from within its lawful part
        counter = (counter[0], counter[1] & 0x0FFFFFFF, *counter[2:])
        first, block = 4 * (counter[0] + (counter[1] << 32)), tuple(python_philox(counter, key))
    args = (torch.arange(first, first + 4)[None], 4, torch.tensor([key]), torch.tensor(counter[2]), counter[3])
    if reference:
        with ops.reference_only():
            words = ops.draw_words(*args)
    else:
        words = ops.draw_words(*args)
    assert tuple(words[0].tolist()) == block


def test_words_of_a_run_are_frozen(tools: Any) -> None:
    key, step = torch.tensor([[2024, 3], [2024, 4]]), torch.tensor(17)
    words = ops.draw_words(tools.empty, 9, key, step, stream_number("step/catch@agents"))
    assert words.tolist() == [
        [4190066852, 248812681, 1689463368, 3133532546, 2537149351, 4269294770, 705265068, 876610491, 122155271],
        [52777210, 2186138851, 2622012380, 2374817626, 1220470028, 2559039229, 2997585862, 3645694500, 416835366],
    ]
    words = ops.draw_words(torch.tensor([[0, 1, 2**40 + 3, 2**61 + 12345, 7]]), 5, key, step, 5)
    assert words.tolist() == [
        [2674063191, 2937383421, 1685389403, 3460713325, 2690261749],
        [1265202753, 4001226781, 812811628, 4176840951, 2861789097],
    ]


def test_stream_numbers_are_frozen() -> None:
    names = ("step/catch@agents", "init/seed@agents", "step/layer/2/catch@edges")
    assert [stream_number(name) for name in names] == [1384681996, 2309372038, 782609343]


def test_layout_of_key_and_counter(tools: Any) -> None:
    """At the ends of every part, and at random."""
    ends, agents = (0, 1, ONES - 1, ONES), (0, 3, 4, 2**34 - 1, 2**34, 2**62 - 1)
    places = [(agent, *[end] * 4) for agent in agents for end in ends]
    places += [(random.randrange(2**62), *(random.randrange(2**32) for _ in range(4))) for _ in range(100)]
    for agent, seed, world, step, stream in places:
        args = (torch.tensor([[agent]]), 1, torch.tensor([[seed, world]]), torch.tensor(step), stream)
        assert tools.both(ops.draw_words, *args).item() == python_word(agent, seed, world, step, stream)


def test_ids_left_out_are_positions(tools: Any) -> None:
    key, step = torch.tensor([[1, 2]]), torch.tensor(3)
    for num in range(12):
        assert torch.equal(
            ops.draw_words(tools.empty, num, key, step, 9), ops.draw_words(torch.arange(num)[None], num, key, step, 9)
        )


def test_every_part_of_the_counter_matters(tools: Any) -> None:
    parts = list(itertools.product((0, 1), repeat=5))  # agent 0 or 4, seed, world, step, stream
    words = {
        ops.draw_words(torch.tensor([[4 * a]]), 1, torch.tensor([[s, w]]), torch.tensor(t), c).item()
        for a, s, w, t, c in parts
    }
    assert len(words) == len(parts)


@pytest.mark.parametrize("agents", [1, 3, 4, 5, 16, 17])
def test_many_worlds_of_few_agents_draw_the_same_words_and_events(agents: int) -> None:
    worlds = 517  # more than a tile
    key = torch.stack([torch.full((worlds,), 7), torch.arange(worlds) * 3], 1)
    values = torch.linspace(-0.1, 1.6, worlds * agents).view(worlds, agents)
    values[5, 0], values[500, agents - 1], values[2] = torch.nan, 1.0, 0.0
    ids, step = torch.empty(0, dtype=torch.int64), torch.tensor(9)

    def drawn() -> list[torch.Tensor]:
        found = [ops.draw_words(ids, agents, key, step, 5)]
        for hazard in (False, True):
            found += torch.ops.denizen.draw_mask(values, hazard, ids, key, step, 5)
        return found

    fast = drawn()
    with ops.reference_only():
        plain = drawn()
    for a, b in zip(fast, plain, strict=True):
        assert torch.equal(a, b)


@pytest.mark.parametrize("num", [0, 1, 3, 4, 5, 1001])
def test_words_of_all_agents_are_those_of_each(num: int) -> None:
    key, step = torch.tensor([[7, 0], [7, 3], [2**32 - 1, 1]]), torch.tensor(5)
    each = _draws.words(torch.arange(num), key, step, 11)
    together = _draws.words_of_all(num, key, step, 11)
    assert together.equal(each)
    assert together.is_contiguous()
