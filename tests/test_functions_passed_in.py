"""Functions that users pass in, of another form than they are called with: one error that names them, at the door."""

import functools
import re
from collections.abc import Callable
from typing import Any

import pytest
import torch

import denizen as dz
from denizen.errors import InputError, expect_function
from denizen.model import Act, Ask, During, Trigger
from denizen.perf import equivalent_steps
from denizen.relax import MeanField
from denizen.run import Gradient
from denizen.zoo.catch import Catch
from denizen.zoo.sir import SIR

MODEL = SIR(dz.Graph.from_edges([0, 1, 2], [1, 2, 0], 4), seed_share=0.5)
LINEAR, X = torch.nn.Linear(2, 2), torch.ones(3, 2)


class Once:
    """On and off by one argument only; draws by one only."""

    def on(self, now: Any) -> Any:
        return now

    def draw(self, prob: Any) -> Any:
        return prob


def simulate(**intervention: Any) -> Any:
    kind = Ask if "answer" in intervention else Act
    given = {"when": During(0), "change": lambda model, now, rng: now} if kind is Act else {"when": During(0)}
    return dz.simulate(MODEL, 1, interventions=[kind(**{**given, **intervention})])


def gradient(**options: Any) -> Any:
    given = {"loss": lambda series: series["cases"].sum(), "wrt": ["infect_rate"], "relax": MeanField(), **options}
    return Gradient(MODEL, given.pop("loss"), 2, **given)


def equivalent(**options: Any) -> Any:
    return dz.perf.equivalent(LINEAR, torch.nn.Linear(2, 2), X, **options)


def accumulate(**functions: Any) -> Any:
    step = dz.tools.Accumulate(LINEAR, torch.optim.SGD(LINEAR.parameters()))
    return step([X], **{"loss_sum": lambda batch: LINEAR(batch).sum(), **functions})


def window(batch: int, device: Any) -> Callable[[], None]:
    return lambda: None


ENV = Catch()
DOORS: list[tuple[Callable[[], Any], str]] = [
    (
        lambda: simulate(change=lambda now: now),
        "Act: change is <lambda>(now), expected a function of (model, now, rng)",
    ),
    (lambda: simulate(change=5), "Act: change=5, expected a function of (model, now, rng)"),
    (lambda: simulate(when=Trigger(lambda: True)), "Trigger: start is <lambda>(), expected a function of (now)"),
    (lambda: simulate(when=Trigger(lambda now: now.time.step > 0, lambda now, on: on)), "Trigger: stop is <lambda>("),
    (lambda: simulate(when=Once()), "Act: when.on is Once.on(now), expected a function of (now, was_on)"),
    (
        lambda: simulate(target="infect_rate", groups=["all"], answer=lambda group: 0.1),
        "Ask: answer is <lambda>(group), expected a function of (group, step)",
    ),
    (lambda: dz.simulate(MODEL, 1, relax=Once()), "simulate: relax.draw is Once.draw(prob), expected a function of"),
    (lambda: gradient(relax=Once()), "Gradient: relax.draw is Once.draw(prob)"),
    (lambda: gradient(loss=lambda: 0), "Gradient: loss is <lambda>(), expected a function of (series)"),
    (lambda: gradient(optimizer=lambda: 0), "Gradient: optimizer is <lambda>(), expected a function of (params)"),
    (
        lambda: dz.doctor(make=lambda place: window, device="cpu"),
        "doctor: make is <lambda>(place), expected a function of device, or",
    ),
    (lambda: dz.doctor(make=lambda device, size: window, device="cpu"), "missing a required argument: 'size'"),
    (
        lambda: dz.doctor(lambda x, y: None),
        "the step is <lambda>(x, y), expected a function of nothing or of the step's",
    ),
    (lambda: dz.doctor(lambda x, y: None, 1), "the step is <lambda>(x, y), expected a function of (int)"),
    (lambda: dz.perf.profile(lambda x, y: None), "the step is <lambda>(x, y)"),
    (lambda: dz.perf.environment(lambda x: None), "environment: step is <lambda>(x), expected a function without"),
    (
        lambda: dz.perf.bench(lambda size_of: window),
        "(size_of), expected a function of batch_size and device, of either",
    ),
    (lambda: dz.perf.bench(lambda: lambda x: None), "(x), expected a function without arguments"),
    (lambda: equivalent(loss=lambda: 0), "equivalent: loss is <lambda>(), expected a function of (output)"),
    (lambda: equivalent(optimizer=lambda: 0), "equivalent: optimizer is <lambda>(), expected a function of (params)"),
    (lambda: equivalent(weights=lambda: 0), "weights is <lambda>(), expected a function of (state_dict)"),
    (lambda: equivalent_steps(lambda x: None, window), "equivalent_steps: make_a is <lambda>(x)"),
    (
        lambda: dz.tools.find_batch_size(lambda: 0, state=[LINEAR]),
        "make_step is <lambda>(), expected a function of (batch",
    ),
    (lambda: dz.tools.find_batch_size(lambda n: window, state=[LINEAR]), "what make_step(1) returned is window("),
    (
        lambda: dz.tools.warm_up(lambda x: 0, state=[LINEAR]),
        "warm_up: step is <lambda>(x), expected a function without",
    ),
    (lambda: dz.tools.warm_up(lambda: 0, X, state=[LINEAR]), "expected a function of (Tensor)"),
    (lambda: dz.tools.fit_memory(LINEAR, lambda x: 0), "fit_memory: step is <lambda>(x), expected a function without"),
    (lambda: accumulate(loss_sum=lambda: 0), "Accumulate: loss_sum is <lambda>(), expected a function of (batch)"),
    (lambda: accumulate(count=lambda: 0), "Accumulate: count is <lambda>(), expected a function of (batch)"),
    (lambda: dz.tools.MetricsWriter(lambda: 0), "sink is <lambda>(), expected a function of (row)"),
    (lambda: dz.rl.mlp(ENV, activation=torch.nn.Linear), "policy: activation is Linear(in_features, out_features"),
    (lambda: dz.rl.mlp(ENV, head=lambda: 0), "policy: head is <lambda>(), expected a function of (width)"),
    (
        lambda: dz.rl.imitate(ENV, dz.rl.mlp(ENV), lambda observed: 0),
        "imitate: teacher is <lambda>(observed), expected",
    ),
    (
        lambda: dz.rl.train_seeds(ENV, lambda: 0, dz.PPO(), 1, seeds=[0]),
        "train_seeds: policy is <lambda>(), expected a function of (seed)",
    ),
    (lambda: dz.rl.FromGymnasium(lambda k: None, 1), "FromGymnasium: make is <lambda>(k), expected a function without"),
]


@pytest.mark.parametrize(("door", "words"), DOORS, ids=[words for _, words in DOORS])
def test_a_function_of_another_form_is_told_by_name(door: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=re.escape(words)) as error:
        door()
    assert len(str(error.value)) < 300


def decorated(function: Callable[..., Any]) -> Callable[..., Any]:
    @functools.wraps(function)
    def called(*args: Any) -> Any:
        return function(MODEL, *args)

    return called


@pytest.mark.parametrize(
    "function",
    [
        lambda now: 0,
        lambda now, more=1: 0,
        lambda *args: 0,
        functools.partial(lambda a, now: 0, 1),
        Once().on,
        decorated(lambda model, now: 0),
        len,
        torch.sum,
        torch.nn.ReLU(),
        dict,
    ],
)
def test_what_can_be_called_passes(function: Callable[..., Any]) -> None:
    expect_function("here", function, "now")


def test_several_forms_are_named() -> None:
    with pytest.raises(
        InputError, match=r"here is <lambda>\(x, \*rest, y=…, \*\*more\), expected this or that: missing"
    ):
        expect_function("here", lambda x, *rest, y=1, **more: 0, wanted="this or that")
    expect_function("here", lambda x, *, device: 0, "x", named=["device"])
