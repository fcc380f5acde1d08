"""The log of events: what the series count, whatever the batch, the chunks, the device and the layout."""

import dataclasses
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from tests.run.played import Played, program_of
from torch import Tensor

import denizen as dz
from denizen.errors import CapacityError, DataError, InputError, ModelError
from denizen.run import EventLog, EventTable, load, resume
from denizen.zoo.sir import SIR, infections, sir
from inside import Inside

LOG = EventLog({"caught": infections})
N = 300


def layers() -> dz.space.Layers:
    made = {name: dz.space.generators.erdos_renyi(N, 4.0, seed=k) for k, name in enumerate(("home", "work"))}
    return dz.space.Layers(made, {"home": 1.5, "work": 0.5})


def model() -> SIR:
    return sir(layers(), infect_rate=0.2, seed_share=0.03)


def same(one: EventTable, other: EventTable) -> None:
    assert list(one) == list(other)
    for name in one:
        assert one[name].dtype == other[name].dtype
        assert np.array_equal(one[name], other[name]), name


@pytest.fixture(scope="module")
def whole() -> dz.run.Run:
    return dz.simulate(model(), 30, replicates=3, seed=1, log=LOG)


def test_a_log_has_a_row_for_each_event_and_changes_no_bit(whole: dz.run.Run) -> None:
    plain = dz.simulate(model(), 30, replicates=3, seed=1)
    assert all(torch.equal(plain[name], whole[name]) for name in plain.series_names)
    table = whole.events("caught")
    assert list(table) == ["replicate", "world", "step", "time", "id", "by", "layer"]
    assert np.array_equal(table.incidence(), whole["cases"].numpy())
    order = np.lexsort((table["id"], table["replicate"], table["step"]))
    assert np.array_equal(order, np.arange(len(table)))
    keys = table["replicate"].astype(np.int64) * N + table["id"]
    assert len(np.unique(keys)) == len(table)  # nobody is caught twice
    assert (table["by"] >= 0).all()
    assert set(table["layer"].tolist()) == {0, 1}
    ends = [{(int(a), int(b)) for a, b in zip(*g.edges(), strict=True)} for g in layers().graphs.values()]
    rows = zip(table["by"].tolist(), table["id"].tolist(), table["layer"].tolist(), strict=True)
    assert all((by, who) in ends[layer] for by, who, layer in rows)
    shares = np.bincount(table["layer"]) / len(table)
    assert 0.6 < shares[0] < 0.9  # three times the strength, with as many contacts


def test_a_world_alone_a_small_buffer_and_chunks_give_the_same_rows(whole: dz.run.Run) -> None:
    table = whole.events("caught")
    alone = dz.simulate(model(), 30, worlds=[2], seed=1, log=dataclasses.replace(LOG, capacity=70)).events("caught")
    rows = table["replicate"] == 2
    assert all(np.array_equal(alone[name], table[name][rows]) for name in table if name != "replicate")
    assert all(alone[name].dtype == table[name].dtype for name in table)
    parts = dz.simulate(model(), 7, replicates=3, seed=1, log=LOG)
    same(parts.extend(1).extend(22).events("caught"), table)


def test_captured_chunks_give_the_same_rows(whole: dz.run.Run) -> None:
    run = dz.simulate(model(), 3, replicates=3, seed=1, log=LOG, compile=False)
    program = program_of(run)
    assert program.events[0].race is not None  # found out for the rows alone
    assert len(program.logged) == 1  # the mask is all that a step writes for it
    run._capture = Played(run, 8)
    same(run.extend(27).events("caught"), whole.events("caught"))
    alone = dz.simulate(model(), 3, worlds=[1], seed=1, log=LOG, compile=False)
    alone._capture = Played(alone, 8)
    rows = whole.events("caught")["replicate"] == 1
    assert np.array_equal(alone.extend(27).events("caught")["by"], whole.events("caught")["by"][rows])


def test_agents_laid_out_in_another_order_give_the_same_rows(whole: dz.run.Run) -> None:
    order = torch.randperm(N, generator=torch.Generator().manual_seed(0))
    moved = dataclasses.replace(model(), contacts=model().contacts.renumber(order))
    run = dz.simulate(moved, 3, replicates=3, seed=1, log=LOG, ids=order, compile=False)
    run._capture = Played(run, 8)
    same(run.extend(27).events("caught"), whole.events("caught"))


def test_a_log_reads_nothing_in_the_loop(whole: dz.run.Run) -> None:
    if torch.cuda.is_available():
        pytest.skip("the simulated device is for machines without CUDA")
    guard = dz.budget(host_reads=0, transfers=0)
    run = dz.simulate(model(), 2, replicates=3, seed=1, log=LOG, device=guard.device)
    with guard:
        run._take(run._run_state, 2, 6)
    run.extend(28)
    same(run.events("caught"), whole.events("caught"))


def test_a_folder_keeps_the_rows_and_a_resumed_run_goes_on(whole: dz.run.Run, tmp_path: Path, inside: Inside) -> None:
    inside.saves_always()
    inside.chunks(5)
    run = dz.simulate(model(), 17, replicates=3, seed=1, log=LOG, out=tmp_path / "run")
    assert len(list((tmp_path / "run/events").iterdir())) > 2
    same(load(tmp_path / "run").events("caught"), run.events("caught"))
    for log in (None, EventLog("caught")):
        with pytest.raises(InputError, match=r"resume: log= differs"):
            resume(tmp_path / "run", model(), 1, log=log)
    (tmp_path / "run/events/caught-00099.parquet").write_bytes(b"left by a killed process")
    again = resume(tmp_path / "run", model(), 13, log=LOG)
    assert not (tmp_path / "run/events/caught-00099.parquet").exists()
    for table in (again.events("caught"), load(tmp_path / "run").events("caught")):
        same(table, whole.events("caught"))
    part = next((tmp_path / "run/events").glob("*-00001.parquet"))
    part.write_bytes(part.read_bytes()[:-1])
    with pytest.raises(DataError, match=r"caught-00001.parquet differs from what was written"):
        load(tmp_path / "run").events("caught")


def test_dates_and_tables(tmp_path: Path) -> None:
    run = dz.simulate(model(), 5, dt=0.5, seed=2, start="2026-02-27", log=EventLog("caught"))
    table = run.events("caught")
    assert list(table) == ["replicate", "world", "step", "time", "date", "id"]
    first = table.to_polars().row(0, named=True)
    assert (first["step"], first["time"], str(first["date"])) == (1, 0.5, "2026-02-27 00:00:00")
    assert list(table.to_pandas().columns) == list(table)
    assert "rows over 5 steps" in repr(table)
    nothing = dz.simulate(model(), 0, log=LOG).events("caught")
    assert len(nothing) == 0
    assert nothing.incidence().shape == (1, 0)


class Place(dz.State):
    sick: Tensor = dz.mask("agents")


class Details(dz.Model):
    """An event every step for every third agent, with columns of several kinds, and one that only a log asks for."""

    num_agents: int = 9

    def init(self, rng: dz.rng.Rng) -> Place:
        return Place(sick=torch.zeros(9, dtype=torch.int8))

    def step(self, now: Place, rng: dz.rng.Rng) -> Place:
        agent = torch.arange(9)
        third = (agent % 3 == 0).to(torch.int8)
        rng["market"].record("trade", third * 2.5, by=agent.flip(0) - 1, price=agent * 0.5, open=agent > 4)
        rng.record("never", third * 0, by=lambda: pytest.fail("nobody asked"))
        return now


def test_columns_that_a_model_records(tmp_path: Path) -> None:
    run = dz.simulate(Details(), 2, log=EventLog("market/trade"), out=tmp_path / "run", ids=torch.arange(9) + 10)
    table = run.events("market/trade")
    assert table["id"].tolist() == [10, 13, 16] * 2
    assert table["by"].tolist() == [17, 14, 11] * 2
    assert table["price"].tolist() == [0.0, 1.5, 3.0] * 2
    assert table["open"].tolist() == [False, False, True] * 2
    same(load(tmp_path / "run").events("market/trade"), table)
    assert {file.name for file in (tmp_path / "run/events").iterdir()} == {"market-trade-00000.parquet"}


WRONG = [
    (lambda: dz.simulate(model(), 1, log="caught"), InputError, r"simulate: log='caught', expected dz.run.EventLog"),
    (lambda: dz.simulate(model(), 1, log=EventLog([])), InputError, r"expected names of recorded events, at least one"),
    (lambda: dz.simulate(model(), 1, log=EventLog("cough")), ModelError, r"events\['cough'\].*did you mean 'caught'"),
    (lambda: dz.simulate(model(), 1, log=EventLog(["caught", "caught"])), InputError, r"names an event twice"),
    (lambda: dz.simulate(model(), 1, log=EventLog("caught", capacity=0)), InputError, r"log.capacity.*0"),
    (lambda: dz.simulate(model(), 9, log=EventLog("caught", 2)), CapacityError, r"capacity=2 rows.*raise it"),
    (lambda: dz.simulate(model(), 1, log=EventLog({"caught": len})), InputError, r"function of \(model, before, happ"),
    (lambda: dz.simulate(model(), 1, log=EventLog({"caught": lambda m, b, h, r: h})), ModelError, r"expected columns"),
    (
        lambda: dz.simulate(model(), 1, log=EventLog({"caught": lambda m, b, h, r: {"by": h[:3]}})),
        ModelError,
        r"by is \(3,\), expected numbers \(300,\)",
    ),
    (
        lambda: dz.simulate(model(), 1, log=EventLog({"caught": lambda m, b, h, r: {"by": h * 0.5}})),
        ModelError,
        r"by is torch.float32, expected places of agents",
    ),
    (
        lambda: dz.simulate(model(), 1, log=EventLog({"caught": lambda m, b, h, r: {"id": h}})),
        ModelError,
        r"the log has a column 'id' already",
    ),
    (
        lambda: dz.simulate(model(), 1, log=EventLog("caught"), relax=dz.relax.MeanField()),
        InputError,
        r"log= with relax=.*leave one of the two out",
    ),
    (lambda: dz.simulate(model(), 1).events("caught"), InputError, r"it logs none; pass log=dz.run.EventLog"),
    (lambda: dz.simulate(model(), 1, log=LOG).events("cases"), InputError, r"does not log this event; valid: caught"),
    (lambda: dz.simulate(model(), 1, log=EventLog("caught")).events("caught")["by"], InputError, r"EventLog\(\{…: f"),
]


@pytest.mark.parametrize(("make", "error", "told"), WRONG)
def test_what_is_wrong_is_told_in_a_line(make: Any, error: type[Exception], told: str) -> None:
    with pytest.raises(error, match=told):
        make()


class Fires(dz.State):
    heat: Tensor = dz.count("cells")
    calm: Tensor = dz.mask("agents")


class Burning(dz.Model):
    """Events of cells, of which there are more than agents."""

    num_agents: int = 2

    def init(self, rng: dz.rng.Rng) -> Fires:
        return Fires(heat=torch.zeros(30, dtype=torch.int32), calm=torch.zeros(2, dtype=torch.int8))

    def step(self, now: Fires, rng: dz.rng.Rng) -> Fires:
        cells = rng.on("cells", 30)
        burns = cells.record("fire", cells.bernoulli("burn", 0.5), where=torch.arange(30))
        return now.replace(heat=now.heat + burns)

    @dz.series
    def burnt(self, now: Fires) -> Tensor:
        return now.heat.sum()


def test_events_of_another_axis_have_its_identities() -> None:
    run = dz.simulate(Burning(), 3, log=EventLog("fire"), ids=torch.tensor([5, 9]))
    table = run.events("fire")
    assert np.array_equal(table["id"], table["where"])
    assert np.array_equal(table.incidence().cumsum(1), run["burnt"].numpy())


class Nothing(dz.State):
    calm: Tensor = dz.mask("agents")


class Asked(dz.Model):
    num_agents: int = 50
    prob: Tensor = dz.param(0.5, low=0.0, high=1.0, learnable=False)

    def init(self, rng: dz.rng.Rng) -> Nothing:
        return Nothing(calm=torch.zeros(50, dtype=torch.int8))

    def step(self, now: Nothing, rng: dz.rng.Rng) -> Nothing:
        rng.record("toss", rng.bernoulli("toss", self.prob.mean()))
        return now

    @dz.series
    def tossed(self, events: dz.rng.Events) -> Tensor:
        return events["toss"].sum()


def test_the_host_is_asked_once_a_step_where_a_chunk_is_repeated() -> None:
    asked: list[int] = []

    def answer(group: str, step: int) -> float:
        asked.append(step)
        return 1.0

    ask = dz.model.Ask(target="prob", groups=["all"], answer=answer)
    run = dz.simulate(Asked(), 12, compile=False, log=EventLog("toss"), interventions=[ask])
    assert run["tossed"].tolist() == [[50] * 12]
    assert len(run.events("toss")) == 600
    assert asked == list(range(12))
