"""Where compiling fails: one message, eager steps, equal results; and what a step breaks is said on every path."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import ModelError
from denizen.zoo.covid import covid
from denizen.zoo.sir import sir
from inside import Inside


def broken(graph: Any, inputs: Any) -> Any:
    raise RuntimeError("InvalidCxxCompiler: no working C++ compiler found\nand many lines more")


def model(name: str = "sir") -> dz.Model:
    if name == "covid":
        return covid(dz.population.synthetic("astoria", 501), sample_deaths=True, isolation=0.2, R=20.0)
    return sir(dz.Graph.from_edges(dz.space.generators.erdos_renyi(300, 8.0, seed=1)))


@pytest.mark.compile
@pytest.mark.parametrize("name", ["sir", "covid"])
@pytest.mark.parametrize("replicates", [1, 3])
def test_no_compiler(name: str, replicates: int, inside: Inside) -> None:
    plain = dz.simulate(model(name), 12, replicates=replicates, compile=False)
    inside.backend(broken)
    with pytest.warns(UserWarning, match="runs eagerly, with equal results") as said:
        run = dz.simulate(model(name), 6, replicates=replicates, compile=True).extend(6)
    assert len(said) == 1
    assert str(said[0].message).endswith("InvalidCxxCompiler: no working C++ compiler found")
    assert run.stats()["path"] == "eager"
    for series in plain.series_names:
        assert torch.equal(plain[series], run[series])


@pytest.mark.parametrize("replicates", [1, 3])
def test_plain_torch_has_equal_results(replicates: int, device: torch.device, monkeypatch: pytest.MonkeyPatch) -> None:
    """Without Triton or numba, as on a GPU that is too old."""
    host = dz.simulate(model("covid"), 30, replicates=replicates, device="cpu")
    with dz.ops.reference_only():
        run = dz.simulate(model("covid"), 30, replicates=replicates, device=device, compile=False)
        assert run.stats()["ops"] == "reference"
    for series in host.series_names:
        assert torch.equal(host[series], run[series].cpu())


# --- drift ------------------------------------------------------------------------------------------------------------


class Cells(dz.State):
    seen: Tensor = dz.count("agents")
    level: Tensor = dz.real("cells")


class Drifting(dz.Model):
    """Loses a cell once told so: what no pure function does."""

    told: dict[str, bool]
    num_agents: int = 5

    def init(self, rng: dz.rng.Rng) -> Cells:
        return Cells(seen=torch.zeros(5, dtype=torch.int32), level=torch.zeros(3))

    def step(self, now: Cells, rng: dz.rng.Rng) -> Cells:
        return now.replace(seen=now.seen + 1, level=now.level[:2] if self.told["drift"] else now.level)

    @dz.series
    def total(self, now: Cells) -> Tensor:
        return now.seen.sum()


DRIFT = r"Cells\.level changed from float32\[3\] to float32\[2\] within a run"


@pytest.mark.compile
@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("replicates", [1, 3])
def test_drift_within_a_run(compile: bool, replicates: int, device: torch.device, inside: Inside) -> None:
    if device.type == "cpu":
        inside.backend("eager")
    told = {"drift": False}
    run = dz.simulate(Drifting(told), 4, replicates=replicates, device=device, compile=compile)
    path = {"cpu": "compiled", "cuda": "captured"}[device.type] if compile else "eager"
    assert run.stats()["path"] == path
    told["drift"] = True
    if path == "captured":  # the step is on the device and asks Python no more
        assert run.extend(3)["total"].tolist() == [[5 * k for k in range(1, 8)]] * replicates
        return
    with pytest.raises(ModelError, match=DRIFT):
        run.extend(3)


@pytest.mark.compile
def test_drift_while_the_step_is_compiled(device: torch.device, inside: Inside) -> None:
    if device.type == "cpu":
        inside.backend("eager")
    told = {"drift": False}
    run = dz.simulate(Drifting(told), 2, device=device, compile=False)
    run._compile, told["drift"] = True, True
    with warnings.catch_warnings():
        warnings.simplefilter("ignore")  # that it could not be compiled
        with pytest.raises(ModelError, match=DRIFT):
            run.extend(3)
