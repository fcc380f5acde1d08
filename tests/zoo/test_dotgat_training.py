"""What a training of agent attention networks must keep to: its schedule, its order, its splits and its masks."""

import dataclasses
import math

import pytest
import torch
from torch import nn

import denizen as dz
from denizen.nn import AgentStates, NonlinearTarget, task
from denizen.zoo import dotgat
from denizen.zoo.dotgat import Answers, Settings
from denizen.zoo.dotgat.opinions import GAIN, Learnt, Opinions
from denizen.zoo.dotgat.step import Step
from denizen.zoo.dotgat.train import LOWEST_RATE

TINY = Settings(
    agents=4,
    features=4,
    times=8,
    rank=2,
    hidden=8,
    heads=2,
    neighbours=2,
    processes=40,
    batch=8,
    epochs=3,
    learning_rate=5e-3,
    share=0.5,
    message_steps=1,
    precision="float32",
)


def tiny(**changes):
    return dataclasses.replace(TINY, **changes)


@pytest.fixture
def steps(monkeypatch):
    """Of every step of a training: learning rate, whether dropout is on, and the rows of its batch."""
    noted, take, models = [], Step.__call__, []

    def made(*args):
        models.append(model := Answers(*args))
        return model

    def noting(step, window):
        noted.append((float(step.learning_rate), models[-1].training, window[0][0]))
        return take(step, window)

    monkeypatch.setitem(dotgat.train.__globals__, "Answers", made)
    monkeypatch.setattr(Step, "__call__", noting)
    return noted


def test_the_rate_falls_along_one_cosine_over_all_epochs(steps):
    dotgat.train(TINY, device="cpu")
    span = TINY.learning_rate - LOWEST_RATE
    shares = [step / len(steps) for step in range(len(steps))]
    expected = [LOWEST_RATE + span * (1 + math.cos(math.pi * share)) / 2 for share in shares]
    assert [rate for rate, *_ in steps] == pytest.approx(expected, rel=1e-5)


def test_dropout_is_on_in_every_step_also_after_a_validation(steps):
    dotgat.train(TINY, device="cpu")
    assert all(training for _, training, _ in steps)


def test_an_epoch_takes_a_series_once_and_each_epoch_in_another_order(steps):
    dotgat.train(TINY, device="cpu")
    size = len(steps) // TINY.epochs
    epochs = [torch.cat([rows for *_, rows in steps[k * size : (k + 1) * size]]) for k in range(TINY.epochs)]
    for epoch in epochs:
        assert len(epoch.flatten(1).unique(dim=0)) == len(epoch) == 8 * size
    assert not torch.equal(epochs[0], epochs[1])
    assert not torch.equal(epochs[1], epochs[2])


def test_gradients_are_clipped():
    """To so small a norm that AdamW, whose epsilon is far larger, hardly moves."""
    moved = []
    for norm in (1.0, 1e-14):
        settings = tiny(epochs=1, max_norm=norm, weight_decay=0.0)
        trained = dotgat.train(settings, device="cpu")
        torch.manual_seed(settings.seed)
        first = dotgat.Answers(settings, dotgat.draw(settings))
        moved.append(float((trained.model.body.embed - first.body.embed).detach().abs().max()))
    assert moved[0] > 1e-3
    assert moved[1] < 1e-6


def test_targets_take_their_statistics_from_the_training_split():
    data = dotgat.draw(tiny(task="nonlin_function"))
    series = {name: x[..., :-1] for name, x in data.inputs.items()}  # without the ones
    fitted = NonlinearTarget.fit(series["training"], TINY.seed)
    assert [data.facts[name] for name in ("mean", "std", "gain")] == [fitted.mean, fitted.std, fitted.gain]
    assert data.facts["mean"] != NonlinearTarget.fit(torch.cat([*series.values()]), TINY.seed).mean
    for name, x in series.items():
        assert torch.equal(data.targets[name], fitted(x))


def test_linear_baselines_are_fitted_to_the_training_split():
    """Which says that a row is twice the one before it, where it is three times it in the test split."""
    inputs, targets = {}, {}
    for name, factor in (("training", 2.0), ("test", 3.0)):
        now = torch.randn(50, 1, 2)
        inputs[name] = torch.cat([now, torch.ones(50, 1, 1)], -1)
        targets[name] = factor * now
    found = dotgat.baselines(dotgat.Data(task("nextrow"), torch.ones(2, 3), None, inputs, targets, {}))
    assert found["linear"] == pytest.approx(float(inputs["test"][..., :2].square().mean()), rel=1e-4)


@pytest.mark.parametrize("variant", ["reference", "fast"])
def test_entries_that_are_to_be_completed_are_seen_by_nobody(variant):
    settings = tiny(task="lrmc", variant=variant, density=0.7)
    data = dotgat.draw(settings)
    seen, known = data.sensing[:, :-1] > 0, data.known
    assert not seen[:, ~known].any()
    assert seen.any(1).all()
    model, entries = dotgat.Answers(settings, data).eval(), data.inputs["test"]
    changed = entries.clone()
    changed[:, :-1][:, ~known] += 5.0
    assert torch.equal(model(entries), model(changed))
    changed[:, :-1][:, seen.any(0)] += 5.0
    assert not torch.equal(model(entries), model(changed))


def test_people_who_know_the_rule_have_the_whims_of_those_who_follow_it():
    contacts = dz.Graph.from_edges([2, 3, 4, 0, 1, 4], [0, 1, 2, 3, 4, 0], 5)

    class Rule(nn.Module):
        def forward(self, series):
            following = torch.tanh(GAIN * contacts.mean(series[0, 0, :5]))
            return AgentStates(series, following[None, None, :, None])

    options = {"replicates": 3, "seed": 4, "device": "cpu"}
    learnt = dz.simulate(Learnt(network=Rule(), num_agents=5), 6, **options)
    assert torch.equal(learnt["opinions"], dz.simulate(Opinions(contacts=contacts), 6, **options)["opinions"])
