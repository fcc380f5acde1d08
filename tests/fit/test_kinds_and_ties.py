"""Learned posteriors of models of kinds, ties and space: they are fitted, kept and told as any other model."""

import re
from pathlib import Path
from typing import Any

import pytest
from torch.distributions import Uniform

import denizen as dz
from denizen.errors import CapacityError
from denizen.zoo.boids import boids
from denizen.zoo.hiv import HIV
from denizen.zoo.wolf_sheep import wolf_sheep

STEPS = 8
MEADOW = wolf_sheep(side=10, sheep=30, wolves=8)
# Model, its series, prior, what is learned: few curves and steps, since only what happens to them is asked.
CASES: dict[str, tuple[Any, str, dict[str, Any], Any]] = {
    "kinds": (MEADOW, "sheep", {"sheep_birth": Uniform(0.02, 0.1)}, dz.fit.NRE(100, hidden=8, layers=1, epochs=2)),
    "ties": (
        HIV(num_agents=60, seed_share=0.2),
        "infected",
        {"infect_rate": Uniform(0.0, 0.8)},
        dz.fit.NPE(100, flow="mdn", epochs=2),
    ),
    "space": (
        boids(30, side=30.0, radius=8.0),
        "order",
        {"match": Uniform(0.0, 0.3)},
        dz.fit.NLE(100, flow="mdn", hidden=8, epochs=2),
    ),
}


@pytest.mark.parametrize("what", ["kinds", "ties", pytest.param("space", marks=pytest.mark.slow)])
def test_a_posterior_is_learned_and_kept(what: str, tmp_path: Path) -> None:
    model, series, priors, method = CASES[what]
    seen = dz.simulate(model, STEPS, seed=1, compile=False)[series][0]
    targets = {series: dz.fit.Target(seen, scale="identity")}
    fit = dz.calibrate(model, targets, priors=priors, method=method, progress=False, out=tmp_path / "fit")
    ((name, prior),) = priors.items()
    draws = fit.samples(50)[name]
    assert ((draws >= prior.low.item()) & (draws <= prior.high.item())).all()
    kept = dz.fit.Fit.load(tmp_path / "fit")
    assert (kept.samples(50)[name] == draws).all()
    assert fit.forecast(3)[series].shape[1] == 3


def test_a_draw_that_the_model_has_no_room_for_is_named() -> None:
    """In a hundred worlds at once; those with few births have room."""
    seen = dz.simulate(MEADOW, STEPS, seed=1, compile=False)["sheep"][0]
    tight, targets = MEADOW.replace(sheep_room=40), {"sheep": dz.fit.Target(seen, scale="identity")}
    with pytest.raises(CapacityError, match=r"^calibrate: at sheep_birth=\S+: births: more children than") as told:
        dz.calibrate(
            tight,
            targets,
            priors={"sheep_birth": Uniform(0.0, 1.0)},
            method=dz.fit.NRE(100, hidden=8, layers=1, epochs=2),
            progress=False,
        )
    at = float(re.findall(r"sheep_birth=([\d.]+)", str(told.value))[0])
    with pytest.raises(CapacityError):
        dz.simulate(tight.replace(sheep_birth=at), STEPS, worlds=[told.value.__cause__.place], compile=False)
