"""Named random streams for one step of one world: every draw is a pure function of who draws, when and what for.

A draw depends on (seed, world, phase, scope and stream name, axis, step, id) and on nothing else, so it is the same
under any batching, chunking, order of agents, device, restart or recomputation. `ops` computes the words.
"""

import hashlib
from collections.abc import Mapping
from numbers import Real
from typing import Any, NamedTuple, NoReturn

import torch
from torch import Tensor

from denizen import ops
from denizen._arguments import whole
from denizen.errors import ModelError, nearest
from denizen.rng._events import Events
from denizen.rng._quantiles import gamma_quantile, poisson_quantile
from denizen.rng._relax import Relax, weighs

MAX_SEED = 2**32 - 1
EVALUATION_SEED = 2**31  # added to seeds, so that evaluation shares no world with training
LOG_COLUMNS = ("replicate", "world", "step", "time", "date", "id")  # that every log of events has
BY_ID = "by, as identities"  # how a step calls the column `by` where it holds these already, and no places
_NUMBERS = (float, int, Real, torch.SymFloat, torch.SymInt)
_ROUNDING = 1e-3  # by which shares of a relaxed run may leave their range without being a fault


_ELSEWHERE = {  # names of draws in NumPy, torch and Python's random -> here
    "rand": "uniform",
    "random": "uniform",
    "random_sample": "uniform",
    "randint": "integers",
    "randrange": "integers",
    "randn": "normal",
    "standard_normal": "normal",
    "gauss": "normal",
    "choice": "categorical",
    "choices": "categorical",
    "multinomial": "categorical",
    "binomial": "bernoulli",
    "randperm": "permutation",
    "shuffle": "permutation",
    "expovariate": "exponential",
}


def stream_number(path: str) -> int:
    """The 32-bit number of a stream, from its full path such as ``"step/infection/catch@agents"``."""
    return int.from_bytes(hashlib.blake2s(path.encode(), digest_size=4).digest(), "little")


# What torch.compiler.assume_constant_result sets, without its import of torch._dynamo, which is slow.
stream_number._dynamo_marked_constant = True  # type: ignore[attr-defined]  # a mark that dynamo looks for


def identities(place: Tensor, ids: Tensor) -> Tensor:
    """Identities `[agents]` of those in places, -1 for nobody."""
    return torch.where(place >= 0, ids[place.clamp(min=0).long()], -1)


class Known(NamedTuple):
    """What the engine knows of an axis of the state.

    Attributes:
        num: places on it.
        ids: int64 `[num]` identities; None stands for 0 … num - 1.
        alive: mask int8 `[num]` of who is alive; None where the state does not say.
    """

    num: int
    ids: Tensor | None = None
    alive: Tensor | None = None


class Rng:
    """The random numbers of one step of one world; handed to `Model.init` and `Model.step`.

    Every method takes the name of a stream first. Using one name twice within a step is refused, since it would repeat
    the numbers: open a scope with `rng["layer", i]` or choose another name. Results have one entry for each agent, or
    for each entity of the axis chosen with `on`.
    """

    def __init__(
        self,
        key: Tensor,
        step: Tensor,
        *,
        num: int,
        ids: Tensor | None = None,
        dt: float = 1.0,
        phase: str = "step",
        relax: Relax | None = None,
    ) -> None:
        """Bind the streams to a step.

        Args:
            key: int64 `[2]`: (seed, world); or `[5]`: and the step, place and agent of a draw that comes out otherwise.
            step: int64 `[]`.
            num: number of agents.
            ids: int64 `[agents]` identities; None stands for 0 … num - 1.
            dt: length of the step, the default of `event`.
            phase: ``"init"`` or ``"step"``: the two never share numbers.
            relax: makes `event` and `bernoulli` differentiable.
        """
        self._flip = None
        if key.shape[-1] > 2:
            key, self._flip = key[:2].clone(), key[2:]  # kernels read rows of two
        self._key, self._step, self._ids, self._num = key, step, ids, num
        self._dt, self._relax = dt, relax
        self._path, self._axis = phase, "agents"
        self._used: set[int] = set()
        self._bad: list[tuple[str, Tensor]] = []
        self._recorded: dict[str, Tensor] = {}
        self._axes: dict[str, Known] = {}
        self._logs: list[str] | None = []  # names of events that the run writes rows for; None asks as for all
        self._details: dict[str, dict[str, Tensor]] = {}  # of those: columns by name
        self._tellers: dict[str, Rng] = {}  # of those: who noted them
        self._draws = [0]  # 0/1 draws so far in this step
        self._noted = [relax.start(key)] if weighs(relax) else []

    def __getattr__(self, name: str) -> NoReturn:
        """Called for what does not exist: names that other libraries have lead to this one's."""
        if name.startswith("_"):
            raise AttributeError(name)
        draws = [one for one in vars(Rng) if not one.startswith("_")]
        meant = _ELSEWHERE.get(name)
        told = f"did you mean {meant!r}? valid: {', '.join(sorted(draws))}" if meant else nearest(name, draws)
        raise AttributeError(f"rng has no {name!r}; {told}; the first argument of a draw is the name of its stream")

    def __getitem__(self, scope: object) -> "Rng":
        """A scope of names: ``rng["household"].event("catch", …)`` and ``rng["layer", 2].event("catch", …)`` differ."""
        parts = scope if isinstance(scope, tuple) else (scope,)
        return self._derive(path="/".join([self._path, *[str(part) for part in parts]]))

    @property
    def dt(self) -> float:
        """Length of a step in the model's unit of time, for `init`, which has no `now.time`."""
        return self._dt

    def on(self, axis: str, num: int | None = None, *, ids: Tensor | None = None) -> "Rng":
        """The same streams for another axis: ``rng.on("sheep")``, ``rng.on("edges", graph.num_edges)``.

        Args:
            axis: name of the axis, part of what fixes the numbers.
            num: number of entities on it; in a step an axis of the state has its own.
            ids: int64 `[num]` identities; default: those of the kind of agents, else 0 … num - 1. A negative one stops
                the run with a `ModelError` at the end of the chunk.

        Raises:
            InputError: `num` is no whole number from 0.
            ModelError: without `num` for an axis that no field of the state has, or in `init`; identities of another
                shape or dtype.
        """
        known = self._axes.get(axis)
        if num is not None:
            num = whole(f"rng.on({axis!r}, …)", "num", num, 0)
        if num is None and known is None:
            sizes = [name for name, one in self._axes.items() if one.num]
            raise ModelError(
                f"rng.on({axis!r}): how many are there? In a step the state's own axes are known "
                f"({', '.join(sorted(sizes)) or 'none'}); for others, and in init, write rng.on({axis!r}, number)"
            )
        if known is None:
            assert num is not None
            return self._derive(axis=axis, num=num, ids=self._named(axis, num, ids))
        if known.ids is not None and num not in (None, known.num):
            raise ModelError(f"rng.on({axis!r}, {num}): the axis has {known.num} places; leave the number out")
        num = known.num if num is None else num
        return self._derive(axis=axis, num=num, ids=known.ids if ids is None else self._named(axis, num, ids))

    def _named(self, axis: str, num: int, ids: Any) -> Tensor | None:
        """Identities that an author gave, as kernels read them: without looking where they end."""
        if ids is None:
            return None
        if not isinstance(ids, Tensor) or ids.dtype != torch.int64 or ids.shape != (num,):
            got = f"{ids.dtype} {tuple(ids.shape)}" if isinstance(ids, Tensor) else f"{type(ids).__name__} {ids!r:.60}"
            raise ModelError(f"rng.on({axis!r}): ids is {got}, expected torch.int64 ({num},), an identity for each")
        self._check_arguments(f"rng.on({axis!r})", ids=ids)
        self._require(f"rng.on({axis!r}): ids, an identity is negative", ids >= 0)
        return ids

    def _derive(
        self, path: str | None = None, axis: str | None = None, num: int = 0, ids: Tensor | None = None
    ) -> "Rng":
        ids = self._ids if axis is None else ids
        child = Rng(
            self._key, self._step, num=self._num if axis is None else num, ids=ids, dt=self._dt, relax=self._relax
        )
        child._path, child._axis = path or self._path, axis or self._axis
        # Shared: one record of used streams, of bad values, of events and of draws.
        child._used, child._bad, child._recorded = self._used, self._bad, self._recorded
        child._axes = self._axes
        child._logs, child._details, child._tellers = self._logs, self._details, self._tellers
        child._draws, child._noted, child._flip = self._draws, self._noted, self._flip
        return child

    def _of(self, axes: dict[str, Known]) -> "Rng":
        """The same streams for agents of whom other things are known: some have died or were born within the step."""
        child = self._derive()
        child._axes = axes
        if self._axis in axes:
            child._ids = axes[self._axis].ids
        return child

    def _again(self) -> "Rng":
        """The same numbers once more, for a part of the agents that has drawn none of them; events are kept apart."""
        child = self._derive()
        child._used, child._recorded, child._details = set(self._used), dict(self._recorded), dict(self._details)
        return child

    # --- 0/1 draws ----------------------------------------------------------------------------------------------------

    def event(
        self, name: str, hazard: Tensor | float, dt: Tensor | float | None = None, *, where: Tensor | None = None
    ) -> Tensor:
        """Whether something that happens at a rate happens within the step: 1 with probability 1 - exp(-hazard dt).

        The threshold is computed by the same arithmetic on every device, eager or compiled, so the outcome has the
        same bits everywhere. Agents with hazard 0 cost nothing. Where the state says who is alive by
        `denizen.model.alive`, nothing happens to who is not, as the step or its stage began.

        Args:
            name: stream.
            hazard: per unit of time, not negative; a number or `[agents]`.
            dt: length of the interval, for all or `[agents]`; default: the step's.
            where: mask `[agents]` of those to whom it can happen. In a hard run the others get 0 and cost nothing. In a
                relaxed run a mask of shares gates nothing: everybody gets what would happen *given* that it can, since
                who might have been among them counts for the gradient. So the outcome is still multiplied by the
                mask where it is used, as `Stage.move` does and ``healed = infected * rng.event(…, where=infected)``.

        Returns:
            mask int8 `[agents]` (float32 under `relax`). A negative or NaN hazard draws 0 and stops the run with a
            `ModelError` at the end of the chunk; with `where` hazards are finite for the others too.
        """
        interval = self._dt if dt is None else dt
        self._check_arguments(f"rng.event({name!r})", hazard=hazard, dt=interval, where=where)
        total = hazard if isinstance(interval, float | int) and interval == 1 else hazard * interval
        alive = self._axes[self._axis].alive if self._axis in self._axes else None
        if self._plain(total):
            return self._among(name, total, True, where, alive)
        values = self._per_agent(self._gated(f"rng.event({name!r})", total, where))
        if alive is not None:
            values = torch.where(alive != 0, values, 0.0)
        stream = self._stream(name)
        if self._relax is None:
            return self._mask(name, values, True, stream)
        if not self._noted:
            self._require(f"rng.event({name!r})", values >= -_ROUNDING)
        prob = -torch.expm1(-values)
        return self._soft(prob, _Hard(self, name, values.detach(), True, stream))

    def bernoulli(self, name: str, prob: Tensor | float, *, where: Tensor | None = None) -> Tensor:
        """1 with probability `prob`: mask int8 `[agents]` (float32 under `relax`).

        Args:
            name: stream.
            prob: in [0, 1]; a number or `[agents]`. Others stop the run with a `ModelError` at the end of the chunk.
            where: mask `[agents]` of those to whom it can happen, as for `event`.
        """
        self._check_arguments(f"rng.bernoulli({name!r})", prob=prob, where=where)
        if self._plain(prob):
            return self._among(name, prob, False, where, None)
        values = self._per_agent(self._gated(f"rng.bernoulli({name!r})", prob, where))
        stream = self._stream(name)
        if self._relax is None:
            return self._mask(name, values, False, stream)
        if not self._noted:
            self._require(f"rng.bernoulli({name!r})", (values >= -_ROUNDING) & (values <= 1 + _ROUNDING))
        return self._soft(values, _Hard(self, name, values.detach(), False, stream))

    def _gated(self, what: str, value: Tensor | float, where: Tensor | None) -> Tensor | float:
        """0 for those whom a mask leaves out; unchanged for a mask of shares in a relaxed run."""
        if where is None:
            return value
        self._check_where(what, where)
        if self._relax is not None and not self._noted and where.dtype.is_floating_point:
            return value
        # A product of bytes and not torch.where, which takes fifteen times as long on a CPU; a 2 counts as 1.
        return (where != 0).to(torch.int8) * value

    def _check_where(self, what: str, where: Any) -> None:
        if not isinstance(where, Tensor) or where.shape != (self._num,):
            got = tuple(where.shape) if isinstance(where, Tensor) else f"{type(where).__name__} {where!r}"
            raise ModelError(
                f"{what}: where is {got}, expected a mask ({self._num},), one entry for each agent"
                f"{self._other_axis(where)}"
            )

    def _plain(self, value: Tensor | float) -> bool:
        """Whether masks go into a draw as they are: in hard steps on the CPU that nobody traces.

        What is traced becomes a kernel with its neighbours, masks and all.
        """
        if self._relax is not None or torch.compiler.is_compiling() or not self._key.is_cpu:
            return False
        return (not isinstance(value, Tensor) or value.dtype == torch.float32) and not ops.traced()

    def _among(
        self, name: str, value: Tensor | float, hazard: bool, where: Tensor | None, alive: Tensor | None
    ) -> Tensor:
        """`_mask` of a value for all or for each, by masks."""
        if where is not None:
            self._check_where(f"rng.{'event' if hazard else 'bernoulli'}({name!r})", where)
        none = self._key.new_empty(1, 0, dtype=torch.int8)
        gates = [none if mask is None else _bytes(mask)[None] for mask in (where, alive)]
        place = self._id_row(), self._key[None], self._step, self._stream(name)
        return self._drawn(name, hazard, *ops.draw_among(self._row(value), *gates, self._num, hazard, *place))

    def _mask(self, name: str, values: Tensor, hazard: bool, stream: int) -> Tensor:
        drawn, bad = ops.draw_mask(values[None], hazard, self._id_row(), self._key[None], self._step, stream)
        return self._drawn(name, hazard, drawn, bad)

    def _drawn(self, name: str, hazard: bool, drawn: Tensor, bad: Tensor) -> Tensor:
        self._bad.append((f"rng.{'event' if hazard else 'bernoulli'}({name!r})", bad[0]))
        if self._flip is None:
            return drawn[0]
        step, number = self._place()
        agent = torch.arange(self._num, device=self._key.device) == self._flip[2]
        hit = agent & (self._flip[0] == step) & (self._flip[1] == number)
        self._draws[0] += 1
        return torch.where(hit, 1 - drawn[0], drawn[0])

    def _soft(self, prob: Tensor, hard: "_Hard") -> Tensor:
        """What a relaxed run has for a draw."""
        relax = self._relax
        if not weighs(relax):
            assert relax is not None
            return relax.draw(prob, hard)
        drawn = hard()
        self._noted[0] = relax.note(self._noted[0], prob, hard)
        self._draws[0] += 1
        return drawn

    def _place(self) -> tuple[Tensor, int]:
        begins = self._path.partition("/")[0] == "init"
        return (self._step - 1 if begins else self._step), self._draws[0]

    # --- what happened ------------------------------------------------------------------------------------------------

    def record(self, name: str, happened: Tensor, *, by: Any = None, **columns: Any) -> Tensor:
        """Note what happened to each agent in this step, for series of (events) and for a log of events.

        A flow is counted from what caused it and not from how levels changed, which births, deaths and whatever else
        moves agents change as well::

            caught = rng.record("caught", now.susceptible * rng.event("catch", hazard))

        Where `simulate(…, log=dz.run.EventLog("caught"))` logs it, each agent to whom it happened gets a row, with what
        else is given here. A function without arguments is called only in runs that log the event, so that finding out
        who infected whom costs the others nothing::

            rng.record("caught", caught, by=lambda: self.contacts.attribute(rng, "by", caught, now.infected))

        Args:
            name: of what happened, once in a step. In a scope, ``rng["work"]``, it becomes ``"work/caught"``; what an
                intervention records begins with its name: ``"campaign/doses"``.
            happened: `[agents, …]`: a mask of those to whom it happened, or an amount for each.
            by: who caused it: places `[agents]`, -1 for nobody, or what `attribute` returns, which also makes the
                column `layer`. The log has the identities of those agents, who are of the same axis; agents of another
                kind go into a column of another name, ``hunter=now.ids["wolves"][place]``.
            **columns: further columns of the log, numbers `[agents]` each, such as ``where=place``.

        Returns:
            `happened`, unchanged.

        Raises:
            ModelError: for a name that is taken, for something else than one entry per agent, and in `init`.
        """
        if not isinstance(happened, Tensor) or happened.shape[:1] != (self._num,):
            got = tuple(happened.shape) if isinstance(happened, Tensor) else f"{type(happened).__name__} {happened!r}"
            raise ModelError(
                f"rng.record({name!r}): got {got}, expected a tensor with {self._num} entries first"
                f"{self._other_axis(happened)}"
            )
        self._lies_here(f"rng.record({name!r})", "happened", happened)
        if self._path.partition("/")[0] != "step":
            raise ModelError(f"rng.record({name!r}): init is no step, and no series reads it; record within step")
        full = self._event_scope + name
        if full in self._recorded:
            raise ModelError(
                f"rng.record: the name {full!r} is used twice in one step; give the second another name, or open a "
                f"scope: rng['again'].record(…)"
            )
        self._recorded[full] = happened
        if self._logs is None or full in self._logs:
            self._details[full] = {} if self._ids is None else {"id": self._ids}
            self._tellers[full] = self
            self._describe(full, {**({} if by is None else {"by": by}), **columns})
        return happened

    def _describe(self, event: str, columns: Mapping[str, Any], ids: Tensor | None = None) -> None:
        """Add columns to the rows of a logged event.

        Args:
            event: its full name.
            columns: as `record` takes them.
            ids: int64 `[places]` of whom places are meant, where that is not who was there when it happened.
        """
        found = self._details[event]
        for name, given in columns.items():
            value = given() if callable(given) else given
            parts = {name: value}
            if name == "by" and isinstance(value, tuple):  # of places and layers
                parts = dict(zip(("by", "layer"), value, strict=True))
            for column, values in parts.items():
                if column in (*LOG_COLUMNS, BY_ID) or column in found or (column == "by" and BY_ID in found):
                    raise ModelError(
                        f"rng.record({event!r}): the log has a column {column!r} already; give it another name"
                    )
                if not isinstance(values, Tensor) or values.shape != (self._num,) or values.is_complex():
                    got = tuple(values.shape) if isinstance(values, Tensor) else f"{type(values).__name__} {values!r}"
                    raise ModelError(
                        f"rng.record({event!r}): {column} is {got}, expected numbers ({self._num},), one for each agent"
                    )
                self._lies_here(f"rng.record({event!r})", column, values)
                if column == "by" and (values.dtype.is_floating_point or values.dtype == torch.bool):
                    raise ModelError(
                        f"rng.record({event!r}): by is {values.dtype}, expected places of agents: whole numbers, -1 "
                        f"for nobody, as contacts.attribute(…) gives them"
                    )
                if column == "by" and ids is not None:
                    found[BY_ID] = identities(values, ids)
                else:
                    found[column] = values.detach()

    @property
    def events(self) -> Events:
        """What has been recorded in this step so far, within this scope: for a step that runs another model's.

        ``inner = rng["day", 3]``, ``model.step(now, inner)``, ``model.cases(inner.events)``.
        """
        return Events(self._recorded, self._event_scope)

    @property
    def _event_scope(self) -> str:
        """What names of events begin with: the scope without the phase; of an intervention, without saying so."""
        scope = self._path.partition("/")[2].removeprefix("intervention/")
        return f"{scope}/" if scope else ""

    # --- numbers ------------------------------------------------------------------------------------------------------

    def uniform(self, name: str, low: Tensor | float = 0.0, high: Tensor | float = 1.0) -> Tensor:
        """Uniform on [low, high): float32 `[agents]`."""
        self._check_arguments(f"rng.uniform({name!r})", low=low, high=high)
        unit = (self._words(name) >> 8).to(torch.float32) * 2.0**-24
        if isinstance(low, float | int) and isinstance(high, float | int) and (low, high) == (0, 1):
            return unit
        start, end = self._per_agent(low), self._per_agent(high)
        drawn = start + (end - start) * unit
        # Rounding may reach the end, which is not part of the interval.
        return torch.where(drawn == end, torch.nextafter(end.detach(), start.detach()), drawn)

    def normal(self, name: str, mean: Tensor | float = 0.0, std: Tensor | float = 1.0) -> Tensor:
        """Normal by inversion: float32 `[agents]`."""
        self._check_arguments(f"rng.normal({name!r})", numbers=True, mean=mean, std=std)
        return mean + std * torch.special.ndtri(self._unit64(name)).to(torch.float32)

    def exponential(self, name: str, rate: Tensor | float = 1.0, *, where: Tensor | None = None) -> Tensor:
        """Exponential with the given rate (mean 1 / rate), by inversion: float32 `[agents]`.

        Args:
            name: stream.
            rate: not negative; a number or `[agents]`.
            where: mask `[agents]` of those who need one. The others get 0, and on a CPU they cost nothing.
        """
        what = f"rng.exponential({name!r})"
        self._check_arguments(what, rate=rate, where=where)
        if where is not None and self._plain(rate):
            self._check_where(what, where)
            place = self._id_row(), self._key[None], self._step, self._stream(name)
            drawn, bad = ops.draw_exponential(self._row(rate), _bytes(where)[None], *place)
            self._bad.append((what, bad[0]))
            return drawn[0]
        rates = self._per_agent(rate)
        if where is not None:
            self._check_where(what, where)
            rates = torch.where(where != 0, rates, 1.0)
        self._require(what, rates >= 0)
        drawn = -torch.log1p(-self._unit64(name)).to(torch.float32) / rates
        return drawn if where is None else torch.where(where != 0, drawn, 0.0)

    def gamma(self, name: str, shape: Tensor | float, scale: Tensor | float = 1.0) -> Tensor:
        """Gamma (mean shape * scale; Erlang where shape is whole) by inversion: float32 `[agents]`."""
        self._check_arguments(f"rng.gamma({name!r})", shape=shape)
        self._check_arguments(f"rng.gamma({name!r})", numbers=True, scale=scale)
        alpha = self._per_agent(shape).to(torch.float64)
        self._require(f"rng.gamma({name!r})", (alpha > 0) & (alpha < torch.inf))
        return gamma_quantile(self._unit64(name), alpha).to(torch.float32) * scale

    def poisson(self, name: str, mean: Tensor | float) -> Tensor:
        """Poisson by inversion: int64 `[agents]`. 32 evaluations of a special function; not for the hottest loop.

        Means go from 0 to 2**31.
        """
        self._check_arguments(f"rng.poisson({name!r})", mean=mean)
        average = self._per_agent(mean).to(torch.float64)
        self._require(f"rng.poisson({name!r})", (average >= 0) & (average <= 2**31))
        return poisson_quantile(self._unit64(name), average)

    def integers(self, name: str, low: int, high: int) -> Tensor:
        """Whole numbers uniform on low … high - 1: int64 `[agents]`; bias below (high - low) / 2**32."""
        low, high = (whole(f"rng.integers({name!r})", what, end) for what, end in (("low", low), ("high", high)))
        if not 0 < high - low <= 2**31:
            raise ModelError(f"rng.integers({name!r}): low={low}, high={high}; expected 0 < high - low <= 2**31")
        return low + ((self._words(name) * (high - low)) >> 32)

    def categorical(self, name: str, probs: Tensor) -> Tensor:
        """Index of a category.

        Args:
            name: stream.
            probs: `[categories]` or `[agents, categories]`, not negative, finite and not all 0; normalised here.

        Returns:
            int64 `[agents]`; under `relax` nothing but the hard index is offered: use `bernoulli` chains instead.
        """
        if not isinstance(probs, Tensor):
            raise ModelError(
                f"rng.categorical({name!r}): probs is {type(probs).__name__} {probs!r:.60}, expected a tensor "
                f"(categories,) or ({self._num}, categories)"
            )
        if probs.dim() not in (1, 2) or probs.shape[:-1] not in ((), (self._num,)) or probs.shape[-1] == 0:
            raise ModelError(
                f"rng.categorical({name!r}): probs has shape {tuple(probs.shape)}, expected (categories,) or "
                f"({self._num}, categories)"
            )
        self._check_arguments(f"rng.categorical({name!r})", probs=probs)
        words = self._words(name)
        edges = probs.to(torch.float32).cumsum(dim=-1)
        total = edges[..., -1]
        self._require(f"rng.categorical({name!r})", (probs >= 0).all(dim=-1) & (total > 0) & (total < torch.inf))
        aim = (words >> 8).to(torch.float32) * 2.0**-24 * edges[..., -1]
        return (edges[..., :-1] <= aim[:, None]).sum(dim=-1)

    def permutation(self, name: str) -> Tensor:
        """Agents in random order: int64 `[agents]` of positions; ties are broken by id."""
        word = self._words(name)
        if self._ids is None:
            return torch.argsort(word, stable=True)
        by_id = torch.argsort(self._ids, stable=True)
        return by_id[torch.argsort(word[by_id], stable=True)]

    def _count_only(self, first: int, on: Tensor) -> None:
        """Of the checks from number `first` on, count what went wrong only where `on`: elsewhere nothing happened.

        Args:
            first: how many checks there were before.
            on: bool `[]`.
        """
        self._bad[first:] = [(label, bad * on.to(bad.dtype)) for label, bad in self._bad[first:]]

    def _require(self, what: str, good: Tensor) -> None:
        """Stop the run at the end of the chunk unless `good` holds everywhere."""
        self._bad.append((what, (~good.all()).to(torch.int8)))

    def _check_arguments(self, what: str, *, numbers: bool = False, **arguments: Any) -> None:
        """Refuse tensors that lie elsewhere than the agents; `numbers`: torch takes single numbers of the CPU there.

        And those of another shape, and what is neither a number nor a tensor. `where`, `probs` and `ids` have checks of
        their own.
        """
        for name, value in arguments.items():
            if not isinstance(value, Tensor):
                if not isinstance(value, _NUMBERS) and name != "where":
                    raise ModelError(
                        f"{what}: {name} is {type(value).__name__} {value!r:.60}, expected a number for all or a "
                        f"tensor ({self._num},), one for each of {self._axis!r}"
                    )
                continue
            if not (numbers and value.dim() == 0 and value.is_cpu):
                self._lies_here(what, name, value)
            if name not in ("where", "probs", "ids") and value.dim() and value.shape != (self._num,):
                raise ModelError(
                    f"{what}: {name} has shape {tuple(value.shape)}, expected a number for all or ({self._num},), one "
                    f"for each of {self._axis!r}{self._other_axis(value)}"
                )

    def _lies_here(self, what: str, name: str, value: Tensor) -> None:
        here = self._key.device
        if value.device != here:
            raise ModelError(
                f"{what}: {name} lies on {value.device}, the agents on {here}; keep it as a field of the model, "
                f"which moves with it, or make it there: torch.zeros(…, device=now.time.step.device)"
            )

    # --- plumbing -----------------------------------------------------------------------------------------------------

    def _words(self, name: str) -> Tensor:
        return self._words_of(self._stream(name))

    def _words_of(self, stream: int) -> Tensor:
        return ops.draw_words(self._id_row(), self._num, self._key[None], self._step, stream)[0]

    def _unit64(self, name: str) -> Tensor:
        return _unit64(self._words(name))

    def _own_draws(self, what: str, name: str) -> tuple[Tensor, Tensor, Tensor, int]:
        """(ids `[1, n]` or empty, key `[2]`, step, stream) for an op that draws by itself."""
        if self._relax is not None and not self._noted:
            raise ModelError(f"{what}: a relaxed run has shares of what happens to agents, and nobody who caused it")
        return self._id_row(), self._key, self._step, self._stream(name)

    def _id_row(self) -> Tensor:
        return self._key.new_empty(0) if self._ids is None else self._ids[None]

    def _per_agent(self, value: Tensor | float) -> Tensor:
        if not isinstance(value, Tensor):
            return torch.full((self._num,), float(value), dtype=torch.float32, device=self._key.device)
        value = value.to(torch.float32)
        return value.expand(self._num) if value.dim() == 0 else value

    def _row(self, value: Tensor | float) -> Tensor:
        """float32 `[1, 1]` of a number for all, `[1, agents]` of one for each."""
        if isinstance(value, Tensor) and value.dim():
            return self._per_agent(value)[None]
        return value.reshape(1, 1) if isinstance(value, Tensor) else torch.full((1, 1), value, dtype=torch.float32)

    def _other_axis(self, value: Any) -> str:
        """A hint at the axis that has the size of what was given, where one has."""
        size = value.shape[0] if isinstance(value, Tensor) and value.dim() else None
        fit = [axis for axis, one in self._axes.items() if one.num == size and axis != self._axis]
        return f"; draw for that kind of agents: rng.on({fit[0]!r})" if len(fit) == 1 else ""

    def _stream(self, name: str) -> int:
        path = f"{self._path}/{name}@{self._axis}"
        number = stream_number(path)
        if number in self._used:
            raise ModelError(
                f"rng: the stream {path!r} is used twice in one step, which would repeat its numbers; "
                f"give the second use another name, or open a scope: rng['again'].…"
            )
        self._used.add(number)
        return number


def _bytes(mask: Tensor) -> Tensor:
    return mask if mask.dtype == torch.int8 else (mask != 0).to(torch.int8)


def _unit64(words: Tensor) -> Tensor:
    return (words.to(torch.float64) + 0.5) * 2.0**-32


class _Hard:
    """The draw that a run without relaxation makes; see `denizen.rng.Hard`."""

    def __init__(self, rng: Rng, name: str, values: Tensor, hazard: bool, stream: int) -> None:
        self._rng, self._name, self._values, self._hazard, self._stream = rng, name, values, hazard, stream
        self._drawn: Tensor | None = None

    def __call__(self) -> Tensor:
        if self._drawn is None:
            self._drawn = self._rng._mask(self._name, self._values, self._hazard, self._stream)
        return self._drawn

    def place(self) -> tuple[Tensor, int]:
        return self._rng._place()

    def spare(self) -> Tensor:
        return _unit64(self._rng._words_of(self._rng._stream(f"{self._name} (spare)")))

    def uniform(self) -> Tensor:
        return _unit64(self._rng._words_of(self._stream))
