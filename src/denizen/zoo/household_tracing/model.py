"""Infection at home and outside, tests, contact tracing and isolation."""

import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import whole
from denizen.zoo._contacts import check_whole

LONGEST = 60  # days of an infection that are told apart


class People(dz.State):
    """Days since everybody's infection, and days of isolation that are left."""

    since: dz.model.History = dz.history("agents", length=LONGEST)
    left: Tensor = dz.count("agents", max=LONGEST)


class HouseholdTracing(dz.Model):
    """An infection lasts `latent_days` and then `infectious_days`; on its last day a share of the ill is tested.

    Who is found by a test isolates for `isolation_days`, and so does each contact that tracing finds: each contact at
    home and outside with a probability of its own, independently. Who isolates meets nobody outside and goes on living
    at home. All is decided from the state at the start of the day, so the tested transmit on the day of their test.
    """

    time_unit = "day"

    contacts: dz.space.Layers
    home_rate: Tensor = dz.param(0.1, low=0.0, unit="1/contact/day", about="hazard from one infectious at home")
    outside_rate: Tensor = dz.param(0.05, low=0.0, unit="1/contact/day", about="hazard from one outside")
    tested_share: Tensor = dz.param(0.5, low=0.0, high=1.0, learnable=False, about="share of the ill who are tested")
    home_coverage: Tensor = dz.param(1.0, low=0.0, high=1.0, learnable=False, about="share of contacts found at home")
    coverage: Tensor = dz.param(0.5, low=0.0, high=1.0, learnable=False, about="share of contacts found outside")
    seed_share: Tensor = dz.param(0.002, low=0.0, high=1.0, learnable=False, about="share infected at the start")
    latent_days: int = 4
    infectious_days: int = 5
    isolation_days: int = 14

    def __post_init__(self) -> None:
        super().__post_init__()
        caller = "household_tracing"
        whole(caller, "latent_days", self.latent_days, 1, LONGEST - 1)
        whole(caller, "infectious_days", self.infectious_days, 1, LONGEST - self.latent_days)
        whole(caller, "isolation_days", self.isolation_days, 1, LONGEST)
        if not isinstance(self.contacts, dz.space.Layers) or set(self.contacts.graphs) != {"home", "outside"}:
            kind = type(self.contacts).__name__
            told = f"Layers {', '.join(self.contacts.graphs)}" if kind == "Layers" else kind
            raise InputError(f"{caller}: contacts is {told}, expected a graph, or Layers 'home' and 'outside'")

    def fits(self, dt: float) -> None:
        """Refuse steps that are no days."""
        check_whole("household_tracing", dt, "infections and isolation are counted in days")

    def init(self, rng: dz.rng.Rng) -> People:
        """Infect a random share on the day before."""
        seed = rng.bernoulli("seed", self.seed_share)
        return People(since=dz.model.History.start(seed, length=LONGEST), left=torch.zeros_like(seed))

    def step(self, now: People, rng: dz.rng.Rng) -> People:
        """Infection at home and outside; tests, tracing, isolation."""
        last = self.latent_days + self.infectious_days
        able, ill = now.since.never(), now.since.within(self.latent_days + 1, last)
        free = (now.left == 0).to(torch.int8)
        about = ill * free
        home = self.home_rate * self.contacts["home"].sum(ill, needed=able)
        outside = self.outside_rate * self.contacts["outside"].sum(about, needed=able) * free
        caught = able * rng.event("catch", home + outside, where=able)
        rng.record("caught", caught, by=lambda: self._source(rng, caught, ill, about, free))

        tested = rng.bernoulli("test", self.tested_share, where=now.since.within(last, last))
        found = self.contacts.traced(rng, "trace", tested, {"home": self.home_coverage, "outside": self.coverage})
        isolates = rng.record("isolated", torch.maximum(tested, found) * free)
        left = torch.maximum((now.left - 1).clamp(min=0), isolates * self.isolation_days)
        return now.replace(since=now.since.record(caught), left=left.to(now.left.dtype))

    def _source(self, rng: dz.rng.Rng, caught: Tensor, ill: Tensor, about: Tensor, free: Tensor) -> dz.space.Origin:
        """Who infected whom, at home or outside."""
        return self.contacts.attribute(
            rng,
            "by",
            caught,
            {"home": ill, "outside": about},
            reached={"outside": free},
            scale={"home": self.home_rate, "outside": self.outside_rate},
        )

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        """New infections in the step."""
        return events["caught"].sum()

    @dz.series
    def infectious(self, now: People) -> Tensor:
        """Infectious at the end of the step."""
        return now.since.within(self.latent_days + 1, self.latent_days + self.infectious_days).sum()

    @dz.series
    def isolated(self, now: People) -> Tensor:
        """In isolation at the end of the step."""
        return (now.left > 0).sum()
