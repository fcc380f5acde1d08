"""`dz.check` finds at its line what newcomers write about events, also in what only a log asks for."""

import inspect

import pytest
import torch

import denizen as dz


class People(dz.State):
    sick: torch.Tensor = dz.mask("agents")


class Base(dz.Model):
    """A model without fault; each bad one below replaces `step`."""

    contacts: dz.Graph = dz.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 4], 5)

    def init(self, rng):
        return People(sick=rng.bernoulli("seed", 0.4))

    def step(self, now, rng):
        caught = (1 - now.sick) * rng.event("catch", 0.2 * self.contacts.sum(now.sick))
        rng.record("caught", caught, by=lambda: self.contacts.attribute(rng, "by", caught, now.sick))
        return now.replace(sick=now.sick + caught)

    @dz.series
    def cases(self, events):
        return events["caught"].sum()


class HostRead(Base):
    def step(self, now, rng):
        caught = (1 - now.sick) * rng.event("catch", 0.2 * self.contacts.sum(now.sick))
        rng.record("caught", caught, by=lambda: self.first(caught))
        return now.replace(sick=now.sick + caught)

    def first(self, caught):
        return torch.full_like(caught, int(caught.sum()), dtype=torch.int32)  # BAD


class SameStream(Base):
    def step(self, now, rng):
        caught = (1 - now.sick) * rng.event("catch", 0.2 * self.contacts.sum(now.sick))
        found = self.contacts.attribute(rng, "catch", caught, now.sick)  # BAD
        rng.record("caught", caught, by=found)
        return now.replace(sick=now.sick + caught)


class AllOfThem(Base):
    def step(self, now, rng):
        caught = (1 - now.sick) * rng.event("catch", 0.2 * self.contacts.sum(now.sick))
        rng.record("caught", caught, by=self.contacts.in_idx)  # BAD
        return now.replace(sick=now.sick + caught)


class Identity(Base):
    def step(self, now, rng):
        caught = (1 - now.sick) * rng.event("catch", 0.2 * self.contacts.sum(now.sick))
        rng.record("caught", caught, id=now.id)  # BAD
        return now.replace(sick=now.sick + caught)


class WhoseStage(Base):
    def step(self, now, rng):
        caught = (1 - now.sick) * rng.event("catch", 0.2 * self.contacts.sum(now.sick))
        found = self.contacts.attribute(rng, "by", caught, self.contacts.sum(now.sick)[caught != 0])  # BAD
        rng.record("caught", caught, by=found)
        return now.replace(sick=now.sick + caught)


def line(model: type) -> int:
    lines, first = inspect.getsourcelines(model)
    return first + next(k for k, text in enumerate(lines) if "# BAD" in text)


def test_the_model_that_the_others_are_made_of_keeps_the_rules() -> None:
    report = dz.check(Base(), gradient=False)
    assert report.ok, report


@pytest.mark.parametrize("bad", [HostRead, SameStream, AllOfThem, Identity, WhoseStage])
def test_a_mistake_is_told_at_its_line(bad: type) -> None:
    report = dz.check(bad(), gradient=False)
    assert not report.ok
    assert f"test_check_events.py:{line(bad)}" in str(report.findings[0]), report
