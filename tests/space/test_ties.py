"""Ties that form and end: degrees and durations against theory, pools and sides, deaths, and the engine's promises."""

import math

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import CapacityError, InputError, ModelError
from denizen.model import births
from denizen.space import Ties, random_contacts


class Person(dz.State):
    alive: Tensor = dz.mask("agents")
    ill: Tensor = dz.mask("agents")
    partner: Tensor = dz.count("agents", "slots")
    until: Tensor = dz.count("agents", "slots")


class Town(dz.Model):
    """Ties at a rate by everybody, or by singles alone; people may die and be born; illness along ties."""

    num_agents: int = 300
    slots: int = 3
    most: int = 3  # ties with which one still seeks, and one more
    seek: Tensor = dz.param(0.2, low=0.0, high=1.0, learnable=False)
    days: Tensor = dz.param(6.0, low=0.0, learnable=False)
    death: Tensor = dz.param(0.0, low=0.0, learnable=False)
    infect: Tensor = dz.param(0.1, low=0.0)

    def init(self, rng) -> Person:
        ties = Ties.none(self.num_agents, self.slots)
        alive = torch.ones(self.num_agents, dtype=torch.int8)
        return Person(alive=alive, ill=rng.bernoulli("ill", 0.1), partner=ties.who, until=ties.until)

    def step(self, now: Person, rng) -> Person:
        ties = Ties(now.partner, now.until, now.time.step)
        seeks = now.alive * rng.bernoulli("seek", self.seek) * (ties.degree() < self.most)
        ties = ties.form(rng, "pair", seeks, rng.exponential("lasts", 1 / self.days))
        caught = rng.event("catch", self.infect * ties.sum(now.ill), where=now.alive)
        died = now.alive * rng.event("die", self.death)
        ties = ties.end(died)
        alive = now.alive - died
        ill = torch.maximum(now.ill, now.alive * caught) * alive
        return now.replace(alive=alive, ill=ill, partner=ties.who, until=ties.until)

    @dz.series
    def ill(self, now: Person):
        return now.ill.sum()

    @dz.series
    def degrees(self, now: Person):
        degree = Ties(now.partner, now.until, now.time.step - 1).degree()
        return (degree[:, None] == torch.arange(16, device=degree.device)).sum(dim=0)


def held(state: Person, world: int = 0) -> Ties:
    """Ties as they were in the last step."""
    return Ties(state.partner[world], state.until[world], state.time.step - 1)


def survival(age: Tensor, mean: float) -> Tensor:
    """P(D > age) in steps, of an exponential time of that mean rounded at random: integral of exp(-(age+1-u)/mean)."""
    return mean * (torch.exp(-age / mean) - torch.exp(-(age + 1) / mean))


def test_degrees_without_a_limit():
    """Arrivals of each step before, still there with the chance of their age: mean = rate x duration, near Poisson."""
    people, seek, mean = 10_000, 0.1, 8.0
    run = dz.simulate(Town(people, 12, 12, seek, mean, infect=0.0), 70, seed=3, compile=False)
    degree = run["degrees"][0, -1].double() / people
    there = seek * survival(torch.arange(400, dtype=torch.float64), mean)
    law = torch.ones(1, dtype=torch.float64)
    for p in there:  # a sum of independent 0/1
        law = torch.nn.functional.pad(law, (0, 1)) * (1 - p) + torch.nn.functional.pad(law, (1, 0)) * p
        law = law[:16]
    assert abs(float((law * torch.arange(16)).sum()) - seek * mean) < 1e-6
    poisson = torch.exp(torch.distributions.Poisson(seek * mean).log_prob(torch.arange(16.0)))
    assert (law - poisson).abs().sum() < 0.06  # steps are short beside durations
    # Ties join two, so counts scatter by up to twice a binomial's variance.
    assert ((degree - law).abs() < 4.5 * (2 * law * (1 - law) / people).sqrt() + 1e-6).all(), (degree, law)


def test_serial_monogamy():
    """Share with a partner: time in ties over time between their ends, a renewal process."""
    people, seek, mean = 5_000, 0.15, 8.0
    run = dz.simulate(Town(people, 1, 1, seek, mean, infect=0.0), 80, replicates=2, seed=5, compile=False)
    never = 1 - float(survival(torch.zeros(1), mean))  # shorter than a step, and not there
    expected = mean / (1 / seek - 1 + mean + never)
    got = run["degrees"][:, -30:, 1].double() / people
    assert abs(float(got.mean()) - expected) < 4 * math.sqrt(expected * (1 - expected) / people / 3)
    assert (run["degrees"][:, :, 2:] == 0).all()


def test_durations():
    """New ties last as drawn, on average; both ends agree, and who is tied holds back what holds it."""
    run = dz.simulate(Town(20_000, 1, 1, 1.0, 5.5, infect=0.0), 1, seed=1, compile=False)
    ties = held(run.state)
    lasting = (ties.until[:, 0] - ties.step).double()
    assert (ties.who[:, 0].bincount() <= 1).all()  # everybody, if only for no time
    assert abs(float(lasting.mean()) - 5.5) < 4 * 5.5 / math.sqrt(10_000)
    fixed = Ties.none(4, 1)

    class Fixed(Town):
        def step(self, now: Person, rng) -> Person:
            ties = Ties(now.partner, now.until, now.time.step).form(rng, "pair", now.alive, 2.3)
            return now.replace(partner=ties.who, until=ties.until)

    steps = dz.simulate(Fixed(20_000, 1), 1, dt=0.5, compile=False).state.until.double()
    assert set(steps.flatten().tolist()) == {4.0, 5.0}  # 2.3 days of two steps each are 4.6 steps
    assert abs(float(steps.mean()) - 4.6) < 0.02
    assert fixed.degree().tolist() == [0] * 4


def test_both_ends_hold_a_tie():
    run = dz.simulate(Town(100, 3, 3, 0.5, 5.0, 0.03), 25, replicates=2, seed=2, compile=False)
    for world in range(2):
        ties, alive = held(run.state, world), run.state.alive[world]
        after = Ties(ties.who, ties.until, ties.step + 1)
        for a, slot in after.active.nonzero().tolist():
            b = int(ties.who[a, slot])
            back = (ties.who[b] == a) & (ties.until[b] == ties.until[a, slot])
            assert back.sum() == 1  # and nobody is tied twice to one
            assert a != b
            assert alive[a]
            assert alive[b]
        assert 0 < alive.sum() < 100


GEN = torch.Generator().manual_seed(4)
GROUP, WOMAN = torch.randint(0, 3, (900,), generator=GEN), torch.randint(0, 2, (900,), generator=GEN)
COUNTS = torch.bincount(2 * GROUP + WOMAN, minlength=6).view(3, 2)


@pytest.mark.parametrize(
    ("options", "tied"),
    [
        ({"pool": GROUP, "num_pools": 3}, (COUNTS.sum(dim=1) // 2 * 2).sum()),
        ({"side": WOMAN}, 2 * COUNTS.sum(dim=0).min()),
        ({"pool": GROUP, "num_pools": 3, "side": WOMAN}, 2 * COUNTS.min(dim=1).values.sum()),
    ],
)
def test_pools_and_sides(options, tied):
    """As many find somebody as can, and of the right kind."""

    class Fair(Town):
        def step(self, now: Person, rng) -> Person:
            ties = Ties(now.partner, now.until, now.time.step).form(rng, "pair", now.alive, 9.0, **options)
            return now.replace(partner=ties.who, until=ties.until)

    ties = held(dz.simulate(Fair(900, 1), 1, seed=1, compile=False).state)
    other, there = ties.who[:, 0].long(), ties.active[:, 0]
    assert there.sum() == tied
    assert "side" not in options or (WOMAN[other] != WOMAN)[there].all()
    assert "pool" not in options or (GROUP[other] == GROUP)[there].all()


def test_sums():
    ties = Ties(
        torch.tensor([[1, 2], [0, 0], [0, 1], [9, 9]]) % 4,
        torch.tensor([[9, 9], [9, 0], [9, 0], [0, 0]]),
        torch.tensor(5),
    )
    assert ties.degree().tolist() == [2, 1, 1, 0]
    mask, real = torch.tensor([1, 0, 1, 1], dtype=torch.int8), torch.tensor([1.0, 2.0, 4.0, math.nan])
    assert (ties.sum(mask).dtype, ties.sum(mask).tolist()) == (torch.int32, [1, 1, 1, 0])
    assert ties.sum(100 * mask.int()).tolist() == [100, 100, 100, 0]
    assert ties.sum(real).tolist() == [6.0, 1.0, 1.0, 0.0]  # a free slot says nothing
    assert ties.mean(real).tolist() == [3.0, 1.0, 1.0, 0.0]
    assert ties.sum(real, where=mask).tolist() == [6.0, 0.0, 1.0, 0.0]
    weight = torch.tensor([[0.5, 2.0], [3.0, 0.0], [1.0, 0.0], [0.0, 0.0]])
    assert ties.sum(mask, weight=weight).tolist() == [2.0, 3.0, 1.0, 0.0]
    assert ties.end(torch.tensor([0, 1, 0, 0])).degree().tolist() == [1, 0, 1, 0]
    slope = torch.tensor([1.0, 2.0, 4.0, 0.0], requires_grad=True)
    ties.sum(slope, weight=weight).sum().backward()
    assert slope.grad.tolist() == [4.0, 0.5, 2.0, 0.0]


def test_promises(tmp_path):
    model = Town(death=0.01)
    run = dz.simulate(model, 14, replicates=3, seed=2, compile=False)
    assert 0 < run["ill"][0, -1] < 300

    def same(other, rows=slice(None)):
        return all(torch.equal(other[name], run[name][rows]) for name in run.series_names)

    assert same(dz.simulate(model, 14, worlds=[1], seed=2, compile=False), slice(1, 2))
    order = torch.randperm(300, generator=torch.Generator().manual_seed(1))
    moved = dz.simulate(model, 14, replicates=3, seed=2, ids=order, compile=False)
    assert same(moved)
    assert torch.equal(moved.state.until, run.state.until[:, order])
    dz.simulate(model, 5, replicates=3, seed=2, compile=False, out=tmp_path / "run")
    assert same(dz.run.resume(tmp_path / "run", Town(death=0.01), 9))


@pytest.mark.compile
def test_the_rules_hold():
    report = dz.check(Town(40), steps=3)
    assert report.ok, str(report)


def test_the_dead_leave_and_children_start_alone():
    class Cradle(Town):
        def step(self, now: Person, rng) -> Person:
            now = super().step(now, rng)
            return births(now, rng, now.alive * (rng.bernoulli("born", 0.02)))

    run = dz.simulate(Cradle(200, 2, 2, 0.4, 30.0, 0.05), 30, seed=1, compile=False)
    ties = held(run.state)
    after = Ties(ties.who, ties.until, ties.step + 1)
    everybody = torch.arange(200)[:, None]
    back = (ties.who[ties.who.long()] == everybody[:, :, None]) & (
        ties.until[ties.who.long()] == ties.until[:, :, None]
    )
    assert back.any(dim=2)[after.active].all()
    assert run.state.id.max() > 2**60  # some were born


class Blame(dz.State):
    by: Tensor = dz.count("agents")


class Blamed(dz.Model):
    """Everybody is tied to agents 0, 1 and 2, who send 1, 3 and nothing, over ties of weight 2, 1 and 1."""

    num_agents: int = 3000

    def init(self, rng) -> Blame:
        return Blame(by=torch.zeros(self.num_agents, dtype=torch.int32))

    def step(self, now: Blame, rng) -> Blame:
        who = torch.tensor([[0, 1, 2, 1]], dtype=torch.int32).expand(self.num_agents, -1)
        until = torch.tensor([[9, 9, 9, 0]], dtype=torch.int32).expand(self.num_agents, -1)
        place = torch.arange(self.num_agents)
        values = torch.where(place == 1, 3.0, (place == 0).float())
        weight = torch.tensor([[2.0, 1.0, 1.0, 1.0]]).expand(self.num_agents, -1)
        cause = Ties(who, until, now.time.step).attribute(rng, "by", place < 2000, values, weight=weight)
        return now.replace(by=cause.source + 1)


def test_who_caused_it():
    by = dz.simulate(Blamed(), 1, seed=1, compile=False).state.by[0]
    assert (by[2000:] == 0).all()
    counts = by[:2000].bincount(minlength=4)
    assert counts[0] == counts[3] == 0
    assert abs(int(counts[1]) - 800) < 4 * math.sqrt(2000 * 0.4 * 0.6)  # 2 of 5
    with pytest.raises(ModelError, match="relaxed run"):
        dz.simulate(Blamed(), 1, relax=dz.relax.StraightThrough(), compile=False)


class Meeting(dz.Model):
    """SIR over contacts drawn anew in each step; a step of contact infects with probability b."""

    num_agents: int = 50
    contacts: int = 10
    b: Tensor = dz.param(0.03, low=0.0)
    days: Tensor = dz.param(6.5, low=1.0)
    seeds: Tensor = dz.param(0.002, low=0.0)

    def init(self, rng):
        return Met(stage=rng.bernoulli("seed", self.seeds))

    def step(self, now, rng):
        infected = now.stage.is_("infected")
        meets = random_contacts(rng, "meet", self.contacts)
        caught = rng.event("catch", -torch.log1p(-self.b) * meets.sum(infected))
        healed = rng.bernoulli("heal", 1 / self.days, where=infected)
        return now.replace(stage=now.stage.advance(healed, "infected").advance(caught, "susceptible"))

    @dz.series
    def ever(self, now):
        return self.num_agents - now.stage.is_("susceptible").sum()


class Met(dz.State):
    stage: dz.model.Stage = dz.stage("agents", levels=("susceptible", "infected", "recovered"))


def test_contacts_drawn_anew():
    """z = 1 - (1 - rho) exp(-c b D z), 0.7826 for c = 10, b = 0.03, D = 6.5 and few seeds; static contacts: 0.7310."""
    run = dz.simulate(Meeting(4_000), 90, replicates=4, seed=1, compile=False)
    z = 0.7
    for _ in range(500):
        z = 1 - (1 - 0.002) * math.exp(-10 * 0.03 * 6.5 * z)
    got = run["ever"][:, -1].double() / 4_000
    assert abs(z - 0.7826) < 0.001
    assert abs(float(got.mean()) - z) < 4 * float(got.std()) / 2 + 2e-3, (got, z)
    order = torch.randperm(50, generator=torch.Generator().manual_seed(1))
    plain, moved = (
        dz.simulate(Meeting(50, 3, 0.2, seeds=0.1), 9, seed=2, ids=ids, compile=False) for ids in (None, order)
    )
    assert torch.equal(plain["ever"], moved["ever"])


def test_nobody_meets_oneself():
    class Seen(dz.State):
        met: Tensor = dz.count("agents", "slots")

    class Draw(dz.Model):
        num_agents: int = 5

        def init(self, rng):
            return Seen(met=torch.zeros(5, 200, dtype=torch.int32))

        def step(self, now, rng):
            return now.replace(met=random_contacts(rng, "meet", 200).who)

    met = dz.simulate(Draw(), 1, replicates=20, compile=False).state.met
    counts = torch.stack([(met == j).sum(dim=(0, 2)) for j in range(5)], dim=1).double()
    assert (counts.diagonal() == 0).all()
    others = counts[~torch.eye(5, dtype=torch.bool)]
    assert ((others - 1000).abs() < 4.5 * math.sqrt(4000 / 4 * 0.75)).all()


def run_step(step):
    class Wrong(Town):
        def step(self, now: Person, rng) -> Person:
            ties = step(self, Ties(now.partner, now.until, now.time.step), now, rng)
            return now.replace(partner=ties.who, until=ties.until)

    return dz.simulate(Wrong(20), 5, compile=False)


@pytest.mark.parametrize(
    ("error", "told", "step"),
    [
        (
            CapacityError,
            r"without a free slot seeks in form\('pair'\)",
            lambda m, t, n, r: t.form(r, "pair", n.alive, 9.0),
        ),
        (ModelError, r"form\('pair'\): a duration is negative", lambda m, t, n, r: t.form(r, "pair", n.alive, -1.0)),
        (ModelError, "duration is negative or NaN", lambda m, t, n, r: t.form(r, "pair", n.alive, math.nan)),
        (
            ModelError,
            "pool is outside 0 … 1",
            lambda m, t, n, r: t.form(r, "p", n.alive, 1.0, pool=2 + 0 * n.alive, num_pools=2),
        ),
        *(
            (
                ModelError,
                "pool is outside 0 … 1",
                lambda m, t, n, r, wrong=wrong: t.form(r, "p", n.alive, 1.0, pool=wrong + 0 * n.alive, num_pools=2),
            )
            for wrong in (
                torch.tensor([2**32]),
                torch.tensor([-(2**32)]),
                torch.tensor([0.5]),
                torch.tensor([math.nan]),
            )
        ),
        (ModelError, r"seeks is torch.int8 \(3,\)", lambda m, t, n, r: t.form(r, "pair", n.alive[:3], 1.0)),
        (ModelError, "lasts is str 'long', expected a number", lambda m, t, n, r: t.form(r, "pair", n.alive, "long")),
        (
            ModelError,
            "Ties.form: rng is of 7 on 'cells', expected that of the 20 agents",
            lambda m, t, n, r: t.form(r.on("cells", 7), "pair", n.alive, 1.0),
        ),
        (
            ModelError,
            "Ties.attribute: rng is of 7 on 'cells'",
            lambda m, t, n, r: t.attribute(r.on("cells", 7), "by", n.ill, n.ill),
        ),
        (ModelError, "rng is str 'rng', expected that of", lambda m, t, n, r: t.form("rng", "pair", n.alive, 1.0)),
        (InputError, "num_pools=0", lambda m, t, n, r: t.form(r, "pair", n.alive, 1.0, num_pools=0)),
        (ModelError, "weight is .*one for each slot", lambda m, t, n, r: t.sum(n.ill, weight=n.alive)),
        (ModelError, "values is float", lambda m, t, n, r: t.sum(1.0)),
        (ModelError, r"who and until are \(20, 3\) and \(20,\)", lambda m, t, n, r: Ties(t.who, n.alive, t.step)),
        (ModelError, "step is int, expected the number of the step", lambda m, t, n, r: Ties(t.who, t.until, 3)),
        (InputError, "slots=0", lambda m, t, n, r: Ties.none(4, 0)),
        (InputError, "num=0", lambda m, t, n, r: random_contacts(r, "meet", 0)),
    ],
)
def test_mistakes_are_told(error, told, step):
    with pytest.raises(error, match=told):
        run_step(step)


class Twice(Town):
    def step(self, now: Person, rng) -> Person:
        ties = Ties(now.partner, now.until, now.time.step)
        for most in (1, 2):
            ties = ties.form(rng, "pair", ties.degree() < most, 5.0)  # told
        return now.replace(partner=ties.who, until=ties.until)


class Writes(Town):
    def step(self, now: Person, rng) -> Person:
        now.until[now.alive == 0] = 0  # told
        return now


class Hours(Town):
    def step(self, now: Person, rng) -> Person:
        ties = Ties(now.partner, now.until, now.time.value)  # told
        return now.replace(until=ties.until)


class Learns(Town):
    seek: Tensor = dz.param(0.3, low=0.0, high=1.0)

    def step(self, now: Person, rng) -> Person:
        ties = Ties(now.partner, now.until, now.time.step)
        seeks = (ties.degree() < 1) * rng.bernoulli("seek", self.seek)  # told
        ties = ties.form(rng, "pair", seeks, 5.0)
        caught = rng.event("catch", self.infect * ties.sum(now.ill))
        return now.replace(ill=torch.maximum(now.ill, caught), partner=ties.who, until=ties.until)


@pytest.mark.parametrize(
    ("model", "rule", "told"),
    [
        (Twice, "stream", "used twice"),
        (Writes, "in place", "writes into a tensor"),
        (Hours, "error", "expected the number of the step: now.time.step"),
        pytest.param(Learns, "gradient", "the gradient of seek ends here", marks=pytest.mark.compile),
    ],
)
def test_newcomers_mistakes_are_told_by_line(model, rule, told):
    report = dz.check(model(num_agents=40), steps=2, gradient=model is Learns)
    (finding,) = report.findings
    assert finding.rule == rule
    assert told in str(report)
    assert "# told" in str(report)  # the line itself


@pytest.mark.parametrize("anything", [-1, 7])
@pytest.mark.parametrize("kind", [torch.int8, torch.bool, torch.int64, torch.float32, torch.float64])
def test_free_slots_may_hold_anything(anything, kind):
    who = torch.tensor([[1, anything], [anything, 0], [anything, anything]], dtype=torch.int32)
    until = torch.tensor([[9, 0], [5, 9], [0, 5]], dtype=torch.int32)
    ties, values = Ties(who, until, torch.tensor(5)), torch.tensor([1, 0, 1]).to(kind)
    for grad in (False, True):
        with torch.set_grad_enabled(grad):
            assert ties.sum(values).tolist() == ties.sum(values, weight=torch.ones(3, 2)).tolist() == [0, 1, 0]
    assert ties.end(torch.tensor([0, 1, 0])).degree().tolist() == [0, 0, 0]
