"""Flat Adam: all parameters in one buffer, clipped and updated by a few operations, without a host read."""

from collections.abc import Sequence

import torch
from torch import Tensor, nn

from denizen._processes import total_
from denizen.errors import InputError
from denizen.nn import kernels
from denizen.ops import variant

BETAS = 0.9, 0.999  # shares of the old moments that are kept
_GROWTH_AFTER = 2000  # good steps after which a loss scale doubles, as torch.amp.GradScaler has it


class FlatAdam:
    """Adam (Kingma and Ba, 2015) over groups of parameters, each clipped by its own norm.

    Parameters become views of one buffer a group, their gradients likewise.

    Attributes:
        scale: what to multiply the loss by before backward (float16); else 1.
    """

    def __init__(
        self,
        groups: Sequence[Sequence[nn.Parameter]],
        *,
        max_norm: float | None,
        eps: float = 1e-5,
        scale: float | None = None,
    ) -> None:
        """Args:
        groups: parameters, each in one group.
        max_norm: of a group's gradient; None: no clipping.
        eps: added to the root of the second moment.
        scale: first scale of the loss, for float16; None: none, and a gradient that is not finite is applied as it is.

        Raises:
            InputError: nothing to learn, or parameters of several dtypes.
        """
        self.groups = [list(group) for group in groups if group]
        if not self.groups:
            raise InputError("the policy has no parameters that need a gradient; nothing could be learnt")
        self._max_norm = max_norm
        device = self.groups[0][0].device
        self.scale = torch.full((), scale or 1.0, device=device)
        self._scaled, self._good = scale is not None, torch.zeros((), device=device)
        self.rate = torch.zeros((), device=device)
        self.flat = [_flatten(group) for group in self.groups]
        self._eps = eps
        self._states = [  # as torch.optim.Adam names them, which would load torch's compiler (2 s) to be made
            {
                "step": torch.zeros((), device=device),
                "exp_avg": torch.zeros_like(flat),
                "exp_avg_sq": torch.zeros_like(flat),
            }
            for flat in self.flat
        ]

    def precompile(self) -> None:
        """Have the kernels of a step compiled; within `kernels.precompiling`."""
        if not self._scaled and variant(self.rate.device) == "triton":
            kernels.precompile_adam([flat.numel() for flat in self.flat], self._max_norm, BETAS, self._eps)

    def moments(self, parameter: Tensor) -> tuple[Tensor, Tensor]:
        """First and second moment of a parameter, as views."""
        for state, group in zip(self._states, self.groups, strict=True):
            begin = 0
            for mine in group:
                if mine is parameter:
                    end = begin + mine.numel()
                    return state["exp_avg"][begin:end].view_as(mine), state["exp_avg_sq"][begin:end].view_as(mine)
                begin += mine.numel()
        raise KeyError("not among the parameters of this optimizer")

    def backward(self, loss: Tensor, *, add: bool = False) -> None:
        """Take the gradient of a loss, or add it to what there is; what it does not depend on or is frozen has 0.

        One copy for all parameters, where `Tensor.backward` adds to each by itself.
        """
        parameters = [p for group in self.groups for p in group]
        mine = [p.grad for p in parameters if p.grad is not None]  # all of them: views of the flat gradient
        free = [number for number, p in enumerate(parameters) if p.requires_grad]
        found = torch.autograd.grad(
            loss * self.scale if self._scaled else loss, [parameters[number] for number in free], allow_unused=True
        )
        pairs = [(mine[number], grad) for number, grad in zip(free, found, strict=True) if grad is not None]
        if not add and len(pairs) < len(mine):
            torch._foreach_zero_(mine)
        (torch._foreach_add_ if add else torch._foreach_copy_)([a for a, _ in pairs], [b for _, b in pairs])

    def step(self, rate: Tensor, skip: Tensor) -> Tensor:
        """Add up the gradients of all processes, clip and update.

        Args:
            rate: float32 `[]`: learning rate.
            skip: bool `[]`: leave everything as it is.

        Returns:
            Norm of the whole gradient before clipping: float32 `[]`.
        """
        grads = [flat.grad for flat in self.flat]
        for grad in grads:
            total_(grad)  # type: ignore[arg-type]  # pyrefly: ignore
        if not self._scaled and variant(self.rate.device) == "triton":
            norms = [self._fused(state, flat, rate, skip) for state, flat in zip(self._states, self.flat, strict=True)]
            return norms[0] if len(norms) == 1 else torch.stack(norms).norm()
        self.rate.copy_(rate)
        if self._scaled:
            for grad in grads:
                grad.div_(self.scale)  # type: ignore[union-attr]
        norms = [torch.linalg.vector_norm(grad) for grad in grads]  # type: ignore[arg-type]
        total = torch.stack(norms).norm()
        if self._scaled:
            skip = skip | ~torch.isfinite(total)
            self._rescale(torch.isfinite(total))
        if self._max_norm is not None:
            for grad, norm in zip(grads, norms, strict=True):
                grad.mul_((self._max_norm / (norm + 1e-6)).clamp(max=1.0))  # type: ignore[union-attr]
        stop = skip.to(torch.float32)
        for state, flat in zip(self._states, self.flat, strict=True):
            self._updated(state, flat, stop)
        return total

    @torch.no_grad()
    def _updated(self, state: dict[str, Tensor], flat: Tensor, stop: Tensor) -> None:
        """What `torch.optim.Adam(fused=True)` does with a group; nothing where `stop` is 1."""
        assert flat.grad is not None
        none: list[Tensor] = []
        torch._foreach_add_([state["step"]], 1)
        torch._fused_adam_(
            [flat],
            [flat.grad],
            [state["exp_avg"]],
            [state["exp_avg_sq"]],
            none,
            [state["step"]],
            amsgrad=False,
            lr=self.rate,
            beta1=BETAS[0],
            beta2=BETAS[1],
            weight_decay=0.0,
            eps=self._eps,
            maximize=False,
            found_inf=stop,
        )
        torch._foreach_sub_([state["step"]], [stop])

    def _fused(self, state: dict[str, Tensor], flat: Tensor, rate: Tensor, skip: Tensor) -> Tensor:
        """Clip and update a group in two launches; the norm of its gradient."""
        assert flat.grad is not None
        return kernels.adam(
            flat.data,
            flat.grad,
            state["exp_avg"],
            state["exp_avg_sq"],
            state["step"],
            rate,
            skip,
            max_norm=self._max_norm,
            betas=BETAS,
            eps=self._eps,
        )

    def _rescale(self, finite: Tensor) -> None:
        """Halve the scale after an overflow, double it after 2,000 steps without one."""
        self._good.copy_(torch.where(finite, self._good + 1, 0.0))
        grow = self._good >= _GROWTH_AFTER
        self.scale.copy_(torch.where(finite, torch.where(grow, self.scale * 2, self.scale), self.scale * 0.5))
        self._good.masked_fill_(grow, 0.0)

    def tensors(self) -> dict[str, Tensor]:
        """What a checkpoint needs beside the parameters."""
        held = {"scale": self.scale, "good": self._good}
        for number, state in enumerate(self._states):
            held.update({f"{number}.{name}": tensor for name, tensor in state.items()})
        return held


def _flatten(group: Sequence[nn.Parameter]) -> nn.Parameter:
    """One parameter of which the given ones become views, values and gradients alike."""
    if len({(p.dtype, p.device) for p in group}) > 1:
        raise InputError("the policy's parameters differ in dtype or device; a policy is float32 on one device")
    flat = nn.Parameter(torch.cat([p.detach().flatten() for p in group]))
    flat.grad = torch.zeros_like(flat)
    begin = 0
    for p in group:
        end = begin + p.numel()
        p.data = flat.data[begin:end].view_as(p)
        p.grad = flat.grad[begin:end].view_as(p)
        begin = end
    return flat
