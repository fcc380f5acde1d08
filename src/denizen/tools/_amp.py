"""Mixed precision in one small object: autocast, backward and step, with a gradient scaler only where one is needed."""

from collections.abc import Iterable, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen.errors import InputError
from denizen.perf.state import Keeper
from denizen.perf.watch import allow

LOW = (torch.bfloat16, torch.float16)


class Amp:
    """Autocast for a device, and the scaler that float16 needs.

    ```python
    amp = Amp("cuda")  # bfloat16 where the card has it, else float16 with a scaler
    with amp.autocast():
        loss = model(x).square().mean()
    amp.backward(loss)
    amp.step(optimizer, max_norm=1.0, schedulers=[scheduler])  # unscales, clips, steps; float16: updates the scale
    optimizer.zero_grad(set_to_none=True)
    ```

    With bfloat16 and float32 there is no scaler: it would read a flag back from the device at every step for nothing.
    With float16 that read remains (unless the optimizer is fused and there is no scheduler), because a step with an
    overflow has to be left out, and the scheduler's with it.

    Attributes:
        device: where the loop runs.
        dtype: of autocast; float32 means that it is off.
        reason: why this dtype.
        scaler: None unless the dtype is float16.
    """

    def __init__(
        self, device: torch.device | str, dtype: torch.dtype | None = None, init_scale: float = 65536.0
    ) -> None:
        """Args:
        device: ``"cuda"``, ``"cuda:1"``, ``"cpu"``.
        dtype: bfloat16, float16 or float32; None takes bfloat16 where the hardware has it, on CUDA else float16, and
            on a CPU else float32 (without instructions for it, bfloat16 is many times slower there).
        init_scale: of the gradient scaler.

        Raises:
            InputError: another dtype.
        """
        self.device = torch.device(device)
        if dtype is not None and dtype not in (*LOW, torch.float32):
            raise InputError(f"dtype={dtype}: expected torch.bfloat16, torch.float16, torch.float32 or None to choose")
        self.dtype, self.reason = (dtype, "asked for") if dtype is not None else _best(self.device)
        self.scaler: torch.amp.GradScaler | None = None
        if self.dtype is torch.float16:
            self.scaler = torch.amp.GradScaler(self.device.type, init_scale=init_scale)

    def __repr__(self) -> str:
        scaler = "with" if self.scaler else "no"
        return f"Amp({str(self.device)!r}, {self.dtype}, {scaler} scaler: {self.reason})"

    def _keep_in(self, keeper: Keeper, name: str) -> None:
        """Have a `TrainingState` keep the scaler."""
        keeper.keep(name, self.scaler)

    def autocast(self) -> torch.autocast:
        """The context for the forward pass and the loss."""
        low = self.dtype in LOW
        return torch.autocast(self.device.type, dtype=self.dtype if low else None, enabled=low)

    def backward(self, loss: Tensor, **options: Any) -> None:
        """`loss.backward`, scaled where there is a scaler; `options` go to it."""
        (self.scaler.scale(loss) if self.scaler else loss).backward(**options)

    def step(
        self, *optimizers: torch.optim.Optimizer, max_norm: float | None = None, schedulers: Iterable[Any] = ()
    ) -> Tensor | None:
        """Step optimizers that share this backward pass, once for all micro-batches of an accumulation.

        Args:
            optimizers: at least one.
            max_norm: clip the gradients of all of them together to this norm.
            schedulers: stepped after the optimizers, each only if its own one was: an overflow of float16 leaves both
                out, or the learning rate would run ahead of the steps that were taken.

        Returns:
            The norm of all gradients before clipping, 0-d, on the device; None without `max_norm`.

        Raises:
            InputError: no optimizer, or what cannot be stepped as a scheduler; nothing was stepped then.
        """
        if not optimizers:
            raise InputError("step() needs an optimizer: step(optimizer, max_norm=…)")
        if not isinstance(schedulers, Iterable):
            raise InputError(
                f"step: schedulers is {type(schedulers).__name__}, expected a list: schedulers=[scheduler]"
            )
        schedulers = list(schedulers)
        for scheduler in schedulers:
            check_scheduler(scheduler, "step")
        norm = None
        if max_norm is not None:
            if self.scaler:
                for optimizer in optimizers:
                    self.scaler.unscale_(optimizer)
            weights = [w for optimizer in optimizers for group in optimizer.param_groups for w in group["params"]]
            norm = torch.nn.utils.clip_grad_norm_(weights, max_norm)
        for optimizer in optimizers:
            self.scaler.step(optimizer) if self.scaler else optimizer.step()
        due = [scheduler for scheduler in schedulers if self._stepped(scheduler, optimizers)]
        if self.scaler:
            self.scaler.update()
        for scheduler in due:
            scheduler.step()
        return norm

    def _stepped(self, scheduler: Any, optimizers: Sequence[torch.optim.Optimizer]) -> bool:
        """Whether the optimizer of a scheduler took its step; of one that names none of these, whether any did."""
        if self.scaler is None:
            return True
        own = [one for one in optimizers if one is getattr(scheduler, "optimizer", None)]
        with allow("whether float16 overflowed, for the scheduler"):
            return any(
                not any(flag.item() for flag in self.scaler._found_inf_per_device(one).values())
                for one in own or optimizers
            )

    def state_dict(self) -> dict[str, Any]:
        """The scale and its growth; empty without a scaler."""
        return self.scaler.state_dict() if self.scaler else {}

    def load_state_dict(self, state: dict[str, Any]) -> None:
        """Go on from a state; one of another precision is refused.

        Raises:
            InputError: the state has a scale and this object has no scaler, or the other way round.
        """
        if bool(state) != (self.scaler is not None):
            here, there = ("with", "without") if self.scaler else ("without", "with")
            raise InputError(
                f"this Amp works {here} a gradient scaler ({self.dtype}), the state comes from one {there}; build it "
                "with the dtype that was used before: Amp(device, dtype)"
            )
        if self.scaler:
            self.scaler.load_state_dict(state)


def check_scheduler(scheduler: Any, what: str) -> None:
    """Raise `InputError` where a scheduler cannot be stepped once for each step of its optimizer."""
    name = type(scheduler).__name__
    if not callable(getattr(scheduler, "step", None)):
        raise InputError(f"{what}: scheduler is {name}, expected one of torch.optim.lr_scheduler")
    if isinstance(scheduler, torch.optim.lr_scheduler.ReduceLROnPlateau):
        raise InputError(f"{what}: scheduler is {name}, which goes by a metric; call scheduler.step(metric) yourself")


def _best(device: torch.device) -> tuple[torch.dtype, str]:
    """The dtype to take where none is asked for, and why."""
    if device.type == "cuda":
        with torch.cuda.device(device):
            if torch.cuda.is_bf16_supported(including_emulation=False):
                return torch.bfloat16, "the card computes in bfloat16, which needs no scaler"
        return torch.float16, "the card has no bfloat16"
    if device.type == "cpu":
        if _cpu_bfloat16():
            return torch.bfloat16, "the CPU has instructions for bfloat16"
        return torch.float32, "the CPU has no instructions for bfloat16"
    return torch.float32, f"nothing is known of lower precision on {device.type}; pass dtype= to try"


def _cpu_bfloat16() -> bool:
    probes = (getattr(torch.cpu, name, None) for name in ("_is_avx512_bf16_supported", "_is_amx_tile_supported"))
    return any(probe() for probe in probes if probe is not None)
