"""Fingerprints: which changes of a model's code are told, and which change no result."""

import importlib
import json
from pathlib import Path

import pytest

from denizen._fingerprint import differences, fingerprint
from denizen.zoo.cartpole import CartPole

STORED = Path(__file__).parents[1] / "data" / "folders_2026_11"


def checks(self):
    CartPole.__post_init__(self)


HARMLESS = {"draw": lambda self, now: now.x, "__post_init__": checks, "_helper": lambda self: 1}


@pytest.mark.parametrize("name", HARMLESS)
def test_methods_that_change_no_result_may_have_other_code(monkeypatch, name):
    class Cart(CartPole):
        pass

    monkeypatch.setattr(Cart, name, HARMLESS[name], raising=False)
    saved = fingerprint(Cart())
    saved["code"].setdefault(name, "0123456789ab")  # as folders of 2026 have it
    monkeypatch.delattr(Cart, name)
    assert differences(saved, fingerprint(Cart())) == []


def test_a_picture_that_the_policy_sees_counts(monkeypatch):
    class Cart(CartPole):
        def draw(self, now):
            return now.x

        def observe(self, now):
            return super().observe(now) + self.draw(now)

    saved = fingerprint(Cart())
    monkeypatch.setattr(Cart, "draw", lambda self, now: now.x + 1)
    assert differences(saved, fingerprint(Cart())) == ["method draw has other code than it had"]


def test_what_leaves_more_than_fields_counts(monkeypatch):
    class Cart(CartPole):
        def __post_init__(self):
            object.__setattr__(self, "_more", 1)

    saved = fingerprint(Cart())
    monkeypatch.setattr(Cart, "__post_init__", lambda self: object.__setattr__(self, "_more", 2))
    assert differences(saved, fingerprint(Cart())) == ["method __post_init__ has other code than it had"]


def test_a_method_that_is_gone_counts_where_denizen_has_one_in_its_place(monkeypatch):
    class Cart(CartPole):
        def truncated(self, now):
            return now.x > 1

    saved = fingerprint(Cart())
    monkeypatch.delattr(Cart, "truncated")
    assert differences(saved, fingerprint(Cart())) == ["method truncated has other code than it had"]


@pytest.mark.parametrize(("name", "saved"), json.loads((STORED / "worlds.json").read_text()).items())
def test_worlds_of_stored_trainings_are_those_of_today(name, saved):
    module, _, cls = name.rpartition(".")
    assert differences(saved, fingerprint(getattr(importlib.import_module(module), cls)())) == []
