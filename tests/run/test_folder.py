"""Run folders: what is written is what was run, writes fail without losing anything, hostile folders are refused."""

import errno
import fcntl
import hashlib
import io
import json
import os
import shutil
import subprocess
import sys

import pytest
import torch
from hypothesis import HealthCheck, given, settings
from hypothesis import strategies as st
from safetensors.torch import load_file
from safetensors.torch import save as encode

import denizen as dz
from denizen.errors import DataError, DenizenError, InputError, MissingExtra, StorageError
from denizen.run import Snapshots, load, resume
from denizen.zoo.sir import SIR

SERIES = {
    "pair": lambda now: torch.stack([now.stage.is_("infected").sum(), now.stage.is_("recovered").sum()]).to(
        torch.float32
    ),
    "brief": lambda now: now.stage.is_("infected").sum().to(torch.bfloat16),
    "any": lambda now: now.stage.is_("infected").any(),
}


def model(**params) -> SIR:
    ring = torch.arange(200)
    return SIR(
        dz.Graph.from_edges(ring, (ring + 1) % 200, 200, directed=False),
        **{"infect_rate": 0.3, "seed_share": 0.05, **params},
    )


def same(first, second) -> bool:
    return first.dtype == second.dtype and torch.equal(first, second)


@pytest.fixture
def every_chunk(monkeypatch, saves_always):
    """Save after every chunk."""


def test_a_folder_gives_back_the_series_in_their_dtypes(tmp_path, every_chunk):
    run = dz.simulate(model(), 80, replicates=3, record=SERIES, snapshots=Snapshots(7), out=tmp_path / "r")
    saved = load(tmp_path / "r")
    assert saved.series_names == run.series_names == ["cases", "infected", "recovered", "pair", "brief", "any"]
    assert all(same(saved[name], run[name]) for name in run.series_names)
    assert all(same(saved.snapshots[name], run.snapshots[name]) for name in run.snapshots)
    assert (saved.steps, saved.worlds, saved.seed, saved.kinds) == (80, [0, 1, 2], 0, run.kinds)
    assert saved.to_polars().equals(run.to_polars())
    assert saved.manifest.status == "finished"
    assert len(saved.manifest.metrics) > 2  # the first chunk and some later ones


def test_parts_are_plain_files_of_tensors(tmp_path, every_chunk):
    run = dz.simulate(model(), 70, replicates=2, record=SERIES, out=tmp_path / "r")
    parts = [load_file(part) for part in sorted((tmp_path / "r" / "metrics").iterdir())]
    assert len(parts) > 2
    assert all(same(torch.cat([part[name] for part in parts], 1), run[name]) for name in run.series_names)


def test_a_run_is_one_table_for_polars(tmp_path):
    polars = pytest.importorskip("polars")
    run = dz.simulate(model(), 70, replicates=2, out=tmp_path / "r")
    table = load(tmp_path / "r").to_polars()
    assert table.columns[:4] == ["replicate", "world", "step", "time"]
    assert table.height == 140
    assert table.filter(polars.col("replicate") == 1)["cases"].to_list() == run["cases"][1].tolist()
    with pytest.raises(InputError, match="rename"):
        dz.simulate(model(), 1, record={"time": lambda now: now.time.value}).to_polars()


def test_no_part_is_written_twice(tmp_path, every_chunk):
    run = dz.simulate(model(), 40, out=tmp_path / "r")
    before = {path: path.stat().st_mtime_ns for path in (tmp_path / "r").glob("metrics/*")}
    run.extend(40)
    assert all(path.stat().st_mtime_ns == time for path, time in before.items())
    assert len(list((tmp_path / "r").glob("checkpoints/*"))) == 1


def test_saving_later_equals_saving_along(tmp_path):
    kept = dz.simulate(model(), 30, replicates=2, snapshots=Snapshots(10))
    kept.save(tmp_path / "late").extend(5)
    along = dz.simulate(model(), 35, replicates=2, snapshots=Snapshots(10), out=tmp_path / "along")
    for name in along.series_names:
        assert same(load(tmp_path / "late")[name], along[name])
    assert load(tmp_path / "late").snapshots["stage"].equal(along.snapshots["stage"])


def test_a_run_without_steps_can_be_saved_and_read(tmp_path):
    dz.simulate(model(), 0, out=tmp_path / "r")
    saved = load(tmp_path / "r")
    assert (saved.steps, saved.series_names) == (0, [])
    assert resume(tmp_path / "r", model(), 3)["cases"].equal(dz.simulate(model(), 3)["cases"])


def test_only_new_or_empty_folders_are_taken(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "thesis.tex").write_text("mine")
    with pytest.raises(StorageError, match="not empty"):
        dz.simulate(model(), 1, out=tmp_path / "full")
    assert [path.name for path in (tmp_path / "full").iterdir()] == ["thesis.tex"]
    (tmp_path / "empty").mkdir()
    dz.simulate(model(), 1, out=tmp_path / "empty")
    with pytest.raises(StorageError, match="resume"):
        dz.simulate(model(), 1, out=tmp_path / "empty")
    with pytest.raises(StorageError, match="cannot be written"):
        dz.simulate(model(), 1, out=tmp_path / "full" / "thesis.tex" / "run")


def test_save_needs_a_place_and_series_names_their_own(tmp_path):
    with pytest.raises(InputError, match="give a path"):
        dz.simulate(model(), 1).save()
    for name in ("time", "__metadata__"):
        with pytest.raises(InputError, match="rename"):
            dz.simulate(model(), 1, record={name: lambda now: now.time.value}, out=tmp_path / "r")


def test_a_missing_package_is_named_before_the_first_step(tmp_path, monkeypatch):
    monkeypatch.setitem(sys.modules, "zarr", None)
    with pytest.raises(MissingExtra, match=r"denizen\[storage\]"):
        dz.simulate(model(), 5, snapshots=Snapshots(2), out=tmp_path / "r")
    assert not (tmp_path / "r").exists()


# --- what goes wrong while writing ------------------------------------------------------------------------------------


class Disk:
    """A disk that is full from the given write on."""

    def __init__(self, monkeypatch, full_after: int):
        self.left, self.real = full_after, os.fsync
        monkeypatch.setattr(os, "fsync", self.fsync)

    def fsync(self, descriptor):
        self.left -= 1
        if self.left < 0:
            raise OSError(errno.ENOSPC, "No space left on device")
        self.real(descriptor)


@pytest.mark.parametrize("writes", range(14))  # each write of one save, and some of the next
def test_a_disk_that_fills_up_loses_nothing(tmp_path, monkeypatch, saves_always, writes):
    whole = dz.simulate(model(), 40, snapshots=Snapshots(20))
    run = dz.simulate(model(), 3, snapshots=Snapshots(20), out=tmp_path / "r")
    disk = Disk(monkeypatch, writes)
    with pytest.raises(StorageError, match="No space left") as failure:
        run.extend(37)
    part = load(tmp_path / "r")
    assert f"up to step {part.steps}," in str(failure.value)
    assert part["cases"].equal(whole["cases"][:, : part.steps])
    assert run["cases"].equal(whole["cases"][:, : run.steps])  # in memory, too
    disk.left = 10**9
    run.save(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere")["cases"].equal(run["cases"])
    assert resume(tmp_path / "r", model(), 40 - part.steps)["cases"].equal(whole["cases"])
    run.extend(40 - run.steps)
    assert run["cases"].equal(whole["cases"])
    assert run.snapshots["stage"].equal(whole.snapshots["stage"])


def test_room_made_the_run_saves_where_it_was(tmp_path, monkeypatch):
    run = dz.simulate(model(), 3, out=tmp_path / "r")
    disk = Disk(monkeypatch, 0)
    with pytest.raises(StorageError, match=r"run\.save"):
        run.extend(10)
    disk.left = 10**9
    run.extend(10)
    assert load(tmp_path / "r")["cases"].equal(dz.simulate(model(), run.steps)["cases"])


def test_a_disk_that_fills_up_under_simulate_hands_over_the_run(tmp_path, monkeypatch, saves_always):
    """Who has called `simulate` or `resume` has no run yet; the error does."""
    disk = Disk(monkeypatch, 24)
    with pytest.raises(StorageError, match="No space left") as failure:
        dz.simulate(model(), 100, out=tmp_path / "r", settings={"config": {"model": "sir"}})
    disk.left = 10**9
    assert failure.value.run.steps > load(tmp_path / "r").steps > 0
    failure.value.run.save(tmp_path / "elsewhere")
    assert load(tmp_path / "elsewhere").manifest.settings == {"config": {"model": "sir"}}
    disk.left = 3
    with pytest.raises(StorageError, match="No space left") as failure:
        resume(tmp_path / "r", model(), 20)
    disk.left = 10**9
    assert failure.value.run.save().steps == load(tmp_path / "r").steps


def test_settings_are_kept_in_the_manifest_from_the_first_save(tmp_path):
    with pytest.raises(InputError, match="pass out= with it"):
        dz.simulate(model(), 1, settings={})

    def interrupt(now):
        if (tmp_path / "r").exists():
            raise KeyboardInterrupt
        return now.stage.is_("infected").sum()

    with pytest.raises(KeyboardInterrupt):
        dz.simulate(model(), 5, out=tmp_path / "r", settings={"seed": 3}, record={"ill": interrupt})
    saved = load(tmp_path / "r")
    assert (saved.manifest.settings, saved.manifest.wanted, saved.status) == ({"seed": 3}, 5, "interrupted")


@pytest.fixture
def small_disk(tmp_path):
    place = tmp_path / "disk"
    place.mkdir()
    mounted = subprocess.run(
        ["mount", "-t", "tmpfs", "-o", "size=96k", "tmpfs", str(place)], capture_output=True, text=True
    )
    if mounted.returncode:
        pytest.skip(f"cannot mount a small tmpfs: {mounted.stderr.strip() or mounted.returncode}")
    yield place
    subprocess.run(["umount", str(place)], check=True)


def test_a_truly_full_disk(small_disk, tmp_path, every_chunk):
    run = dz.simulate(model(), 0, out=small_disk / "r")
    with pytest.raises(StorageError, match="No space left"):
        run.extend(3000)
    part = load(small_disk / "r")
    assert part.status == "failed"
    assert 0 < part.steps < run.steps
    assert part["cases"].equal(run["cases"][:, : part.steps])
    run.save(tmp_path / "elsewhere").extend(5)
    assert load(tmp_path / "elsewhere")["cases"].equal(dz.simulate(model(), run.steps)["cases"])


def test_what_ends_a_run_is_in_the_folder(tmp_path):
    calls = []

    def stop(now):
        calls.append(1)
        if len(calls) > 50:
            raise KeyboardInterrupt
        return now.time.value

    with pytest.raises(KeyboardInterrupt):
        dz.simulate(model(), 90, record={"clock": stop}, out=tmp_path / "r")
    saved = load(tmp_path / "r")
    assert (saved.manifest.status, saved.manifest.wanted) == ("interrupted", 90)
    assert 0 < saved.steps <= 50
    assert "interrupted" in (tmp_path / "r" / "log.txt").read_text()

    def bad(now):
        raise ValueError("no such luck")

    with pytest.raises(ValueError, match="no such luck"):
        dz.simulate(model(), 5, record={"bad": bad}, out=tmp_path / "s")
    assert load(tmp_path / "s").manifest.error == "ValueError: no such luck"


def test_two_runs_do_not_write_to_one_folder(tmp_path):
    run = dz.simulate(model(), 3, out=tmp_path / "r")
    descriptor = os.open(tmp_path / "r" / ".lock", os.O_RDWR)
    fcntl.flock(descriptor, fcntl.LOCK_EX)
    with pytest.raises(StorageError, match="another run is writing"):
        run.extend(1)
    with pytest.raises(StorageError, match="another run is writing"):  # before files are read that may go meanwhile
        resume(tmp_path / "r", model(), 0)
    (tmp_path / "r" / "manifest.json").write_text(
        text := (tmp_path / "r" / "manifest.json").read_text().replace('"finished"', '"running"')
    )
    assert load(tmp_path / "r").status == "running"
    os.close(descriptor)
    assert load(tmp_path / "r").status == "killed"
    (tmp_path / "r" / "manifest.json").write_text(text.replace('"running"', '"finished"'))
    resume(tmp_path / "r", model(), 4)
    with pytest.raises(StorageError, match="changed by another run"):
        run.extend(1)
    run.save(tmp_path / "mine")
    assert load(tmp_path / "mine").steps == 3


# --- folders from elsewhere -------------------------------------------------------------------------------------------


@pytest.fixture(scope="module")
def finished(tmp_path_factory):
    folder = tmp_path_factory.mktemp("finished") / "r"
    dz.simulate(model(), 12, replicates=2, snapshots=Snapshots(5), out=folder)
    return folder


@pytest.fixture
def copy(finished, tmp_path):
    return shutil.copytree(finished, tmp_path / "copy")


@pytest.mark.parametrize(
    "content", [b"", b"{", b"[]", b"null", b'"x"', b"\xff", b"{}", b"[" * 100_000, b'{"format": 1}']
)
def test_no_manifest(tmp_path, content):
    with pytest.raises(DataError, match="does not exist"):
        load(tmp_path / "absent")
    with pytest.raises(DataError, match="no manifest"):
        load(tmp_path)
    (tmp_path / "manifest.json").write_bytes(content)
    with pytest.raises(DataError, match=r"manifest\.json"):
        load(tmp_path)


def replaced(tree, path, value):
    if not path:
        return value
    changed = dict(tree) if isinstance(tree, dict) else list(tree)
    changed[path[0]] = replaced(tree[path[0]], path[1:], value)
    return changed


@pytest.mark.parametrize(
    ("path", "value", "message"),
    [
        (["metrics", 0, "file"], "../../etc/passwd", "file is"),
        (["metrics", 0, "file"], "/etc/passwd", "file is"),
        (["checkpoint", "file"], "checkpoints/../manifest.json", "file is"),
        (["snapshots", "fields"], ["../../x"], "fields"),
        (["steps"], 13, "metrics end at"),
        (["steps"], 10**30, "whole number"),
        (["steps"], True, "whole number"),
        (["setup", "worlds"], [], "worlds"),
        (["setup", "dt"], float("nan"), "dt"),
        (["setup", "seed"], -1, "seed"),
        (["series", 0, "dtype"], "nn", "no dtype"),
        (["series", 0, "name"], "step", "column"),
        (["series", 0, "name"], "deaths", "expected .'deaths'"),
        (["series", 0, "shape"], [3], "expected int64"),
        (["status"], "great", "status"),
        (["format"], "denizen run 2", "denizen run 1"),
        (["metrics", 0, "digest"], "", "differs"),
        (["error"], "\ud800", "expected a text"),
    ],
)
def test_a_changed_manifest_is_refused(copy, path, value, message):
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / "manifest.json").write_text(json.dumps(replaced(manifest, path, value)))
    with pytest.raises(DataError, match=message):
        load(copy).snapshots  # noqa: B018


ANYTHING = st.recursive(
    st.none() | st.booleans() | st.integers() | st.floats() | st.text(max_size=5),
    lambda inner: st.lists(inner, max_size=3) | st.dictionaries(st.text(max_size=5), inner, max_size=3),
    max_leaves=5,
)


def paths(tree, here=()):
    yield here
    items = tree.items() if isinstance(tree, dict) else enumerate(tree) if isinstance(tree, list) else ()
    for key, value in items:
        yield from paths(value, (*here, key))


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(data=st.data())
def test_fuzzed_manifests_end_in_an_error_of_ours(finished, tmp_path_factory, data):
    folder = tmp_path_factory.getbasetemp() / "fuzz"
    if not folder.exists():
        shutil.copytree(finished, folder)
    manifest = json.loads((finished / "manifest.json").read_text())
    path = data.draw(st.sampled_from(list(paths(manifest))))
    (folder / "manifest.json").write_text(json.dumps(replaced(manifest, list(path), data.draw(ANYTHING))))
    for use in (lambda: load(folder).summary(), lambda: load(folder).snapshots, lambda: resume(folder, model(), 0)):
        try:
            use()
        except DenizenError:
            pass
        except Warning:  # other versions
            pass


@pytest.mark.parametrize("pattern", ["metrics/*", "checkpoints/*", "inputs.safetensors", "snapshots/stage/c.0.0.0"])
@pytest.mark.parametrize("damage", ["flip", "cut", "remove"])
def test_damaged_files_are_named(copy, pattern, damage):
    path = next(copy.glob(pattern))
    data = bytearray(path.read_bytes())
    data[-1 if "snapshots" not in pattern else 40] ^= 1  # the end of a chunk is room for further snapshots
    if damage == "remove":
        path.unlink()
    else:
        path.write_bytes(data if damage == "flip" else data[:-3])
    with pytest.raises(DataError, match=path.name if "snapshots" not in pattern else "snapshot"):
        resume(copy, model(), 0)


def test_snapshots_of_a_format_that_can_unpickle_are_not_opened(copy):
    shutil.rmtree(copy / "snapshots")
    (copy / "snapshots" / "stage").mkdir(parents=True)
    (copy / "snapshots" / ".zgroup").write_text('{"zarr_format": 2}')
    array = {"zarr_format": 2, "shape": [1], "chunks": [1], "dtype": "|O", "filters": [{"id": "pickle"}]}
    array |= {"compressor": None, "fill_value": None, "order": "C"}
    (copy / "snapshots" / "stage" / ".zarray").write_text(json.dumps(array))
    with pytest.raises(DataError, match="cannot be read"):
        load(copy).snapshots  # noqa: B018


@pytest.mark.parametrize("content", [b"", b"\x80\x04K\x01.", b"x" * 100, (10**12).to_bytes(8, "little") + b"{}"])
def test_a_checkpoint_with_the_right_digest_is_still_not_trusted(copy, content):
    manifest = json.loads((copy / "manifest.json").read_text())
    (copy / manifest["checkpoint"]["file"]).write_bytes(content)
    manifest["checkpoint"] |= {"size": len(content), "digest": hashlib.blake2b(content, digest_size=16).hexdigest()}
    (copy / "manifest.json").write_text(json.dumps(manifest))
    with pytest.raises(DataError, match="safetensors"):
        resume(copy, model(), 0)


def with_digests(folder, content):
    """A folder whose first part of series is this, and whose manifest says so."""
    manifest = json.loads((folder / "manifest.json").read_text())
    part = manifest["metrics"][0]
    (folder / part["file"]).write_bytes(content)
    part |= {"size": len(content), "digest": hashlib.blake2b(content, digest_size=16).hexdigest()}
    (folder / "manifest.json").write_text(json.dumps(manifest))


DTYPES = (torch.int64, torch.int32, torch.float32, torch.bool)
TENSORS = st.dictionaries(
    st.sampled_from(["cases", "infected", "recovered", "deaths", ""]),
    st.builds(
        lambda shape, dtype: torch.ones(shape, dtype=dtype),
        st.sampled_from([(2, 12), (12, 2), (2, 11), (2, 12, 1), (24,), (), (0, 12)]),
        st.sampled_from(DTYPES),
    ),
    max_size=4,
)


@settings(max_examples=150, suppress_health_check=[HealthCheck.function_scoped_fixture])
@given(tensors=TENSORS, content=st.none() | st.binary(max_size=40), cut=st.integers(0, 60))
def test_series_with_the_right_digest_are_still_not_trusted(finished, tmp_path_factory, tensors, content, cut):
    folder = tmp_path_factory.getbasetemp() / "fuzzed series"
    if not folder.exists():
        shutil.copytree(finished, folder)
    data = encode(tensors) if content is None else content
    with_digests(folder, data[: len(data) - cut] if cut < 20 else data)
    try:
        read = load(folder)
    except DataError:
        return
    assert all((read[name].dtype, read[name].shape) == (torch.int64, (2, 12)) for name in read.series_names)
    assert set(tensors) == {"cases", "infected", "recovered"}


def test_a_link_out_of_the_folder_is_not_followed(copy, tmp_path):
    part = next(copy.glob("metrics/*"))
    outside = tmp_path / "outside"
    part.rename(outside)
    part.symlink_to(outside)
    with pytest.raises(DataError, match="leads out"):
        load(copy)


def test_an_old_table_without_a_series_says_so(copy):
    with pytest.raises(InputError, match="did you mean 'cases'"):
        load(copy)["case"]


def test_summary_and_plot_of_what_is_read(copy, tmp_path):
    saved = load(copy)
    text = str(saved.summary())
    assert "12 days" in text
    assert "2 replicates" in text
    row = saved.summary().rows["cases"]
    assert row["total"][0] == pytest.approx(saved["cases"].sum(1).double().quantile(0.5))
    figure = saved.plot(tmp_path / "plot.png")
    assert (tmp_path / "plot.png").read_bytes()[:4] == b"\x89PNG"
    assert [axis.get_ylabel() for axis in figure.axes] == ["number per day", "number", "number"]
    with pytest.raises(StorageError, match=r"plot\.nonsense"):
        saved.plot(tmp_path / "plot.nonsense")


@pytest.mark.parametrize("width", [40, 50, 60, 110])
def test_a_narrow_summary_cuts_no_number(copy, width):
    from rich.console import Console

    saved = load(copy)
    console = Console(file=io.StringIO(), width=width)
    console.print(saved.summary())
    words = console.file.getvalue().split()
    rows = saved.summary().rows
    finals = [row["final"][0] for row in rows.values()]
    assert all(0 <= final < 100_000 for final in finals)  # told whole from 100 on, with three digits below
    assert {f"{final:,.0f}" if final >= 100 else f"{final:.3g}" for final in finals} <= set(words)
    assert "…" not in "".join(words)


def test_plan_says_what_runs():
    run = dz.simulate(model(), 2, replicates=2, snapshots=Snapshots(1), record=SERIES, compile=False)
    text = str(run.plan())
    for words in (
        "200 agents × 2 replicates",
        "eager",
        "cases (flow)",
        "pair (level)",
        "every 1 steps of stage",
        "int8",
    ):
        assert words in text


def test_a_log_of_somebody_else_is_not_taken_for_that_of_a_run(tmp_path):
    (tmp_path / "r").mkdir()
    (tmp_path / "r/log.txt").write_text("what my script printed\n")
    with pytest.raises(StorageError, match="is not empty"):
        dz.simulate(model(), 2, out=tmp_path / "r")
    assert (tmp_path / "r/log.txt").read_text() == "what my script printed\n"
