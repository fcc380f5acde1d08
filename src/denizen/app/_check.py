"""`denizen check`: whether a model or a world keeps the author's rules."""

import dataclasses
from typing import TYPE_CHECKING, Annotated, Any, ClassVar

from tyro.conf import FlagCreatePairsOff, Positional, arg

from denizen._printing import say
from denizen.app._settings import within
from denizen.app._train import Pairs
from denizen.errors import ConfigError

if TYPE_CHECKING:
    from denizen._printing import Console

AGENTS = 200  # a small population finds as much as a large one, in less time


@dataclasses.dataclass(frozen=True)
class Check:
    """`denizen check`."""

    about: ClassVar[str] = """Check that a model or a world keeps the author's rules, and name the lines that do not.

It runs a few steps on the CPU: watched, again, batched, compiled and relaxed. A world gets random actions.

exit code:
  0  all rules hold
  1  a rule is broken
  2  wrong usage, or an error of the code

examples:
  denizen check city.py:Epidemic
  denizen check city.py:Epidemic --set infect_rate=0.2 --agents 1000
  denizen check city.py:Epidemic --dt
  denizen check maze.py:Maze --set size=9
  denizen check seir"""

    target: Annotated[Positional[str], arg(metavar="TARGET")]
    """FILE.py:NAME, package.module:NAME or a name of `denizen models`."""
    set: Pairs = ()
    """Parameters and options of the model or of the world."""
    agents: Annotated[int | None, arg(metavar="N", help_behavior_hint=f"(default: {AGENTS} without a population)")] = (
        None
    )
    """Number of agents in a random graph, where the model takes contacts."""
    population: Annotated[str | None, arg(metavar="PATH", help_behavior_hint="(default: none, or a small one)")] = None
    """The population: a folder, a table, a .npz file, or synthetic:astoria[:SIZE]."""
    network: Annotated[str | None, arg(metavar="NAME", help_behavior_hint="(default: 0, or the only one)")] = None
    """The contact network of the population, or several that act together: family,work."""
    steps: Annotated[int, arg(metavar="N")] = 3
    """Number of steps, at least 2."""
    seed: Annotated[int, arg(metavar="N")] = 0
    """Seed of the random numbers."""
    no_gradient: FlagCreatePairsOff[bool] = False
    """Do not check gradients, for a model that will never be calibrated."""
    dt: FlagCreatePairsOff[bool] = False
    """Also run steps of 1, 1/2 and 1/4, and name the series that part, with what goes by the step."""
    until: Annotated[float, arg(metavar="TIME")] = 20.0
    """Time that --dt runs, in the model's unit."""

    def __call__(self, console: "Console") -> int:
        """Check, and print."""
        from denizen import check
        from denizen.app._exit import DONE, FOUND
        from denizen.app._failures import their_code

        model = self._model()
        with their_code():
            options = {"gradient": not self.no_gradient, "dt": self.dt, "until": self.until}
            report = check(model, steps=self.steps, seed=self.seed, **options)
        say(console, report)
        return DONE if report.ok else FOUND

    def _model(self) -> Any:
        from denizen.app import _build, _models, _settings, _target
        from denizen.app._settings import pairs
        from denizen.zoo import WorldEntry

        entry, given = _target.either(self.target).entry, pairs(self.set, "--set")
        self._refuse(isinstance(entry, WorldEntry))
        if isinstance(entry, WorldEntry):
            return _build.make_world(self.target, entry, given, "--set")
        place, agents = self.population or entry.population, self.agents
        if place == "synthetic:astoria" and self.population is None:
            place, agents = f"{place}:{agents or 5 * AGENTS}", None
        if place is None and agents is None and _models.takes_agents(entry):
            agents = AGENTS
        if place is None and self.network is not None:
            raise ConfigError("--network chooses among the networks of a population; give --population too")
        values = _settings.settings(self.target, entry, given)
        contacts = _models.Contacts(place, self.network, agents=agents)
        return _models.build(self.target, entry, _models.source(self.target, entry, contacts), values)

    def _refuse(self, world: bool) -> None:
        """Raise `ConfigError` where flags do not go together, or with a world."""
        within("--agents", self.agents, 1)
        within("--steps", self.steps, 2)
        within("--seed", self.seed, 0)
        if world and self.dt:
            raise ConfigError(f"--dt: {self.target} is a world, whose steps are actions; leave it out")
        for name in ("agents", "population", "network"):
            value = getattr(self, name)
            if value == "":  # such as "$CITY" of a shell that knows no CITY
                raise ConfigError(f"--{name} is empty; leave it out, or give a value")
            if world and value is not None:
                raise ConfigError(f"--{name} {value}: {self.target} is a world, which takes none; leave it out")
        if self.agents is not None and self.population is not None:
            raise ConfigError("--agents makes a random graph, --population reads one: give one of the two")
