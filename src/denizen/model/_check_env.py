"""The probes of `dz.check` for environments: lives under random actions, with everything that an `Env` tells."""

import re
from typing import Any

import torch
from torch import Tensor

from denizen import _spaces as trees
from denizen import _tree
from denizen._roles import by_actor
from denizen._spaces import Discrete, Space, closed
from denizen.errors import ModelError
from denizen.model import _check_globals as globals_
from denizen.model._check_rules import Probes
from denizen.model._check_runs import Course, Flat, explain
from denizen.model._env import Env, can_draw, check_spaces, is_picture
from denizen.model._flat_env import FlatEnv, Observed
from denizen.model._model import Model
from denizen.model._source_lines import Line, line_of_class, line_of_function

UNBOUNDED = 3.0  # random actions of a space without bounds lie within ± that
# What is checked on the device, the method to blame, what to do instead.
_TOLD = {
    "an observation outside its space": ("observe", "an observation_space with the bounds that observe keeps"),
    "an observation that is not finite": ("observe", "finite numbers"),
    "a world without an open action": ("action_mask", "at least one open action in every state"),
    "a reward that is not finite": ("reward", "a finite number"),
}


class Lives(Flat):
    """Init and a few steps of one world under given actions; a life that is over begins anew.

    The age of a life travels as the last leaf.

    Attributes:
        phase: the method whose state is being formed, or was last.
    """

    def __init__(self, env: Env, ids: Tensor, actions: list[dict[str, Tensor]]) -> None:
        """Args:
        env: the environment.
        ids: int64 `[agents]`.
        actions: for each step, ``{"action": …}``.
        """
        self.env, self.envs = env, FlatEnv(env, ids)
        self.world, self.answers, self.phase = self.envs, actions, "init"  # pyrefly: ignore

    def state(self, leaves: list[Tensor], step: Tensor) -> Any:
        """The state with these tensors."""
        return self.envs.state(leaves[:-1], leaves[-1])

    def init(self, key: Tensor) -> tuple[list[Tensor], Tensor]:
        """(leaves, no checks) of the initial state."""
        clock = torch.zeros((), dtype=torch.int64)
        leaves = [leaf.clone() for leaf in self.envs.begin(key, {}, clock)]  # fields may share one tensor
        self.envs.checks = []
        return [*leaves, clock], torch.zeros(0, dtype=torch.int8)

    def step(
        self, leaves: list[Tensor], switches: Tensor, key: Tensor, step: Tensor, answers: dict[str, Tensor]
    ) -> tuple[list[Tensor], Tensor, list[Tensor], Tensor]:
        """(leaves, switches, what was seen and told, checks) one step on."""
        *now, age = leaves
        seen = self.envs.observe(now, age, {})
        action = _open(answers["action"], seen, self.envs.acts)
        happened = self.envs.act(now, age, key, {}, action, step)
        reached = self.envs.observe(happened.leaves, age + 1, {})
        self.phase = "init" if type(self.env).reset is Env.reset else "reset"
        fresh = self.envs.restart(happened.leaves, age + 1, key, {}, step + 1)
        self.phase = "step"
        over = happened.terminated | happened.truncated
        next_ = [torch.where(over, new, old) for new, old in zip(fresh, happened.leaves, strict=True)]
        told = _tree.tensors((happened[1:4], happened.flows, seen, reached))
        checks = [*zip(self.envs.step_checks, happened.bad, strict=True), *self._judged(seen), *self._judged(reached)]
        self.envs.checks = [label for label, _ in checks]
        bad = torch.stack([flag.to(torch.int8) for _, flag in checks])
        return [*next_, torch.where(over, 0, age + 1)], switches, told, bad

    def _judged(self, observed: Observed) -> list[tuple[str, Tensor]]:
        """What the device checks of a look."""
        checks = []
        for path, blind, outside in faults_of(self.envs.sees, observed.observation):
            checks.append((f"an observation that is not finite{trees.at(path)}", blind.any()))
            checks.append((f"an observation outside its space{trees.at(path)}", outside.any() & ~blind.any()))
        if observed.action_mask is not None:
            stuck = closed(observed.action_mask, self.envs.acts.factors).any()
            checks.append(("a world without an open action", stuck))
        return checks


class EnvProbes(Probes):
    """Runs an environment in every way that matters."""

    def __init__(self, env: Env, steps: int, seed: int) -> None:
        check_spaces(env)
        super().__init__(env, steps, seed, ())
        self.env = env
        self._actions = _actions(env, steps, seed)

    def _flat(self, model: Model | None = None, relax: Any = None) -> Flat:
        self._begun = Lives(self.env, self._ids, self._actions)
        return self._begun

    @property
    def _size(self) -> str:
        return f"{self.steps} steps under random actions"

    def _failed(self, rule: str, error: Exception) -> None:
        """Also what denizen refuses of a method's result, at the line that returned it."""
        if rule == "compile" and self._has("repeat"):
            return  # the same cause
        name = type(self.env).__name__
        found = re.match(rf"{name}(?:\.(\w+) gave| has no (\w+))", str(error))
        if found is None or not isinstance(error, ModelError):
            super()._failed(rule, error)
        elif found.group(2):
            _, _, what, instead = explain(rule, error)
            self.add("error", line_of_class(type(self.env)), what, instead)
        else:
            what, _, instead = str(error).partition("; ")
            self.add("shapes", self._returned(found.group(1)), what, instead or "the shape of the space")

    def _returned(self, method: str) -> Line | None:
        """Where a method returned last, or where it begins."""
        function = getattr(type(self.env), method)
        line = globals_.line_of_return(function.__code__, lambda: self._flat().run(self._key(0)))
        return line or line_of_function(function)

    def _out_of_range(self, phase: str, when: str, labels: list[str], flags: Tensor, state: Any = None) -> bool:
        """Also what is told of looks and rewards, at the method that gave it."""
        rest = [k for k, label in enumerate(labels) if _told(label) is None]
        found = super()._out_of_range(phase, when, [labels[k] for k in rest], flags[rest], state)
        for label in {label: None for label, flag in zip(labels, flags.tolist(), strict=True) if flag}:
            known = _told(label)
            if known is not None:
                method, instead = known
                where = self._first_look() if method == "observe" else ""
                self.add("range", line_of_function(getattr(type(self.env), method)), f"{label}{where}, {when}", instead)
                found = True
        return found

    def _first_look(self) -> str:
        """Value and step of the first look that leaves its space, by one more run."""
        lives, key = Lives(self.env, self._ids, self._actions), self._key(0)
        now, _ = lives.init(key)
        for number, actions in enumerate(self._actions):
            width = len(_tree.tensors(lives.envs.observe(now[:-1], now[-1], {})))
            now, _, told, _ = lives.step(now, torch.zeros(0), key, torch.tensor(number), actions)
            for behind, step in ((2 * width, number), (width, number + 1)):
                parts = told[len(told) - behind :][: len(trees.leaves(lives.envs.sees))]
                for (_, blind, outside), part in zip(
                    faults_of(lives.envs.sees, trees.built(lives.envs.sees, parts)), parts, strict=True
                ):
                    wrong = blind | outside
                    if bool(wrong.any()):
                        return f": {part[wrong].flatten()[0].item()!r} after {step} steps"
        return ""

    def _watched(self) -> Course:
        course = super()._watched()
        self._attempt("error", lambda: self._looks(course))
        return course

    def _looks(self, course: Course) -> None:
        """What batching would hide: values cut off by storing them, inputs of networks, pictures."""
        env, space = self.env, self.env.observation_space
        state = self._begun.state(course.leaves, torch.zeros(())) if self._begun is not None else None
        seen = dict(zip(trees.leaves(space), trees.values(space, env.observe(state)), strict=True))
        for (path, leaf), part in seen.items():
            if part.is_floating_point() and not leaf.dtype.is_floating_point:
                stored = f"observation_space stores {leaf.dtype}: fractions are lost"
                what = f"observe gives {part.dtype}{trees.at(path)} and {stored}"
                self.add("shapes", self._returned("observe"), what, f"{leaf.dtype} from observe, or a float space")
        parts = [part.to(leaf.dtype) for (_, leaf), part in seen.items()]
        if env.roles is None:
            rows = [torch.stack([part] * 2) for part in parts] if env.num_actors is None else parts
            self._inputs(env, trees.built(space, rows))
        for name, role in (env.roles or {}).items():
            looks = trees.built(space, parts)[name]
            self._inputs(env.role(name), by_actor(role.count, role.observation_space, looks))
        if can_draw(env):
            drawn = env.draw(state)
            if not is_picture(drawn):
                what = f"draw gives {type(drawn).__name__}"
                self.add("shapes", line_of_function(type(env).draw), what, "lines of text, or uint8 [height, width, 3]")

    def _inputs(self, env: Env, rows: Any) -> None:
        """Whether networks could take what is made of rows of looks."""
        told = _tree.tensors(rows)
        for given in _tree.tensors(env.network_input(rows)):
            if not given.is_floating_point() or given.shape[:1] != told[0].shape[:1]:
                shapes = ", ".join(str(tuple(row.shape)) for row in told)
                what = f"network_input gives {given.dtype} {tuple(given.shape)} for observations {shapes}"
                instead = "floats, one row for each observation"
                self.add("shapes", line_of_function(type(self.env).network_input), what, instead)


def faults_of(space: Space, observation: Any) -> list[tuple[str, Tensor, Tensor]]:
    """(path, where a number is not finite, where an entry lies outside) of each leaf."""
    parts = zip(trees.leaves(space), trees.values(space, observation), strict=True)
    return [(path, ~torch.isfinite(part.to(torch.float32)), leaf.fault(part)) for (path, leaf), part in parts]


def _told(label: str) -> tuple[str, str] | None:
    """(method to blame, what to do instead) of a check of the device on looks and rewards; None for others."""
    return _TOLD.get(label.partition(" at [")[0])


def _actions(env: Env, steps: int, seed: int) -> list[dict[str, Any]]:
    """Random actions of the space, for each step."""
    generator = torch.Generator().manual_seed(seed)
    lead = () if env.num_actors is None else (env.num_actors,)
    return [{"action": trees.drawn(env.action_space, lead, UNBOUNDED, generator)} for _ in range(steps)]


def _open(action: Any, observed: Observed, space: Space) -> Any:
    """The action, or of each factor the next choice that the mask leaves open."""
    mask = observed.action_mask
    if mask is None:
        return action
    masks, lead = iter(mask.split(space.factors, -1)), mask.shape[:-1]

    def opened(value: Tensor, leaf: trees.Leaf) -> Tensor:
        if not leaf.factors:
            return value
        start = leaf.start if isinstance(leaf, Discrete) else 0
        found = [_next_open(choice, next(masks)) for choice in (value - start).reshape(*lead, -1).unbind(-1)]
        return (torch.stack(found, -1).reshape(value.shape) + start).to(value.dtype)

    return trees.mapped(space, opened, action)


def _next_open(choice: Tensor, mask: Tensor) -> Tensor:
    choices = mask.shape[-1]
    behind = (torch.arange(choices) - choice[..., None]) % choices
    return torch.where(mask, behind, choices).argmin(-1)
