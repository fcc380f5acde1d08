"""`Gradient`: a loss of a relaxed run and its slopes, computed whole: forward, backward and, if wanted, an update.

On CUDA everything is one CUDA graph. Parameters, seed and results stay on the device; nothing is read on the host.
"""

import contextlib
import dataclasses
import weakref
from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import number, switch, whole
from denizen._device import choose_device, on_its_device
from denizen.errors import CapacityError, InputError, ModelError, expect_function, nearest
from denizen.model import Clock, Intervention, Model, Setting, bind, guard, series_names
from denizen.perf.watch import free as free_bytes
from denizen.perf.watch import out_of_memory
from denizen.rng import MAX_SEED, Relax, weighs
from denizen.run import _compile, _simulate
from denizen.run._checks import Bounds, Flag, checked, held, read_checks
from denizen.run._cuda_graph import CapturedFunction
from denizen.run._engine import RunState, Stepper
from denizen.run._machine import check_room
from denizen.run._precision import Precision, approved
from denizen.run._rollout import Cost, Ends, Rollout, Schedule, choose, model_tensors
from denizen.run._simulate import model_to_run
from denizen.run._torch_switches import TorchSwitches

NOTED = "(noted)"  # no name of a series
# Of the free memory that a gradient may plan with; glibc holds up to four times what lives in tensors (docs/log.md).
SHARE = {"cuda": 0.8, "cpu": 0.25}


class Gradient:
    """The gradient of a loss of a run with respect to parameters, and optionally a step of an optimiser.

    Each call runs all steps from `init` on, differentiates, and updates the parameters if there is an optimiser. The
    first call compiles, the second captures (on CUDA); neither does anything else than a call does.

    Attributes:
        params: parameters by name, leaf tensors on the device without an axis of replicates. Overwrite them in place
            (``with torch.no_grad(): gradient.params["R"].copy_(…)``): the next call uses the new values. Where `wrt` is
            a module, its parameters.
        gradients: the slopes of the last call by name, the same tensors in every call; also `.grad` of the parameters.
        seed: int64 0-d on the device. Every call draws the same numbers (common random numbers); for fresh ones set it
            between calls: ``gradient.seed.add_(1)``.
        worlds: int64 `[replicates + hard]` on the device: numbers of the worlds, those in hard form last. May be
            overwritten as the seed may.
        series: what the loss reads, `[replicates, steps, …]` by name, of the last call.
        optimizer: what `optimizer` made, or None.
        checkpoint: steps recomputed together in the backward pass, or None where nothing is recomputed.
        bytes: what the choice of `checkpoint` rests on: `step` kept for the backward pass by each step, `state` of it
            the new state, `needed` in all, `free` before (0 where unknown).

    Examples:
        >>> import denizen as dz
        >>> graph = dz.Graph.from_edges(dz.space.generators.erdos_renyi(100, 6.0, seed=1))
        >>> model = dz.zoo.sir.SIR(graph, seed_share=0.1)
        >>> gradient = dz.run.Gradient(
        ...     model, lambda series: series["cases"].sum(), 10, wrt=["infect_rate"], relax=dz.relax.StraightThrough()
        ... )
        >>> loss = gradient()
        >>> bool(gradient.gradients["infect_rate"] > 0)
        True
    """

    def __init__(
        self,
        model: Model,
        loss: Callable[..., Tensor],
        steps: int,
        *,
        wrt: Sequence[str] | torch.nn.Module,
        relax: Relax,
        replicates: int = 1,
        hard: int = 0,
        seed: int = 0,
        device: torch.device | str | None = None,
        dt: float = 1.0,
        start: Any = None,
        record: Mapping[str, Callable[..., Tensor]] | None = None,
        interventions: Sequence[Intervention] = (),
        precision: Mapping[str, torch.dtype] | Precision | None = None,
        checkpoint: int | None = None,
        compile: bool | None = None,
        optimizer: Callable[[list[Tensor]], torch.optim.Optimizer] | None = None,
    ) -> None:
        """Args:
        model: what to run.
        loss: function of the series, `[replicates, steps, …]` by name, that returns a 0-d tensor. Only the series that
            it reads are recorded: it is called once with the first step repeated to see which. Its own tensors must
            be on the device. With `hard`, a function of (series, series of the hard worlds,
            whose counts are whole numbers).
        steps: number of steps, at least 1.
        wrt: names of parameters, or of fields that hold a torch module (then all its parameters, which stay those of
            the module, so that an optimiser trains it in place). Or a module that takes no arguments and gives
            parameters of the model by name, such as a network that knows its covariates.
        relax: how draws become differentiable, see `denizen.relax`.
        replicates: independent worlds.
        hard: further worlds, which run with the same parameters, no relaxation and no slopes: what the real model
            gives, in draws that the slopes know nothing of.
        seed: 0 … 2**32 - 1.
        device: where to run, as for `simulate`.
        dt: length of a step.
        start: the day of the first step, as for `simulate`.
        record: further series for the loss, as for `simulate`.
        interventions: as for `simulate`; none that ask the host.
        precision: fields to store in 16 bits, as for `simulate`; curves are compared, gradients are not.
        checkpoint: steps to recompute together in the backward pass: less memory for one more forward pass, the same
            bits. None chooses from the free memory: no recomputation where everything fits.
        compile: True compiles, False never does, None does on CUDA.
        optimizer: makes an optimiser of a list of parameters, for example
            ``lambda params: torch.optim.Adam(params, lr=0.05)``.

        Raises:
            InputError: for an argument that does not fit.
            ModelError: where the model breaks a rule, or a check of its first step failed.
            CapacityError: where no choice of `checkpoint` fits into memory; says what is needed.
        """
        model_to_run("Gradient", model)
        hard = whole("Gradient", "hard", hard, 0)
        expect_function("Gradient: loss", loss, *(("series", "hard") if hard else ("series",)))
        if optimizer is not None:
            expect_function("Gradient: optimizer", optimizer, "params")
        self._steps, self._loss = whole("Gradient", "steps", steps, 1), loss
        replicates = whole("Gradient", "replicates", replicates, 1)
        seed, dt = whole("Gradient", "seed", seed, 0, MAX_SEED), number("Gradient", "dt", dt, above=0)
        block = None if checkpoint is None else min(whole("Gradient", "checkpoint", checkpoint, 1), self._steps)
        if compile is not None:
            switch("Gradient", "compile", compile, " or None")
        target = choose_device(device, "Gradient")[0]
        if not callable(getattr(relax, "draw", None)) or isinstance(relax, type):
            raise InputError(f"Gradient: relax={relax!r}, expected an object such as dz.relax.StraightThrough()")
        expect_function("Gradient: relax.draw", relax.draw, "prob", "hard")
        Bounds(model).check(held(model))
        model.fits(dt)
        check_room(model, replicates + hard, target, "Gradient")
        clock = Clock.of("Gradient", model.time_unit, dt, start)
        acting = _simulate._interventions(model, interventions, clock)
        for intervention in acting:
            if type(intervention).answers is not Intervention.answers:
                raise InputError(f"Gradient: intervention {intervention.name!r} asks the host, which stops the device")
        self._switches = TorchSwitches(grad=True)
        with self._switches.held():
            self._source = wrt.to(target) if isinstance(wrt, torch.nn.Module) else None
            self.params, self._model = _leaves(bind(model.to(target), acting), wrt)
            self.gradients = {name: torch.zeros_like(value) for name, value in self.params.items()}
            self.seed = torch.tensor(seed, device=target)
            self._watch_bounds(model)
            self.worlds = torch.arange(replicates + hard, device=target)
            options = {"seed": seed, "device": target, "dt": dt, "start": start, "record": record}
            options["interventions"] = interventions
            narrow = approved(precision, model, self._steps, {**options, "relax": relax})
            kept = _simulate._records(record or {}, model)
            setting = Setting(
                dt=dt, relax=relax, interventions=acting, record=kept, precision=narrow, start=clock.start
            )
            ids = _simulate._ids(None, model, target)
            parts = [self.worlds[:replicates], self.worlds[replicates:]]
            settings = [setting, dataclasses.replace(setting, relax=None, precision={})]
            self._sides = [
                _Side(Stepper(self._model, one, self._keys(numbers), ids, {}), numbers)
                for one, numbers in zip(settings, parts, strict=True)
                if len(numbers)
            ]
            self.series: dict[str, Tensor] = {}
            with self._room("in its first step"):
                self._first_step()
            self._compiles = target.type == "cuda" if compile is None else compile
            with self._room("while a step was measured"):
                self._plan(block)
            this = weakref.proxy(self)  # no cycle: the memory of a graph is free as soon as nobody holds the gradient
            self._call = CapturedFunction(
                lambda: this._compute(),
                "calls of the gradient",
                switches=self._switches,
                captures=target.type == "cuda" and self._compiles,
            )
            self.optimizer = None if optimizer is None else _optimizer(optimizer, self.params, target)
            for name, value in self.params.items():
                value.grad = self.gradients[name]

    # --- using it -----------------------------------------------------------------------------------------------------

    @on_its_device
    def __call__(self) -> Tensor:
        """Loss, gradients and update.

        Returns:
            The loss, 0-d on the device, not read. NaN where a check on the device failed or a parameter is out of its
            bounds; `check` says which. Slopes are 0 then, and the optimiser leaves the parameters as they are.

        Raises:
            InputError: an earlier call used a parameter that is not finite or out of its bounds, or its update made
                one so, and it still is. The device is not waited for: on CUDA a call or two may give NaN before.
            CapacityError: memory ran out; says what was expected and what to lower.
        """
        self._look_at_parameters()
        with self._room("in its steps"):
            value, self.series, ends = self._call()
            for side, end in zip(self._sides, ends, strict=True):
                side.ends = end
            self._flag.send()
            return value.clone()

    @property
    def path(self) -> str:
        """``"eager"``, ``"compiled"`` or ``"captured"``."""
        return "captured" if self._call.captured else "compiled" if self._compiles else "eager"

    def _look_at_parameters(self) -> None:
        """Raise where one is out of its bounds; values that an update makes are read where the device has told."""
        self._bounds.check(self._others)
        if self._flag.raised():
            self._check_learned()

    def _check_learned(self) -> None:
        values = self._learned_values()
        far = "" if self.optimizer is None else f", since update {int(self._updates)} went too far"
        for name, spec in self._learned.items():
            where = f"Gradient: {type(self._model).__name__}.{name}"
            if self._source is None:
                advice = (
                    f"lower the learning rate{far}, or put it back between calls: with torch.no_grad(): "
                    f"gradient.params[{name!r}].clamp_(…); or let wrt be a module that computes {name!r} within its "
                    f"bounds, by exp or sigmoid"
                )
            else:
                advice = f"{type(self._source).__name__} gives it{far}: end that with exp or sigmoid"
            checked(spec, values[name], where, advice)

    @contextlib.contextmanager
    def _room(self, doing: str) -> Generator[None]:
        """Say what memory that ran out was for, and what to lower."""
        try:
            yield
        except Exception as error:
            if not out_of_memory(error) or isinstance(error, CapacityError):
                raise
            known = getattr(self, "bytes", {})
            takes = "; estimated were " + ", ".join(f"{name} {_mib(n)}" for name, n in known.items()) if known else ""
            raise CapacityError(
                f"Gradient: out of memory on {self._device} {doing}: {self._steps} steps × {len(self.worlds)} "
                f"replicates, checkpoint={getattr(self, 'checkpoint', None)}{takes}; lower checkpoint, replicates or "
                f"steps, or store fields in a narrower precision"
            ) from error

    @on_its_device
    def check(self) -> None:
        """Read the checks that the last call made on the device.

        Raises:
            InputError: a parameter is not finite or out of its bounds.
            ModelError: where one failed; says which.
        """
        try:
            for side in self._sides:
                side.check(held(self._model) | self._learned_values())
        except ModelError as error:
            try:
                self._check_learned()
            except InputError as cause:
                raise ModelError(f"{error}. {cause}") from None
            raise
        self._check_learned()

    def __repr__(self) -> str:
        recomputed = "nothing recomputed" if self.checkpoint is None else f"{self.checkpoint} steps recomputed together"
        sizes = ", ".join(f"{name} {_mib(count)}" for name, count in self.bytes.items())
        return (
            f"Gradient({type(self._model).__name__}: {' + '.join(str(len(side.worlds)) for side in self._sides)} × "
            f"{self._steps} steps by "
            f"{', '.join(self.params)}, {self._device}, {self.path}, pieces of {self._rollout.schedule.piece} steps, "
            f"{recomputed}; {sizes})"
        )

    # --- making it ----------------------------------------------------------------------------------------------------

    def _watch_bounds(self, model: Model) -> None:
        """Parameters that are learned may change on the device, the others in place."""
        given = self.params if self._source is None else _given(self._source, self._model)
        self._learned = {name: model.params[name] for name in given if name in model.params}
        self._others = {name: value for name, value in held(self._model).items() if name not in self._learned}
        self._flag = Flag(self._learned, self.seed.device)
        self._updates = torch.zeros((), dtype=torch.int64, device=self.seed.device)
        self._bounds = Bounds(model)
        self._bounds.vouch(self._others)

    @property
    def _device(self) -> torch.device:
        return self.seed.device

    @property
    def _rollout(self) -> Rollout:
        """Of the relaxed worlds."""
        return self._sides[0].rollout

    def _keys(self, worlds: Tensor) -> Tensor:
        return torch.stack([self.seed.expand_as(worlds), worlds], dim=1)

    def _learned_values(self) -> dict[str, Tensor]:
        """Parameters of the model that are learned, as they are now, without slopes."""
        with torch.no_grad():
            values = self.params if self._source is None else self._source()
            return {name: values[name].detach() for name in self._learned}

    def _give(self) -> dict[str, Tensor]:
        """Have the module give its parameters to all worlds; what it gave."""
        values = {} if self._source is None else dict(self._source())
        for side, seen in zip(self._sides, (values, {n: v.detach() for n, v in values.items()}), strict=False):
            side.stepper.values = {name: v.expand(len(side.worlds), *v.shape) for name, v in seen.items()}
        return values

    @on_its_device
    def _first_step(self) -> None:
        """One eager, watched step: tells the author's errors with their lines, and what the loss reads."""
        with torch.no_grad():
            self._give()
        readings = [_Read(side.first_step(self._model, self._steps)) for side in self._sides]
        self._check_loss(self._loss(*readings))
        names = list(readings[0])
        if not readings[0].used:
            raise InputError(f"Gradient: loss reads no series; {nearest('', names)}")
        for side, reading in zip(self._sides, readings, strict=True):
            side.used = {name: place for place, name in enumerate(names) if name in reading.used}

    def _check_loss(self, value: Any) -> None:
        if not isinstance(value, Tensor) or value.dim() != 0 or not value.is_floating_point():
            shown = f"{value.dtype} {tuple(value.shape)}" if isinstance(value, Tensor) else repr(value)
            raise InputError(
                f"Gradient: loss returned {shown}, expected a floating 0-d tensor; end it with .mean() or .sum()"
            )

    @on_its_device
    def _plan(self, block: int | None) -> None:
        """Measure what a step keeps, choose `checkpoint`, and set up the rollout."""
        self._set_up(block)
        cost, free = self._measured(), free_bytes(self._device)
        share = SHARE.get(self._device.type, SHARE["cpu"])
        chosen = None if free is None else choose(self._steps, cost, int(free * share))
        self.checkpoint = chosen if block is None else block
        needed = cost.of(self._steps, self.checkpoint)
        self.bytes = {"step": cost.step, "state": cost.fresh, "needed": needed, "free": free or 0}
        if block is None and free is not None and needed > free:
            raise CapacityError(
                f"Gradient: {self._steps} steps need about {_mib(needed)} even with checkpoint={self.checkpoint}, and "
                f"{_mib(free)} are free on {self._device}; lower replicates or steps"
            )
        if self.checkpoint != block:
            self._set_up(self.checkpoint)

    def _set_up(self, block: int | None) -> None:
        backend = _compile.BACKEND if self._compiles else None
        for side in self._sides:
            side.set_up(Schedule.of(self._steps, block if side.relaxed else None), backend)

    def _measured(self) -> Cost:
        if self._compiles:
            _compile.fuse_draws()
            try:
                with _compile._quiet():
                    return self._try_out()
            except Exception as error:  # torch raises many types here; all mean: this machine cannot compile
                _compile._say(error)
                self._compiles = False
                self._set_up(self._rollout.schedule.block)
        return self._try_out()

    def _try_out(self) -> Cost:
        """Compile what is to be compiled, and measure what the relaxed steps keep."""
        for side in self._sides[1:]:
            with torch.no_grad():
                side.rollout.first_piece(self._keys(side.worlds))
        return self._rollout.cost(self._keys(self._sides[0].worlds), model_tensors(self._model))

    def _compute(self) -> tuple[Tensor, dict[str, Tensor], list[Ends]]:
        """(loss, series, ends) of a call, which overwrites the slopes and updates the parameters."""
        with _compile._quiet(), torch.enable_grad():
            outside = self._flag.now(self._give() or self.params)
            ends = [side.run(self._keys(side.worlds)) for side in self._sides]
            value = self._loss(*(_Read(end.series) for end in ends))
            self._check_loss(value)
            slopes = torch.autograd.grad(value, list(self.params.values()), allow_unused=True)
        with _compile._quiet(), torch.no_grad():  # an optimiser made capturable warns before it is captured
            for name, slope in zip(self.params, slopes, strict=True):
                if slope is None:
                    raise InputError(f"Gradient: the loss does not depend on {name!r}; leave it out of wrt")
            checks = [flag for end in ends for flag in (end.start, end.run_state.bad)]
            flags = [flag.any() for flag in checks if flag is not None and flag.numel()]
            bad = torch.stack([outside, *flags]).any()
            shown = torch.where(bad, torch.nan, value.detach())
            self._update(slopes, bad)
            self._updates.add_((~bad).long())
            self._flag.outside.copy_(outside | self._flag.now(self._learned_values()))
        series = {name: values.detach() for name, values in ends[0].series.items()}
        return shown, series, [_without_slopes(end) for end in ends]

    def _update(self, slopes: Sequence[Tensor], bad: Tensor) -> None:
        """Hand over the slopes and step the optimiser; where a check failed slopes are 0 and parameters stay."""
        for name, slope in zip(self.params, slopes, strict=True):
            self.gradients[name].copy_(torch.where(bad, 0.0, slope))
        if self.optimizer is not None:
            before = [value.clone() for value in self.params.values()]
            self.optimizer.step()
            for value, old in zip(self.params.values(), before, strict=True):
                value.copy_(torch.where(bad, old, value))


@dataclasses.dataclass
class _Side:
    """The worlds of one form, relaxed or hard.

    Attributes:
        stepper: of these worlds.
        worlds: their numbers, a view of `Gradient.worlds`.
        labels: of the checks of init, and of a step.
        used: series that the loss reads: their places among a step's records.
        rollout: all steps.
        second: the same for hard runs in which a draw comes out otherwise, where the relaxation wants them.
        ends: of the last call.
    """

    stepper: Stepper
    worlds: Tensor
    labels: tuple[list[str], list[str]] = ([], [])
    used: dict[str, int] = dataclasses.field(default_factory=dict)
    ends: Ends | None = None
    rollout: Rollout = dataclasses.field(init=False)
    second: Rollout | None = None

    @property
    def relaxed(self) -> bool:
        """Whether it has slopes."""
        return self.stepper.setting.relax is not None

    def first_step(self, model: Model, steps: int) -> dict[str, Tensor]:
        """One step, watched for breaches of the authors' rules: its records by name, as if of all steps."""
        with torch.no_grad(), guard(model, "init"):
            run_state = self.stepper.start()
        init_labels, run_state.bad = list(self.stepper.checks), None
        with guard(model):
            _, records = self.stepper.advance(run_state, {})
        self.labels = (init_labels, list(self.stepper.checks))
        names, setting = series_names(model, self.stepper.setting), self.stepper.setting
        if setting.weighs:
            records = [record.to(torch.float32) for record in records[:-1]]
        return {n: r.detach().unsqueeze(1).expand(-1, steps, *r.shape[1:]) for n, r in zip(names, records, strict=True)}

    def set_up(self, schedule: Schedule, backend: Any) -> None:
        """Make the rollout."""
        places, names = list(self.used.values()), list(self.used)
        setting, checks = self.stepper.setting, len(self.labels[1])
        if self.worlds.is_cuda and (setting.weighs or not self.relaxed):
            backend = None  # hard steps compile safely only as `CapturedSteps` does it: see run/_passes.py
        if not setting.weighs:
            self.rollout = Rollout(self.stepper, checks, places, names, schedule, backend)
            return
        self.rollout = Rollout(self.stepper, checks, [*places, -1], [*names, NOTED], schedule, backend)
        world, hard = self.stepper._world, dataclasses.replace(setting, relax=None)
        other = Stepper(world.model, hard, self.stepper.keys, self.stepper.ids, self.stepper.values)
        self.second = Rollout(other, checks, places, names, schedule, backend)

    def run(self, keys: Tensor) -> Ends:
        """All steps; slopes are kept where it is relaxed."""
        with torch.set_grad_enabled(self.relaxed):
            ends = self.rollout.run(keys)
        relax = self.stepper.setting.relax
        if weighs(relax):
            noted = ends.series.pop(NOTED)
            flips = relax.flips(noted[:, -1])
            others = {} if flips is None else self._second_run(torch.cat([keys, flips], dim=1), ends)
            wide = {name: values.to(torch.float32) for name, values in ends.series.items()}
            ends.series = {name: relax.weigh(values, noted, others.get(name)) for name, values in wide.items()}
        return ends

    def _second_run(self, keys: Tensor, ends: Ends) -> dict[str, Tensor]:
        """Series of hard runs in which a draw of each world comes out otherwise; their checks join those of `ends`."""
        assert self.second is not None
        self.second._stepper.values = {name: value.detach() for name, value in self.stepper.values.items()}
        with torch.no_grad():
            other = self.second.run(keys)
            assert ends.run_state.bad is not None
            assert other.run_state.bad is not None
            ends.run_state.bad = torch.maximum(ends.run_state.bad, other.run_state.bad)
            return {name: values.to(torch.float32) for name, values in other.series.items()}

    def check(self, values: Mapping[str, Tensor]) -> None:
        """Read the checks of the last call; see `Gradient.check`."""
        if self.ends is None:
            return
        last, (init_labels, labels) = self.ends.run_state, self.labels
        state = self.stepper.state(last)
        beginning = RunState([], torch.zeros_like(last.step), last.switches, self.ends.start)
        read_checks(last, state, labels, 0, values)
        read_checks(beginning, state, init_labels, 0, values)


def _without_slopes(ends: Ends) -> Ends:
    last = ends.run_state
    return Ends({}, RunState([t.detach() for t in last.leaves], last.step, last.switches, last.bad), ends.start)


class _Read(Mapping[str, Tensor]):
    """Series by name; notes which are read."""

    def __init__(self, series: Mapping[str, Tensor]) -> None:
        self._series, self.used = series, set[str]()

    def __getitem__(self, name: str) -> Tensor:
        if name not in self._series:
            raise InputError(f"Gradient: loss reads series[{name!r}]; {nearest(name, self._series)}")
        self.used.add(name)
        return self._series[name]

    def __iter__(self) -> Iterator[str]:
        return iter(self._series)

    def __len__(self) -> int:
        return len(self._series)


def _given(source: torch.nn.Module, model: Model) -> Mapping[str, Tensor]:
    """The parameters that a module gives, checked but for their bounds."""
    with torch.no_grad():
        values = source()
    name = f"Gradient: wrt={type(source).__name__}"
    if not isinstance(values, Mapping) or not values:
        raise InputError(f"{name} gave {values!r}, expected parameters by name, such as {{'R': tensor}}")
    for param, value in values.items():
        if param not in model.params:
            raise InputError(f"{name} gave {param!r}; {nearest(param, model.params)}")
        shape = tuple(getattr(model, param).shape)
        if not isinstance(value, Tensor) or tuple(value.shape) != shape:
            shown = tuple(value.shape) if isinstance(value, Tensor) else repr(value)
            raise InputError(f"{name} gave {param!r} of shape {shown}, expected a tensor of shape {shape}")
    return values


def _leaves(model: Model, wrt: Sequence[str] | torch.nn.Module) -> tuple[dict[str, Tensor], Model]:
    """Parameters as leaf tensors by name, and the model that holds them."""
    if isinstance(wrt, torch.nn.Module):
        trained: dict[str, Tensor] = {name: value for name, value in wrt.named_parameters() if value.requires_grad}
        if not trained:
            raise InputError(f"Gradient: wrt={type(wrt).__name__} has no parameter that requires a gradient")
        return trained, model
    if isinstance(wrt, str) or not isinstance(wrt, Sequence) or not wrt:
        raise InputError(f"Gradient: wrt={wrt!r}, expected a list of names, such as ['R'], or a module that gives them")
    modules = [name for name in model.field_names if isinstance(getattr(model, name), torch.nn.Module)]
    leaves: dict[str, Tensor] = {}
    values: dict[str, Tensor] = {}
    for name in wrt:
        if name in modules:
            leaves.update(
                {f"{name}.{part}": p for part, p in getattr(model, name).named_parameters() if p.requires_grad}
            )
        elif name in model.params:
            values[name] = getattr(model, name).detach().clone().requires_grad_()
        else:
            raise InputError(f"Gradient: wrt has {name!r}; {nearest(name, [*model.params, *modules])}")
    return {**values, **leaves}, model.with_values(values)


def _optimizer(
    make: Callable[[list[Tensor]], torch.optim.Optimizer], params: Mapping[str, Tensor], device: torch.device
) -> torch.optim.Optimizer:
    made = make(list(params.values()))
    if not isinstance(made, torch.optim.Optimizer):
        raise InputError(
            f"Gradient: optimizer={make!r}, expected a function of a list of parameters that returns a "
            f"torch.optim.Optimizer, such as lambda params: torch.optim.Adam(params, lr=0.05)"
        )
    for group in made.param_groups:
        if device.type == "cuda" and "capturable" in group:
            group["capturable"] = True
    return made


def _mib(count: int) -> str:
    return f"{count / 2**30:.3g} GiB" if count >= 2**30 else f"{count / 2**20:.3g} MiB"
