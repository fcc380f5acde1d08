"""On the CPU, the forms that policies take on CUDA: what asks where a tensor is gets told that it is there."""

import pytest

from denizen.nn import kernels

ASKED = (
    "denizen.rl._layers.spreads",
    "denizen.rl._policy.spreads",
    "denizen.rl._policy.launches",
    "denizen.rl._layers._pays",
    "denizen.rl._value._fuses",
)


def as_on_cuda(patch: pytest.MonkeyPatch, on: bool = True, only: str = "") -> None:
    """Layers of policies take the form for CUDA, or that for the CPU; `only` where this question is asked."""
    for name in ASKED:
        if name.endswith(only):
            patch.setattr(name, lambda tensor: on)


def small_networks_at_once(patch: pytest.MonkeyPatch) -> list[int]:
    """Small networks are one operation wherever they would be on CUDA; of each that was, its number of tensors."""
    taken: list[int] = []
    plain, fits = kernels.mlp, kernels.mlp_fits

    def mlp(x, weights, activation):
        taken.append(len(weights))
        return plain(x, weights, activation)

    def takes(weights):
        with patch.context() as there:
            there.setattr("denizen.nn.kernels._mlp.variant", lambda device: "triton")
            return fits(weights)

    patch.setattr(kernels, "mlp", mlp)
    patch.setattr(kernels, "mlp_fits", takes)
    return taken


def foraging_in_place(patch: pytest.MonkeyPatch) -> None:
    """Worlds of foraging take their form for CUDA, whose kernel does nothing."""
    patch.setattr("denizen.zoo.foraging._fast.variant", lambda device: "triton")
    patch.setattr("denizen.zoo.foraging._launch.step", lambda *args: [tensor.zero_() for tensor in args[6]])
