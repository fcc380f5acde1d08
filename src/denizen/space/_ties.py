"""Contacts that form and end: partners of each agent in a fixed number of slots, held as fields of the state.

Both ends of a tie hold it, so a sum gathers from an agent's own slots, and a tie that is over needs no message. Nothing
is changed in place: each method returns new ties.
"""

import dataclasses
from typing import Any

import torch
from torch import Tensor

from denizen import _tree, ops
from denizen._arguments import whole
from denizen.errors import ModelError
from denizen.rng import Rng
from denizen.space._origin import Origin, own_axis

_MOST_POOLS = 2**30


@dataclasses.dataclass(frozen=True, eq=False, repr=False)
class Ties:
    """Who is tied to whom in a step, and until when.

    A state keeps ties in two fields, which the author names::

        partner: Tensor = dz.count("agents", "slots")
        until: Tensor = dz.count("agents", "slots")

    and a step reads them, changes them and gives them back::

        ties = Ties(now.partner, now.until, now.time.step)
        ties = ties.form(rng, "pair", seeks, lasts=rng.exponential("lasts", 1 / mean_days))
        pressure = ties.sum(infected)
        return now.replace(partner=ties.who, until=ties.until, …)

    Attributes:
        who: whole numbers `[agents, slots]`: place of the partner; of no meaning where a slot is free.
        until: whole numbers `[agents, slots]`: the first step in which the tie is over.
        step: int64 0-d: the step that it is. A slot is taken where ``until > step``.

    Examples:
        >>> ties = Ties(torch.tensor([[1], [0], [0]]), torch.tensor([[9], [9], [3]]), torch.tensor(5))
        >>> ties.sum(torch.tensor([1, 0, 0], dtype=torch.int8))
        tensor([0, 1, 0], dtype=torch.int32)
    """

    who: Tensor
    until: Tensor
    step: Tensor

    def __post_init__(self) -> None:
        fields = (self.who, self.until)
        if not all(isinstance(field, Tensor) and field.dim() == 2 for field in fields) or (
            self.who.shape != self.until.shape
        ):
            got = " and ".join(str(tuple(f.shape)) if isinstance(f, Tensor) else type(f).__name__ for f in fields)
            raise ModelError(f"Ties: who and until are {got}, expected two fields (agents, slots)")
        if not isinstance(self.step, Tensor) or self.step.dim() or self.step.dtype.is_floating_point:
            got = self.step.dtype if isinstance(self.step, Tensor) else type(self.step).__name__
            raise ModelError(f"Ties: step is {got}, expected the number of the step: now.time.step")

    @classmethod
    def none(cls, num_agents: int, slots: int, *, device: torch.device | str | None = None) -> "Ties":
        """Nobody tied to anybody: what `init` gives the fields, ``Ties.none(num_agents, slots).who`` and ``.until``.

        Args:
            num_agents: number of agents.
            slots: most ties that an agent has at a time.
            device: where the agents are.
        """
        shape = whole("Ties.none", "num_agents", num_agents, 1), whole("Ties.none", "slots", slots, 1)
        who, until = (torch.zeros(shape, dtype=torch.int32, device=device) for _ in range(2))
        return cls(who, until, torch.zeros((), dtype=torch.int64, device=device))

    @property
    def active(self) -> Tensor:
        """Which slots are taken: bool `[agents, slots]`."""
        return self.until > self.step

    def degree(self) -> Tensor:
        """int32 `[agents]`: number of ties of each agent."""
        return ops.taken(self.until[None], self.step)[0]

    def form(
        self,
        rng: Rng,
        name: str,
        seeks: Tensor,
        lasts: Tensor | float,
        *,
        pool: Tensor | None = None,
        num_pools: int = 1,
        side: Tensor | None = None,
    ) -> "Ties":
        """Pair up those who seek, by lot; each gets at most one tie.

        Everybody who seeks finds somebody as long as there is another one in the pool, and on the other side where
        there are sides. Two who are tied already stay as they are. Whom the lot brings together depends on identities,
        not on the order of agents. Ties carry no gradient: what a sum over them adds up does.

        A tie that forms in a step counts in that step. It lasts whole steps, which are right on average: 2.3 steps are
        2 or 3. Of the two durations that of the one with the lower id holds.

        Args:
            rng: of the step.
            name: stream.
            seeks: mask `[agents]`. Who seeks has a free slot: others stop the run with a `CapacityError` at the end of
                the chunk. ``ties.degree() < 1`` are those without a partner.
            lasts: durations in the model's unit of time, one for all or `[agents]`; negative ones and NaN stop the run,
                infinity lasts for ever.
            pool: whole numbers `[agents]`, 0 … num_pools - 1: who seeks finds somebody of the same one.
            num_pools: number of pools.
            side: mask `[agents]`: those with 0 find one with 1.
        """
        own_axis("Ties.form", rng, len(self.who))
        self._check("form", seeks=seeks, pool=pool, side=side)
        pools = whole("Ties.form", "num_pools", num_pools, 1, _MOST_POOLS)
        lot, slots = rng[name], self.who.shape[1]
        wanted = seeks.detach() if seeks.dtype == torch.int8 else (seeks.detach() != 0).to(torch.int8)
        if seeks.dtype.is_floating_point:  # a relaxed run
            shares = (wanted != 0) & (seeks.detach() != 1)
            rng._bad.append((_SHARES.format(name), shares.any().to(torch.int8)))
        seat = self.who.new_empty(0, dtype=torch.int32)
        if pool is not None:
            seat = pool.detach().to(torch.int32)
            beyond = (seat < 0) | (seat >= pools) | (seat != pool.detach())  # 2**32 is no 0
            rng._bad.append((_POOL.format(name, pools - 1), beyond.any().to(torch.int8)))
            seat = seat.clamp(0, pools - 1)
        if side is not None:
            there = (side.detach() != 0).to(torch.int32)
            seat = there if pool is None else 2 * seat + there
        seat = ops.seated(self.until[None], seat[None], wanted[None], self.step)[0]
        pools = pools if side is None else 2 * pools
        lot._check_arguments(f"Ties.form({name!r})", lasts=lasts)
        days = lot._per_agent(lasts)
        fields = self.who[None], self.until[None], seat[None], (days.detach() / lot._dt)[None]
        draws = lot._id_row(), lot._key[None], self.step, lot._step, lot._stream("lot")
        who, until, bad = ops.form(*fields, *draws, pools, side is not None)
        rng._bad.append((_FULL.format(name, slots), bad[0, 0].to(torch.int8)))
        rng._bad.append((_LASTS.format(name), bad[0, 1].to(torch.int8)))
        return Ties(who[0], until[0], self.step)

    def end(self, agents: Tensor) -> "Ties":
        """Without the ties of some agents, on both sides: of those who die, say.

        Args:
            agents: mask `[agents]`.
        """
        self._check("end", agents=agents)
        gone = agents.detach() != 0
        over = (gone[:, None] | self._told(gone)) & self.active
        until = torch.where(over, self.step.to(self.until.dtype), self.until)
        if agents.dtype.is_floating_point:  # shares in a relaxed run are found as a fault of the field
            until = torch.where((gone & (agents.detach() != 1)).any(), torch.nan, until)
        return Ties(self.who, until, self.step)

    def sum(self, values: Tensor, *, where: Tensor | None = None, weight: Tensor | None = None) -> Tensor:
        """Sum of `values` over each agent's partners.

        Whole numbers are added as such, real ones in float64 slot by slot. Slots are taken in an order of the agent's
        own, so neither the order of agents nor the device changes a bit.

        Args:
            values: `[agents]`.
            where: mask `[agents]`; agents with 0 receive 0.
            weight: `[agents, slots]`: factor of each of the agent's ties in this step.

        Returns:
            `[agents]`: int32 for a mask, int64 for wider integers, else float32.
        """
        self._check("sum", values=values, where=where)
        if weight is not None and (not isinstance(weight, Tensor) or weight.shape != self.who.shape):
            got = tuple(weight.shape) if isinstance(weight, Tensor) else type(weight).__name__
            raise ModelError(f"Ties.sum: weight is {got}, expected {tuple(self.who.shape)}, one for each slot")
        who = self._who()
        if weight is None:
            total = ops.sum_slots(values[None], who[None], self.until[None], self.step)[0]
        else:
            told, taken, total = self._told(values), self.active, torch.zeros_like(values, dtype=torch.float64)
            for slot in range(who.shape[1]):
                # float64 holds the product of two float32 whole, so that a fused multiply-add changes no bit
                message = told[:, slot].to(torch.float64) * weight[:, slot].to(torch.float64)
                total = total + torch.where(taken[:, slot], message, 0.0)
            total = total.to(torch.float32)
        return total if where is None else torch.where(where != 0, total, torch.zeros_like(total))

    def mean(self, values: Tensor, *, where: Tensor | None = None) -> Tensor:
        """Mean of `values` over each agent's partners, 0 without any: float32 `[agents]`."""
        degree = self.degree()
        total = self.sum(values, where=where).to(torch.float32)
        return torch.where(degree > 0, total / degree.clamp(min=1), 0.0)

    def attribute(
        self, rng: Rng, name: str, happened: Tensor, values: Tensor, *, weight: Tensor | None = None
    ) -> Origin:
        """Who caused what happened: one partner each, with probability in proportion to value times weight.

        As `Graph.attribute`. Over two sorts of ties at once: ``Ties(torch.cat([a.who, b.who], dim=1), …)``.

        Args:
            rng: of the step.
            name: stream.
            happened: mask `[agents]` of those to whom it happened.
            values: `[agents]`, what was summed to make the hazard; agents at 0, below it or at NaN cause nothing.
            weight: `[agents, slots]`, as `sum` was given it.

        Raises:
            ModelError: in a relaxed run, in which nothing happens to anybody but in shares.
        """
        own_axis("Ties.attribute", rng, len(self.who))
        self._check("attribute", happened=happened, values=values)
        ids, key, step, stream = rng._own_draws("Ties.attribute", name)
        sent = self._told(torch.where(values > 0, values, torch.zeros_like(values)).to(torch.float64))
        sent = torch.where(self.active, sent, 0.0) if weight is None else torch.where(self.active, sent * weight, 0.0)
        reach = torch.zeros_like(sent[:, 0])
        upto = []  # not cumsum, which adds in any order on a GPU
        for slot in range(sent.shape[1]):
            reach = reach + sent[:, slot]
            upto.append(reach)
        aim = (ops.draw_words(ids, len(reach), key[None], step, stream)[0].to(torch.float64) + 0.5) * 2.0**-32 * reach
        source = torch.full_like(happened, -1, dtype=torch.int32)
        for slot in range(sent.shape[1] - 1, -1, -1):
            source = torch.where(upto[slot] > aim, self._who()[:, slot], source)
        source = torch.where((happened != 0) & (reach > 0), source, -1)
        return Origin(source, torch.where(source < 0, -1, 0).to(torch.int8))

    def _who(self) -> Tensor:
        return self.who.detach().to(torch.int32)  # a relaxed run holds counts as real numbers

    def _told(self, values: Tensor) -> Tensor:
        """The value of each slot's partner `[agents, slots]`, of anybody where the slot is free."""
        return values[self._who().clamp(0, values.shape[0] - 1).long()]

    def _check(self, method: str, **given: Any) -> None:
        shape = self.who.shape[:1]
        for name, tensor in given.items():
            if tensor is None and name in ("where", "pool", "side"):
                continue
            if not isinstance(tensor, Tensor) or tensor.shape != shape or tensor.is_complex():
                got = f"{tensor.dtype} {tuple(tensor.shape)}" if isinstance(tensor, Tensor) else type(tensor).__name__
                raise ModelError(f"Ties.{method}: {name} is {got}, expected numbers {tuple(shape)}, one for each agent")

    def __repr__(self) -> str:
        return f"Ties({self.who.shape[0]:,} agents, {self.who.shape[1]} slots each)"


_FULL = (
    "Ties: an agent without a free slot seeks in form({!r}); give more than {} slots, or let only those with room seek"
)
_SHARES = "Ties.form({!r}): seeks holds shares; ties form by draws of 0 and 1, as relax=StraightThrough() keeps them"
_POOL = "Ties.form({!r}): a pool is outside 0 … {}; raise num_pools"
_LASTS = "Ties.form({!r}): a duration is negative or NaN; expected durations in the model's unit of time"

_tree.register(Ties, lambda ties: ([ties.who, ties.until, ties.step], None), lambda parts, _: _made(*parts))


def _made(who: Any, until: Any, step: Any) -> Ties:
    """Ties of anything, such as placeholders of torch's transforms."""
    ties = object.__new__(Ties)
    for name, value in (("who", who), ("until", until), ("step", step)):
        object.__setattr__(ties, name, value)
    return ties


def random_contacts(rng: Rng, name: str, num: int) -> Ties:
    """Contacts of one step: `num` others for each agent, drawn anew and evenly, one independent of another.

    Contacts are of the one who draws: that a meets b does not mean that b meets a. Nobody meets oneself, and seldom
    somebody twice.

    Args:
        rng: of the step.
        name: stream.
        num: contacts of each agent.
    """
    count, agents, lot = whole("random_contacts", "num", num, 1), rng._num, rng[name]
    if agents < 2:
        raise ModelError(f"random_contacts: {agents} agents, expected others to meet: at least 2")
    device = rng._key.device
    by_id = None if rng._ids is None else torch.argsort(rng._ids, stable=True)
    place = torch.arange(agents, device=device)
    rank = place if by_id is None else torch.empty_like(by_id).scatter(0, by_id, place)
    drawn = torch.stack([lot.integers(str(k), 0, agents - 1) for k in range(count)], dim=1)
    other = drawn + (drawn >= rank[:, None])
    other = other if by_id is None else by_id[other]
    return Ties(other, torch.ones_like(other), torch.zeros((), dtype=torch.int64, device=device))
