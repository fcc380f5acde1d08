"""Updates of a training: eager, compiled, or each one CUDA graph; and the warm-up before the clock."""

import contextlib
import time
import warnings
from collections.abc import Iterator
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import switch
from denizen.errors import InputError, ModelError
from denizen.nn.kernels import precompiling
from denizen.ops import fuse_draws, variant
from denizen.rl._training import Training
from denizen.rl._worlds import named
from denizen.run import CapturedFunction, TorchSwitches

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
            with warnings.catch_warnings(), self._precompiling():
                warnings.simplefilter("ignore")  # what torch says about itself while it compiles
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
