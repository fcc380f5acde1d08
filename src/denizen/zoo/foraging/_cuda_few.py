"""A step of few foraging worlds on CUDA with Triton: a warp for each, whose time is that of reads that wait for others.

`_cuda._step_kernel` does for many worlds what few of them need (to grow, to begin anew) one after the other, through
memory. Here nothing that was written is read again: a look after a change is the look before it with two bits flipped.
Where an item would grow is found in every world, whether it eats or not: one round of reads follows the
first then, and two more where a life begins anew. The bits are those of `Foraging` in `dz.rl.Worlds`.
"""

import triton
import triton.language as tl

from denizen.ops.for_triton import one_word
from denizen.zoo.foraging._cuda import _aged, _floored, _ones, _paid


@triton.jit
def _below(clock, first, second, STREAM: tl.constexpr):
    """The upper 31 bits of the first random word of a stream."""
    return (one_word(clock * 0, clock.to(tl.uint32), STREAM, first, second) >> 1).to(tl.int32)


@triton.jit
def _row(upto, total, real, word):
    """(Row of the empty cell of a drawn rank, its rank in that row); see `_cuda._empty_cell`."""
    rank = ((word.to(tl.int64) * total) >> 31).to(tl.int32)
    below = (upto <= rank) & real
    return tl.sum(below.to(tl.int32), 0), rank - tl.max(tl.where(below, upto, 0), 0)


@triton.jit
def _column(
    plane,
    row,
    left,
    from_y,
    from_x,
    to_y,
    to_x,
    eaten,
    CHANGED: tl.constexpr,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
):
    """Column of the empty cell of a rank in its row.

    CHANGED: where `eaten`, memory still has the item that went from one cell to another.
    """
    WORDS: tl.constexpr = WIDTH // 32
    at = plane + row * WORDS
    column, rest, there = row * 0, row * 0, row * 0 - 1
    for part in tl.static_range(WORDS):
        items = tl.load(at + part) | tl.load(at + HEIGHT * WORDS + part)
        if CHANGED:
            items ^= tl.where(eaten & (row == from_y) & (from_x // 32 == part), 1 << (from_x % 32), 0)
            items ^= tl.where(eaten & (row == to_y) & (to_x // 32 == part), 1 << (to_x % 32), 0)
        free = 32 - _ones(items)
        here = (left >= 0) & (left < free)
        column = tl.where(here, part * 32, column)
        rest = tl.where(here, left, rest)
        there = tl.where(here, items, there)
        left -= free
    bit = tl.arange(0, 32)
    before = bit - _ones(there & ((1 << bit) - 1))
    found = (((there >> bit) & 1) == 0) & (before == rest)
    return column + tl.sum(tl.where(found, bit, 0), 0)


@triton.jit
def _grown(plane, free, real, clock, first, second, GROW: tl.constexpr, HEIGHT: tl.constexpr, WIDTH: tl.constexpr):
    """(Empty cells up to each row, in all, row and column of the one on which an item would grow)."""
    upto, total = tl.cumsum(free, 0), tl.sum(free, 0)
    row, left = _row(upto, total, real, _below(clock, first, second, GROW))
    column = _column(plane, row, left, row, row, row, row, row == 0, False, HEIGHT, WIDTH)
    return upto, total, row, column


@triton.jit
def _around(plane, y, x, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, RADIUS: tl.constexpr):
    """What is around a cell: int32 `[32]`, rows of food from lane 0 on, rows of poison from lane 16 on."""
    WORDS: tl.constexpr = WIDTH // 32
    SIZE: tl.constexpr = 2 * RADIUS + 1
    lane = tl.arange(0, 32)
    seen = lane % 16 < SIZE
    rows = (y + lane % 16 + (RADIUS * HEIGHT - RADIUS)) % HEIGHT
    left = (x + (WIDTH - RADIUS)) % WIDTH
    at = plane + ((lane // 16) * HEIGHT + rows) * WORDS
    low = tl.load(at + left // 32, mask=seen, other=0).to(tl.uint32, bitcast=True)
    high = tl.load(at + (left // 32 + 1) % WORDS, mask=seen, other=0).to(tl.uint32, bitcast=True)
    shift = (left % 32).to(tl.uint32)
    return (((low >> shift) | ((high << 1) << (31 - shift))) & ((1 << SIZE) - 1)).to(tl.int32)


@triton.jit
def _flipped(view, poison, row, column, y, x, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, RADIUS: tl.constexpr):
    """A view around (y, x) after a cell has changed."""
    lane = tl.arange(0, 32)
    rows = (y + lane % 16 + (RADIUS * HEIGHT - RADIUS)) % HEIGHT
    place = (column - x + (WIDTH + RADIUS)) % WIDTH
    seen = (lane % 16 <= 2 * RADIUS) & (lane // 16 == poison) & (rows == row) & (place <= 2 * RADIUS)
    return view ^ tl.where(seen, 1 << (place % 32), 0)


@triton.jit
def _worth(view, near, SIZE: tl.constexpr):
    """The largest number of a table float32 `[SIZE, SIZE]` over the food of a view; 0 for none."""
    lane = tl.arange(0, 32)
    best = view.to(tl.float32) * 0.0
    for column in tl.static_range(SIZE):
        worth = tl.load(near + lane * SIZE + column, mask=lane < SIZE, other=0.0)
        best = tl.maximum(best, tl.where(((view >> column) & 1) != 0, worth, 0.0))
    return tl.max(best, 0)


@triton.jit
def _few_kernel(
    planes,
    taken,
    foods,
    poisons,
    x_of,
    y_of,
    energy_of,
    ate_food_of,
    ate_poison_of,
    food_of,
    poison_of,
    last_steps,
    last_food,
    last_poison,
    age_of,
    waiting_of,
    faults,
    waited,
    clock_in,
    keys,
    actions,
    near,
    clock_out,
    look,
    known,
    rewards,
    terminated_out,
    truncated_out,
    valid_out,
    flow_food,
    flow_poison,
    flow_deaths,
    final,
    final_known,
    final_index,
    over_out,
    move_cost,
    food_energy,
    poison_energy,
    start_energy,
    pay_food,
    pay_poison,
    pay_step,
    pay_death,
    guidance,
    food_middle,
    food_scale,
    poison_middle,
    poison_scale,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    RADIUS: tl.constexpr,
    MOVE: tl.constexpr,
    LIMIT: tl.constexpr,
    GUIDED: tl.constexpr,
    LIFE: tl.constexpr,
    GROW: tl.constexpr,
    PLACE: tl.constexpr,
    ALL: tl.constexpr,
    ROWS: tl.constexpr,
):
    """ALL: every life that ended begins anew, and all is looked at; else `_step_kernel` does that, by `over_out`."""
    WORDS: tl.constexpr = WIDTH // 32
    SPAN: tl.constexpr = WORDS * HEIGHT
    SIZE: tl.constexpr = 2 * RADIUS + 1
    SIDE: tl.constexpr = 2 * MOVE + 1
    world = tl.program_id(0)  # of few, all offsets fit 32 bits
    plane = planes + world * 2 * SPAN
    rows = tl.arange(0, ROWS)
    real = rows < HEIGHT
    x = tl.load(x_of + world)
    y = tl.load(y_of + world)
    given = tl.load(actions + world)
    live = tl.load(waiting_of + world).to(tl.int32) == 0
    free = WIDTH - tl.load(taken + world * HEIGHT + rows, mask=real, other=WIDTH)
    clock = tl.load(clock_in)
    first = tl.load(keys + 2 * world).to(tl.uint32)
    second = tl.load(keys + 2 * world + 1).to(tl.uint32)
    energy = tl.load(energy_of + world)
    age = tl.load(age_of + world)
    foods_eaten = tl.load(food_of + world)
    poisons_eaten = tl.load(poison_of + world)
    waits = tl.load(waited + world)
    known_fault = tl.load(faults + world)
    food_number = tl.load(foods + world)
    poison_number = tl.load(poisons + world)
    tl.debug_barrier()  # all these are asked for before anything else is done
    action = tl.where(live, given, 0).to(tl.int32)  # what does not fit is no action, which is told below
    before = 0.0
    if GUIDED:
        before = _worth(_around(plane, y, x, HEIGHT, WIDTH, RADIUS), near, SIZE)
    jump = action + (action >= SIDE * SIDE // 2).to(tl.int32)
    rest = _floored(jump, SIDE)
    new_x = _floored(x + (jump - rest) // SIDE - MOVE, WIDTH)
    new_y = _floored(y + rest - MOVE, HEIGHT)
    x, y = tl.where(live, new_x, x), tl.where(live, new_y, y)
    here = plane + y * WORDS + x // 32
    ate_food = ((tl.load(here) >> (x % 32)) & 1) & live.to(tl.int32)
    ate_poison = ((tl.load(here + SPAN) >> (x % 32)) & 1) & live.to(tl.int32)
    view = _around(plane, y, x, HEIGHT, WIDTH, RADIUS)  # left out where nobody looks
    tl.debug_barrier()

    ate = (ate_food | ate_poison) != 0
    energy = tl.where(live, energy - move_cost, energy)
    energy, age, terminated, truncated = _aged(
        energy, age, live, ate_food, ate_poison, food_energy, poison_energy, LIMIT
    )
    over = terminated | truncated | (live == 0)
    begins = over
    if LIFE or not ALL:
        begins = over & (live != live)

    # What was eaten is still there, and so no empty cell, which is as it should be.
    # Where an item would grow is found in every world: waiting for who needs it costs more.
    upto, total, row, column = _grown(plane, free, real, clock, first, second, GROW, HEIGHT, WIDTH)
    if ate:
        view = _flipped(view, ate_poison, y, x, y, x, HEIGHT, WIDTH, RADIUS)
        view = _flipped(view, ate_poison, row, column, y, x, HEIGHT, WIDTH, RADIUS)

    food, poison = ate_food.to(tl.float32), ate_poison.to(tl.float32)
    after = before
    if GUIDED:
        after = _worth(view, near, SIZE)
    reward, died = _paid(
        food, poison, terminated, before, after, guidance, pay_food, pay_poison, pay_step, pay_death, GUIDED
    )
    wrong = live & ((given < 0) | (given >= SIDE * SIDE - 1))
    fault = (wrong | (live & (reward != reward))) & (known_fault < 0)
    foods_eaten += ate_food
    poisons_eaten += ate_poison

    item_y, item_x, item = y, x, ate_poison
    last_foods, last_poisons, steps = foods_eaten, poisons_eaten, age.to(tl.int32)
    next_view = view
    if ALL and not LIFE:
        if begins:
            shifted = (rows >= y).to(tl.int32) - (rows >= row).to(tl.int32)
            upto += tl.where(ate, shifted, 0)
            y, left = _row(upto, total, real, _below(clock + 1, first, second, PLACE))
            x = _column(plane, y, left, item_y, item_x, row, column, ate, True, HEIGHT, WIDTH)
            next_view = _around(plane, y, x, HEIGHT, WIDTH, RADIUS)
            if ate:
                next_view = _flipped(next_view, item, item_y, item_x, y, x, HEIGHT, WIDTH, RADIUS)
                next_view = _flipped(next_view, item, row, column, y, x, HEIGHT, WIDTH, RADIUS)
            energy, age = energy * 0.0 + start_energy, age * 0
            ate_food, ate_poison, foods_eaten, poisons_eaten = x * 0, x * 0, x * 0, x * 0

    tl.debug_barrier()  # what was there is read before it is changed
    if ate:
        changed = plane + item * SPAN
        tl.atomic_xor(changed + item_y * WORDS + item_x // 32, 1 << (item_x % 32), sem="relaxed")
        tl.atomic_xor(changed + row * WORDS + column // 32, 1 << (column % 32), sem="relaxed")
        tl.atomic_add(taken + world * HEIGHT + item_y, -1, sem="relaxed")
        tl.atomic_add(taken + world * HEIGHT + row, 1, sem="relaxed")
    tl.store(x_of + world, x)
    tl.store(y_of + world, y)
    tl.store(energy_of + world, energy)
    tl.store(ate_food_of + world, ate_food.to(tl.int8), mask=live | ALL)
    tl.store(ate_poison_of + world, ate_poison.to(tl.int8), mask=live | ALL)
    tl.store(food_of + world, foods_eaten)
    tl.store(poison_of + world, poisons_eaten)
    tl.store(age_of + world, age)
    tl.store(rewards + world, tl.where(live, reward, 0.0))
    tl.store(terminated_out + world, terminated)
    tl.store(truncated_out + world, truncated)
    tl.store(valid_out + world, live)
    tl.store(flow_food + world, food)
    tl.store(flow_poison + world, poison)
    tl.store(flow_deaths + world, died)
    tl.store(faults + world, clock * 3 + tl.where(wrong, 0, 1), mask=fault)
    tl.store(waited + world, waits + 1, mask=live == 0)
    if LIFE or not ALL:
        tl.store(over_out + world, over)
    if ALL:
        lane, number = tl.arange(0, 32), tl.arange(0, 2)
        at, seen = (world * 2 + lane // 16) * SIZE + lane % 16, lane % 16 < SIZE
        tl.store(look + at, next_view.to(tl.int16), mask=seen)
        tl.store(final + at, view.to(tl.int16), mask=seen)
        tl.store(final_index + world, world.to(tl.int64))
        many = tl.where(number == 0, food_number, poison_number).to(tl.float32)
        many = many - tl.where(number == 0, food_middle, poison_middle)
        many = many * tl.where(number == 0, food_scale, poison_scale)
        tl.store(known + world * 2 + number, many)
        tl.store(final_known + world * 2 + number, many)
        tl.store(waiting_of + world, live, mask=live == 0)
        if not LIFE:
            tl.store(last_steps + world, steps, mask=over)
            tl.store(last_food + world, last_foods, mask=over)
            tl.store(last_poison + world, last_poisons, mask=over)
    if world == 0:
        tl.store(clock_out, clock + 1)
