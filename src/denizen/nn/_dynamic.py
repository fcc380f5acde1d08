"""The fast agent attention network: the same model as the reference, laid out for the device.

Levers: agents-first layout, the sensing mask folded into the embedding, fused projections, fused norms, library
attention over time, copy-free attention over agents, the social bias built once a forward, steps recomputed on demand.
"""

from collections.abc import Callable, Mapping
from typing import Any, Self

import torch
from torch import Tensor, nn
from torch.nn import functional as F
from torch.utils.checkpoint import checkpoint

from denizen.errors import InputError
from denizen.nn._config import DotGATConfig, check_input
from denizen.nn._initial import initial
from denizen.nn._layers import MLP, Attention, EdgeAttention, MemoryAttention, Norm, PerAgentLinear, SocialAttention
from denizen.nn._reference import AgentStates, DynamicDotGATReference, make_bias, make_sensing
from denizen.nn._social import EdgeBias
from denizen.nn.kernels._message_steps import available, fits, pack
from denizen.nn.kernels._message_steps import message_steps as _message_steps
from denizen.ops import reverse_only

message_steps = reverse_only(_message_steps)

# Names of the reference, and where the fast network keeps the same tensor.
_SAME = {
    "head": "head.weight",
    "head_bias": "head.bias",
    "head_gain": "head_norm.gain",
    "embed_gain": "embed_norm.gain",
    **{f"{kind}_gain": f"{kind}.norm.gain" for kind in ("memory", "social", "alone", "mlp")},
    **{
        f"{kind}_{ours}{suffix}": f"{kind}.{theirs}.{leaf}"
        for kind in ("alone", "mlp")
        for ours, theirs in (("in", "inner"), ("out", "outer"))
        for suffix, leaf in (("", "weight"), ("_bias", "bias"))
    },
}


class DynamicDotGAT(nn.Module):
    """Agents that each see part of a series, remember (attention over time), talk (attention over agents) and predict.

    The same model as `DynamicDotGATReference`: equal seeds give equal weights, equal weights give equal results and
    gradients up to rounding. One graph under `torch.compile(fullgraph=True)`; no value is read on the host.

    ```python
    import denizen as dz, torch

    sensing = dz.nn.sense_columns(num_agents=20, num_features=25, share=0.2, seed=0)
    model = dz.nn.DynamicDotGAT(dz.nn.DotGATConfig(num_agents=20, num_features=25), sensing)
    hidden, outputs = model(torch.randn(8, 50, 25))  # [8, 50, 20, 128], [8, 50, 20, 1]
    ```

    Inputs have to be finite: an agent that does not see a column multiplies it by 0.

    Attributes:
        config: sizes and switches.
        checkpoint_steps: whether message steps keep only what they begin with and are computed again for the backward:
            equal gradients, less memory, about a third more time.
        sensing: `[agents, features]`, 1 where an agent sees a column.
        bias: learnable biases of the social attention; None where everyone talks to everyone.
        drop: what is applied to whatever a sublayer adds.
    """

    sensing: Tensor
    memory: MemoryAttention | None
    social: SocialAttention | EdgeAttention | None
    alone: MLP | None
    head: nn.Module

    def __init__(self, config: DotGATConfig, sensing: Tensor | None = None, *, checkpoint_steps: bool = False) -> None:
        """Args:
        config: sizes and switches.
        sensing: `[agents, features]` of zeros and ones; None lets every agent see everything.
        checkpoint_steps: recompute message steps in the backward.
        """
        super().__init__()
        self.config, self.checkpoint_steps = config, checkpoint_steps
        first = initial(config)
        self.embed = nn.Parameter(first["embed"])
        self.embed_norm = Norm(first["embed_gain"], config.eps)
        self.memory = _attention(MemoryAttention, "memory", first, config) if config.memory else None
        self.social = None
        if config.talks:
            self.bias = make_bias(config)
            kind = EdgeAttention if isinstance(self.bias, EdgeBias) else SocialAttention
            self.social = _attention(kind, "social", first, config)
        else:
            self.bias = None
        self.alone = _mlp("alone", first, config) if config.isolated_width else None
        self.mlp = _mlp("mlp", first, config)
        self.head_norm = Norm(first["head_gain"], config.eps)
        self.head = PerAgentLinear(first["head"], first["head_bias"])
        self.register_buffer("sensing", make_sensing(config, sensing))
        self.drop = nn.Dropout(config.dropout)
        self._has_kernels = available(self.embed.device)

    def _apply(self, fn: Callable[[Tensor], Tensor], recurse: bool = True) -> Self:
        super()._apply(fn, recurse)
        self._has_kernels = available(self.embed.device)
        return self

    def __setstate__(self, state: dict[str, Any]) -> None:
        super().__setstate__(state)
        self._has_kernels = available(self.embed.device)  # torch.load(map_location=) moves tensors without `_apply`

    def forward(self, series: Tensor | None = None, *, views: Tensor | None = None) -> AgentStates:
        """Every agent's state and outputs at every time, from what it saw until then.

        Args:
            series: `[B, T, M]`, or `[T, M]` for a batch of one; every agent sees it through the sensing mask.
            views: instead of it `[B, A, T, M]`: what each agent sees, masked already.

        Returns:
            hidden `[B, T, A, H]` before the last norm and outputs `[B, T, A, y]`, views of agents-first tensors.

        Raises:
            InputError: shapes that do not fit.
        """
        check_input(series, views, self.config, self.embed)
        h, times = self._embedded(series, views)
        h = self.steps(h, times)
        outputs = self.head(self.head_norm(h))
        agents, batch = h.shape[0], h.shape[1] // times
        return AgentStates(*(x.view(agents, batch, times, x.shape[-1]).permute(1, 2, 0, 3) for x in (h, outputs)))

    def steps(self, h: Tensor, times: int) -> Tensor:
        """All message steps over `h` `[agents, batch * times, H]`."""
        bias = None if self.bias is None else self.bias()  # once, whatever the number of steps
        again, number = self.checkpoint_steps and torch.is_grad_enabled(), self.config.message_steps
        if self._fuses(h, times):
            return self._fused_steps(h, times, bias, again)
        for _ in range(number):
            if again:
                keeps = type(self.drop) is not nn.Dropout or (self.drop.training and self.drop.p > 0)
                h = checkpoint(self._step, h, times, bias, use_reentrant=False, preserve_rng_state=keeps)
            else:
                h = self._step(h, times, bias)
        return h

    def _fuses(self, h: Tensor, times: int) -> bool:
        """Whether kernels that fuse whole sublayers take the message steps as they are."""
        linear = [part.fused for part in (self.memory, self.social) if part is not None]
        linear += [self.mlp.inner, self.mlp.outer]
        usual = all(isinstance(part, PerAgentLinear) for part in linear) and type(self.drop) is nn.Dropout
        dense = self.alone is None and not isinstance(self.social, EdgeAttention)
        remembered = times if self.memory is not None else None
        whole = self._has_kernels and usual and dense and self.config.message_steps > 0
        return whole and fits(h, remembered, self.config.num_heads)

    def _fused_steps(self, h: Tensor, times: int, bias: Tensor | None, again: bool) -> Tensor:
        config, rate = self.config, self.drop.p if self.drop.training else 0.0
        weights: list[Tensor | None] = []
        for part in (self.memory, self.social):
            fused: Any = None if part is None else part.fused
            weights += (
                [None, None] if part is None else [part.norm.gain, pack(fused.weight, part.shared, config.num_heads)]
            )
        if bias is None and self.social is not None:
            bias = h.new_zeros(config.num_agents, config.num_agents, dtype=torch.float32)
        inner: Any = self.mlp.inner
        outer: Any = self.mlp.outer
        weights += [bias, self.mlp.norm.gain, inner.weight, inner.bias, outer.weight, outer.bias]
        seed = torch.randint(2**31, (1,), device=h.device) if rate else None

        def go(h: Tensor, seed: Tensor | None, number: int, keep: bool) -> Tensor:
            return message_steps(h, *weights, seed, times, config.num_heads, number, rate, config.eps, keep)[0]

        if not again:
            return go(h, seed, config.message_steps, torch.is_grad_enabled())
        sublayers = 1 + (self.memory is not None) + (self.social is not None)
        for step in range(config.message_steps):  # what is dropped follows from the seed: no generator to set back
            own = None if seed is None else seed + step * sublayers
            h = checkpoint(go, h, own, 1, True, use_reentrant=False, preserve_rng_state=False)
        return h

    def _step(self, h: Tensor, times: int, bias: Tensor | None) -> Tensor:
        if self.memory is not None:
            h = h + self.drop(self.memory(h, times))
        if isinstance(self.social, EdgeAttention):
            h = h + self.drop(self.social(h, bias, self.bias))
        elif self.social is not None:
            h = h + self.drop(self.social(h, bias))
        if self.alone is not None:
            h = h + self.drop(self.alone(h))
        return h + self.drop(self.mlp(h))

    def _embedded(self, series: Tensor | None, views: Tensor | None) -> tuple[Tensor, int]:
        """`[agents, batch * times, H]` after the first norm, and the number of times."""
        agents, features = self.sensing.shape
        if views is not None:
            h = torch.bmm(views.transpose(0, 1).reshape(agents, -1, features), self.embed)
            return self.embed_norm(h), views.shape[2]
        assert series is not None
        # The mask goes into the weights, and all agents into one product: no tensor of what each agent sees.
        masked = (self.embed * self.sensing[:, :, None].to(self.embed.dtype)).transpose(0, 1).reshape(features, -1)
        rows = series.reshape(series[..., 0].numel(), features)
        if series.is_cuda:  # rows of 16 bytes, without which the library takes a slow kernel
            rows, masked = F.pad(rows, (0, -features % 8)), F.pad(masked, (0, 0, 0, -features % 8))
        h = torch.mm(rows, masked).view(-1, agents, self.config.hidden).transpose(0, 1)
        return self.embed_norm(h).contiguous(), series.shape[-2]

    # --- to and from the reference ------------------------------------------------------------------------------------

    @classmethod
    def from_reference(cls, reference: DynamicDotGATReference, *, checkpoint_steps: bool = False) -> Self:
        """The fast form of a reference, with its weights, dtype and device."""
        like = reference.embed
        with torch.random.fork_rng(devices=[]):  # first weights are drawn for nothing
            fast = cls(reference.config, reference.sensing, checkpoint_steps=checkpoint_steps)
        fast.to(device=like.device, dtype=like.dtype).train(reference.training)
        fast.load_state_dict(fast.state_of_reference(reference.state_dict()))
        return fast

    def to_reference(self) -> DynamicDotGATReference:
        """The readable form, with the same weights, dtype and device."""
        with torch.random.fork_rng(devices=[]):
            reference = DynamicDotGATReference(self.config, self.sensing)
        reference.to(device=self.embed.device, dtype=self.embed.dtype).train(self.training)
        reference.load_state_dict(self.reference_state())
        return reference

    def state_of_reference(self, state: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """A state dictionary of the reference in this form; exact."""
        ours = {_SAME.get(name, name): value for name, value in state.items()}
        for kind in ("memory", "social"):
            if f"{kind}_q" not in ours:
                continue
            q, k, v = (ours.pop(f"{kind}_{part}") for part in "qkv")
            fused, shared = _fuse(q, k, v, self.config.num_heads)
            ours[f"{kind}.fused.weight"] = fused
            if shared is not None:
                ours[f"{kind}.shared"] = shared
        return ours

    def reference_state(self) -> dict[str, Tensor]:
        """This network's state dictionary in the form of the reference; exact.

        Raises:
            InputError: the network was quantized, which cannot be undone.
        """
        if not isinstance(self.mlp.inner, PerAgentLinear):
            raise InputError("a quantized network has no weights to hand to the reference; keep the one it came from")
        back = {theirs: ours for ours, theirs in _SAME.items()}
        state = {back.get(name, name): value for name, value in self.state_dict().items()}
        heads = self.config.num_heads
        for kind in ("memory", "social"):
            fused = state.pop(f"{kind}.fused.weight", None)
            if fused is None:
                continue
            parts = fused.unflatten(-1, (heads, -1, self.config.hidden // heads)).unbind(-2)
            whole = [part.flatten(-2) for part in parts]
            if len(whole) == 2:
                whole.append(state.pop(f"{kind}.shared"))
            state.update({f"{kind}_{name}": value for name, value in zip("qkv", whole, strict=True)})
        return state


def _fuse(q: Tensor, k: Tensor, v: Tensor, heads: int) -> tuple[Tensor, Tensor | None]:
    """Q, K and V `[A, H, H]` with columns by head, part and place; a shared V `[H, H]` stays for itself."""
    parts = [x.unflatten(-1, (heads, -1)) for x in ((q, k, v) if v.ndim == 3 else (q, k))]
    return torch.stack(parts, -2).flatten(-3), None if v.ndim == 3 else v


def _attention(kind: type[Any], name: str, first: dict[str, Tensor], config: DotGATConfig) -> Any:
    assert issubclass(kind, Attention)
    fused, shared = _fuse(first[f"{name}_q"], first[f"{name}_k"], first[f"{name}_v"], config.num_heads)
    return kind(Norm(first[f"{name}_gain"], config.eps), PerAgentLinear(fused), shared, config.num_heads)


def _mlp(name: str, first: dict[str, Tensor], config: DotGATConfig) -> MLP:
    inner = PerAgentLinear(first[f"{name}_in"], first[f"{name}_in_bias"])
    outer = PerAgentLinear(first[f"{name}_out"], first[f"{name}_out_bias"])
    return MLP(Norm(first[f"{name}_gain"], config.eps), inner, outer)
