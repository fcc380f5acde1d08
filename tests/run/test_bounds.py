"""A parameter that is out of its bounds stops a run or a gradient, by name, wherever it comes from."""

import warnings
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import Ask, During, Scale
from denizen.relax import StraightThrough
from denizen.run import Gradient
from denizen.zoo.cartpole import CartPole


class Share(dz.State):
    on: Tensor = dz.mask("agents")


class Clipped(dz.Model):
    """No draw notices a share that is no share."""

    share: Tensor = dz.param(0.5, low=0.0, high=1.0)
    other: Tensor = dz.param(1.0, low=0.5)
    num_agents: int = 6

    def init(self, rng: dz.rng.Rng) -> Share:
        return Share(on=rng.bernoulli("first", 0.5))

    def step(self, now: Share, rng: dz.rng.Rng) -> Share:
        return now.replace(on=rng.bernoulli("on", (self.share * self.other.mean()).clamp(0.0, 1.0)))

    @dz.series
    def many(self, now: Share) -> Tensor:
        return now.on.sum() * self.share


BAD = [(-0.25, "-0.25: expected 0 to 1"), (1.5, "1.5: expected 0 to 1"), (float("nan"), "nan: expected finite numbers")]


@pytest.mark.parametrize(("value", "told"), BAD)
def test_what_a_run_begins_with(value: float, told: str) -> None:
    model = Clipped().with_values({"share": torch.tensor(value)})
    told = rf"Clipped.share = {told}"
    for relax in (None, StraightThrough()):
        with pytest.raises(InputError, match=told):
            dz.simulate(model, 2, relax=relax)
    with pytest.raises(InputError, match=told):
        gradient(model=model)


@pytest.mark.parametrize(("path", "value", "told"), [*(("eager", *one) for one in BAD), ("compiled", *BAD[0])])
def test_what_changes_in_place(path: str, value: float, told: str, eager_backend: None) -> None:
    shares = torch.tensor([0.2, 0.4])
    for params, of in ((None, None), ({"share": shares}, shares)):
        run = dz.simulate(Clipped(), 3, params=params, replicates=2, compile=path == "compiled", device="cpu")
        assert run._path == path
        changed = run.model.share if of is None else of
        kept = changed.clone()
        changed.view(-1)[-1] = value
        shown = told if of is None else rf"\[0.2\d*, {told.partition(':')[0]}\d*\]{told.partition(':')[1]}"
        with pytest.raises(InputError, match=rf"Clipped.share = {shown}"):
            run.extend(2)
        assert run.steps == 3
        changed.copy_(kept)
        whole = dz.simulate(Clipped(), 5, params=params, replicates=2, device="cpu")
        assert torch.equal(run.extend(2)["many"], whole["many"])


def test_unchanged_parameters_are_not_read(monkeypatch: pytest.MonkeyPatch) -> None:
    run = dz.simulate(Clipped(), 2)
    monkeypatch.setattr(dz.model.Param, "check", lambda *args: pytest.fail("read"))
    run.extend(3)


# --- interventions ----------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("compile", [False, True])
@pytest.mark.parametrize("replicates", [1, 3])
def test_interventions_that_go_too_far(replicates: int, compile: bool, eager_backend: None) -> None:
    acts = [Scale(target="share", factor=1.5, when=During(5), name="more") for _ in range(2)]
    acts[1] = Scale(target="share", factor=2.0, when=During(6, 7), name="most")
    run = dz.simulate(Clipped(), 6, interventions=acts, replicates=replicates, compile=compile, device="cpu")
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        with pytest.raises(ModelError) as error:
            run.extend(3)
    words = str(error.value)
    assert "the intervention 'more' (factor 1.5) and the intervention 'most' (factor 2) took the parameter" in words
    assert "'share', which is 0.5, out of its bounds between steps 6 and 9: expected 0 to 1" in words
    assert run.steps == 6


def test_what_cannot_leave_its_bounds_is_not_checked_in_every_step() -> None:
    """A check is a kernel in every step."""

    def checks(target: str, *factors: float) -> list[str]:
        acts = [Scale(target=target, factor=f, when=During(1), name=f"{k}") for k, f in enumerate(factors)]
        labels = dz.simulate(Clipped(), 1, interventions=acts)._stepper.checks
        return [label for label in labels if label.startswith("bounds")]

    for target, factors in (("share", (0.5,)), ("share", (0.0, 1.0)), ("other", (2.0, 1.5))):
        assert not checks(target, *factors)
    for target, factors in (("share", (1.5,)), ("share", (-1.0,)), ("share", (0.5, 2.0)), ("other", (0.9,))):
        assert len(checks(target, *factors)) == 1


def test_what_an_intervention_asks_for() -> None:
    ask = Ask(target="other", groups=["all"], answer=lambda group, step: 0.6 - 0.1 * step, name="host")
    with pytest.raises(
        InputError, match=r"Clipped.other = 0.4: expected at least 0.5; the intervention 'host' gave it"
    ):
        dz.simulate(Clipped(), 5, interventions=[ask])


def test_check_names_the_intervention() -> None:
    report = dz.check(Clipped(), interventions=[Scale(target="share", factor=3.0, when=During(1), name="more")])
    assert "the intervention 'more' (factor 3) takes the parameter 'share' out of its bounds" in str(report)


# --- gradients --------------------------------------------------------------------------------------------------------


def gradient(lr: float | None = None, model: dz.Model | None = None, **options: Any) -> Gradient:
    optimizer = None if lr is None else lambda params: torch.optim.Adam(params, lr=lr)
    return Gradient(
        model or Clipped(),
        lambda series: -series["many"].sum(),
        3,
        wrt=["share"],
        relax=StraightThrough(),
        optimizer=optimizer,
        device="cpu",
        **options,
    )


@pytest.mark.parametrize("captured", [False, True])
def test_an_update_that_goes_too_far_stops_the_next_call(captured: bool, played_graphs: None) -> None:
    made = gradient(0.2)
    made._call.captures = captured
    assert torch.isfinite(torch.stack([made() for _ in range(3)])).all()
    share = made.params["share"]
    with pytest.raises(InputError, match=r"Gradient: Clipped.share = 1.0\d+: expected 0 to 1; lower the learning rate"):
        made()
    with torch.no_grad():  # as who projects does
        share.clamp_(max=1.0)
    assert torch.isfinite(made())
    with torch.no_grad():
        share.clamp_(max=1.0)
    assert torch.isfinite(made())


@pytest.mark.parametrize(("value", "told"), BAD)
def test_values_that_are_set_give_nan_and_stop_the_call_after(value: float, told: str) -> None:
    made = gradient(0.01)
    with torch.no_grad():
        made.params["share"].fill_(value)
    assert torch.isnan(made())
    assert not made.gradients["share"].any()
    for call in (made.check, made):
        with pytest.raises((InputError, ModelError), match=rf"Gradient: Clipped.share = {told}"):
            call()
    with torch.no_grad():
        made.params["share"].fill_(0.5)
    assert torch.isfinite(made())
    with torch.no_grad():
        made._model.other.fill_(0.1)
    with pytest.raises(InputError, match=r"Clipped.other = 0.1: expected at least 0.5"):
        made()


# --- worlds -----------------------------------------------------------------------------------------------------------


class Pushed(CartPole):
    push: Tensor = dz.param(1.0, low=0.0)


def test_worlds_of_an_environment() -> None:
    env = Pushed()
    with pytest.raises(InputError, match=r"Pushed.push = -1: expected at least 0"):
        dz.rl.Worlds(env.with_values({"push": torch.tensor(-1.0)}), 2, device="cpu")
    for params in (None, {"push": [1.0, 2.0]}):
        worlds = dz.rl.Worlds(env, 2, device="cpu", params=params)
        worlds.reset()
        worlds.check()
        held = worlds.env.push if params is None else worlds.values["push"]
        kept = held.clone()
        held.fill_(-1.0)
        with pytest.raises(InputError, match=r"Pushed.push = (-1|\[-1.0, -1.0\]): expected at least 0"):
            worlds.check()
        held.copy_(kept)
        worlds.check()
