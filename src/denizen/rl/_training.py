"""A training under way: all that an algorithm's update changes, in one object; and its updates, one by one."""

import contextlib
import time
import warnings
from collections.abc import Callable, Iterator, Sequence
from typing import Any

import torch
from torch import Tensor, nn

from denizen._arguments import switch
from denizen._garbage import uncollected
from denizen.errors import InputError, ModelError
from denizen.nn.kernels import precompiling
from denizen.ops import fuse_draws, start_compilers, variant
from denizen.rl._against import pool_of
from denizen.rl._curriculum import Curriculum
from denizen.rl._from_gymnasium import FromGymnasium
from denizen.rl._metrics import Phases, summary_of
from denizen.rl._normaliser import RewardScale, take_in
from denizen.rl._optimizer import FlatAdam
from denizen.rl._policy import Policy
from denizen.rl._rollout import Rollout
from denizen.rl._settings import Rate
from denizen.rl._worlds import Worlds, named
from denizen.run import CapturedFunction, TorchSwitches, one_graph, own_code

PRECISIONS = {"float32": torch.float32, "bfloat16": torch.bfloat16, "float16": torch.float16}
_FIRST_SCALE = 2.0**16  # of the loss in float16, as torch.amp.GradScaler begins


class Training:
    """A training under way; the algorithm's `update` changes it in place.

    Attributes:
        algorithm: its settings.
        worlds: the worlds.
        policy: the policy, on the device.
        optimizer: of the parameters that are learnt.
        rollout: acts in the worlds, and holds what happened last and what goes on.
        updates: int64 `[]` on the device: updates done.
        num_updates: updates to come in all, which schedules go by.
        rate: the learning rate.
        curriculum: of the worlds' parameters.
        phases: how long those of an update took.
        reward_scale: what rewards are divided by; None: nothing.
        pool: of opponents, which are the policy as it is and as it was; None: it does not play itself.
    """

    def __init__(
        self,
        algorithm: Any,
        worlds: Worlds | FromGymnasium,
        policy: Policy,
        num_updates: int,
        seed: int,
        curriculum: Curriculum,
        *,
        learnt: Callable[[Any], Sequence[Sequence[nn.Parameter]]],
        values: bool = True,
    ) -> None:
        """Args:
        algorithm: its settings.
        worlds: on their device.
        policy: is moved there.
        num_updates: to come in all.
        seed: of actions.
        curriculum: of the worlds' parameters.
        learnt: from the policy to groups of its parameters, each clipped by its own norm.
        values: whether the critic judges states.
        """
        start_compilers(worlds.device)
        self.algorithm, self.num_updates, self.seed = algorithm, num_updates, seed
        self.worlds: Any = worlds
        self.curriculum, self.phases = curriculum, Phases(worlds.device)
        self.pool = pool_of(worlds.env, algorithm)
        self.policy: Any = policy.to(worlds.device).train()
        self._dtype, self._device = PRECISIONS[algorithm.precision], worlds.device
        self.optimizer = FlatAdam(
            learnt(self.policy),
            max_norm=algorithm.max_grad_norm,
            eps=algorithm.adam_eps,
            scale=_FIRST_SCALE if self._dtype == torch.float16 else None,
        )
        self.rollout = self._acting(seed, values)
        scaled = getattr(algorithm, "normalise_rewards", False)
        rows = self.rollout.state.rows
        self.reward_scale = RewardScale(rows, algorithm.gamma).to(worlds.device) if scaled else None
        self.updates = torch.zeros((), dtype=torch.int64, device=worlds.device)
        self.rate = Rate(algorithm.learning_rate, worlds.device)
        self._backend: str | None = None
        self._compiled: Callable[..., Any] | None = None

    @property
    def hosted(self) -> FromGymnasium | None:
        """The environments of Gymnasium that it steps; None: its worlds are on the device."""
        return self.worlds if isinstance(self.worlds, FromGymnasium) else None

    def begin_anew(self) -> None:
        """Begin every world anew, where a checkpoint could not hold them."""
        self.rollout.begin_anew()
        if self.reward_scale is not None:
            self.reward_scale.going.zero_()

    def rewards(self) -> Tensor:
        """Of the rollout, as they are learnt from, once their statistics have taken it in: `[steps, rows]`."""
        fields = self.rollout.fields
        if self.reward_scale is None:
            return fields["reward"]
        return self.reward_scale.scaled(fields["reward"], fields["terminated"] | fields["truncated"], fields["valid"])

    def reward_unit(self) -> dict[str, Tensor]:
        """What rewards are divided by, as a metric: float32 `[]`; nothing where they are not."""
        return {} if self.reward_scale is None else {"reward_scale": self.reward_scale.deviation()}

    def autocast(self) -> contextlib.AbstractContextManager[Any]:
        """The precision in which the policy runs."""
        if self._dtype == torch.float32:
            return contextlib.nullcontext()
        return torch.autocast(self._device.type, self._dtype, cache_enabled=False)

    def _acting(self, seed: int, values: bool) -> Rollout:
        """What acts in the worlds."""
        return Rollout(self.worlds, self.policy, self.algorithm.num_steps, seed, self.autocast, values=values)

    def prepared(self) -> contextlib.AbstractContextManager[None]:
        """While this lasts the policy acts and does not learn; see `Policy.prepared`."""
        return self.policy.prepared(self._dtype)

    def begin(self) -> None:
        """Before a rollout; here the worlds go on from where they are."""

    def updated(self, learn: Callable[[Any], dict[str, Tensor]]) -> dict[str, Tensor]:
        """An update: a rollout, and what `learn` makes of it, which are its metrics."""
        self.phases.begin()
        self.curriculum.begin(self.progress)
        if self.pool is not None:
            self.pool.before_update(self.policy, self.updates)
        self.begin()
        with self.prepared():
            self.rollout.collect()
        self.phases.ended(0)
        metrics = self.curriculum.end(learn(self))
        if self.policy.normaliser is not None:
            take_in(self.policy, self.rollout.fields)
        self.phases.ended(1)
        return metrics

    @property
    def progress(self) -> Tensor:
        """Share of the updates that are done: float32 `[]`."""
        return self.updates.to(torch.float32) / self.num_updates

    def precompile(self) -> None:
        """Have the own kernels of policy and optimizer compiled; within `kernels.precompiling`."""
        rows = self.algorithm.samples // self.algorithm.num_minibatches
        self.policy.precompile(self.heads(), self.rollout.state.rows, rows, self._dtype)
        self.optimizer.precompile()

    def heads(self) -> list[nn.Linear]:
        """Of actor and critic that are learnt; see `Policy.heads`."""
        return self.policy.heads()

    def compile(self, backend: str | None = "inductor", loss: bool = True) -> None:
        """Compile what an update is made of, when it is next run; None: no longer.

        Args:
            backend: of torch.compile.
            loss: the loss with its backward as well, which takes longest.
        """
        self.rollout.compile(backend)
        self._backend, self._compiled = backend if loss else None, None

    def compiled(self, loss: Callable[..., Any]) -> Callable[..., Any]:
        """An algorithm's loss as it is, or compiled where `compile` asked for it."""
        if self._backend is None:
            return loss
        if self._compiled is None:
            self._compiled = one_graph(own_code(loss), self._backend)
        return self._compiled

    def summary(self) -> dict[str, Tensor]:
        """Of the last rollout: lives that ended, flows, worlds that waited, faults; of all processes."""
        return summary_of(self.worlds.env, self.rollout)

    def check(self) -> None:
        """Raise `ModelError` where a check on the device has failed (reads the device)."""
        self.worlds.check(self.rollout.state.worlds)

    def shared_tensors(self) -> dict[str, Tensor]:
        """What an update depends on and all processes have alike, by name."""
        held = {f"policy.{name}": tensor for name, tensor in self.policy.state_dict().items()}
        held.update({f"optimizer.{name}": tensor for name, tensor in self.optimizer.tensors().items()})
        if self.pool is not None:
            held.update({f"pool.{name}": tensor for name, tensor in self.pool.named_buffers()})
        if self.reward_scale is not None:
            held.update(self.reward_scale.shared_tensors())
        return {**held, "updates": self.updates, **self.curriculum.tensors(), **self.rate.tensors()}

    def own_tensors(self) -> dict[str, Tensor]:
        """What an update depends on and each process has of its own, by name: its worlds."""
        # Run folders know the state of a rollout as memo.
        held = {f"memo.{k}": tensor for k, tensor in enumerate(self.rollout.state.tensors())}
        return held if self.reward_scale is None else {**held, "rewards.going": self.reward_scale.going}

    def lacking(self) -> str:
        """What a checkpoint does not hold, in words; empty where it holds everything."""
        if self.hosted is None:
            return ""
        return (
            f"the state of {self.hosted.env.name} is on the host and was not kept, so it begins anew, of another seed; "
            f"results differ from those of a training that never stopped"
        )

    def tensors(self) -> dict[str, Tensor]:
        """Everything that an update depends on, by name; what a checkpoint holds."""
        return {**self.shared_tensors(), **self.own_tensors()}


# --- updates of it ----------------------------------------------------------------------------------------------------


# Steps in a row of a whole training from which compiling on a CPU pays; fixed, so that a resumed run decides alike.
COMPILE_FROM = 100_000
COMPILE_LOSS_FROM = 5_000_000  # steps of worlds in all from which compiling the loss on a CPU pays as well
WARM_UP = 2  # updates before a capture


def compiles(compile: bool | None, training: Any, device: torch.device) -> bool:
    """Whether to compile: as asked, else on CUDA, and on a CPU where many steps lie ahead."""
    if compile is not None:
        return compile
    if device.type == "cuda":
        return variant(device) == "triton"
    return training.num_updates * training.algorithm.num_steps >= COMPILE_FROM


class Updates:
    """Runs updates of a training, as `train` runs them: one a call.

    ```python
    training = dz.PPO(num_envs=64).init(env, policy, total_steps=500_000)
    update = dz.rl.Updates(training)
    update.warm_up()
    for _ in range(training.num_updates):
        metrics = update()  # float32 [] each, on the device; no host read
    training.check()
    ```

    Attributes:
        path: ``"eager"``, ``"compiled"`` or ``"captured"``.
        seconds_to_ready: that the warm-up took.
    """

    def __init__(self, training: Training, *, compile: bool | None = None) -> None:
        """Args:
        training: as the `init` of an algorithm gives it; each update changes it in place.
        compile: False: eager; True: compiled, on CUDA captured as well; None: on CUDA, and on a CPU in long trainings.
            Compiling and capturing happen in `warm_up`; without it, updates are eager.

        Raises:
            InputError: an argument is of another kind.
        """
        if not isinstance(training, Training):
            raise InputError(f"Updates: training is {named(training)}, expected what PPO(…).init(…) gives")
        if compile is not None:
            switch("Updates", "compile", compile, hint=" or None")
        algorithm = training.algorithm
        self._algorithm, self._training = algorithm, training
        self._device = training.worlds.device
        if training.hosted is not None and compile:
            raise InputError("train: compile=True, and a FromGymnasium is stepped on the host, which no graph holds")
        self._compile = training.hosted is None and compiles(compile, training, self._device)
        steps = training.num_updates * algorithm.samples
        self._compile_loss = self._device.type == "cuda" or steps >= COMPILE_LOSS_FROM
        self._captured: CapturedFunction[dict[str, Tensor]] | None = None
        self._switches = TorchSwitches(grad=True)
        self.path, self.seconds_to_ready = "eager", 0.0

    def __call__(self) -> dict[str, Tensor]:
        """One update.

        Returns:
            Metrics, float32 `[]` each, on the device; those of a captured update are overwritten by the next.
        """
        if self._captured is not None:
            return self._captured()
        with self._switches.held():
            return self._algorithm.update(self._training)

    def warm_up(self) -> None:
        """Compile, capture and run an update, then put everything back as it was.

        Where compiling fails, one warning says so, and updates run eagerly.
        """
        if self._training.hosted is not None:
            return  # what was stepped could not be put back
        began = time.perf_counter()
        # Kept on the host: on the device they would count to the peak of memory, which is during the warm-up.
        kept = [(tensor, tensor.to("cpu", copy=True)) for tensor in self._training.tensors().values()]
        try:
            with self._switches.held():
                if self._compile:
                    self._try_compiled(kept)
                else:
                    self._algorithm.update(self._training)
        finally:
            _put_back(kept)
        if self._device.type == "cuda":
            torch.cuda.synchronize(self._device)
        self.seconds_to_ready = time.perf_counter() - began

    def _try_compiled(self, kept: list[tuple[Tensor, Tensor]]) -> None:
        try:
            # What torch says of itself is ignored before threads begin: one that puts back the filters which it found
            # would otherwise bring back those of before.
            with warnings.catch_warnings(action="ignore"), self._precompiling(), uncollected():
                fuse_draws()
                self._training.compile(loss=self._compile_loss)
                self._algorithm.update(self._training)
            self.path = "compiled"
            if self._device.type == "cuda":
                _put_back(kept)
                self._capture()
        except (InputError, ModelError):
            raise
        except Exception as error:  # torch raises many types here; all mean: this machine cannot compile
            inner = getattr(error, "inner_exception", error)
            reason = (str(inner).strip().splitlines() or [type(inner).__name__])[0]
            warnings.warn(f"updates could not be compiled and run eagerly: {reason}", stacklevel=4)
            self._captured, self.path = None, "eager"
            self._training.compile(None)
            _put_back(kept)
            self._algorithm.update(self._training)

    @contextlib.contextmanager
    def _precompiling(self) -> Iterator[None]:
        """Kernels of the policy are compiled meanwhile."""
        if self._device.type != "cuda" or variant(self._device) != "triton":
            yield
            return
        with precompiling() as begun:
            if begun:
                self._training.precompile()
            yield

    def _capture(self) -> None:
        # Captured and warmed up on the stream of the caller, unless that is the default one, which cannot be captured:
        # work space of matrix products belongs to a stream, and graphs that run at once must not share it.
        current = torch.cuda.current_stream()
        own = None if current == torch.cuda.default_stream() else current

        algorithm, training = self._algorithm, self._training
        captured = CapturedFunction(lambda: algorithm.update(training), "updates", warm_up=WARM_UP, stream=own)
        captured.capture()
        self._captured, self.path = captured, "captured"


@torch.no_grad()
def _put_back(kept: list[tuple[Tensor, Tensor]]) -> None:
    for tensor, value in kept:
        tensor.copy_(value)
