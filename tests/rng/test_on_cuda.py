"""Draws on CUDA: words, masks and whole numbers have the bits of the CPU, real numbers its values up to rounding."""

import pytest
import torch
from torch import Tensor

from denizen.rng import Rng

pytestmark = pytest.mark.cuda
NUM = 1003
WEIGHTS = torch.tensor([0.2, 0.0, 0.3, 0.5])
EXACT = {
    "event": (0.7,),
    "bernoulli": (0.5,),
    "uniform": (),
    "integers": (-5, 1000),
    "permutation": (),
    "categorical": (WEIGHTS,),
}
ROUNDED = {"normal": (1.0, 2.0), "exponential": (2.0,), "gamma": (2.5, 0.5), "poisson": (7.0,)}


def drawn(name: str, device: str, ids: bool, worlds: int) -> Tensor:
    key = torch.tensor([[42, world] for world in range(worlds)], device=device)
    step = torch.tensor(5, device=device)
    own = torch.arange(NUM, device=device).flip(0) * 3 if ids else None

    def draw(one: Tensor) -> Tensor:
        args = (a.to(device) if isinstance(a, Tensor) else a for a in {**EXACT, **ROUNDED}[name])
        return getattr(Rng(one, step, num=NUM, ids=own), name)("name", *args)

    return torch.vmap(draw)(key).cpu() if worlds > 1 else draw(key[0]).cpu()


@pytest.mark.parametrize("worlds", [1, 3])
@pytest.mark.parametrize("ids", [False, True])
@pytest.mark.parametrize("name", EXACT)
def test_exact_laws(name: str, ids: bool, worlds: int) -> None:
    assert torch.equal(drawn(name, "cuda", ids, worlds), drawn(name, "cpu", ids, worlds))


@pytest.mark.parametrize("worlds", [1, 3])
@pytest.mark.parametrize("name", ROUNDED)
def test_rounded_laws(name: str, worlds: int) -> None:
    there, here = drawn(name, "cuda", False, worlds), drawn(name, "cpu", False, worlds)
    if here.dtype.is_floating_point:
        torch.testing.assert_close(there, here, rtol=1e-5, atol=1e-5)
    else:  # by inversion: a probability in the last bit may tell one number from the next
        assert ((there - here).abs() <= 1).all()
        assert (there != here).float().mean() < 0.01


@pytest.mark.parametrize("name", ["uniform", "bernoulli"])
def test_more_worlds_than_a_grid_has_rows(name: str) -> None:
    """CUDA launches at most 65,535 blocks along a second axis."""

    def draw(device: str) -> Tensor:
        key = torch.stack([torch.full((70_001,), 42), torch.arange(70_001)], 1).to(device)
        step = torch.tensor(5, device=device)
        args = (torch.tensor(0.5, device=device),) if name == "bernoulli" else ()
        return torch.vmap(lambda one: getattr(Rng(one, step, num=3), name)("name", *args))(key).cpu()

    assert torch.equal(draw("cuda"), draw("cpu"))


@pytest.mark.parametrize("kind", ["event", "bernoulli"])
def test_masks_of_those_to_whom_it_can_happen(kind: str) -> None:
    def draw(device: str) -> Tensor:
        keys, step = torch.tensor([[42, 0], [42, 1]], device=device), torch.tensor(5, device=device)
        mask = (torch.arange(NUM, device=device) % 3 == 0).to(torch.int8)
        return torch.vmap(lambda key: getattr(Rng(key, step, num=NUM), kind)("name", 0.7, where=mask))(keys).cpu()

    assert torch.equal(draw("cuda"), draw("cpu"))
