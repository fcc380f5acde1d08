"""Validation: evaluations of a policy while it trains, in worlds of their own."""

from collections.abc import Mapping
from typing import Any

from denizen.errors import InputError, nearest
from denizen.model import Env
from denizen.rl._evaluate import Evaluation, check_evaluation, evaluate
from denizen.rl._policy import ActorCritic
from denizen.run._fingerprint import differences, fingerprint

OPTIONS = ("env", "num_envs", "max_steps", "greedy", "seed")  # what it may give `evaluate`


class Validation:
    """When a training is evaluated, and how.

    Attributes:
        every: updates between evaluations; None: there are none.
    """

    def __init__(self, every: int | None, given: Mapping[str, Any] | None, env: Env, policy: ActorCritic) -> None:
        """Args:
        every: updates between evaluations; None: there are none.
        given: arguments of `evaluate`.
        env: of the training, which it is without another one.
        policy: that trains.

        Raises:
            InputError: an argument does not fit.
        """
        if every is not None and (not isinstance(every, int) or isinstance(every, bool) or every < 1):
            raise InputError(f"train: validate_every={every!r}, expected a number of updates, at least 1, or None")
        if given is not None and not isinstance(given, Mapping):
            raise InputError(f"train: validation={given!r}, expected arguments of evaluate, such as {{'num_envs': 64}}")
        for name in given or {}:
            if name not in OPTIONS:
                raise InputError(f"train: validation has {name!r}; {nearest(name, OPTIONS)}")
        if given and every is None:
            raise InputError(f"train: validation={dict(given)} without validate_every; say every how many updates")
        self.every, self._given = every, dict(given or {})
        self._options: dict[str, Any] = {"env": env, **self._given}
        check_evaluation(policy=policy, **self._options)

    def due(self, done: int, last: int) -> bool:
        """Whether to evaluate after so many updates of all."""
        return self.every is not None and (done % self.every == 0 or done == last)

    def __call__(self, policy: ActorCritic) -> Evaluation:
        """An evaluation."""
        return evaluate(policy=policy, **self._options)

    def facts(self) -> dict[str, Any]:
        """For a manifest."""
        env = {"env": fingerprint(self._given["env"])} if "env" in self._given else {}
        return {**self._given, **env}

    @classmethod
    def again(cls, known: Mapping[str, Any], given: Env | None, env: Env, policy: ActorCritic) -> "Validation":
        """That of a manifest.

        Args:
            known: the manifest.
            given: the environment of the validation, where it had one of its own.
            env: of the training.
            policy: that trains.

        Raises:
            InputError: it is another environment.
        """
        was, options = known["validation"].get("env"), dict(known["validation"])
        alike = given is was is None
        if given is not None and was is not None:
            alike = not differences(was, fingerprint(given))
        if not alike:
            raise InputError(
                "resume: validation_env differs from the env of the training's validation; give the one that it had, "
                "or None if it had none"
            )
        return cls(known["validate_every"], options if given is None else {**options, "env": given}, env, policy)
