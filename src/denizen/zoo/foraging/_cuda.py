"""A step of many foraging worlds on CUDA with Triton, in place: move, eat, grow again, end, begin anew, look.

The bits are those of `Foraging` in `dz.rl.Worlds`. A program has a block of worlds, one world a lane. What few worlds
of a block do (draw a cell for an item or an agent) is done for up to CHUNK of them at a time, over the cells of a row.
Multiplication and addition are kept apart (`enable_fp_fusion=False`), as the plain form rounds them.
"""

import triton
import triton.language as tl

from denizen.ops.for_triton import one_word


@triton.jit
def _floored(value, size):
    """Remainder that is never negative."""
    rest = value % size
    return tl.where(rest < 0, rest + size, rest)


@triton.jit
def _keys(keys, world, on):
    first = tl.load(keys + 2 * world, mask=on, other=0).to(tl.uint32)
    return first, tl.load(keys + 2 * world + 1, mask=on, other=0).to(tl.uint32)


@triton.jit
def _below_2_31(world, clock, first, second, STREAM: tl.constexpr):
    """The upper 31 bits of the first random word of a stream, of each world: int32."""
    return (one_word(world * 0, clock.to(tl.uint32), STREAM, first, second) >> 1).to(tl.int32)


@triton.jit
def _ones(items):
    """Bits that are set: int32."""
    bits = items.to(tl.uint32, bitcast=True)
    bits = bits - ((bits >> 1) & 0x55555555)
    bits = (bits & 0x33333333) + ((bits >> 2) & 0x33333333)
    return ((((bits + (bits >> 4)) & 0x0F0F0F0F) * 0x01010101) >> 24).to(tl.int32)


@triton.jit
def _empty_cell(planes, taken, world, on, word, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, ROWS: tl.constexpr):
    """`grid.draw_empty` without a cell to leave out: (row, column) int32 of each world that is on.

    `word` is int32, uniform below 2^31. What was eaten is still there and so no empty cell, which is as it should be.
    """
    WORDS: tl.constexpr = WIDTH // 32
    SPAN: tl.constexpr = WORDS * HEIGHT
    rows = tl.arange(0, ROWS)
    real = on[:, None] & (rows < HEIGHT)[None, :]
    upto = tl.cumsum(WIDTH - tl.load(taken + world[:, None] * HEIGHT + rows[None, :], mask=real, other=WIDTH), 1)
    total = tl.max(upto, 1)
    rank = ((word.to(tl.int64) * total) >> 31).to(tl.int32)
    below = (upto <= rank[:, None]) & real
    row = tl.sum(below.to(tl.int32), 1)
    left = rank - tl.max(tl.where(below, upto, 0), 1)
    at = world * 2 * SPAN + row * WORDS
    column, rest, there = row * 0, row * 0, row * 0 - 1
    for part in tl.static_range(WORDS):  # the word of 32 columns that has the cell
        items = tl.load(planes + at + part, mask=on, other=-1) | tl.load(planes + at + SPAN + part, mask=on, other=-1)
        free = 32 - _ones(items)
        here = (left >= 0) & (left < free)
        column, rest, there = (
            tl.where(here, part * 32, column),
            tl.where(here, left, rest),
            tl.where(here, items, there),
        )
        left -= free
    empty = ((there[:, None] >> tl.arange(0, 32)[None, :]) & 1) == 0
    return row, column + tl.sum((tl.cumsum(empty.to(tl.int32), 1) <= rest[:, None]).to(tl.int32), 1)


@triton.jit
def _view(planes, world, y, x, on, HEIGHT: tl.constexpr, WIDTH: tl.constexpr, RADIUS: tl.constexpr):
    """What is around cells: int32 `[worlds, 32]`, rows of food from lane 0 on, rows of poison from lane 16 on."""
    WORDS: tl.constexpr = WIDTH // 32
    SIZE: tl.constexpr = 2 * RADIUS + 1
    lane = tl.arange(0, 32)
    seen = on[:, None] & (lane % 16 < SIZE)[None, :]
    rows = (y[:, None] + (lane % 16)[None, :] + (RADIUS * HEIGHT - RADIUS)) % HEIGHT
    left = (x + (WIDTH - RADIUS)) % WIDTH
    at = (world[:, None] * 2 + (lane // 16)[None, :]) * (HEIGHT * WORDS) + rows * WORDS
    low = tl.load(planes + at + (left // 32)[:, None], mask=seen, other=0).to(tl.uint32, bitcast=True)
    high = tl.load(planes + at + ((left // 32 + 1) % WORDS)[:, None], mask=seen, other=0).to(tl.uint32, bitcast=True)
    shift = (left % 32).to(tl.uint32)[:, None]
    return (((low >> shift) | ((high << 1) << (31 - shift))) & ((1 << SIZE) - 1)).to(tl.int32)


@triton.jit
def _keep_view(out, row, view, on, SIZE: tl.constexpr):
    """Store views as int16 `[rows, 2, SIZE]`."""
    lane = tl.arange(0, 32)
    at = (row[:, None] * 2 + (lane // 16)[None, :]) * SIZE + (lane % 16)[None, :]
    tl.store(out + at, view.to(tl.int16), mask=on[:, None] & (lane % 16 < SIZE)[None, :])


@triton.jit
def _nearest(view, near, SIZE: tl.constexpr):
    """The largest number of a table float32 `[SIZE, SIZE]` over the food of a view: float32 `[worlds]`, 0 for none."""
    lane = tl.arange(0, 32)
    best = view.to(tl.float32) * 0.0
    for column in tl.static_range(SIZE):
        worth = tl.load(near + lane * SIZE + column, mask=lane < SIZE, other=0.0)[None, :]
        best = tl.maximum(best, tl.where(((view >> column) & 1) != 0, worth, 0.0))
    return tl.max(best, 1)


@triton.jit
def _keep_known(known, row, number, on, middle, scale, PLACE: tl.constexpr):
    tl.store(known + row * 2 + PLACE, (number.to(tl.float32) - middle) * scale, mask=on)


@triton.jit
def _of(mine, values):
    """For each row of `mine`, the one value that it marks."""
    return tl.sum(tl.where(mine, values[None, :], 0), 1)


@triton.jit
def _begin_life(
    planes,
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
    look,
    world,
    on,
    y,
    x,
    start_energy,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    RADIUS: tl.constexpr,
):
    """The next life of worlds, at a place, and the first look of it."""
    steps = tl.load(age_of + world, mask=on, other=0).to(tl.int32)
    foods_eaten = tl.load(food_of + world, mask=on, other=0)
    poisons_eaten = tl.load(poison_of + world, mask=on, other=0)
    tl.debug_barrier()  # a lane that several threads have is read by all of them before one writes
    tl.store(last_steps + world, steps, mask=on)
    tl.store(last_food + world, foods_eaten, mask=on)
    tl.store(last_poison + world, poisons_eaten, mask=on)
    zero = steps * 0
    tl.store(x_of + world, x, mask=on)
    tl.store(y_of + world, y, mask=on)
    tl.store(energy_of + world, zero.to(tl.float32) + start_energy, mask=on)
    tl.store(ate_food_of + world, zero.to(tl.int8), mask=on)
    tl.store(ate_poison_of + world, zero.to(tl.int8), mask=on)
    tl.store(food_of + world, zero, mask=on)
    tl.store(poison_of + world, zero, mask=on)
    tl.store(age_of + world, zero.to(tl.int64), mask=on)
    _keep_view(look, world, _view(planes, world, y, x, on, HEIGHT, WIDTH, RADIUS), on, 2 * RADIUS + 1)


@triton.jit
def _aged(energy, age, live, ate_food, ate_poison, food_energy, poison_energy, LIMIT: tl.constexpr):
    """(Energy, age, whether a life is over, whether it is cut off) after a move and what was eaten."""
    energy = energy + food_energy * ate_food.to(tl.float32)
    energy = energy - poison_energy * ate_poison.to(tl.float32)
    age += live.to(tl.int64)
    terminated = live & (energy <= 0)
    truncated = live & (age < 0)
    if LIMIT > 0:
        truncated = live & (age >= LIMIT)
    return energy, age, terminated, truncated


@triton.jit
def _paid(
    food, poison, terminated, before, after, guidance, pay_food, pay_poison, pay_step, pay_death, GUIDED: tl.constexpr
):
    """(The reward of a step, deaths as float32); `before` and `after` are what was in sight, where that guides."""
    died = terminated.to(tl.float32)
    reward = pay_food * food + pay_poison * poison + pay_step + pay_death * died
    if GUIDED:
        reward = reward + guidance * tl.where(terminated, 0.0, after) - before
    return tl.where(reward < -20.0, -20.0, tl.where(reward > 20.0, 20.0, reward)), died


@triton.jit
def _step_kernel(
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
    counts,
    n,
    most,
    groups,
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
    ACT: tl.constexpr,
    RENEW: tl.constexpr,
    ALL: tl.constexpr,
    GROUP: tl.constexpr,
    GROUPS: tl.constexpr,
    ROWS: tl.constexpr,
    CHUNK: tl.constexpr,
    BLOCK: tl.constexpr,
):
    """ACT: the step itself. RENEW: looks and resets. ALL: every life that ended begins anew, so nobody is counted.

    Programs that only act leave the number of lives that ended in their GROUP of worlds in `counts`.
    """
    WORDS: tl.constexpr = WIDTH // 32
    SPAN: tl.constexpr = WORDS * HEIGHT
    SIZE: tl.constexpr = 2 * RADIUS + 1
    SIDE: tl.constexpr = 2 * MOVE + 1
    program = tl.program_id(0)
    lanes = tl.arange(0, BLOCK)
    start = program.to(tl.int64) * BLOCK
    world, own_planes = start + lanes, planes + start * 2 * SPAN  # offsets from there fit 32 bits
    inside = world < n
    clock = tl.load(clock_in)
    x = tl.load(x_of + world, mask=inside, other=0)
    y = tl.load(y_of + world, mask=inside, other=0)
    first, second = _keys(keys, world, inside)
    food_number = tl.load(foods + world, mask=inside, other=0)
    poison_number = tl.load(poisons + world, mask=inside, other=0)
    if ACT:  # all loads that wait for nothing are on their way together
        energy = tl.load(energy_of + world, mask=inside, other=0.0) - move_cost
        age = tl.load(age_of + world, mask=inside, other=0)
        live = inside & (tl.load(waiting_of + world, mask=inside, other=True).to(tl.int32) == 0)
        action = tl.load(actions + world, mask=inside, other=0)
        foods_eaten = tl.load(food_of + world, mask=inside, other=0)
        poisons_eaten = tl.load(poison_of + world, mask=inside, other=0)
        waits = tl.load(waited + world, mask=inside, other=0)
        known_fault = tl.load(faults + world, mask=inside, other=0)
        action = tl.where(live, action, 0)
        grow_word = _below_2_31(world, clock, first, second, GROW)
        before = x.to(tl.float32) * 0.0
        if GUIDED:
            before = _nearest(_view(own_planes, lanes, y, x, live, HEIGHT, WIDTH, RADIUS), near, SIZE)
        jump = action + (action >= SIDE * SIDE // 2).to(tl.int64)
        rest = _floored(jump, SIDE)
        new_x = _floored(x + (jump - rest) // SIDE - MOVE, WIDTH).to(tl.int32)
        new_y = _floored(y + rest - MOVE, HEIGHT).to(tl.int32)
        x, y = tl.where(live, new_x, x), tl.where(live, new_y, y)
        at = world * 2 * SPAN + y * WORDS + x // 32
        ate_food = (tl.load(planes + at, mask=live, other=0) >> (x % 32)) & 1
        ate_poison = (tl.load(planes + at + SPAN, mask=live, other=0) >> (x % 32)) & 1
        ate = (ate_food | ate_poison) != 0

        # What was eaten grows again on an empty cell.
        place = tl.cumsum(ate.to(tl.int32), 0) - 1
        for begin in range(0, tl.sum(ate.to(tl.int32)), CHUNK):
            mine = ((begin + tl.arange(0, CHUNK))[:, None] == place[None, :]) & ate[None, :]
            on = tl.max(mine.to(tl.int32), 1) != 0
            who = start + _of(mine, lanes)
            from_y, from_x = _of(mine, y), _of(mine, x)
            row, column = _empty_cell(planes, taken, who, on, _of(mine, grow_word), HEIGHT, WIDTH, ROWS)
            plane = planes + (who * 2 + _of(mine, ate_poison)) * SPAN
            tl.debug_barrier()
            tl.atomic_xor(plane + from_y * WORDS + from_x // 32, 1 << (from_x % 32), mask=on, sem="relaxed")
            tl.atomic_xor(plane + row * WORDS + column // 32, 1 << (column % 32), mask=on, sem="relaxed")
            tl.atomic_add(taken + who * HEIGHT + from_y, on.to(tl.int32) * -1, mask=on, sem="relaxed")
            tl.atomic_add(taken + who * HEIGHT + row, on.to(tl.int32), mask=on, sem="relaxed")
        tl.debug_barrier()

        energy, age, terminated, truncated = _aged(
            energy, age, live, ate_food, ate_poison, food_energy, poison_energy, LIMIT
        )
        food, poison = ate_food.to(tl.float32), ate_poison.to(tl.float32)
        after = before
        if GUIDED:
            after = _nearest(_view(own_planes, lanes, y, x, live, HEIGHT, WIDTH, RADIUS), near, SIZE)
        reward, died = _paid(
            food, poison, terminated, before, after, guidance, pay_food, pay_poison, pay_step, pay_death, GUIDED
        )

        wrong = live & ((action < 0) | (action >= SIDE * SIDE - 1))
        odd = live & (reward != reward)
        fault = (wrong | odd) & (known_fault < 0)
        late = inside & ~live
        had_food, had_poison = ate_food != 0, ate_poison != 0
        tl.debug_barrier()  # as in `_begin_life`
        tl.store(faults + world, clock * 3 + tl.where(wrong, 0, 1), mask=fault)
        tl.store(waited + world, waits + 1, mask=late)
        tl.store(x_of + world, x, mask=live)
        tl.store(y_of + world, y, mask=live)
        tl.store(energy_of + world, energy, mask=live)
        tl.store(ate_food_of + world, ate_food.to(tl.int8), mask=live)
        tl.store(ate_poison_of + world, ate_poison.to(tl.int8), mask=live)
        tl.store(food_of + world, foods_eaten + 1, mask=had_food)
        tl.store(poison_of + world, poisons_eaten + 1, mask=had_poison)
        tl.store(age_of + world, age, mask=live)
        tl.store(rewards + world, tl.where(live, reward, 0.0), mask=inside)
        tl.store(terminated_out + world, terminated, mask=inside)
        tl.store(truncated_out + world, truncated, mask=inside)
        tl.store(valid_out + world, live, mask=inside)
        tl.store(flow_food + world, food, mask=inside)
        tl.store(flow_poison + world, poison, mask=inside)
        tl.store(flow_deaths + world, died, mask=inside)
        over = terminated | truncated | late
        tl.store(over_out + world, over, mask=inside)
        if not RENEW:
            tl.store(counts + program, tl.sum(over.to(tl.int32)))
        if program == 0:
            tl.store(clock_out, clock + 1)
        tl.debug_barrier()
    else:
        over = tl.load(over_out + world, mask=inside, other=0).to(tl.int32) != 0

    if RENEW:
        flag = over.to(tl.int32)
        own = tl.cumsum(flag, 0) - flag
        if ALL:
            chosen, slot, kept = over, world, inside
        else:
            group = program * BLOCK // GROUP  # lives that ended in worlds of programs before, and in all
            other = tl.arange(0, GROUPS)
            found = tl.load(counts + other, mask=other < groups, other=0).to(tl.int32)
            ahead = group.to(tl.int64) * GROUP + tl.arange(0, GROUP)
            near_by = tl.load(over_out + ahead, mask=ahead < start, other=0).to(tl.int32)
            rank = own + tl.sum(tl.where(other < group, found, 0)) + tl.sum(near_by)
            total = tl.sum(found)
            chosen = over & (rank < most)
            slot = tl.where(over, rank.to(tl.int64), total + world - rank)
            kept = inside & (slot < most)
        tl.store(final_index + slot, world, mask=kept)
        tl.store(waiting_of + world, over & ~chosen, mask=inside)
        view = _view(own_planes, lanes, y, x, inside, HEIGHT, WIDTH, RADIUS)
        _keep_view(final, slot, view, kept, SIZE)
        _keep_known(known, world, food_number, inside, food_middle, food_scale, 0)
        _keep_known(final_known, slot, food_number, kept, food_middle, food_scale, 0)
        _keep_known(known, world, poison_number, inside, poison_middle, poison_scale, 1)
        _keep_known(final_known, slot, poison_number, kept, poison_middle, poison_scale, 1)
        _keep_view(look + start * 2 * SIZE, lanes, view, inside, SIZE)
        if not LIFE:
            place_word = _below_2_31(world, clock + 1, first, second, PLACE)
            place = tl.cumsum(chosen.to(tl.int32), 0) - 1
            for begin in range(0, tl.sum(chosen.to(tl.int32)), CHUNK):
                mine = ((begin + tl.arange(0, CHUNK))[:, None] == place[None, :]) & chosen[None, :]
                on = tl.max(mine.to(tl.int32), 1) != 0
                who = start + _of(mine, lanes)
                row, column = _empty_cell(planes, taken, who, on, _of(mine, place_word), HEIGHT, WIDTH, ROWS)
                _begin_life(
                    planes,
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
                    look,
                    who,
                    on,
                    row,
                    column,
                    start_energy,
                    HEIGHT,
                    WIDTH,
                    RADIUS,
                )


@triton.jit
def _clear(planes, world, number, SPAN: tl.constexpr, BLOCK: tl.constexpr):
    for begin in range(0, 2 * SPAN, BLOCK):
        tl.store(planes + world * 2 * SPAN + begin + number, number * 0, mask=begin + number < 2 * SPAN)


@triton.jit
def _life_kernel(
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
    clock_in,
    keys,
    look,
    known,
    final_index,
    over,
    start_energy,
    food_middle,
    food_scale,
    poison_middle,
    poison_scale,
    HEIGHT: tl.constexpr,
    WIDTH: tl.constexpr,
    RADIUS: tl.constexpr,
    FOOD_LOW: tl.constexpr,
    FOOD_HIGH: tl.constexpr,
    POISON_LOW: tl.constexpr,
    POISON_HIGH: tl.constexpr,
    FOODS: tl.constexpr,
    POISONS: tl.constexpr,
    CELLS: tl.constexpr,
    PLACE: tl.constexpr,
    DRAWS: tl.constexpr,
    BLOCK: tl.constexpr,
    ROWS: tl.constexpr,
):
    """A fresh world for the life that a row of `final_index` tells of, if it ended."""
    SPAN: tl.constexpr = WIDTH // 32 * HEIGHT
    who = tl.load(final_index + tl.program_id(0))
    if tl.load(over + who).to(tl.int32) != 0:
        one = tl.arange(0, 1)
        world, on = who + one, one == 0
        clock = tl.load(clock_in) + 1
        first, second = _keys(keys, world, on)
        food_word = one_word(one.to(tl.int64), clock.to(tl.uint32), FOODS, first, second).to(tl.int64)
        food_count = (FOOD_LOW + ((food_word * (FOOD_HIGH + 1 - FOOD_LOW)) >> 32)).to(tl.int32)
        poison_word = one_word(one.to(tl.int64), clock.to(tl.uint32), POISONS, first, second).to(tl.int64)
        poison_count = (POISON_LOW + ((poison_word * (POISON_HIGH + 1 - POISON_LOW)) >> 32)).to(tl.int32)
        number = tl.arange(0, BLOCK)
        cell_word = one_word(number.to(tl.int64), clock.to(tl.uint32), CELLS, first, second).to(tl.int64)
        cell = ((cell_word * (HEIGHT * WIDTH)) >> 32).to(tl.int32)
        drawn = number < DRAWS
        bit, at = 1 << (cell % 32), (who * 2) * SPAN + cell // 32

        # A cell that comes twice counts where it comes first. The planes tell which cells do, before they are filled.
        _clear(planes, who, number, SPAN, BLOCK)
        tl.debug_barrier()
        again = drawn & ((tl.atomic_or(planes + at, bit, mask=drawn, sem="relaxed") & bit) != 0)
        tl.atomic_or(planes + at + SPAN, bit, mask=again, sem="relaxed")
        tl.debug_barrier()
        twice = drawn & ((tl.load(planes + at + SPAN, mask=drawn, other=0, volatile=True) & bit) != 0)
        new = (drawn & ~twice).to(tl.int32)
        for _ in range(tl.sum(again.to(tl.int32))):
            first_one = number == tl.min(tl.where(twice, number, BLOCK))
            new += first_one.to(tl.int32)
            twice = twice & (cell != tl.sum(tl.where(first_one, cell, 0)))
        rank = tl.cumsum(new, 0) - 1
        is_food = (new != 0) & (rank < food_count)
        put = (new != 0) & (rank < food_count + poison_count)

        tl.debug_barrier()
        _clear(planes, who, number, SPAN, BLOCK)
        rows = tl.arange(0, ROWS)
        tl.store(taken + who * HEIGHT + rows, rows * 0, mask=rows < HEIGHT)
        tl.debug_barrier()
        tl.atomic_or(planes + at + tl.where(is_food, 0, SPAN), bit, mask=put, sem="relaxed")
        tl.atomic_add(taken + who * HEIGHT + cell // WIDTH, put.to(tl.int32), mask=put, sem="relaxed")
        tl.debug_barrier()
        place_word = _below_2_31(world, clock, first, second, PLACE)
        y, x = _empty_cell(planes, taken, world, on, place_word, HEIGHT, WIDTH, ROWS)
        _begin_life(
            planes,
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
            look,
            world,
            on,
            y,
            x,
            start_energy,
            HEIGHT,
            WIDTH,
            RADIUS,
        )
        tl.store(foods + world, food_count)
        tl.store(poisons + world, poison_count)
        _keep_known(known, world, food_count, on, food_middle, food_scale, 0)
        _keep_known(known, world, poison_count, on, poison_middle, poison_scale, 1)
