"""`Executor` and `Runner`: AgentTorch's calls, carried out by `denizen.simulate`; no simulation loop of its own."""

import math
import warnings
from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen import _tree
from denizen.compat.agenttorch._loaders import DataLoader
from denizen.compat.agenttorch._parameters import Parameters
from denizen.compat.agenttorch._stats import SUBSTEPS, Clock, rates
from denizen.compat.agenttorch._views import Trajectory, View, constant_view, padded
from denizen.compat.agenttorch.models import Binding
from denizen.errors import InputError, nearest
from denizen.model import whole
from denizen.relax import StraightThrough
from denizen.rng import Relax
from denizen.run import Run, choose_device, simulate
from denizen.space import Graph

DAYS_PER_WEEK = 7
STRAIGHT_THROUGH = StraightThrough()
ENVIRONMENT = ("daily_infected", "daily_deaths")


class Runner:
    """A simulation that can be continued; `Executor` makes it.

    Attributes:
        device: where it runs.
        num_steps: steps of an episode.
    """

    def __init__(
        self,
        loader: DataLoader,
        *,
        steps: int,
        seed: int,
        device: torch.device | str | None,
        relax: Relax | None,
        record: Sequence[str],
        every: int,
    ) -> None:
        """Args as of `Executor`."""
        self.device = choose_device(device or None, "Executor")[0]
        self.num_steps, self._every = whole("Executor", "steps", steps, 1), whole("Executor", "every", every, 1)
        self._seed, self._relax, self._loader = seed, relax, loader
        self._binding: Binding = loader.binding
        model, weekly = loader.model, self._binding.weekly
        if weekly is not None:
            model = model.replace(**{weekly: _weeks(getattr(model, weekly), math.ceil(self.num_steps / DAYS_PER_WEEK))})
        self._parameters = Parameters(self._binding, model.to(self.device))
        self._model = self._parameters.model
        known = (*self._binding.outputs, *self._binding.agent_fields)
        for name in record:
            if name not in known:
                raise InputError(f"Executor: record has {name!r}; {nearest(name, known)}")
        self._recorded = tuple(record)
        self._kept_fields = [name for name in record if name in self._binding.agent_fields]
        self._run: Run | None = None

    # --- parameters ---------------------------------------------------------------------------------------------------

    def named_parameters(self) -> list[tuple[str, Tensor]]:
        """(dotted name, tensor) of every learnable tensor, the very objects that the simulation reads."""
        return list(self._parameters.named())

    def set_parameters(self, params: Mapping[str, Tensor]) -> None:
        """Bind tensors, with their graph, under dotted or short names. They count from the next step on.

        Args:
            params: for example ``{"R2": torch.tensor([3.5, 4.2, 5.6], requires_grad=True)}``. Tensors on another device
                are moved when read, so gradients arrive where they are.

        Raises:
            KeyError: an unknown name; lists the valid ones.
            InputError: a wrong shape, or a value out of bounds.
        """
        self._parameters.set(params)

    _set_parameters = set_parameters

    # --- going on -----------------------------------------------------------------------------------------------------

    @property
    def run(self) -> Run:
        """The `denizen.run.Run` underneath."""
        self.init()
        assert self._run is not None
        return self._run

    def init(self) -> None:
        """Draw the initial state on the device, unless that is done."""
        if self._run is None:
            self._begin(self._wants_gradient())

    def reset(self) -> None:
        """Back to t = 0 and the initial state of the same seed; parameters keep their values."""
        self._begin(self._wants_gradient())

    reset_state = reset

    def step(self, n: int = 1) -> None:
        """Run further steps from the present time: 2 and then 2 equal 4, bit for bit."""
        whole("step", "n", n, 0)
        run, wanted = self.run, self._wants_gradient()
        if wanted != self._relaxed and run.steps == 0:
            self._begin(wanted)
        elif wanted and not self._relaxed:
            raise InputError(
                f"step: a parameter requires a gradient now, but the first {run.steps} steps ran without; call reset()"
            )
        last = self._weeks_end()
        if last is not None and self.run.steps <= last < self.run.steps + n:
            warnings.warn(
                f"R2 has values for {last} days; later days use the last one (Executor(steps=…) sets the length)",
                stacklevel=2,
            )
        self._advance(n)

    def forward(self, n: int | None = None) -> dict[str, Tensor]:
        """Reset, run `n` steps (default: an episode), return every series `[n]` by name, with graph."""
        self.reset()
        self.step(self.num_steps if n is None else n)
        return {name: self.run[name][0] for name in self.run.series_names}

    def step_from_params(self, params: Mapping[str, Tensor], n: int | None = None) -> dict[str, Tensor]:
        """Bind parameters, then as `forward`: the whole simulation as a function of its parameters."""
        self.set_parameters(params)
        return self.forward(n)

    def _wants_gradient(self) -> bool:
        """Whether to carry a gradient. Straight-through runs give the same series as hard ones, which are quicker."""
        if isinstance(self._relax, StraightThrough):
            return torch.is_grad_enabled() and self._parameters.need_grad
        return self._relax is not None

    def _begin(self, relaxed: bool) -> None:
        self._relaxed = relaxed
        self._clock = Clock(self.device)
        if self.device.type == "cuda":
            torch.cuda.reset_peak_memory_stats(self.device)
        self._run = simulate(
            self._model,
            0,
            seed=self._seed,
            device=self.device,
            relax=self._relax if relaxed else None,
            interventions=(self._parameters.bind,),
        )
        self._fields = self._binding.follow(self._model)
        self._fields.update(self._run.state, 0)
        self._trajectory = Trajectory()
        self._record(0, 0, None)

    def _advance(self, n: int) -> None:
        """Run, and record after every `every`-th step and after the last one."""
        start, end = self.run.steps, self.run.steps + n
        due = [step for step in range(start + 1, end + 1) if step % self._every == 0 or step == end]
        if not self._kept_fields:  # series are there in any case: no need to stop on the way
            self._extend(n)
        for step in due:
            before = None
            if self._kept_fields:
                self._extend(step - 1 - self.run.steps)
                before = _tree.map_tensors(lambda tensor: tensor.detach().clone(), self.run.state)
                self._extend(1)
            self._record(step, SUBSTEPS, before)

    def _extend(self, n: int) -> None:
        memory = self._binding.memory(self._model)
        while n > 0:
            count = min(n, memory)
            with self._clock.running(count):
                self.run.extend(count)
            self._fields.update(self.run.state, self.run.steps)
            n -= count

    def _weeks_end(self) -> int | None:
        weekly = self._binding.weekly
        return None if weekly is None else DAYS_PER_WEEK * getattr(self._model, weekly).shape[0]

    # --- looking at it ------------------------------------------------------------------------------------------------

    def _record(self, step: int, substeps: int, before: Any) -> None:
        """One record per substep of the last step, or a single one of the initial state."""
        entry, kept_bytes = [], 0
        for substep in range(max(substeps, 1)):
            between = before if substep + 1 < substeps else None
            kept = {name: self._fields.read(name, self.run.state, step, between) for name in self._kept_fields}
            kept_bytes += sum(tensor.numel() * tensor.element_size() for tensor in kept.values())
            entry.append(self._view(step, substep + 1 if substeps else SUBSTEPS, kept))
        self._trajectory.add(entry, kept_bytes)

    def _view(self, step: int, substeps: int, kept: dict[str, Tensor]) -> View:
        run, length = self.run, self.num_steps
        known = {n: step if done <= substeps else max(step - 1, 0) for n, done in self._binding.outputs.items()}
        environment = {n: (lambda n=n, k=k: padded(run, n, k, length)) for n, k in known.items() if n in self._recorded}
        where = f"state_trajectory[{len(self._trajectory)}]"
        outer = {
            "current_step": step,
            "current_substep": substeps % SUBSTEPS,
            "environment": View(f"{where}['environment']", environment),
            "agents": constant_view(f"{where}['agents']", {"citizens": kept}),
        }
        return constant_view(where, outer)

    @property
    def state_trajectory(self) -> Trajectory:
        """Entry 0: [initial state]; then, for each recorded step, one record per substep."""
        self.init()
        return self._trajectory

    @property
    def state(self) -> View:
        """The present state: `state["agents"]["citizens"][field]` and `state["environment"][field]`."""
        run, length = self.run, self.num_steps
        columns = self._loader.population.population.columns
        citizens: dict[str, Any] = {
            name: (lambda name=name: getattr(self._loader.population, name).to(self.device)) for name in columns
        }
        citizens |= {
            name: (lambda name=name: self._fields.read(name, run.state, run.steps))
            for name in self._binding.agent_fields
        }
        environment = {n: (lambda n=n: padded(run, n, run.steps, length)) for n in self._binding.outputs}
        agents = {"citizens": View("state['agents']['citizens']", citizens)}
        outer = {
            "current_step": run.steps,
            "current_substep": 0,
            "environment": View("state['environment']", environment),
            "agents": constant_view("state['agents']", agents),
        }
        return constant_view("state", outer)

    @property
    def config(self) -> View:
        """What was set, for reading; never written to disk."""
        weeks = self._weeks_end()
        metadata = {
            "num_steps_per_episode": self.num_steps,
            "NUM_WEEKS": None if weeks is None else weeks // DAYS_PER_WEEK,
            "num_substeps_per_step": SUBSTEPS,
            "num_agents": self._model.num_agents,
            "device": str(self.device),
            "seed": self._seed,
            "model": self._binding.name,
            "population": self._loader.population.population.source,
        }
        return constant_view("config", {"simulation_metadata": metadata})

    def get_performance_stats(self) -> dict[str, Any]:
        """Times, rates, bytes and counts since the last reset; the same keys on every device.

        Those of `Run.stats`, counted, and those that are named after AgentTorch's: docs/guides/agenttorch.md and
        docs/guides/counters.md say what each means. What is counted is None before the first step.
        """
        run, cuda = self.run, self.device.type == "cuda"
        peak = torch.cuda.max_memory_allocated(self.device) if cuda else None  # before counting, which needs copies
        facts = run.stats(count=True)
        series = sum(run[name].numel() * run[name].element_size() for name in run.series_names)
        edges = sum(value.num_edges for value in vars(self._model).values() if isinstance(value, Graph))
        across = (facts["bytes_to_device"], facts["bytes_to_host"])
        return {
            **facts,
            **rates(self._clock, agents=self._model.num_agents, edges=edges),
            "seconds_load": self._loader.seconds + facts["seconds_load"],
            "trajectory_bytes": series + self._trajectory.kept_bytes,
            "peak_allocated_bytes": peak,
            "host_device_bytes": None if None in across else sum(across),
            "path": f"{facts['path']}, {facts['ops']} ops, {type(self._relax).__name__ if self._relaxed else 'hard'}",
        }


def _weeks(values: Tensor, weeks: int) -> Tensor:
    """One value for each week; weeks beyond the given ones hold the last value."""
    return torch.cat([values[:weeks], values[-1:].expand(max(weeks - values.numel(), 0))])


class Executor:
    """Builds a `Runner` and owns it.

    Attributes:
        runner: the simulation.

    Examples:
        >>> from denizen.compat.agenttorch.models import covid
        >>> simulation = Executor(covid, pop_loader="synthetic:astoria:1000", device="cpu")
        >>> simulation.execute(steps=3)
        >>> simulation.runner.state["environment"]["daily_infected"].shape
        torch.Size([21])
    """

    def __init__(
        self,
        model: Binding,
        pop_loader: Any = None,
        *,
        data_loader: DataLoader | None = None,
        steps: int = 21,
        seed: int = 0,
        device: torch.device | str | None = None,
        relax: Relax | None = STRAIGHT_THROUGH,
        record: Sequence[str] = ENVIRONMENT,
        every: int = 1,
    ) -> None:
        """Args:
        model: such as `denizen.compat.agenttorch.models.covid`.
        pop_loader: a `LoadPopulation`, or what one can be made of; or
        data_loader: a `DataLoader` of the same model; give one of the two.
        steps: steps of an episode; decides the number of weeks. More can be run.
        seed: 0 … 2**32 - 1; the same seed gives the same run.
        device: default: what ``DENIZEN_DEVICE`` of the environment says, else CUDA where there is one that works.
        relax: how gradients pass the draws; None never carries a gradient.
        record: what `state_trajectory` keeps: outputs (``"daily_infected"``, ``"daily_deaths"``) and fields of the
            agents (``"disease_stage"``, ``"infected_time"``, ``"next_stage_time"``).
        every: keep every so many steps; the last step of each call is kept in any case.
        """
        if (pop_loader is None) == (data_loader is None):
            raise InputError("Executor: give either pop_loader= or data_loader=")
        loader = data_loader if data_loader is not None else DataLoader(model, pop_loader)
        if not isinstance(loader, DataLoader):
            raise InputError(f"Executor: data_loader is {type(loader).__name__}, expected a DataLoader")
        if loader.binding is not model:
            raise InputError("Executor: the data_loader was made for another model")
        self.runner = Runner(loader, steps=steps, seed=seed, device=device, relax=relax, record=record, every=every)

    def init(self) -> None:
        """As `Runner.init`."""
        self.runner.init()

    def execute(self, steps: int | None = None) -> None:
        """Init if needed, then run `steps` more steps; default: what remains of the episode."""
        self.init()
        self.runner.step(max(self.runner.num_steps - self.runner.run.steps, 0) if steps is None else steps)
