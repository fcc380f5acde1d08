"""Sweeps equal single runs bit for bit, whatever the design and however rows share launches."""

import itertools

import numpy as np
import polars
import pytest
import torch
from hypothesis import given, settings
from hypothesis import strategies as st

import denizen as dz
from denizen.errors import InputError, ModelError
from denizen.model import During, Scale
from denizen.sweeps import Builder, Grid, Latin, Listed, Random, Saltelli, Sobol, sweep
from denizen.zoo.sir import SIR
from inside import Inside

QUIET = {"steps": 5, "replicates": 2, "progress": False}
LOCKDOWN = Scale(target="infect_rate", factor=0.5, when=During(2, 4), name="lockdown")


def equal_to_single_runs(found, model, seed=0, steps=5, interventions=()):
    for k, values in enumerate(found.sets):
        alone = dz.simulate(
            model.replace(**values), steps, replicates=found.replicates, seed=seed, interventions=interventions
        )
        for name in found.series_names:
            assert torch.equal(found[name][k], alone[name]), (k, values, name)
            assert found[name].dtype == alone[name].dtype


VALUES = {
    "infect_rate": st.floats(0.0, 2.0, width=32),
    "infectious_days": st.floats(3.0, 9.0, width=32),
    "infectious_phases": st.integers(1, 3),
}


@given(st.data())
@settings(max_examples=8)
def test_a_sweep_equals_single_runs_whatever_the_design(ring, data):
    names = data.draw(st.lists(st.sampled_from(sorted(VALUES)), min_size=1, unique=True))
    columns = {name: data.draw(st.lists(VALUES[name], min_size=1, max_size=2, unique=True)) for name in names}
    design = columns
    if data.draw(st.booleans()):
        sets = list(itertools.product(*columns.values()))
        design = [dict(zip(names, row, strict=True)) for row in data.draw(st.permutations(sets))]
    seed, most = data.draw(st.integers(0, 2**32 - 1)), data.draw(st.sampled_from([40, 120, 1 << 22]))
    with pytest.MonkeyPatch.context() as patch:
        Inside(patch).small_launches(most)  # one row of a launch, three, all
        found = sweep(ring, design, steps=3, replicates=2, seed=seed, progress=False)
    equal_to_single_runs(found, ring, seed, 3)


@pytest.mark.parametrize(
    ("design", "sets"),
    [
        (Grid({"infect_rate": [0.1, 0.2], "infectious_days": [4, 5]}), 4),
        (Listed([{"infect_rate": 0.1}, {"infect_rate": 0.1}]), 2),
        (Random(3, {"infect_rate": (0.1, 0.4)}), 3),
        (Latin(3, {"infect_rate": (0.1, 0.4), "infectious_phases": (1, 3)}), 3),
        (Sobol(4, {"infect_rate": (0.1, 0.4), "seed_share": None}), 4),
        (Sobol(2, ["seed_share"], seed=3), 2),
    ],
)
def test_designs(ring, design, sets):
    found = sweep(ring, design, **QUIET)
    assert len(found) == sets
    equal_to_single_runs(found, ring)
    again = sweep(ring, design, **QUIET)
    assert found.sets == again.sets


def test_numbers_of_interventions_are_swept(ring):
    design = {"lockdown.factor": [0.0, 0.9], "lockdown.start": [1, 3], "infect_rate": [0.4]}
    found = sweep(ring, design, interventions=[LOCKDOWN], **QUIET)
    for k, values in enumerate(found.sets):
        when = During(values["lockdown.start"], 4)
        other = Scale(target="infect_rate", factor=values["lockdown.factor"], when=when, name="lockdown")
        alone = dz.simulate(ring.replace(infect_rate=0.4), 5, replicates=2, interventions=[other])
        assert torch.equal(found["cases"][k], alone["cases"])


def test_a_builder_sweeps_what_a_model_is_built_from(ring):
    def build(share=0.1, doubled=False):
        return ring.replace(seed_share=2 * share if doubled else share)

    found = sweep(Builder(build), {"doubled": [False, True], "infect_rate": [0.1, 0.5]}, **QUIET)
    for k, values in enumerate(found.sets):
        model = build(doubled=values["doubled"]).replace(infect_rate=values["infect_rate"])
        assert torch.equal(found["infected"][k], dz.simulate(model, 5, replicates=2)["infected"])


class Groups(dz.Model):
    """Counts down a vector of rates."""

    num_agents: int = 3
    rates: torch.Tensor = dz.param([0.1, 0.2, 0.3], low=0.0, high=1.0)

    def init(self, rng):
        return Alive(alive=torch.ones(3, dtype=torch.int8))

    def step(self, now, rng):
        return now.replace(alive=now.alive * (1 - rng.event("die", self.rates)))

    @dz.series
    def each(self, now) -> torch.Tensor:
        """Who is alive."""
        return now.alive.float() * self.rates


class Alive(dz.State):
    """Who is alive."""

    alive: torch.Tensor = dz.mask("agents")


def test_a_number_fills_a_vector_and_an_entry_is_swept_alone():
    found = sweep(Groups(), {"rates": [0.2, 0.7]}, **QUIET)
    for k, rate in enumerate((0.2, 0.7)):
        assert torch.equal(found["each"][k], dz.simulate(Groups(rates=[rate] * 3), 5, replicates=2)["each"])
    entry = sweep(Groups(), {"rates[1]": [0.5], "rates[2]": [0.9]}, **QUIET)
    assert torch.equal(entry["each"][0], dz.simulate(Groups(rates=[0.1, 0.5, 0.9]), 5, replicates=2)["each"])
    assert {"each[0]", "each[1]", "each[2]", "rates"} <= set(found.to_polars().columns)


def test_a_function_stands_for_a_model():
    def line(theta, worlds):
        return {"sum": (theta[:, :1] + torch.tensor(worlds)[:, None]).repeat(1, 2), "first": theta[:, :1].repeat(1, 2)}

    found = sweep(line, {"a": [1.0, 2.0], "b": [5.0]}, steps=2, replicates=3, progress=False)
    assert found["sum"].tolist() == [[[a + w] * 2 for w in range(3)] for a in (1.0, 2.0)]
    only = sweep(lambda theta, worlds: theta[:, :1], {"a": [1.0]}, steps=1, replicates=1, progress=False)
    assert only.series_names == ["output"]


def test_measures_summary_and_tables(ring, tmp_path):
    found = sweep(ring, {"infect_rate": [0.1, 0.6]}, steps=6, replicates=3, progress=False, out=tmp_path / "s")
    assert torch.equal(found.measure("cases"), found["cases"].double().sum(2))
    assert torch.equal(found.measure("infected", "peak"), found["infected"].double().amax(2))
    spread = found.measure("infected", lambda values: values[..., 2] - values[..., 0])
    assert torch.equal(spread, (found["infected"][..., 2] - found["infected"][..., 0]).double())
    frame = found.to_polars()
    assert frame.equals(polars.read_parquet(tmp_path / "s" / "sweep.parquet"))
    assert frame.columns == ["set", "infect_rate", "replicate", "step", "time", "cases", "infected", "recovered"]
    assert frame.height == 2 * 3 * 6
    row = frame.filter((polars.col("set") == 1) & (polars.col("replicate") == 2) & (polars.col("step") == 4))
    assert row["infected"].item() == found["infected"][1, 2, 3]
    assert row["infect_rate"].item() == 0.6
    data = found.to_xarray()
    assert data["infected"].sel(set=1, replicate=2, step=4).item() == found["infected"][1, 2, 3]
    assert data["infect_rate"].values.tolist() == [0.1, 0.6]
    assert found.to_pandas().equals(frame.to_pandas())
    lines = polars.read_csv(tmp_path / "s" / "summary.csv")
    mean = found.measure("cases").mean(1).tolist()
    assert lines["cases.total.mean"].to_list() == mean
    assert np.allclose(lines["infected.peak.p95"], np.quantile(found.measure("infected", "peak").numpy(), 0.95, axis=1))
    assert "infect_rate" in str(found.summary())
    found.plot(tmp_path / "picture.png")
    assert (tmp_path / "picture.png").stat().st_size > 1000


def test_a_failure_names_the_set_and_the_world():
    def fails(theta, worlds):
        if any(a > 2 and w == 1 for a, w in zip(theta[:, 0].tolist(), worlds, strict=True)):
            raise ModelError("no")
        return theta

    with pytest.raises(ModelError, match=r"sweep: set 2 \(a=3\) in world 1: no"):
        sweep(fails, {"a": [1, 2, 3]}, steps=1, replicates=2, progress=False)


WRONG = [
    ({"infect_rat": [1]}, {}, r"'infect_rat': SIR has nothing of that name to sweep; did you mean 'infect_rate'\?"),
    ({"infect_rate": [-1]}, {}, "sweep: infect_rate = -1: expected at least 0"),
    ({"seed_share": [0.5, 2]}, {}, "sweep: seed_share = 2: expected 0 to 1"),
    ({"infect_rate": []}, {}, "infect_rate has no values, so the grid is empty"),
    ({}, {}, "expected lists of values by name"),
    ([], {}, "expected values by name, a mapping for each set, at least one"),
    ({"infect_rate": [0.1, 0.1]}, {}, "infect_rate has 0.1 twice"),
    ({"infect_rate": 0.1}, {}, "expected a list of values"),
    ({"infectious_phases": [1.5]}, {}, r"infectious_phases=1.5, expected a whole number"),
    ({"contacts": [1]}, {}, "'contacts': SIR has nothing of that name"),
    ([{"infect_rate": 1}, {"infect_rates": 1}], {}, "set 1 and set 0 differ in 'infect_rate'"),
    ({"infect_rate[0]": [1]}, {}, "there is no entry 0"),
    (Latin(4, {"infect_rate": None}), {}, "infect_rate declares no upper bound; give its range"),
    (Latin(4, {"infect_rate": (2, 1)}), {}, "whose low end lies below its high end"),
    (Latin(0, {"infect_rate": (1, 2)}), {}, "count=0, expected a whole number from 1"),
    (Sobol(6, {"infect_rate": (1, 2)}), {}, "count=6, expected a power of two, such as 4 or 8"),
    (Saltelli(1, {"infect_rate": (1, 2)}), {}, "count=1, expected a whole number, at least 2"),
    (Latin(4, {3: (1, 2)}), {}, "sweep: 3, expected the name of something to sweep, a text"),
    (Latin, {}, "design=<class"),
    ("infect_rate", {}, "design='infect_rate', expected lists of values by name"),
    ({"infectious_days": [4, 0.5]}, {}, r"sweep: set 1 \(infectious_days=0.5\): "),
    ({"infect_rate": [0.1]}, {"series": ["case"]}, "series has 'case'; did you mean 'cases'"),
    ({"infect_rate": [0.1]}, {"executor": 3}, "executor=3, expected an object with a method map"),
    ({"infect_rate": [0.1]}, {"settings": {}}, "pass out= with it"),
    ({"infect_rate": [0.1]}, {"steps": 0}, "steps=0, expected a whole number, at least 1"),
    ({"infect_rate": [0.1, 0.2]}, {"steps": 10**8}, r"2 sets × 2 replicates × 100,000,000 steps are 400,000,000 rows"),
    ({"lockdown.factor": ["x"]}, {"interventions": [LOCKDOWN]}, "lockdown.factor='x', expected a number"),
    ({"lockdown.start": [9]}, {"interventions": [LOCKDOWN]}, r"set 0 \(lockdown.start=9\): During: stop=4 lies before"),
    ({"lockdown.begin": [9]}, {"interventions": [LOCKDOWN]}, "valid: .*lockdown.start"),
]


@pytest.mark.parametrize(("design", "options", "message"), WRONG, ids=range(len(WRONG)))
def test_what_cannot_be_meant_is_told_at_the_door(ring, design, options, message):
    with pytest.raises(InputError, match=message):
        sweep(ring, design, **{**QUIET, **options})


@pytest.mark.parametrize(
    ("gives", "message"),
    [
        (lambda theta: {"rows": theta}, "'rows' has a name that files of tensors keep"),
        (lambda theta: {"set": theta}, "'set' has the name of a column"),
        (lambda theta: {5: theta}, "series 5 has a name of type int"),
        (lambda theta: {}, "the function gave no series"),
        (lambda theta: "much", "'output' of type str, expected numbers"),
        (lambda theta: theta * 1j, "'output' of torch.complex128, expected real numbers"),
    ],
)
def test_series_that_no_folder_or_table_can_hold_are_told(gives, message):
    with pytest.raises((InputError, ModelError), match=message):
        sweep(lambda theta, worlds: gives(theta), {"a": [1, 2]}, steps=1, replicates=1, progress=False)


def test_series_of_a_model_that_no_folder_can_hold_are_told_before_it_runs(ring):
    class Counted(SIR):
        @dz.series
        def rows(self, events: dz.rng.Events) -> torch.Tensor:
            """New infections."""
            return events["caught"].sum()

    with pytest.raises(InputError, match="series 'rows' has a name that files of tensors keep"):
        sweep(Counted(ring.contacts), {"infect_rate": [0.1]}, **QUIET)


def test_an_executor_that_leaves_runs_out_ends_no_sweep(tmp_path):
    class Lossy:
        workers = 4

        def map(self, function, jobs):
            return map(function, jobs[:-1])

    def line(theta, worlds):
        return theta

    given = {"design": {"a": [1, 2, 3, 4]}, "steps": 1, "replicates": 2, "progress": False, "out": tmp_path / "s"}
    with pytest.raises(InputError, match=r"Lossy object .* gave no result of 2 of 8 runs"):
        sweep(line, executor=Lossy(), **given)
    assert len(sweep(line, **given)) == 4


def test_more_than_memory_takes_is_told_with_numbers(ring, inside):
    inside.memory_for_sweeps(1 << 20)
    with pytest.raises(InputError, match=r"2 sets × 50 replicates × 1,000 steps of 3 series take 0.0 GiB.* are free"):
        sweep(ring, {"infect_rate": [0.1, 0.2]}, steps=1000, replicates=50, progress=False)


def test_memory_that_runs_out_halves_a_launch():
    sizes = []

    def small(theta, worlds):
        sizes.append(len(worlds))
        if len(worlds) > 2:
            raise dz.errors.CapacityError("out of memory")
        return theta + torch.tensor(worlds)[:, None]

    found = sweep(small, {"a": [10, 20]}, steps=1, replicates=2, progress=False)
    assert sizes == [4, 2, 2]
    assert found["output"].flatten().tolist() == [10, 11, 20, 21]


def test_lists_from_csv(ring, tmp_path):
    file = tmp_path / "sets.csv"
    file.write_text("infect_rate, infectious_phases\n0.1,1\n\n0.5,2\n")
    found = sweep(ring, Listed.from_csv(file), **QUIET)
    assert found.sets == [{"infect_rate": 0.1, "infectious_phases": 1}, {"infect_rate": 0.5, "infectious_phases": 2}]
    for text, message in [
        ("", "has no rows"),
        ("infect_rate\n", "has no rows"),
        ("a,a\n1,2\n", "two columns are called 'a'"),
        ("a;b\n1,5;2\n", "2 names with semicolons between; expected commas"),
        ("a,b\n1\n", "line 2: 1 columns, expected 2"),
    ]:
        file.write_text(text)
        with pytest.raises(InputError, match=message):
            Listed.from_csv(file)
    file.write_text("infect_rate\n0.1\nmuch\n")
    with pytest.raises(InputError, match=r"infect_rate='much' in line 3 of .*sets\.csv, expected a number"):
        sweep(ring, Listed.from_csv(file), **QUIET)
    with pytest.raises(InputError, match="cannot be read"):
        Listed.from_csv(tmp_path / "none.csv")


def test_ranges_of_a_function_need_numbers():
    with pytest.raises(InputError, match="no lower and no upper bound"):
        sweep(lambda theta, worlds: theta, Latin(2, ["a"]), steps=1, progress=False)


@pytest.mark.cuda
def test_a_gpu_gives_the_bits_of_the_cpu(ring):
    design = {"infect_rate": [0.1, 0.3], "infectious_phases": [1, 2]}
    there, here = sweep(ring, design, device="cuda", **QUIET), sweep(ring, design, device="cpu", **QUIET)
    assert all(torch.equal(there[name], here[name]) for name in here.series_names)
