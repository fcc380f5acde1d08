"""When interventions are on: in days, dates and steps, at every length of a step."""

import dataclasses
import datetime
import json
import math
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import DataError, InputError, ModelError
from denizen.model import Ask, Clock, Course, During, Every, Scale, Trigger, Weekly, When
from denizen.zoo.sir import sir

START = "2020-03-01"  # a Sunday
PAIR, NOBODY = dz.Graph.from_edges([0, 1], [1, 0], 2), dz.Graph.from_edges([], [], 2)


class Still(dz.State):
    seen: Tensor = dz.count("agents", max=1)


class Watch(dz.Model):
    """Nothing happens; `rate` is 1 where an intervention is off, and 2 where it is on."""

    num_agents: int = 2
    rate: Tensor = dz.param(1.0, low=0.0)
    time_unit = "day"

    def init(self, rng: dz.rng.Rng) -> Still:
        return Still(seen=torch.zeros(2, dtype=torch.int8))

    def step(self, now: Still, rng: dz.rng.Rng) -> Still:
        return now

    @dz.series
    def rate_seen(self, now: Still) -> Tensor:
        return self.rate.mean()


class Joined(Watch):
    """The strength of a layer, seen by who has a neighbour in it alone."""

    contacts: dz.space.Layers = dataclasses.field(
        default_factory=lambda: dz.space.Layers({"home": NOBODY, "school": PAIR})
    )

    @dz.series
    def joined(self, now: Still) -> Tensor:
        return self.contacts.sum(torch.ones(2, dtype=torch.int8)).mean()


class Weeks(Watch):
    time_unit = "week"


class Steps(Watch):
    time_unit = "step"


def doubled(when: Any) -> Scale:
    return Scale(target="rate", factor=2.0, when=when)


def on(when: Any, days: int = 20, dt: float = 1.0, model: dz.Model | None = None, **options: Any) -> list[bool]:
    """For each step whether it was on, the same for two worlds at once."""
    run = dz.simulate(
        model or Watch(), round(days / dt), dt=dt, worlds=[5, 2], interventions=[doubled(when)], **options
    )
    first, second = (run["rate_seen"] == 2).tolist()
    assert first == second
    return first


def within(day: float, first: float, last: float = float("inf")) -> bool:
    return first - 1e-9 <= day < last - 1e-9


FEW = pytest.mark.parametrize("dt", [1.0, 1 / 3, 2.0])
DTS = pytest.mark.parametrize("dt", [1.0, 0.5, 0.25, 0.1, 1 / 3, 2.0])


@DTS
@pytest.mark.parametrize("days", [(6, 14), (6.5, 11), 12, (0, 2), [30]])
def test_days_are_days_at_any_length_of_a_step(days: Any, dt: float) -> None:
    ends = days if isinstance(days, tuple | list) else (days,)
    assert on(During(days=days), 20, dt) == [within(step * dt, *ends) for step in range(round(20 / dt))]


@DTS
def test_dates_count_from_the_start(dt: float) -> None:
    assert on(During(dates=("2020-03-09", "2020-03-19")), dt=dt, start=START) == on(During(days=(8, 18)), dt=dt)
    one = datetime.date(2020, 3, 9)
    assert on(During(dates=one), dt=dt, start=np.datetime64(START)) == on(During(days=8), dt=dt)


def test_days_in_models_of_other_units() -> None:
    assert on(During(days=(14, 28)), 6, 1.0, Weeks()) == [False, False, True, True, False, False]
    assert on(During(days=(2, 3)), 1, 1 / 7, Weeks()) == [False, False, True, False, False, False, False]
    dates = During(dates=("2020-03-15", "2020-03-29"))
    assert on(dates, 6, 1.0, Weeks(), start=START) == [False, False, True, True, False, False]


def test_what_asks_the_host_follows_days_too() -> None:
    ask = Ask(target="rate", groups=["all"], answer=lambda group, step: 0.5, when=During(days=(2, 4)))
    run = dz.simulate(Watch(rate=1.0), 12, dt=0.5, interventions=[ask])
    assert [bool(x) for x in (run["rate_seen"].flatten() == 0.5).tolist()] == [4 <= step < 8 for step in range(12)]


@FEW
def test_spans_of_time_are_whole_at_any_length_of_a_step(dt: float) -> None:
    class Spans(Watch):
        def step(self, now: Still, rng: dz.rng.Rng) -> Still:
            rng.record("week", torch.stack([now.time.whole(7), now.time.whole(0.5)]))
            assert rng.dt == dt
            return now

        @dz.series
        def week(self, events: dz.rng.Events) -> Tensor:
            return events["week"]

    found = dz.simulate(Spans(), round(20 / dt), dt=dt, replicates=2)["week"][1].tolist()
    assert found == [[int(step * dt / 7 + 1e-9), int(step * dt / 0.5 + 1e-9)] for step in range(round(20 / dt))]


def test_what_repeats_is_counted_without_overflow() -> None:
    """Parts of a step of 1e15 would pass int64 after some thousand steps."""
    with pytest.raises(InputError, match="are multiples of no time that could be counted; round them"):
        Every(math.pi, math.e, math.sqrt(2)).at(Clock(1 / 24, "day"))
    Every(365.2425, 30.123457, 0.333333).at(Clock(1 / 24, "day"))


def test_spans_of_no_length_are_refused() -> None:
    for length in (0, -7, 1e-9):
        with pytest.raises(ModelError, match=r"now.time.whole: length=.*, expected a number of days above 0"):
            dz.model.Time(torch.tensor(3), 1.0, "day").whole(length)


@FEW
def test_a_course_in_days(dt: float) -> None:
    values = [1.0, 2.0, 3.0, 4.0]
    course = Course(target="rate", values=values, days=3.5)
    seen = dz.simulate(Watch(), round(20 / dt), dt=dt, interventions=[course])["rate_seen"][0].tolist()
    assert seen == [values[min(int(step * dt / 3.5 + 1e-9), 3)] for step in range(round(20 / dt))]


@pytest.mark.parametrize(("days", "dt"), [(1, 0.25), (2, 0.5), (1, 2.0), (1.5, 1.0), (1, 1.0)])
def test_what_asks_the_host_asks_once_in_so_many_days(days: float, dt: float) -> None:
    asked: list[tuple[str, int]] = []

    def answer(group: str, number: int) -> float:
        asked.append((group, number))
        return number / 100

    ask = Ask(target="rate", groups=["a", "b"], answer=answer, days=days)
    steps = round(12 / dt)
    seen = dz.simulate(Watch(), steps, dt=dt, replicates=2, interventions=[ask])["rate_seen"][0].tolist()
    numbers = [int(step * dt / days + 1e-9) for step in range(steps)]
    assert seen == pytest.approx([number / 100 for number in numbers])
    assert asked == [(group, number) for number in dict.fromkeys(numbers) for group in ("a", "b")]


def test_a_run_that_is_resumed_does_not_ask_again(tmp_path: Path) -> None:
    """Within the days that an answer holds, it goes on with the answer that it had."""
    asked: list[int] = []

    def answer(group: str, number: int) -> float:
        asked.append(number)
        return len(asked) / 100

    first = Ask(target="rate", groups=["a"], answer=lambda group, number: 0.5, days=4)
    asks = [first, Ask(target="rate", groups=["a"], answer=answer, days=4, name="ask.again")]  # the later one counts
    dz.simulate(Watch(), 6, interventions=asks, out=tmp_path / "run")
    assert asked == [0, 1]
    run = dz.run.resume(tmp_path / "run", Watch(), 6, interventions=asks)
    assert asked == [0, 1, 2]
    assert run["rate_seen"][0].tolist() == pytest.approx([0.01] * 4 + [0.02] * 4 + [0.03] * 4)


def told(folder: Path, *acts: Any, dt: float = 1.0) -> dict[str, Any]:
    """What a manifest says of interventions, by name."""
    dz.simulate(Watch(), 0, interventions=list(acts), dt=dt, out=folder)
    return json.loads((folder / "manifest.json").read_text())["setup"]["interventions"]


def test_courses_and_questions_in_days_are_what_they_were_in_steps(tmp_path: Path) -> None:
    weekly = Course(target="rate", values=[1.0], days=7)
    daily = Ask(target="rate", groups=["a"], answer=lambda group, step: 0.5, days=1)
    in_steps = Course(target="rate", values=[1.0], every=7), Ask(target="rate", groups=["a"], answer=daily.answer)
    for in_days, same in zip((weekly, daily), in_steps, strict=True):
        assert told(tmp_path / f"{in_days.name}-days", in_days) == told(tmp_path / f"{in_days.name}-steps", same)
    for days in (0, "week"):
        with pytest.raises(InputError, match="Course: days="):
            dz.simulate(Watch(), 1, interventions=[Course(target="rate", values=[1.0], days=days)])


def test_a_gradient_takes_days() -> None:
    half = doubled(During(days=(1, 2)))
    relax, options = dz.relax.StraightThrough(), {"dt": 0.5, "interventions": [half]}
    gradient = dz.run.Gradient(Watch(), lambda s: s["rate_seen"].sum(), 6, wrt=["rate"], relax=relax, **options)
    gradient()
    assert gradient.gradients["rate"] == 4 + 2 * 2


@pytest.mark.slow  # it compiles
def test_the_check_takes_a_start() -> None:
    dated = doubled(During(dates="2020-03-02"))
    assert dz.check(Watch(), start=START, interventions=[dated], gradient=False).ok
    with pytest.raises(InputError, match="needs the date of the first step"):
        dz.check(Watch(), interventions=[dated])


def test_the_description_of_steps_is_that_of_older_folders(tmp_path: Path) -> None:
    described = told(tmp_path / "r", doubled(During(days=(20, 40))), dt=0.5)
    assert "During(start=40, stop=80)" in str(described["scale"])


def test_the_start_is_kept(tmp_path: Path) -> None:
    act = [doubled(During(dates=("2020-03-03", "2020-03-07")))]
    whole = dz.simulate(Watch(), 10, start=START, interventions=act)
    dz.simulate(Watch(), 4, start=START, interventions=act, out=tmp_path / "run")
    assert whole.start == dz.run.load(tmp_path / "run").start == START
    went_on = dz.run.resume(tmp_path / "run", Watch(), 6, interventions=act)
    assert went_on.start == START
    assert torch.equal(went_on["rate_seen"], whole["rate_seen"])
    assert dz.simulate(Watch(), 1).start is None
    manifest = tmp_path / "run" / "manifest.json"
    manifest.write_text(manifest.read_text().replace(f'"start": "{START}"', '"start": "a day"'))
    with pytest.raises(DataError, match="setup: start is 'a day'"):
        dz.run.load(tmp_path / "run")


def expected_week(
    days: set[int], first: int, dt: float, total: int, hours: tuple[float, float] = (0, 24)
) -> list[bool]:
    """By plain arithmetic; hours past midnight belong to the day that they begin on."""
    found = []
    for step in range(round(total / dt)):
        day, hour = int(step * dt + 1e-9), (step * dt + 1e-9) % 1 * 24
        low, high = hours
        today, before = (first + day) % 7 in days, (first + day - 1) % 7 in days
        late = high < low
        found.append((today and hour >= low and (late or hour < high)) or (late and before and hour < high))
    return found


@pytest.mark.parametrize("dt", [1.0, 0.5, 0.25, 1 / 3, 0.4])
def test_weekends(dt: float) -> None:
    weekend = Weekly("saturday", "Sun")
    assert on(weekend, dt=dt, start=START) == expected_week({5, 6}, 6, dt, 20)
    named = on(Weekly("saturday", "sunday", first="wed"), dt=dt)
    assert named == expected_week({5, 6}, 2, dt, 20)


@pytest.mark.parametrize("hours", [(8, 16), (22, 6), (0, 12), (20, 24)])
def test_hours(hours: tuple[float, float]) -> None:
    # All of a run's first night but what began on the day before: a week repeats, so it belongs to a day of it too.
    when = Weekly("sunday", "monday", hours=hours, first="monday")
    assert on(when, 9, 1 / 12) == expected_week({6, 0}, 0, 1 / 12, 9, hours)


def test_weeks_combine() -> None:
    week, span = Weekly("mon", "tue", "wed", first="mon"), During(days=(3, 12))
    days, spanned = expected_week({0, 1, 2}, 0, 1.0, 20), [3 <= step < 12 for step in range(20)]
    assert on(week & span) == [a and b for a, b in zip(days, spanned, strict=True)]
    assert on(week | span) == [a or b for a, b in zip(days, spanned, strict=True)]
    assert on(~week & span) == [b and not a for a, b in zip(days, spanned, strict=True)]


@pytest.mark.slow  # it compiles
def test_weeks_compiled() -> None:
    when = Weekly("mon", "thu", hours=(22, 6), first="tue") & ~During(days=(7, 10))
    assert on(when, 14, 0.25, compile=True) == on(when, 14, 0.25, compile=False)


@FEW
@pytest.mark.parametrize("every", [(7, 2, 0), (5, 2.5, 3), (3.5, 1, 20), (4, 4, 1)])
def test_what_repeats(every: tuple[float, float, float], dt: float) -> None:
    days, lasts, first = every
    times = [step * dt + 1e-9 for step in range(round(30 / dt))]
    assert on(Every(days, lasts, first), 30, dt) == [t >= first and (t - first) % days < lasts - 1e-9 for t in times]


COURSES = {
    "days": ({"days": [0, 3.5, 10]}, {}),
    "dates": ({"dates": ["2020-02-28", datetime.date(2020, 3, 4), "2020-03-11"]}, {"start": "2020-02-28"}),
}


@FEW
@pytest.mark.parametrize("target", ["rate", "contacts.school"])
def test_a_course_begins_its_values_on_days_and_dates(target: str, dt: float) -> None:
    model = Joined() if "." in target else Watch()
    series = "joined" if "." in target else "rate_seen"
    for given, options in COURSES.values():
        ends = (0, 3.5, 10) if "days" in given else (0, 5, 12)
        course = Course(target=target, values=[1.0, 0.0, 3.0], **given)
        seen = dz.simulate(model, round(15 / dt), dt=dt, replicates=2, interventions=[course], **options)[series]
        wanted = [[1.0, 0.0, 3.0][sum(step * dt + 1e-9 >= end for end in ends) - 1] for step in range(round(15 / dt))]
        assert seen.tolist() == [wanted, wanted]


def test_a_schedule_of_a_layer_in_days_goes_with_other_steps(tmp_path: Path) -> None:
    layers = dz.space.Layers({"home": PAIR, "school": PAIR}, {"school": [1.0, 0.0]})
    with pytest.raises(InputError, match=r"Course\(target='contacts.school', values=\[…\], days=1\)"):
        dz.simulate(sir(layers), 4, dt=0.5)
    course = [Course(target="contacts.school", values=[1.0, 0.0], days=1)]
    plain = dz.space.Layers({"home": PAIR, "school": PAIR})
    daily = dz.simulate(sir(layers, seed_share=0.5), 6, replicates=8)
    same = dz.simulate(sir(plain, seed_share=0.5), 6, replicates=8, interventions=course, out=tmp_path / "run")
    alone = dz.simulate(sir(plain, seed_share=0.5), 6, worlds=[5, 2], interventions=course)
    assert torch.equal(same["cases"], daily["cases"])
    assert torch.equal(alone["cases"], daily["cases"][[5, 2]])
    went_on = dz.run.resume(tmp_path / "run", sir(plain, seed_share=0.5), 2, interventions=course)
    assert torch.equal(went_on["cases"], dz.simulate(sir(layers, seed_share=0.5), 8, replicates=8)["cases"])
    dz.simulate(sir(plain), 4, dt=0.5, interventions=course)


def test_wrong_courses_are_one_line() -> None:
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"days": [0, 3]}, "days has 2 entries, expected 3"),
        ({"days": [0, 5, 3]}, r"days=\(5, 3\), expected a number from 0, or two in order"),
        ({"dates": ["2020-03-01", "2020-04-01", "2020-03-05"]}, "are out of order"),
        ({"days": 7, "dates": ["2020-03-01"]}, "Course: days and dates given"),
        ({"days": -1}, "Course: days=-1, expected a number above 0"),
        ({"dates": ["2020-03-01"] * 3}, "needs the date of the first step"),
        ({"target": "contacts.school", "days": 1}, "Course: the model has no 'contacts'"),
        ({"days": [0, 0.2, 0.5]}, r"Course: no step begins while values\[1\] holds; take a smaller dt"),
        ({"days": [0, 0, 3]}, r"Course: no step begins while values\[0\] holds"),
    ]
    for given, told in wrong:
        with pytest.raises(InputError, match=told):
            dz.simulate(Watch(), 1, interventions=[Course(**{"target": "rate", "values": [1.0, 2.0, 3.0], **given})])
    with pytest.raises(InputError, match=r"Course: values\[1\]='no', expected a number"):
        dz.simulate(Joined(), 1, interventions=[Course(target="contacts.school", values=[1.0, "no"], days=1)])


WRONG = [
    (lambda: Every(0, 1), {}, "Every: days=0, expected a number above 0"),
    (lambda: Every(7, 8), {}, "Every: on_for=8, expected a number above 0, at most days=7"),
    (lambda: Every(7, 1, -1), {}, "Every: first=-1, expected a number of days, at least 0"),
    (lambda: Every(2, 0.5, 0.2), {}, "no step begins in it; take a smaller dt"),
    (lambda: Weekly("someday", first="mon"), {}, "Weekly: 'someday' is no day of the week, expected monday, tuesday"),
    (lambda: Weekly(), {}, "Weekly: no day given"),
    (lambda: Weekly("mon"), {}, "Weekly: mon needs the day of the first step; give first='monday', or simulate"),
    (lambda: Weekly("mon", first="tue"), {"start": START}, "first='tue', and start=2020-03-01 is a sunday"),
    (lambda: Weekly("mon", first="tue"), {"dt": 1.5}, "steps are 1.5 days, expected at most a day"),
    (lambda: Weekly("mon", first="tue", hours=(8, 16)), {}, "steps are 1 days, expected shorter than a day"),
    (lambda: Weekly("mon", first="tue", hours=(8, 9)), {"dt": 0.5}, "no step of 0.5 days begins in it"),
    (lambda: Weekly("mon", first="tue", hours=(8, 25)), {"dt": 0.5}, r"Weekly: hours=\(8, 25\), expected two"),
    (lambda: Weekly("mon", first="tue", hours=(8, float("nan"))), {"dt": 0.5}, "expected two different numbers"),
    (lambda: Weekly("mon", first="tue") & 3, {}, "int cannot be combined"),
    (lambda: During(days=(40, 20)), {}, r"During: days=\(40, 20\), expected a number from 0, or two in order"),
    (lambda: During(days=-1), {}, "During: days=-1, expected a number from 0"),
    (lambda: During(days=(1, float("nan"))), {}, r"During: days=\(1, nan\), expected"),
    (lambda: During(days=(1, 2, 3)), {}, r"During: days=\(1, 2, 3\), expected"),
    (lambda: During(days="20"), {}, "During: days='20', expected"),
    (lambda: During(days=True), {}, "During: days=True, expected"),
    (lambda: During(), {}, "During: nothing given"),
    (lambda: During(3, days=4), {}, "During: start and days given"),
    (lambda: During(stop=4, days=3), {}, "During: days given"),
    (lambda: During(days=(20.2, 20.4)), {}, "no step of 1 days begins in it; take a smaller dt"),
    (lambda: During(dates="soon"), {"start": START}, "During: dates='soon', expected ISO texts"),
    (lambda: During(dates=("2020-04-01", "2020-03-05")), {"start": START}, "are out of order"),
    (lambda: During(dates="2020-03-15"), {}, r"needs the date of the first step; give simulate\(…, start="),
    (lambda: During(dates="2020-02-15"), {"start": START}, "2020-02-15 lies before start=2020-03-01"),
    (lambda: During(days=3), {"start": "yesterday"}, "simulate: start='yesterday', expected ISO texts"),
    (
        lambda: During(days=3),
        {"model": Steps()},
        "needs a model whose time_unit is a unit such as 'day', and it is 'step'",
    ),
    (lambda: During(3), {"model": Steps(), "start": START}, "simulate: start=2020-03-01 needs a model whose time_unit"),
]


@pytest.mark.parametrize(("when", "options", "told"), WRONG)
def test_wrong_times_are_one_line(when: Callable[[], When], options: dict[str, Any], told: str) -> None:
    with pytest.raises(InputError, match=told) as caught:
        on(when(), 3, **options)
    assert "\n" not in str(caught.value)


def test_a_calibration_with_dates_places_interventions_by_them() -> None:
    class Grow(Watch):
        def init(self, rng: dz.rng.Rng) -> Still:
            return Still(seen=(rng.uniform("x") < 0.5).to(torch.int8))

        @dz.series
        def noisy(self, now: Still) -> Tensor:
            return self.rate.mean() + 0.01 * now.seen.sum()

    dates = np.arange("2020-03-01", "2020-03-11", dtype="datetime64[D]")
    values = np.where(dates < np.datetime64("2020-03-05"), 3.0, 6.0)
    fit = dz.calibrate(
        Grow(rate=2.0),
        {"noisy": dz.fit.Target(values, dates=dates)},
        priors={"rate": torch.distributions.Uniform(1.0, 5.0)},
        interventions=[doubled(During(dates="2020-03-05"))],
        replicates=4,
        seed=1,
    )
    assert float(fit.params["rate"]) == pytest.approx(3.0, abs=0.05)


class Dated(Watch):
    """One that closes by itself on a date."""

    level: Tensor = dz.param(1.0, low=0.0)

    def init(self, rng: dz.rng.Rng) -> Still:
        return Still(seen=(rng.uniform("x") < 0.5).to(torch.int8))

    @property
    def interventions(self) -> tuple[dz.model.Intervention, ...]:
        return (Scale(target="rate", factor=2.0, when=During(dates="2020-03-05"), name="own"),)

    @dz.series
    def noisy(self, now: Still) -> Tensor:
        return self.rate.mean() * self.level + 0.01 * now.seen.sum()


TERM = Weekly("mon", "tue", "wed", "thu", "fri") & During(dates=("2020-03-02", np.datetime64("2020-03-10")))


@pytest.fixture(scope="module")
def fit(tmp_path_factory: pytest.TempPathFactory) -> tuple[Any, Path]:
    """A calibration of a model with dates of its own, with interventions in weeks and dates, in a folder."""
    schools = Scale(target="rate", factor=3.0, when=TERM, name="schools")
    truth = dz.simulate(Dated(level=2.0), 14, start=START, replicates=1, interventions=[schools])["noisy"][0]
    out = tmp_path_factory.mktemp("fits") / "fit"
    options: dict[str, Any] = {"start": START, "interventions": [schools], "replicates": 4, "progress": False}
    priors = {"level": torch.distributions.Uniform(0.5, 5.0)}
    found = dz.calibrate(Dated(), {"noisy": truth.numpy()}, priors=priors, out=out, **options)
    again = dz.calibrate(Dated(), {"noisy": truth.numpy()}, priors=priors, out=out, **options)
    assert again.params == found.params  # read from the folder
    return found, out


def test_a_calibration_takes_a_start_for_the_models_own_dates(fit: tuple[Any, Path]) -> None:
    assert float(fit[0].params["level"]) == pytest.approx(2.0, abs=0.02)


def test_weeks_and_dates_come_back_from_the_folder_of_a_fit(fit: tuple[Any, Path]) -> None:
    read = dz.fit.Fit.load(fit[1], Dated())
    (schools,) = read._setup.given["interventions"]
    assert schools.when == TERM
    one, other = (which.curve(worlds=4)["noisy"] for which in (fit[0], read))
    assert np.array_equal(one, other)
    changed = Scale(target="rate", factor=3.0, when=TERM | During(0), name="schools")
    with pytest.raises(InputError, match="interventions"):
        dz.fit.Fit.load(fit[1], Dated(), interventions=[changed])


def test_scenarios_of_a_fit_take_dates(fit: tuple[Any, Path]) -> None:
    closed = [
        Scale(target="rate", factor=0.0, when=when, name="closed")
        for when in (During(dates=("2020-03-08", "2020-03-11")), During(7, 10))
    ]
    free = fit[0]._solution.free[None]
    first, second = (fit[0].scenario(interventions=[one]).simulate(free, [0], 14, 0) for one in closed)
    assert np.array_equal(first["rate_seen"][1], second["rate_seen"][1])
    assert first["rate_seen"][1][0].tolist() == [1, 3, 3, 3, 6, 6, 2, 0, 0, 0, 2, 2, 2, 2]


def test_filters_and_forecasts_take_dates() -> None:
    values = dz.fit.Target([1.0, 1.0, 1.0, 1.0, 2.0, 2.0], noise=dz.fit.Normal(0.1))
    found = dz.fit.filter(Dated(), {"noisy": values}, start=START, particles=8)
    dated = Scale(target="rate", factor=0.0, when=During(dates="2020-03-09"), name="closed")
    draws = found.forecast(4, draws=8, interventions=[dated])["noisy"].mean(0)
    assert np.allclose(draws, [2, 2, 0, 0], atol=0.25)


RISING = lambda now: now.time.step >= 3
TRIGGERS = {
    "latch and days": (Trigger(RISING) & During(days=(1, 6)), lambda k: 3 <= k < 6),
    "not yet": (~Trigger(RISING), lambda k: k < 3),
    "two that stop by themselves": (
        Trigger(lambda now: now.time.step == 2, lambda now: now.time.step == 5)
        | Trigger(lambda now: now.time.step == 7, lambda now: now.time.step == 8),
        lambda k: k in (2, 3, 4, 7),
    ),
    "nested": (
        ~(Trigger(lambda now: now.time.step == 1) & ~Trigger(lambda now: now.time.step == 4)) & During(0),
        lambda k: not 1 <= k < 4,
    ),
}


@pytest.mark.parametrize("name", TRIGGERS)
def test_triggers_within_combinations_go_by_their_own_past(name: str, tmp_path: Path) -> None:
    when, wanted = TRIGGERS[name]
    assert on(when, 10) == [wanted(k) for k in range(10)]
    dz.simulate(Watch(), 4, interventions=[doubled(when)], out=tmp_path / "run")  # what triggers keep is kept
    run = dz.run.resume(tmp_path / "run", Watch(), 6, interventions=[doubled(when)])
    assert (run["rate_seen"][0] == 2).tolist() == [wanted(k) for k in range(10)]


def test_a_combination_has_room_for_seven_triggers() -> None:
    when = During(0) & Trigger(RISING)
    for _ in range(6):
        when = when | Trigger(RISING)
    assert on(when, 5) == [k >= 3 for k in range(5)]
    with pytest.raises(InputError, match="has 8 triggers, expected at most 7"):
        on(when | Trigger(RISING), 5)


class Exposed(dz.State):
    got: dz.model.History = dz.history("agents")


class Timed(dz.Model):
    """Ages, tables, weeks and layers in days, at any length of a step."""

    time_unit = "day"
    contacts: dz.space.Layers
    rate: Tensor = dz.param("2.1/contact/week", low=0.0, unit="1/contact/day")

    def init(self, rng: dz.rng.Rng) -> Exposed:
        return Exposed(got=dz.model.History.start(rng.bernoulli("seed", 0.1).int(), length=6, dt=rng.dt))

    def step(self, now: Exposed, rng: dz.rng.Rng) -> Exposed:
        table = torch.tensor([0.0, 0.5, 1.0, 1.0, 0.5], device=now.time.step.device)
        shed = now.got.weigh(dz.model.by_step(table, now.time.dt)) * now.got.within(1, 5, now.time.dt)
        summer = now.time.whole(7) >= 1
        pressure = self.contacts.sum(shed, max=1.0, needed=now.got.never())
        caught = rng.event("catch", torch.where(summer, 0.5, 1.0) * self.rate * pressure)
        rng.record("caught", now.got.never() * caught)
        return now.replace(got=now.got.record(caught))

    @dz.series
    def cases(self, events: dz.rng.Events) -> Tensor:
        return events["caught"].sum()


def test_time_keeps_what_every_run_promises(tmp_path: Path) -> None:
    num, steps = 80, 40
    graph = dz.Graph.from_edges(torch.arange(num), (torch.arange(num) * 7 + 3) % num, num, directed=False)
    layers = dz.space.Layers({"home": graph, "school": graph})
    late = Trigger(lambda now: now.got.never().sum() < 60)
    options: dict[str, Any] = {
        "dt": 0.25,
        "start": START,
        "interventions": [
            Course(target="contacts.school", values=[2.0, 0.0, 1.0], dates=["2020-03-01", "2020-03-04", "2020-03-06"]),
            Scale(target="rate", factor=0.2, when=(Every(3, 1, 1) | Weekly("sat", "sun")) & ~late, name="often"),
        ],
    }
    whole = dz.simulate(Timed(layers), steps, replicates=3, **options)
    assert whole["cases"].sum() > 30
    alone = dz.simulate(Timed(layers), steps, worlds=[2], **options)
    assert torch.equal(alone["cases"][0], whole["cases"][2])
    dz.simulate(Timed(layers), 17, replicates=3, out=tmp_path / "run", **options)
    went_on = dz.run.resume(tmp_path / "run", Timed(layers), steps - 17, interventions=options["interventions"])
    assert torch.equal(went_on["cases"], whole["cases"])
    order = torch.randperm(num, generator=torch.Generator().manual_seed(0))
    other = dz.simulate(Timed(layers.renumber(order)), steps, replicates=3, ids=order, **options)
    assert torch.equal(other["cases"], whole["cases"])
    given: dict[str, Any] = {"start": START, "interventions": options["interventions"], "gradient": False}
    report = dz.check(Timed(layers), steps=4, dt=0.5, until=6.0, **given)  # vmap, one graph, no host read, other steps
    assert report.ok, report
