"""The probes of `dz.check`: each runs the model in one way and turns what it sees into findings."""

import dataclasses
import inspect
import itertools
import math
import re
import warnings
from collections.abc import Callable
from contextlib import AbstractContextManager, ExitStack
from functools import partial
from typing import Any

import torch
from torch import Tensor

from denizen.errors import ModelError
from denizen.model import _check_globals as globals_
from denizen.model._check_alive import of_free_places, on_the_dead
from denizen.model._check_dt import Halving
from denizen.model._check_gates import Gate, Gates
from denizen.model._check_runs import Course, Flat, Hard, explain, flat_records, same
from denizen.model._env import Env
from denizen.model._flat_world import Setting, read_bounds_label
from denizen.model._guard import Cuts, Hazard, watching
from denizen.model._history import History
from denizen.model._interventions import Intervention, bind
from denizen.model._model import Model, ids_of
from denizen.model._source_lines import Line, line_of_class, line_of_function
from denizen.model._stage import Stage
from denizen.model._state import faults, plain
from denizen.model._when import Clock
from denizen.space import Grid

LEVELS = 8  # of a stage that are tried, at most


def differences_of_levels(model: Model, before: Any, now: Any) -> list[str]:
    """Names of the series of (before, now) that follow agents who are put into other levels, in either state.

    Such a series counts whoever changed level, for whatever reason: to move an agent by hand changes it.

    Args:
        model: the model.
        before: a state that it was in.
        now: a later one.
    """
    names = [name for name, given in model._series_takes.items() if given == ("before", "now")]
    if not names:
        return []
    earlier, later = _moved(before), _moved(now)
    return [name for name in names if _follows_levels(getattr(model, name), earlier, later)]


def _follows_levels(series: Callable[..., Tensor], earlier: list[Any], later: list[Any]) -> bool:
    """Whether a series differs between some of the earlier states, and between some of the later ones."""
    table = [[series(before, now) for now in later] for before in earlier]
    by_before = any(not same(row, table[0]) for row in table)
    by_now = any(not same([value] * len(row), row) for value, *row in table)
    return by_before and by_now


def _moved(state: Any) -> list[Any]:
    """The state, and others with half of the agents or all of them in one level, for each level of each field."""
    states = [state]
    for name, kind in state.kinds.items():
        if kind.axes[:1] != ("agents",) or kind.name not in ("mask", "stage", "history"):
            continue
        field = getattr(state, name)
        count = plain(field).shape[0]
        for level, first in itertools.product(_levels(field), (count // 2, count)):
            codes = plain(field).clone()
            codes[:first] = level
            if isinstance(field, Tensor):
                moved = codes
            else:
                moved = Stage(codes, field.levels) if isinstance(field, Stage) else History(codes, field.length)
            states.append(state.replace(**{name: moved}))
    return states


def _levels(field: Any) -> list[int]:
    """Codes to try: of a history never, and now."""
    count = len(field.levels) if isinstance(field, Stage) else 2
    return sorted({*range(0, count, -(-count // LEVELS)), count - 1})


GRADIENT_UP_TO = 200_000  # agents; relaxed states are up to 100 times as large as hard ones


@dataclasses.dataclass(frozen=True)
class Finding:
    """One broken rule.

    Attributes:
        rule: ``"shapes"``, ``"host read"``, ``"random"``, ``"stream"``, ``"in place"``, ``"int8"``, ``"range"``,
            ``"global state"``, ``"repeat"``, ``"vmap"``, ``"compile"``, ``"alive"``, ``"gradient"``, ``"dt"``,
            ``"grid"`` or ``"error"``.
        line: the author's line, or None where no single line is to blame.
        what: what is wrong.
        instead: what to write instead.
    """

    rule: str
    line: Line | None
    what: str
    instead: str

    def __str__(self) -> str:
        parts = [f"  {self.line or '(no line)'}  [{self.rule}]"]
        if self.line is not None and self.line.text:
            parts.append(f"      > {self.line.text}")
        parts.append(f"      wrong:   {self.what}")
        if self.instead:
            parts.append(f"      instead: {self.instead}")
        return "\n".join(parts)


class Probes:
    """Runs a model in every way that matters and collects findings; a line is blamed once."""

    def __init__(
        self,
        model: Model,
        steps: int,
        seed: int,
        interventions: tuple[Intervention, ...] = (),
        clock: Clock | None = None,
    ) -> None:
        self.model, self.steps, self.seed, self.extra = model, steps, seed, interventions
        self.clock = clock or Clock(unit=model.time_unit)
        self.findings: list[Finding] = []
        self.proved: list[str] = []
        self.skipped: list[str] = []
        self.notes: list[str] = []
        self._answers: list[dict[str, Tensor]] = []
        self._begun: Flat | None = None

    def all(self, gradient: bool) -> None:
        """Run every probe; those that follow a failed run are skipped."""
        with warnings.catch_warnings():
            warnings.simplefilter("ignore")  # what torch and per_agent warn of comes out as findings
            course = self._attempt("error", self._watched)
            if course is None:
                self.skipped.append("everything else, since the model did not run through")
                return
            alone = self._attempt("repeat", lambda: self._repeat(course))
            self._attempt("vmap", lambda: self._vmap(alone or course))
            self._attempt("compile", lambda: self._compile(alone or course))
            self._flows(alone or course)
            self._free_places(alone or course)
            self._dead()
            if gradient and self._ids.numel() > GRADIENT_UP_TO:
                self.skipped.append(f"gradients: more than {GRADIENT_UP_TO:,} agents; check a smaller population")
            elif gradient:
                self._gradient(alone or course)

    def lengths(self, dt: float, until: float) -> None:
        """Run with steps of dt, dt/2 and dt/4, and find what parts.

        Args:
            dt: the longest step.
            until: time to run, in the model's unit.
        """
        if self._has("error", "vmap", "shapes", "host read", "random", "stream", "in place", "range"):
            self.skipped.append("steps of other lengths, since what is found above comes first")
            return
        try:
            verdict = Halving(self.model, dt, until, self.seed, self.extra, self.clock.start).verdict()
        except Exception as error:  # of the author's code, in a step that the check has not come to before
            self._failed("error", error)
            return
        if verdict.refused:
            self.skipped.append(f"steps of other lengths: {verdict.refused}")
        for line, what, instead in verdict.findings():
            self.findings.append(Finding("dt", line or self._line(), what, instead))
        if not verdict.refused and not verdict.apart:
            self.proved.append(f"series come to one limit as steps get short, within noise: {verdict.about}")
        if verdict.idle and not verdict.refused:
            self.skipped.append(f"steps of other lengths, for series that are 0 throughout: {', '.join(verdict.idle)}")

    # --- plumbing -----------------------------------------------------------------------------------------------------

    @property
    def _ids(self) -> Tensor:
        return ids_of(self.model)

    def _flat(self, model: Model | None = None, relax: Any = None) -> Flat:
        model = model or self.model
        acting = tuple(one.timed(self.clock) for one in (*model.interventions, *self.extra))
        setting = Setting(interventions=acting, relax=relax, start=self.clock.start, tries=relax is None)
        self._begun = Flat(bind(model, setting.interventions), setting, self._ids, self._ask(setting))
        return self._begun

    def _ask(self, setting: Setting) -> list[dict[str, Tensor]]:
        """What interventions ask the host, asked once: answers may be random, the steps between them not."""
        while len(self._answers) < self.steps:
            given = [i.answers(len(self._answers)) for i in setting.interventions]
            self._answers.append({name: value for answer in given for name, value in answer.items()})
        return self._answers

    def _key(self, *worlds: int) -> Tensor:
        keys = torch.tensor([[self.seed, world] for world in worlds])
        return keys[0] if len(worlds) == 1 else keys

    @property
    def _phase(self) -> str:
        """Where the latest run is, or where it ended: ``"init"`` or ``"step"``."""
        return self._begun.phase if self._begun is not None else "init"

    @property
    def _size(self) -> str:
        """How much a run covers."""
        return f"{self._ids.numel():,} agents, {self.steps} steps"

    def _line(self, phase: str = "step") -> Line | None:
        return line_of_function(getattr(type(self.model), phase)) or line_of_class(type(self.model))

    def _has(self, *rules: str) -> bool:
        return any(finding.rule in rules for finding in self.findings)

    def add(self, rule: str, line: Line | None, what: str, instead: str) -> None:
        """Add a finding, unless its line is blamed already."""
        if line is None or all(finding.line != line for finding in self.findings):
            self.findings.append(Finding(rule, line, what, instead))

    def _attempt(self, rule: str, probe: Callable[[], Course | None]) -> Course | None:
        """Run a probe; an exception from the author's code becomes a finding."""
        try:
            return probe()
        except Exception as error:  # whatever the author's code raises is what is asked for
            self._failed(rule, error)
            return None

    def _failed(self, rule: str, error: Exception) -> None:
        rule, line, what, instead = explain(rule, error)
        series = re.match(r"series '(\w+)' returned", what)
        if series is not None:
            if self._has("host read"):
                return  # which made a number of the tensor
            line = line_of_function(getattr(type(self.model), series.group(1)))
        phase = self._phase
        if line is None and rule == "shapes":
            line = self._return_line(phase)
        self.add(rule, line or self._line(phase), what, instead)

    def _return_line(self, phase: str) -> Line | None:
        """Where init or step returned what the engine then refused."""
        function = getattr(type(self.model), phase)
        if line_of_function(function) is None:
            return None
        code, begun = inspect.unwrap(function).__code__, self._begun
        try:
            return globals_.line_of_return(code, lambda: self._flat().run(self._key(0)))
        finally:
            self._begun = begun  # the run that asked goes on

    # --- probes -------------------------------------------------------------------------------------------------------

    def _watched(self) -> Course:
        flat, told = self._flat(), set()

        def tell(rule: str, line: Line | None, hazard: Hazard) -> None:
            line = line or self._return_line(flat.phase)
            if (rule, line) not in told:
                told.add((rule, line))
                self.findings.append(Finding(rule, line, hazard.what, hazard.instead))

        by_init: list[str] = []
        grids = tuple(value for value in self.model._held().values() if isinstance(value, Grid))

        def around(step: int) -> AbstractContextManager[Any]:
            if step == 0:
                by_init.extend(name for name, getter in getters.items() if getter() != before[name])
            stack = ExitStack()
            stack.enter_context(torch.no_grad())
            stack.enter_context(watching(tell, ("grid", partial(hazard_on_grids, grids))))
            return stack

        getters = {**globals_.GENERATORS, **globals_.watched(self.model)}
        with globals_.kept():
            before = {name: getter() for name, getter in getters.items()}
            course = flat.run(self._key(0), around=around)
            changed = [name for name, getter in getters.items() if getter() != before[name]]
        for name in changed:
            self._changed(name, getters[name], "init" if name in by_init else "step")
        self._ranges(flat, course)
        shapes = [[(value.shape, value.dtype) for value in row] for row in course.records]
        for name, first, *rest in zip(self.model.all_series, *shapes, strict=False):
            if any(other != first for other in rest):
                line = line_of_function(getattr(type(self.model), name))
                what = f"series {name!r} changes its shape or dtype between steps"
                self.add("shapes", line, what, "a fixed shape and dtype")
        if not self.findings:
            self.proved.append(f"{self._size}: fixed shapes and dtypes, no value read on the host")
            self.proved.append("random numbers only from rng, no stream used twice, no write in place, no mask wraps")
        return course

    def _changed(self, name: str, getter: Callable[[], Any], phase: str) -> None:
        generator = name in globals_.GENERATORS or name.endswith(globals_.OWN_GENERATOR)
        rule = "random" if generator else "global state"
        if self._has(rule):
            return  # the same cause, mostly, seen closer
        with globals_.kept():
            line = globals_.line_of_change(getter, lambda: self._flat().run(self._key(0)))
        instead = 'rng.uniform("name"), rng.event("name", hazard), …'
        if not generator:
            instead = "return what changes as part of the state; a step leaves no trace"
        self.add(rule, line or self._line(phase), f"{phase} changes {name}", instead)

    def _ranges(self, flat: Flat, course: Course) -> None:
        if self._has("int8", "in place"):
            return  # out of range because of that
        if self._out_of_range("init", "in init", *course.first_bad, flat.state(course.first, torch.tensor(0))):
            return  # the steps go on from there
        for number, flags in enumerate(course.bad):
            self._out_of_range("step", f"in step {number}", course.labels, flags)
        last = flat.state(course.leaves, torch.tensor(self.steps))
        self._out_of_range("step", f"within {self.steps} steps", [], torch.zeros(0), last)

    def _out_of_range(self, phase: str, when: str, labels: list[str], flags: Tensor, state: Any = None) -> bool:
        """Add what the device checks and the fields of a state tell; whether there was anything."""
        found = False
        for label, flag in zip(labels, flags.tolist(), strict=True):
            if flag:
                found, what = True, f"{label} got a value that is negative, NaN or too large"
                instead = "a hazard of at least 0, a probability from 0 to 1"
                if not label.startswith(("rng.", "bounds|")):
                    what, _, instead = label.partition("; ")
                scaled = read_bounds_label(label)
                if scaled is not None:
                    what, instead = f"{scaled[2]} takes the parameter {scaled[0]!r} out of its bounds", scaled[1]
                self.add("range", self._line(phase), f"{what}, {when}", instead)
        for name, fault in faults(state) if state is not None else ():
            if bool(fault):
                instead = "a mask of 0 and 1, a count from 0 to its max, finite reals"
                self.add("range", self._line(phase), f"{name} leaves its range {when}", instead)
                found = True
        return found

    def _repeat(self, first: Course) -> Course:
        again = self._flat().run(self._key(0))
        if not same(flat_records(first) + first.leaves, flat_records(again) + again.leaves):
            if not self._has("random", "global state", "in place"):
                what = "two runs with the same seed and world differ"
                phase = "step" if same(first.first, again.first) else "init"
                self.add("repeat", self._line(phase), what, "a result that depends on self, now and rng alone")
        elif not self.findings:
            self.proved.append("the same result twice, nothing global changed")
        return again

    def _vmap(self, alone: Course) -> None:
        both = self._flat().batched(self._key(0, 1))
        other = self._flat().run(self._key(1))
        for world, single in enumerate((alone, other)):
            row = [value[world] for value in flat_records(both) + both.leaves]
            begun = [value[world] for value in both.first]
            if not same(row, flat_records(single) + single.leaves, exact=False):
                if not self._has("random", "global state", "in place", "repeat"):
                    what = "a world batched by vmap differs from the same world alone"
                    phase = "step" if same(begun, single.first, exact=False) else "init"
                    self.add("vmap", self._line(phase), what, "operations on the axes of one world")
                return
        if not self.findings:
            self.proved.append("two worlds batched by vmap equal each alone")

    def _compile(self, alone: Course) -> None:
        course, operations = self._flat().compiled(self._key(0))
        if not same(flat_records(course) + course.leaves, flat_records(alone) + alone.leaves, exact=False):
            if not self._has("random", "global state", "in place", "repeat"):
                what = "the compiled step differs from the eager one"
                self.add("compile", self._line(), what, "a pure function of tensors")
        elif not self.findings:
            self.proved.append(f"one compiled graph of {operations:,} operations serves every step")

    def _flows(self, course: Course) -> None:
        """Note the flows that are differences of levels."""
        assert self._begun is not None
        before, now = (
            self._begun.state(leaves, torch.tensor(step)) for leaves, step in ((course.first, 0), (course.leaves, 1))
        )
        try:
            names = differences_of_levels(self.model, before, now)
        except Exception:  # of the author's code, in a state that no step may reach
            return
        for name in names:
            line = line_of_function(getattr(type(self.model), name))
            self.notes.append(
                f"{f'{line} ' if line else ''}series {name!r} is a difference of levels: whatever moves agents within "
                f"a step counts as its flow, births and deaths too. Record the event instead: "
                f'rng.record("happened", mask) in step, and {name}(self, events): return events["happened"].sum()'
            )

    def _dead(self) -> None:
        """Find what depends on those who are not alive."""
        if isinstance(self.model, Env):
            return
        try:
            found = on_the_dead(self._flat(), self._key(0))
        except Exception as error:  # of the author's code, in a state that no step may reach
            self.skipped.append(f"whether the dead matter: a step with other values in their fields fails: {error}")
            return
        for what, instead, series in found.sentences() if found else ():
            line = line_of_function(getattr(type(self.model), series, None) or type(self.model).step)
            if self.model.all_series.get(series) == "level":  # of all who ever lived, it may be
                self.notes.append(f"{f'{line} ' if line else ''}{what}: {instead}")
            else:
                self.findings.append(Finding("alive", line, what, instead))
        if found and not found.judged:
            self.skipped.append(f"whether the dead matter: nobody is dead within {found.steps} steps")
        elif found and not self._has("alive"):
            whom = "the living and for children" if found.series else "the living, for children and in the series"
            self.proved.append(f"who is not alive changes nothing for {whom}")

    def _free_places(self, course: Course) -> None:
        """Note the series that count who is not alive, where the engine knows who is."""
        assert self._begun is not None
        now = self._begun.state(course.leaves, torch.tensor(self.steps))
        try:
            found = of_free_places(self.model, now)
        except Exception:  # of the author's code, in a state that no step may reach
            return
        for name, axis in found.items():
            line = line_of_function(getattr(type(self.model), name))
            self.notes.append(
                f"{f'{line} ' if line else ''}series {name!r} counts free places of {axis!r} along with the living: "
                f"fields are 0 there, so multiply what is counted by {now._living[axis]}: "
                f"((now.age < 3) * now.{now._living[axis]}).sum()"
            )

    # --- gradients ----------------------------------------------------------------------------------------------------

    def _gradient(self, alone: Course) -> None:
        params = {
            name: getattr(self.model, name).detach().clone().requires_grad_()
            for name, spec in self.model.params.items()
            if spec.learnable
        }
        if not params:
            return
        cuts, gates = Cuts(params), Gates(self._ids.numel())
        try:
            course = self._relaxed(self.model.with_values(params), cuts, gates)
        except Exception as error:
            self._not_relaxed(error)
            return
        outputs = [value for value in flat_records(course) + course.leaves if value.requires_grad]
        grads: list[Tensor | None] = [None] * len(params)
        if outputs:
            total = torch.stack([output.sum() for output in outputs]).sum()
            grads = list(torch.autograd.grad(total, list(params.values()), allow_unused=True))
        reached, silent = [], []
        for (name, value), grad in zip(params.items(), grads, strict=True):
            if grad is not None and bool((grad != 0).any()):
                reached.append(name)
            elif self._matters(name, value.detach(), alone):
                self._blame(name, cuts)
            else:
                silent.append(name)
        if silent:
            self.skipped.append(f"gradients of {', '.join(silent)}: nothing depends on them within {self.steps} steps")
        for line, gate in gates.found:
            self._gated(line, gate)
        if not self.findings:
            self._outside(alone)
        if reached and not self._has("gradient"):
            self.proved.append(f"gradients reach {', '.join(reached)} (relaxed)")

    def _relaxed(self, model: Model, cuts: Cuts, gates: Gates) -> Course:
        """A relaxed run without draws, watched."""
        flat = self._flat(model, gates)

        def step(leaves: list[Tensor], *rest: Any) -> Any:
            kinds = zip(leaves, flat.world.leaf_kinds, strict=True)
            gates.begin([leaf for leaf, kind in kinds if kind not in ("real", "id")])
            return flat.step(leaves, *rest)

        def around(step: int) -> AbstractContextManager[Any]:
            stack = ExitStack()
            for watch in (torch.enable_grad(), cuts, gates):
                stack.enter_context(watch)
            return stack

        return flat.run(self._key(0), step=step, around=around)

    def _gated(self, line: Line, gate: Gate) -> None:
        at = "" if gate.line is None or gate.line == line else f" ({gate.line}: {gate.line.text})"
        what = (
            f"the probability of this draw is gated by {gate.by}{at}: who only might have been in that state never "
            f"draws, and gradients grow wrong, the more the longer the run"
        )
        instead = "rng.event(name, hazard, where=mask) or rng.bernoulli(name, prob, where=mask), with the mask itself"
        if gate.by.startswith("where="):
            instead = "needed=mask in place of where=mask; the outcome of the draw times the mask, as stage.move does"
        self.add("gradient", line, what, instead)

    def _outside(self, alone: Course) -> None:
        """Find what a relaxed run with hard draws does differently: it has more to give than 0 outside of masks."""
        relaxed = self._flat(relax=Hard()).run(self._key(0), around=lambda number: torch.no_grad())
        names = list(self.model.all_series)
        rows = [[value.to(torch.float32) for value in flat_records(course)] for course in (alone, relaxed)]
        other = [not same([hard], [soft], exact=False) for hard, soft in zip(*rows, strict=True)]
        if any(other):
            what = (
                f"series {names[other.index(True) % len(names)]!r} of a relaxed run with the draws of a hard one is "
                f"another one: a draw with where=, or a sum with needed=, is used for those whom the mask leaves out"
            )
            instead = "the outcome times the mask, mask * rng.event(name, hazard, where=mask), or stage.move"
            self.add("gradient", self._line(), what, instead)

    def _not_relaxed(self, error: Exception) -> None:
        rule, line, what, instead = explain("gradient", error)
        if isinstance(error, ModelError) and "differentiable" in str(error):
            self.skipped.append(f"gradients: {error}")
        else:
            what = f"the step fails on relaxed fields (float shares in place of codes): {what}"
            instead = instead or "arithmetic of masks, stage.is_, stage.table, history.weigh, dz.model.lookup"
            self.add("gradient", line or self._line(), what, instead)

    def _matters(self, name: str, value: Tensor, alone: Course) -> bool:
        """Whether another value of a parameter changes what is recorded with hard draws."""
        spec = self.model.params[name]
        for other in (value * 2 + (value == 0), value / 2):
            moved = other.clamp(spec.low, spec.high) if spec.low is not None or spec.high is not None else other
            course = self._flat(self.model.with_values({name: moved})).run(self._key(0))
            if not same(flat_records(course), flat_records(alone)):
                return True
        return False

    def _blame(self, name: str, cuts: Cuts) -> None:
        lines = [(line, function, own) for line, function, names, own in cuts.found if name in names]
        for line, function, _ in sorted(lines, key=lambda entry: not entry[2]):
            what = (
                f"the gradient of {name} ends here, though {name} changes the series: {function} gives an integer, a "
                f"bool or a constant"
            )
            instead = "floats: shares, rng.event, torch.sigmoid for a threshold; or dz.param(…, learnable=False)"
            self.add("gradient", line, what, instead)
            return


_BESIDE = "grid.beside(values, (0, -1)) for the cell to the left; it knows rows and borders"


def hazard_on_grids(grids: tuple[Grid, ...], name: str, args: tuple[Any, ...], kwargs: dict[str, Any]) -> Hazard | None:
    """A call of torch that mixes up rows, or wraps where it should not.

    Args:
        grids: those of the model; without any nothing is wrong.
        name: of the function.
        args: its arguments.
        kwargs: its named arguments.
    """
    values = args[0] if args else None
    if not grids or not isinstance(values, Tensor):
        return None
    if name == "fmod" and bool((values < 0).any()):
        return Hazard("fmod keeps the sign: -1 stays -1 and is no cell of a torus", "cell % columns, or grid.shift")
    if name != "roll":
        return None
    shifts = args[1] if len(args) > 1 else kwargs.get("shifts", 0)
    for grid in grids:
        if len(grid.shape) > 1 and values.shape == (grid.num_cells,):
            shift = shifts[0] if isinstance(shifts, tuple | list) else shifts
            if shift % math.prod(grid.shape[1:]):
                return Hazard("rolls a flat field: the last cell of each row moves into the next row", _BESIDE)
        elif values.shape != grid.shape:
            continue
        if not grid.torus:
            return Hazard("rolls over the border of a closed grid to its other side", _BESIDE)
    return None
