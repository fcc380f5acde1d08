"""Rates by age and life tables: look-ups are checked, a simulated cohort has the table's survivors and expectancy."""

import math
import re

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.disease import LifeTable, RateTable, birthday, years
from denizen.errors import DataError, InputError, ModelError
from denizen.model import births, lookup
from denizen.zoo.covid import AGE_GROUPS


def written(tmp_path, text: str):
    path = tmp_path / "table.csv"
    path.write_text(text)
    return path


# --- tables -----------------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("mark", [",", ";", "\t"])
def test_rates_are_looked_up_by_group(tmp_path, mark):
    rows = [("age_group", "deaths"), ("65+", "0.08"), *[(group, f"0.00{k}") for k, group in enumerate(AGE_GROUPS[:5])]]
    path = written(tmp_path, "\ufeff" + "\n".join(mark.join(row) for row in rows) + "\n\n")
    table = RateTable.from_csv(path)
    assert table.of(AGE_GROUPS).tolist() == pytest.approx([0.0, 0.001, 0.002, 0.003, 0.004, 0.08])
    codes = torch.tensor([5, 0, 3], dtype=torch.uint8)
    assert lookup(table.of(AGE_GROUPS), codes).tolist() == pytest.approx([0.08, 0.0, 0.003])
    with pytest.raises(DataError, match="no rate for age 19;"):  # the first of the groups is "under 19"
        table.by_year()
    by_year = RateTable(("0-19", *table.groups[2:], "65+"), (*table.rates[1:], 0.08)).by_year()
    assert by_year.shape == (121,)
    assert by_year[[0, 19, 20, 64, 65, 100]].tolist() == pytest.approx([0, 0, 0.001, 0.004, 0.08, 0.08])


@pytest.mark.parametrize(
    ("text", "told"),
    [
        ("age,rate\n0-4,1\n5-9,1\n", "table.csv: no rate for ages 10 to 120; add rows, or ask for by_year(oldest=…)"),
        ("age,rate\n0-4,1\n6-9,1\n11+,2\n", "table.csv: no rate for ages 5, 10"),
        ("age,rate\n0-5,1\n5+,1\n", "table.csv: age 5 is in '0-5' and '5+'; let groups end before the next begins"),
        ("age,rate\n4-0,1\n", "table.csv: group '4-0' ends before it begins"),
        ("age,rate\nadults,1\n", "table.csv: group 'adults' is no age; expected such as '0-4'"),
        ("age,rate\n0-4,1\n0-4,2\n", "table.csv: group '0-4' is there twice"),
        ("age,rate\n0-4,-1\n", "table.csv, line 2: rate = '-1', expected a number that is not negative"),
        ("age,rate\n0-4,\n", "table.csv, line 2: rate = '', expected a number"),
        ("age,rate\n0-4,nan\n", "table.csv, line 2: rate = 'nan'"),
        ("age,rate\n0-4,1,2\n", "table.csv, line 2: 3 columns, expected 2 as in the header"),
        ("agegroup,rate\n0-4,1\n", "table.csv: it has no column 'age'; valid: agegroup, rate"),
        ("age,rate,age\n0-4,1,2\n", "table.csv: two columns are called 'age'"),
        ("age,low,high\n0-4,1,2\n", "say which has the rates: rate="),
        ("", "expected a header and a row for each group"),
    ],
)
def test_wrong_tables_are_told_by_line(tmp_path, text, told):
    with pytest.raises(InputError, match=re.escape(told)):
        RateTable.from_csv(written(tmp_path, text), by="age").by_year()


def test_missing_groups_and_files_are_told(tmp_path):
    table = RateTable.from_csv(written(tmp_path, "group,low,high\nyoung,1,2\nold,3,4\n"), by="group", rate="high")
    assert table.of(["old", "young"]).tolist() == [4, 2]
    with pytest.raises(DataError, match=r"table.csv: no rate for 'odl', 'all'; did you mean 'old'\?"):
        table.of(["odl", "all", "young"])
    with pytest.raises(InputError, match="there is no such file"):
        RateTable.from_csv(tmp_path / "missing.csv")
    with pytest.raises(InputError, match="path=3, expected the path of a file"):
        RateTable.from_csv(3)
    with pytest.raises(InputError, match="groups='old', expected a list of names"):
        table.of("old")


# --- life tables ------------------------------------------------------------------------------------------------------

# A coarse table: probabilities to die within intervals, the last one open.
ABRIDGED = "age,qx\n0,0.02\n1,0.01\n5,0.01\n15,0.05\n45,0.4\n75,0.9\n95,0.4\n"


def test_expectancies_of_known_laws():
    """A constant hazard lives 1 / h years; Gompertz' law has the integral of its survival, here by Simpson's rule."""
    assert LifeTable.from_qx([1 - math.exp(-0.02)]).e0 == pytest.approx(50.0)
    a, b = 5e-5, 0.09
    steps = 20_000
    points = [math.exp(-a / b * math.expm1(b * 130 * k / steps)) for k in range(steps + 1)]
    weights = [1, *[4 if k % 2 else 2 for k in range(1, steps)], 1]
    exact = sum(w * p for w, p in zip(weights, points, strict=True)) * 130 / steps / 3
    table = LifeTable.gompertz(a, b)
    assert table.e0 == pytest.approx(exact, abs=0.02)  # a constant hazard within each year
    assert table.survival(90)[80] == pytest.approx(math.exp(-a / b * math.expm1(b * 80)))


def test_tables_from_files(tmp_path):
    table = LifeTable.from_csv(written(tmp_path, ABRIDGED))
    alive = [1.0]
    for q in (0.02, 0.01, 0.01, 0.05, 0.4, 0.9):
        alive.append(alive[-1] * (1 - q))
    assert [table.survival()[age] for age in (0, 1, 5, 15, 45, 75, 95)] == pytest.approx(alive, rel=1e-5)
    assert table.qx[95] == pytest.approx(0.4)
    for text in ("age,qx\n10+,0.3\n0-4,0.1\n5-9,0.2\n", "age,qx\n5-9,0.2\n10,0.3\n0-4,0.1\n"):  # in any order
        anyhow = LifeTable.from_csv(written(tmp_path, text))
        assert [anyhow.survival()[age] for age in (5, 10, 11)] == pytest.approx([0.9, 0.72, 0.504])
    closed = LifeTable.from_csv(written(tmp_path, "age,qx\n0-4,0.1\n5-9,0.2\n"))  # the last group is five years, too
    assert closed.survival()[10] == pytest.approx(0.72)
    by_age = LifeTable.from_csv(written(tmp_path, "age,qx\n0,0.1\n1,0.2\n2,1\n"))
    assert by_age.hazard[-1] == 2.0  # of the last year a half is lived
    by_rates = LifeTable.from_csv(written(tmp_path, "age,mx\n0-9,0.01\n10+,0.05\n"), value="mx")
    assert by_rates.e0 == pytest.approx((1 - math.exp(-0.1)) / 0.01 + math.exp(-0.1) / 0.05)
    assert LifeTable.from_csv(written(tmp_path, "age,qx\n0,0.1\n1,0.2\n2+,1\n")).qx[:2] == pytest.approx((0.1, 0.2))
    assert table.rates("day")[3].item() == pytest.approx(-math.log1p(-0.01) / 4 / 365.25)


@pytest.mark.parametrize(
    ("make", "told"),
    [
        (lambda path: LifeTable.from_qx([0.1, 1.2]), "row 1: qx=1.2, expected a number from 0 to 1"),
        (lambda path: LifeTable.from_qx([0.1, 1.0, 0.5]), "row 1 has qx=1, so nobody would reach the next age"),
        (lambda path: LifeTable.from_qx(None), "qx=None, expected a list of probabilities"),
        (lambda path: LifeTable.from_qx([]), "0 ages, expected 1 to 121"),
        (lambda path: LifeTable.from_qx([0.1, 0.0]), "the hazard of the last age is 0, so nobody would ever die"),
        (lambda path: LifeTable.gompertz(-1, 0.1), "LifeTable.gompertz: a=-1, expected a number above 0"),
        (lambda path: LifeTable.from_csv(path("age,qx\n1,0.1\n5,1\n")), "expected ages from 0 on that rise"),
        (lambda path: LifeTable.from_csv(path("age,qx\n0,0.1\n0,1\n")), "expected ages from 0 on that rise"),
        (lambda path: LifeTable.from_csv(path("age,qx\n0-4,0.1\n6+,1\n")), "no rate for age 5"),
        (lambda path: LifeTable.from_csv(path("age,qx\n0,0.1\n5,0.2\n85+,1\n")), "line 4: qx=1 of the last"),
        (lambda path: LifeTable.from_csv(path("age,qx\n85-89,1\n0-84,0.2\n")), "line 2: qx=1 of the last"),
        (lambda path: LifeTable.from_csv(path("age,qx\n0,0.1\n5,0.2\n85,1\n")), "line 4: qx=1 of the last"),
        (lambda path: LifeTable.from_csv(path("age,q\n0,1\n")), "it has no column 'qx'; did you mean 'q'?"),
        (lambda path: LifeTable.from_csv(path("age,qx\n0,1.5\n1,1\n")), "qx=1.5, expected a number from 0 to 1"),
        (lambda path: LifeTable.gompertz(1e-4, 0.1).rates("moon"), "unit='moon', expected one of the calendar"),
    ],
)
def test_wrong_life_tables_are_refused(tmp_path, make, told):
    with pytest.raises(InputError, match=re.escape(told)):
        make(lambda text: written(tmp_path, text))


# --- cohorts ----------------------------------------------------------------------------------------------------------


class Folk(dz.State):
    alive: Tensor = dz.mask("agents")
    born: Tensor = dz.real("agents")
    mother: Tensor = dz.mask("agents")


class Town(dz.Model):
    """People age, die by a life table and have children by age-specific fertility."""

    time_unit = "month"

    mortality: Tensor
    fertility: Tensor
    num_agents: int = 100
    first: int = 0

    def init(self, rng: dz.rng.Rng) -> Folk:
        alive = (torch.arange(self.num_agents, device=self.mortality.device) < self.first).to(torch.int8)
        age = 50 * rng.uniform("age") * (self.fertility.sum() > 0)
        return Folk(alive=alive, born=-age, mother=rng.bernoulli("woman", 0.5) * alive)

    def step(self, now: Folk, rng: dz.rng.Rng) -> Folk:
        year = years(now, now.born)
        died = now.alive * rng.event("die", lookup(self.mortality, year), where=now.alive)
        able = now.alive * now.mother
        bore = able * rng.event("bear", lookup(self.fertility, year), where=able)
        rng.record("died", died)
        rng.record("bore", bore)
        girl = rng.bernoulli("girl", 0.5)
        return births(now.replace(alive=now.alive - died), rng, bore * (1 - died), born=birthday(now), mother=girl)

    @dz.series
    def living(self, now: Folk) -> Tensor:
        return now.alive.sum()

    @dz.series
    def deaths(self, events: dz.rng.Events) -> Tensor:
        return events["died"].sum()

    @dz.series
    def women(self, now: Folk) -> Tensor:
        return (now.alive * now.mother).sum()


def fertility() -> Tensor:
    return RateTable(("0-14", "15-29", "30-44", "45+"), (0.0, 0.12, 0.06, 0.0)).by_year() / 12


@pytest.mark.parametrize("dt", [3.0, 12.0])
def test_a_cohort_has_the_survivors_and_the_expectancy_of_its_table(dt):
    """Within 4 standard deviations at each tenth birthday; expectancy within 4 standard errors and dt² / 12 years."""
    num, table = 8_000, LifeTable.gompertz(2e-4, 0.08)
    steps = int(110 * 12 / dt)
    model = Town(table.rates("month"), torch.zeros(121), num, first=num)
    living = dz.simulate(model, steps, dt=dt, compile=False)["living"][0].double()
    a_year = int(12 / dt)
    for age in range(10, 101, 10):
        share = table.survival()[age]
        assert abs(living[age * a_year - 1] / num - share) < 4 * math.sqrt(share * (1 - share) / num) + 1e-9
    # Deaths lie within their steps; the middle of a step is right but for the curvature of the survival.
    curve = torch.cat([torch.tensor([float(num)]), living])
    lived = ((curve[:-1] + curve[1:]) / 2).sum() * dt / 12 / num
    assert float(lived) == pytest.approx(table.e0, abs=4 * 15 / num**0.5 + (dt / 12) ** 2 / 12)


@pytest.mark.slow
def test_a_population_grows_as_lotka_says():
    """The root r of sum exp(-r (x + 1/2)) L(x) m(x) / 2 = 1 is the rate of growth once ages are stable."""
    table, rates = LifeTable.gompertz(5e-4, 0.07), 12 * fertility()
    low, high = -0.05, 0.1
    for _ in range(60):
        r = (low + high) / 2
        alive = table.survival(60)
        daughters = sum(
            math.exp(-r * (x + 0.5)) * (alive[x] + alive[x + 1]) / 2 * rates[x].item() / 2 for x in range(60)
        )
        low, high = (r, high) if daughters > 1 else (low, r)
    model = Town(table.rates("month"), fertility(), 16_000, first=1_500)
    living = dz.simulate(model, 540, dt=2.0, replicates=3, compile=False)["living"].double()
    grown = (living[:, -1] / living[:, 359]).log() / 30  # the last 30 of 90 years
    assert float(grown.mean()) == pytest.approx(low, abs=0.0015)


@pytest.mark.slow
def test_check_holds():
    model = Town(LifeTable.gompertz(0.02, 0.05).rates("month"), 5 * fertility(), 150, first=60)
    report = dz.check(model)
    assert report.ok, report


def test_worlds_and_chunks():
    model = Town(LifeTable.gompertz(0.02, 0.05).rates("month"), 5 * fertility(), 150, first=60)
    whole = dz.simulate(model, 12, replicates=3, compile=False)
    alone = dz.simulate(model, 5, worlds=[2], compile=False).extend(7)
    assert torch.equal(whole["women"][2], alone["women"][0])
    assert int(whole["deaths"].sum()) > 0


def test_born_is_a_real_field():
    now = type("Now", (), {})
    with pytest.raises(ModelError, match=r"born is no real field; declare born: Tensor = dz.real\('agents'\)"):
        years(now, torch.zeros(3, dtype=torch.int8))
