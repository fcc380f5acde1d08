"""Series as tables of polars, pandas and xarray."""

from pathlib import Path

import numpy as np
import pytest

import denizen as dz
from denizen.errors import InputError
from denizen.space import generators
from denizen.zoo.sir import sir


@pytest.fixture(scope="module")
def run() -> dz.run.Run:
    model = sir(generators.erdos_renyi(200, 6.0, seed=0), infect_rate=0.1)
    halves = {"pair": lambda now: now.stage.is_("infected").reshape(2, 100).sum(1)}
    return dz.simulate(model, 6, worlds=[4, 2, 9], seed=3, dt=0.5, device="cpu", record=halves)


def test_one_row_for_each_step_and_replicate(run: dz.run.Run) -> None:
    table = run.to_pandas()
    assert list(table) == ["replicate", "world", "step", "time", *run.series_names[:-1], "pair[0]", "pair[1]"]
    assert len(table) == 18
    assert table["cases"].tolist() == run["cases"].T.reshape(-1).tolist()
    assert table[table["world"] == 9]["pair[1]"].tolist() == run["pair"][2, :, 1].tolist()
    assert table["time"].tolist() == [0.5 * step for step in range(1, 7) for _ in range(3)]
    polars = run.to_polars()
    assert all(polars[name].to_list() == table[name].tolist() for name in table)


def test_a_dataset_keeps_the_axes(run: dz.run.Run, tmp_path, command_line) -> None:
    import xarray

    found = run.to_xarray()
    assert dict(found.sizes) == {"replicate": 3, "step": 6, "pair_dim_0": 2}
    assert found["world"].values.tolist() == [4, 2, 9]
    assert (found["pair"].values == run["pair"].numpy()).all()
    assert found["cases"].attrs == {"long_name": run.about("cases"), "kind": "flow"}
    assert found.attrs == {"model": "SIR", "seed": 3, "dt": 0.5}
    run.save(tmp_path / "run")
    assert command_line("export", tmp_path / "run", "--netcdf", "--out", tmp_path / "run")[0] == 0
    assert xarray.load_dataset(tmp_path / "run.nc", engine="h5netcdf").equals(found)


def test_no_steps_make_an_empty_table(run: dz.run.Run) -> None:
    empty = dz.simulate(run.model, 0, device="cpu")
    assert len(empty.to_pandas()) == 0
    assert empty.to_xarray().sizes["step"] == 0


def test_names_that_a_column_has_already_are_told(run: dz.run.Run) -> None:
    twice = {
        "pair": lambda now: now.stage.is_("infected").reshape(2, 100).sum(1),
        "pair[1]": lambda now: now.time.value,
    }
    with pytest.raises(InputError, match=r"series 'pair\[1\]' has the name of an entry of another series"):
        dz.simulate(run.model, 1, device="cpu", record=twice).to_polars()


@pytest.mark.parametrize(("dt", "kind", "last"), [(1.0, "D", "2020-03-04"), (0.25, "ms", "2020-03-01T18:00:00")])
def test_dates_of_steps(dt: float, kind: str, last: str, tmp_path: Path) -> None:
    contacts = generators.erdos_renyi(50, 4.0, seed=1)
    run = dz.simulate(sir(contacts), 4, replicates=2, dt=dt, start="2020-03-01", out=tmp_path / "run")
    for results in (run, dz.run.load(tmp_path / "run")):
        given = results.to_polars()["date"].to_numpy()
        assert given.dtype == np.dtype(f"datetime64[{kind}]")
        assert given[0] == given[1] == np.datetime64("2020-03-01")
        assert given[-1] == np.datetime64(last)
        assert (np.asarray(results.to_pandas()["date"]).astype("datetime64[ms]") == given).all()
        assert (results.to_xarray()["date"].values == given[::2]).all()
    assert "date" not in dz.simulate(sir(contacts), 4).to_polars().columns


def test_plots_show_dates() -> None:
    model = sir(generators.erdos_renyi(50, 4.0, seed=1))
    for steps, dt, label in ((20, 1.0, "2020-Mar"), (20, 0.25, "Mar"), (1, 1.0, "")):
        figure = dz.simulate(model, steps, replicates=3, dt=dt, start="2020-03-01").plot()
        axis = figure.axes[0]
        figure.canvas.draw()
        assert label in axis.xaxis.get_major_formatter().get_offset()
        assert [line.get_xdata()[0] for line in axis.lines] == [np.datetime64("2020-03-01")]
