"""Vaccination campaigns: an exact number of doses a day, by priority and then by lot."""

import dataclasses
from collections.abc import Callable, Sequence
from fractions import Fraction
from typing import Any, Self

import torch
from torch import Tensor

from denizen._arguments import number, whole
from denizen.disease._lots import first, first_shares
from denizen.disease._vaccine import Vaccine
from denizen.errors import InputError, ModelError, expect_function, nearest
from denizen.model import Clock, During, Intervention, Model, Stage, State, When
from denizen.rng import Rng

FINEST = 1_000_000  # parts of a dose
ALWAYS = During(0)
_GOLDEN = 2_654_435_769  # 2³² / 1.618…: its multiples lie evenly, whichever of them one takes in a row


@dataclasses.dataclass(frozen=True, kw_only=True)
class Campaign(Intervention):
    """Gives doses of a vaccine while it is on, before the model's step.

    In each step the doses go to those who are alive, have not had theirs and are `eligible`: the highest priority
    first, by lot within one priority, all doses of the step or as many as there are people. The number of a step is
    that of the day times the length of a step in days; fractions add up, so that every day of whole doses has exactly
    as many. Doses that nobody takes are not kept.

    It records masks of who got what: ``events["campaign/doses"]`` and, of a vaccine of several, ``events["campaign/last
    doses"]``, those that completed the course.

    Attributes:
        vaccine: what is given, or the name of a property of the model that says so, whose efficacy may be a parameter.
        doses_per_day: doses a day, not negative.
        field: stage field of the state that keeps who has had which dose, see `Vaccine.levels`.
        priority: name of a field of the model or the state, or a function of (model, now), that gives a number for each
            agent: high ones first. None: all alike.
        groups: codes of `priority` in the order in which they are served, such as ``(5, 4, 3)`` of age groups; those of
            other codes get none.
        eligible: function of (model, now) that gives the mask of those who may have a dose; None: everybody.
        interval: of a vaccine of several doses: days, at least, between two of them; who is due is served before those
            who wait for the first.
        given: of a vaccine of several doses: count field of the state that keeps when the last dose was.
        needs: field of another vaccine, of which one has to have had a dose.
        when: when it is on.
        name: scope of its random numbers and of what it records.
    """

    vaccine: Vaccine | str
    doses_per_day: float
    field: str = "vaccine"
    priority: str | Callable[[Any, Any], Tensor] | None = None
    groups: Sequence[int] | None = None
    eligible: Callable[[Any, Any], Tensor] | None = None
    interval: float | None = None
    given: str | None = None
    needs: str | None = None
    when: When = ALWAYS
    name: str = "campaign"
    _pace: tuple[int, int, int] | None = dataclasses.field(default=None, repr=False)  # doses a step, steps of interval

    def __post_init__(self) -> None:
        super().__post_init__()
        doses = number("Campaign", "doses_per_day", self.doses_per_day, 0)
        if doses and not Fraction(doses).limit_denominator(FINEST):
            raise InputError(f"Campaign: doses_per_day={doses:g}, expected 0, or at least {1 / FINEST:g}")
        for name in ("field", *[name for name in ("given", "needs") if getattr(self, name) is not None]):
            if not isinstance(getattr(self, name), str):
                raise InputError(f"Campaign: {name}={getattr(self, name)!r}, expected the name of a field of the state")
        for name in ("priority", "eligible"):
            value = getattr(self, name)
            if value is not None and not (name == "priority" and isinstance(value, str)):
                expect_function(f"Campaign: {name}", value, "model", "now")
        if self.groups is not None:
            if self.priority is None:
                raise InputError(f"Campaign: groups={self.groups!r} are codes of a field; say which: priority='group'")
            codes = [whole("Campaign", "groups", code, 0) for code in self.groups]
            if not codes or len(set(codes)) != len(codes):
                raise InputError(f"Campaign: groups={self.groups!r}, expected different codes in the order of service")
        if self.interval is not None:
            number("Campaign", "interval", self.interval, 0)
        if self.needs == self.field:
            raise InputError(f"Campaign: needs={self.needs!r} is its own field, so that nobody could ever have a dose")
        if not isinstance(self.vaccine, str):
            self._several(self._vaccine(None))

    def check(self, model: Model) -> None:
        super().check(model)
        self._several(self._vaccine(model))
        if self.groups is not None and isinstance(self.priority, str) and self.priority in model.field_names:
            field = getattr(model, self.priority)
            if isinstance(field, Tensor) and (absent := set(self.groups) - set(field.unique().tolist())):
                raise InputError(f"Campaign: groups={self.groups!r}, and nobody has the {self.priority} {min(absent)}")

    def _several(self, vaccine: Vaccine) -> None:
        """Raise `InputError` where a vaccine of several doses comes without what it takes to know who is due."""
        if vaccine.doses > 1 and (self.interval is None or self.given is None):
            raise InputError(
                f"Campaign: the vaccine has {vaccine.doses} doses; say how many days lie between two, interval=21, and "
                f"which count field of the state keeps when the last one was, given='last_dose'"
            )

    def among(self, others: Sequence[Intervention]) -> None:
        """Raise `InputError` where campaigns need one another in a circle, so that nobody could have any of them."""
        needs = {one.field: one.needs for one in others if isinstance(one, Campaign) and one.needs is not None}
        way = [self.field]
        while way[-1] in needs:
            way.append(needs[way[-1]])
            if way[-1] in way[:-1]:
                told = " needs ".join(repr(field) for field in way[way.index(way[-1]) :])
                raise InputError(f"Campaign: {told}: nobody could ever have one of them; drop a needs=")

    def timed(self, clock: Clock) -> Self:
        timed = super().timed(clock)
        step = clock.step_in_days(f"Campaign: doses_per_day={self.doses_per_day:g}")
        if isinstance(self.vaccine, Vaccine):
            self.vaccine.fits(clock.dt)
        a_step = Fraction(float(self.doses_per_day)).limit_denominator(FINEST) * step
        wait = -(-Fraction(float(self.interval or 0)).limit_denominator(FINEST) // step)
        return dataclasses.replace(timed, _pace=(a_step.numerator, a_step.denominator, int(wait)))

    def act(self, model: Any, now: Any, on: Tensor, rng: Rng) -> tuple[Any, Any]:
        assert self._pace is not None  # `timed` has been called
        vaccine, status = self._vaccine(model), self._of(now, self.field, Stage)
        waits = status.is_("none")
        if waits.is_floating_point() and vaccine.doses > 1:
            raise ModelError("Campaign: when the last of several doses was is not differentiable; run without relax=")
        able, rank = waits, self._priority(model, now, waits)
        due = last = None
        if vaccine.doses > 1:
            due, last = self._due(vaccine, now, status)
            able = waits + due
        if "alive" in now.kinds:  # of a `dz.model.alive` the status itself knows
            able = able * now.alive
        if self.needs is not None:
            able = able * (1 - self._of(now, self.needs, Stage).is_("none"))
        if self.eligible is not None:
            able = able * _mask(self._each("eligible", self.eligible(model, now), waits), waits)
        if self.groups is not None:
            rank, served = _by_group(rank, self.groups)
            able = able * _mask(served, waits)
        elif rank is not None:
            told = (
                f"campaign {self.name!r}: priority is NaN or infinite for somebody; give a finite number for each agent"
            )
            rng._require(told, torch.isfinite(rank) | (able == 0) | ~on)
        lot, amount = rng.integers("lot", 0, 2**31), torch.where(on, self._doses(now.time.step), 0)
        if able.is_floating_point():
            dosed = first_shares(able, rank, lot, amount)
        else:
            dosed = first(able, rank, due, lot, now.id, amount, self._most)
        rng.record("doses", dosed)
        if able.is_floating_point():
            return model, now.replace(
                **{self.field: vaccine._give(rng, status, dosed / waits.clamp(min=1e-6), self.field)}
            )
        changes: dict[str, Any] = {self.field: vaccine._give(rng, status, dosed, self.field)}
        if last is not None:
            rng.record("last doses", dosed * status.is_(*vaccine.levels_of(vaccine.doses - 1)))
            changes[str(self.given)] = torch.where(dosed != 0, now.time.step + 1, last).to(last.dtype)
        return model, now.replace(**changes)

    @property
    def _most(self) -> int:
        """Doses of a step, at most; 1 at least."""
        each, parts, _ = self._pace  # type: ignore[misc]
        return max(-(-each // parts), 1)

    def _doses(self, step: Tensor) -> Tensor:
        """Doses of a step: int64 0-d.

        Every `parts` steps have `each` doses. Where among them the whole ones fall differs from time to time: else a
        campaign of some hours a day might always, or never, be on when one is due.
        """
        each, parts, _ = self._pace  # type: ignore[misc]
        rest, place = each % parts, step % parts
        shift = (((step // parts) * _GOLDEN) % 2**32 * parts) >> 32
        return each // parts + ((place + 1) * rest + shift) // parts - (place * rest + shift) // parts

    def _due(self, vaccine: Vaccine, now: Any, status: Stage) -> tuple[Tensor, Tensor]:
        """(mask `[agents]` of those whose next dose is due, the field `given`)."""
        last = self._of(now, str(self.given), Tensor)
        begun = status.is_(*[level for dose in range(1, vaccine.doses) for level in vaccine.levels_of(dose)])
        return begun * (now.time.step + 1 - last >= self._pace[2]).to(begun.dtype), last  # type: ignore[index]

    def _priority(self, model: Any, now: Any, like: Tensor) -> Tensor | None:
        """A number for each agent, high ones first; None where all are alike."""
        if self.priority is None:
            return None
        if not isinstance(self.priority, str):
            return self._each("priority", self.priority(model, now), like)
        for owner, names in ((now, now.kinds), (model, model.field_names)):
            if self.priority in names:
                return self._each("priority", getattr(owner, self.priority), like)
        raise ModelError(
            f"campaign {self.name!r}: priority={self.priority!r} is no field of the state or the model; "
            f"{nearest(self.priority, (*now.kinds, *model.field_names))}"
        )

    def _each(self, what: str, value: Any, like: Tensor) -> Tensor:
        if isinstance(value, Tensor) and value.shape == like.shape[:1]:
            return value
        got = f"has shape {tuple(value.shape)}" if isinstance(value, Tensor) else f"is {type(value).__name__} {value!r}"
        raise ModelError(
            f"campaign {self.name!r}: {what} {got}, expected one number for each of {like.shape[0]} agents"
        )

    def _of(self, now: State, name: str, kind: type) -> Any:
        """A field of the state."""
        if name not in now.kinds:
            raise ModelError(f"campaign {self.name!r}: the state has no field {name!r}; {nearest(name, now.kinds)}")
        field = getattr(now, name)
        if not isinstance(field, kind):
            wanted = "dz.stage('agents', levels=vaccine.levels)" if kind is Stage else "dz.count('agents')"
            raise ModelError(f"campaign {self.name!r}: field {name!r} is {field!r}, expected {wanted}")
        return field

    def _vaccine(self, model: Any) -> Vaccine:
        vaccine = getattr(model, self.vaccine, None) if isinstance(self.vaccine, str) else self.vaccine
        if not isinstance(vaccine, Vaccine):
            raise InputError(
                f"Campaign: vaccine={self.vaccine!r}, expected a Vaccine, or the name of a property of the model that "
                f"returns one"
            )
        return vaccine


def _mask(values: Tensor, like: Tensor) -> Tensor:
    """0 and 1, or shares of a relaxed run, in the form of the state."""
    return values if values.is_floating_point() and like.is_floating_point() else (values != 0).to(like.dtype)


def _by_group(codes: Any, groups: Sequence[int]) -> tuple[Tensor, Tensor]:
    """(rank of each agent, high ones first; whether its group is served at all)."""
    rank = torch.zeros_like(codes, dtype=torch.int16)
    for place, code in enumerate(reversed(groups), start=1):
        rank = torch.where(codes == code, place, rank)
    return rank, rank > 0
