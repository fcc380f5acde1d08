"""Several kinds of agents in one model: identities, births and deaths by axis, and fields of the dead."""

from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import CapacityError, InputError, ModelError
from denizen.model import Act, During, History, Stage, Time, alive, births, deaths, own
from denizen.relax import MeanField

HUNTERS, HARES, START = 16, 40, 18


class Wood(dz.State):
    hunting: Tensor = alive("hunters")
    energy: Tensor = dz.real("hunters", max=1e6)
    living: Tensor = alive("hares")
    coat: Stage = dz.stage("hares", levels=("white", "brown"))
    seen: History = dz.history("hares", length=3)
    age: Tensor = dz.count("hares")
    known: Tensor = dz.mask("hunters", "hares")
    grass: Tensor = dz.real("cells")


class Hunt(dz.Model):
    """Hunters and hares are born and die at given rates; energies draw from every hunter's own streams."""

    num_agents: int = HUNTERS + HARES
    hares: int = HARES
    birth: Tensor = dz.param(0.15, low=0.0, learnable=False)
    layout: tuple[tuple[int, ...], tuple[int, ...]] | None = None  # which hunter and hare lies in each place

    def init(self, rng: dz.rng.Rng) -> Wood:
        hunters, hares = rng.on("hunters", HUNTERS), rng.on("hares", self.hares)
        who = self.layout or (tuple(range(HUNTERS)), tuple(range(self.hares)))
        first, second = (torch.tensor(one) for one in who)
        return Wood(
            hunting=(first < 8).to(torch.int8),
            energy=hunters.normal("energy"),
            living=(second < START).to(torch.int8),
            coat=hares.integers("coat", 0, 2).to(torch.int8),
            seen=hares.integers("seen", 0, 4),
            age=torch.ones(self.hares, dtype=torch.int32),
            known=torch.ones(HUNTERS, self.hares, dtype=torch.int8),
            grass=torch.ones(5),
        )

    def step(self, now: Wood, rng: dz.rng.Rng) -> Wood:
        hunters, hares = rng.on("hunters"), rng.on("hares")
        starved = hunters.record("starved", now.hunting * hunters.event("starve", 0.1))
        now = deaths(now, starved, "hunters")
        shot = hares.record("shot", hares.event("shoot", 0.2))  # of the living only
        now = deaths(now, shot, "hares")
        now = now.replace(
            energy=now.energy * 0.5 + hunters.normal("luck"),  # of free places, too
            age=now.age + 1,
            seen=now.seen.record(hares.event("see", 0.5)),
            coat=now.coat.move(hares.event("moult", 0.3), "brown", source="white"),
            known=torch.ones_like(now.known),
        )
        now = births(now, rng, hares.event("bear", self.birth), "hares", coat=now.coat)
        return births(now, rng, hunters.event("hire", 0.05), axis="hunters", energy=now.energy)

    @dz.series
    def num_hares(self, now: Wood) -> Tensor:
        return now.living.sum()

    @dz.series
    def shot(self, events: dz.rng.Events) -> Tensor:
        return events["shot"].sum()

    @dz.series
    def born(self, before: Wood, now: Wood) -> Tensor:
        return ((before.ids["hares"] != now.ids["hares"]) * now.living).sum()

    @dz.series
    def white(self, now: Wood) -> Tensor:
        return now.coat.is_("white").sum()

    @dz.series
    def energy(self, now: Wood) -> Tensor:
        return (now.energy * 2.0**10).long().sum()  # exact in any order


def hunt(**options: Any) -> Any:
    return dz.simulate(Hunt(), 12, compile=False, **options)


@pytest.fixture(scope="module")
def run() -> Any:
    return hunt(replicates=3, seed=4)


def test_flows_are_changes_of_stocks(run: Any) -> None:
    stock = torch.cat([torch.full((3, 1), START), run["num_hares"]], dim=1)
    assert torch.equal(stock.diff(dim=1), run["born"] - run["shot"])
    assert bool((run["born"].sum(dim=1) > 2).all())


def test_fields_of_the_dead_hold_nothing(run: Any) -> None:
    now = run.state
    for dead, fields in ((now.hunting == 0, (now.energy,)), (now.living == 0, (now.age, now.seen.value))):
        assert bool(dead.any())
        assert not any(bool((field[dead] != 0).any()) for field in fields)
    assert bool(now.known.any())
    assert not bool((now.known * (1 - now.hunting[:, :, None] * now.living[:, None])).any())
    assert torch.equal(now.coat.is_("white") + now.coat.is_("brown"), now.living)
    assert torch.equal(run["white"][:, -1], now.coat.is_("white").sum(dim=1))
    assert torch.equal(now.grass, torch.ones(3, 5))  # an axis of its own


def test_children_start_clean_and_have_what_is_given() -> None:
    begun, later = dz.simulate(Hunt(birth=0.0), 5, compile=False), dz.simulate(Hunt(birth=50.0), 1, compile=False)
    assert int(begun.state.living.sum()) < START
    born = (later.state.ids["hares"][0] >= 2**61) & (later.state.living[0] == 1)
    assert bool(born.any())
    assert not bool(later.state.age[0][born].any())
    assert not bool(later.state.seen.value[0][born].any())


def test_a_world_alone_and_in_a_batch_and_after_a_resume(run: Any, tmp_path: Any) -> None:
    alone = hunt(worlds=[2], seed=4)
    for name in run.series_names:
        assert torch.equal(run[name][2], alone[name][0])
    dz.simulate(Hunt(), 5, replicates=3, seed=4, compile=False, out=tmp_path / "run")
    resumed = dz.run.resume(tmp_path / "run", Hunt(), 7, compile=False)
    for name in run.series_names:
        assert torch.equal(run[name], resumed[name])
    assert torch.equal(run.state.ids["hares"], resumed.state.ids["hares"])
    assert set(run.state.ids) == {"hares", "hunters"}


def test_order_of_places_does_not_matter() -> None:
    order = [torch.randperm(n, generator=torch.Generator().manual_seed(n)) for n in (HUNTERS, HARES)]
    layout = tuple(tuple(one.tolist()) for one in order)
    ids = {"hunters": order[0], "hares": order[1]}
    there, here = hunt(), dz.simulate(Hunt(layout=layout), 12, ids=ids, compile=False)
    assert int(there["born"].sum()) > 5
    for name in there.series_names:
        assert torch.equal(there[name], here[name]), name
    one, two = ((run.state.ids["hares"] * run.state.living).sort().values for run in (there, here))
    assert torch.equal(one, two)  # children, too, whatever place they got


def test_identities_that_were_given_survive_a_resume(tmp_path: Any) -> None:
    ids = {"hares": torch.arange(HARES) + 100, "agents": torch.arange(HUNTERS + HARES) + 7}
    whole = hunt(ids=ids)
    dz.simulate(Hunt(), 5, ids=ids, compile=False, out=tmp_path / "run")
    resumed = dz.run.resume(tmp_path / "run", Hunt(), 7, compile=False)
    assert torch.equal(whole["num_hares"], resumed["num_hares"])
    assert not torch.equal(whole["num_hares"], hunt()["num_hares"])


def test_places_that_are_never_taken_change_nothing() -> None:
    """Removal on or off: a larger capacity gives the same run."""
    more = dz.simulate(Hunt(hares=HARES + 30), 12, replicates=3, seed=4, compile=False)
    less = hunt(replicates=3, seed=4)
    for name in ("num_hares", "shot", "born", "white", "energy"):
        assert torch.equal(more[name], less[name]), name


def test_an_intervention_may_kill() -> None:
    def cull(model: Any, now: Wood, rng: dz.rng.Rng) -> Wood:
        return deaths(now, rng.on("hares").event("cull", 50.0), "hares")

    run = hunt(interventions=[Act(name="cull", when=During(3, 4), change=cull)])
    assert int(run["num_hares"][0, 2]) > 0
    assert int(run["num_hares"][0, 3]) == 0


# --- wrong uses -------------------------------------------------------------------------------------------------------


def test_too_many_children_stop_the_run() -> None:
    with pytest.raises(CapacityError, match="more children than free places for hares; raise the capacity"):
        dz.simulate(Hunt(birth=50.0), 3, compile=False)


def test_identities_of_kinds_are_looked_at() -> None:
    with pytest.raises(InputError, match=r"ids has 'hare', which is no axis of Wood; did you mean 'hares'"):
        hunt(ids={"hare": torch.arange(3)})
    with pytest.raises(InputError, match=r"ids\['hares'\] is torch.int64 \(2,\), expected different int64"):
        hunt(ids={"hares": torch.tensor([1, 1])})
    with pytest.raises(ModelError, match="the axis has 3 places; leave the number out"):
        hunt(ids={"hares": torch.arange(3)})


def test_who_lives_is_declared_once_and_is_not_relaxed() -> None:
    with pytest.raises(ModelError, match=r"'one' says already who of 'sheep' is alive; keep one of the two"):

        class Twice(dz.State):
            one: Tensor = alive("sheep")
            two: Tensor = alive("sheep")

    with pytest.raises(ModelError, match="who is alive is not differentiable"):
        dz.simulate(Hunt(), 1, relax=MeanField(), compile=False)


def test_births_of_other_kinds_need_an_engine() -> None:
    rng = dz.rng.Rng(torch.tensor([0, 0]), torch.tensor(0), num=HUNTERS + HARES)
    now = own(Hunt().init(rng), Time(torch.tensor(0), 1.0, "step"), torch.arange(HUNTERS + HARES))
    with pytest.raises(ModelError, match="births: hares have no identities in an environment"):
        births(now, rng, now.living, "hares")


def _mistake(step: Any) -> str:
    """What the check tells of a model with another step: one finding, at a line of this file."""
    report = dz.check(type("Wrong", (Hunt,), {"step": step, "__annotations__": {}})())
    (finding,) = report.findings
    assert finding.line is not None
    assert finding.line.file == __file__
    return str(finding)


def test_mistakes_of_newcomers_are_told_by_line() -> None:
    def other_kind(self: Any, now: Any, rng: dz.rng.Rng) -> Any:
        return deaths(now, now.hunting * rng.on("hares").event("die", 0.1 * now.energy), "hunters")

    told = _mistake(other_kind)
    assert "hazard has shape (16,), expected a number for all or (40,), one for each of 'hares'" in told
    assert "draw for that kind of agents: rng.on('hunters')" in told

    def no_axis(self: Any, now: Any, rng: dz.rng.Rng) -> Any:
        return births(now, rng, now.living)

    assert "says who of 'agents' is alive" in _mistake(no_axis)

    def unknown(self: Any, now: Any, rng: dz.rng.Rng) -> Any:
        return deaths(now, rng.on("hare").event("die", 0.1), "hares")

    assert "how many are there?" in _mistake(unknown)


def test_the_check_is_content_and_tells_of_a_series_that_counts_free_places() -> None:
    class Counting(Hunt):
        @dz.series
        def young(self, now: Wood) -> Tensor:
            return (now.age < 3).sum()

        @dz.series
        def mean_age(self, now: Wood) -> Tensor:
            return now.age.sum() / now.living.sum().clamp(min=1)

        @dz.series
        def free(self, now: Wood) -> Tensor:
            return (1 - now.living).sum()

    report = dz.check(Counting(), gradient=False)
    assert report.ok, report
    (note,) = report.notes
    assert "series 'young' counts free places" in note
    assert f"{__file__.rpartition('/')[2]}:" in note


def test_init_may_build_on_the_cpu_what_others_draw_on_a_gpu(device: torch.device) -> None:
    here = dz.simulate(Hunt(), 12, replicates=3, device="cpu", compile=False)
    for compiled in (False, True) if device.type == "cuda" else (False,):
        there = dz.simulate(Hunt(), 12, replicates=3, device=device, compile=compiled)
        for name in ("num_hares", "shot"):
            assert torch.equal(there[name].cpu(), here[name])


# --- births of one kind from another ----------------------------------------------------------------------------------


class Economy(dz.State):
    household: Tensor = alive("households")
    savings: Tensor = dz.real("households")
    firm: Tensor = alive("firms")
    capital: Tensor = dz.real("firms")


class Founding(dz.Model):
    """In the first step households 1 and 3 found firms; household 4 is dead."""

    num_agents: int = 1
    firms: int = 3

    def init(self, rng: dz.rng.Rng) -> Economy:
        household = torch.tensor([1, 1, 1, 1, 0], dtype=torch.int8)
        firm = torch.tensor([1] + [0] * (self.firms - 1), dtype=torch.int8)
        savings = torch.tensor([5.0, 6.0, 7.0, 8.0, 9.0])
        return Economy(household=household, savings=savings, firm=firm, capital=2.0 * firm)

    def step(self, now: Economy, rng: dz.rng.Rng) -> Economy:
        founds = torch.tensor([0, 1, 0, 1, 1], dtype=torch.int8) * (now.time.step == 0)
        return births(now, rng, founds, "firms", of="households", capital=now.savings)


def test_households_found_firms() -> None:
    run = dz.simulate(Founding(), 2, replicates=2, compile=False)
    assert run.state.firm.tolist() == [[1, 1, 1]] * 2
    assert run.state.capital.tolist() == [[2.0, 6.0, 8.0]] * 2
    ids = run.state.ids["firms"][0].tolist()
    assert ids[1:] == [int(dz.model.child_id(torch.tensor(parent), torch.tensor(0))) for parent in (1, 3)]
    with pytest.raises(CapacityError, match="more children than free places for firms"):
        dz.simulate(Founding(firms=2), 2, compile=False)

    class Wrong(Founding):
        def step(self, now: Economy, rng: dz.rng.Rng) -> Economy:
            return births(now, rng, now.household, "firms", capital=now.savings)

    with pytest.raises(ModelError, match=r"births: parents has shape \(5,\), expected \(3,\)"):
        dz.simulate(Wrong(), 1, compile=False)
