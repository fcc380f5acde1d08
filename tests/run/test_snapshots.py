"""Snapshots along a run equal those taken one at a time; they are narrow, bounded in memory and survive faults."""

import functools
import tempfile
import threading

import numpy as np
import pytest
import torch
import zarr
from hypothesis import given, settings
from hypothesis import strategies as st

import denizen as dz
from denizen.errors import CapacityError, InputError
from denizen.model import History, Stage, plain
from denizen.run import Snapshots, load, resume
from denizen.zoo.sir import SIR


class Herd(dz.State):
    """Every kind of field; sizes that are no multiples of 8."""

    alive: torch.Tensor = dz.mask("agents")
    seen: torch.Tensor = dz.mask("agents", "signs")
    any_seen: torch.Tensor = dz.mask()
    age: torch.Tensor = dz.count("agents")
    weight: torch.Tensor = dz.real("agents")
    fed: torch.Tensor = dz.history("agents", length=200)
    place: torch.Tensor = dz.stage("agents", levels=("barn", "field", "road"))
    grass: torch.Tensor = dz.real("cells")


class Farm(dz.Model):
    """Something of each kind changes in every step."""

    num_agents: int = 37
    growth: float = 0.1

    def init(self, rng):
        """Half of them alive."""
        zero = torch.zeros(self.num_agents, dtype=torch.int8)
        return Herd(
            alive=rng.bernoulli("alive", 0.5),
            seen=torch.zeros(self.num_agents, 11, dtype=torch.int8),
            any_seen=torch.zeros((), dtype=torch.int8),
            age=zero,
            weight=rng.normal("weight"),
            fed=zero,
            place=zero,
            grass=torch.ones(5),
        )

    def step(self, now, rng):
        """Age, eat, move, see."""
        fed = now.fed.record(now.fed.never() * rng.bernoulli("eat", 0.3))
        place = now.place.move(rng.bernoulli("go", 0.2), "field", source="barn")
        sign = rng.bernoulli("see", 0.3)
        signs = torch.stack([sign.roll(k) for k in range(11)], dim=-1)
        return now.replace(
            alive=now.alive * (1 - rng.bernoulli("death", 0.02)),
            seen=signs,
            any_seen=signs.sum().clamp(max=1),
            age=now.age + now.alive,
            fed=fed,
            weight=now.weight * (1 + self.growth),
            place=place,
            grass=now.grass * 0.9,
        )

    @dz.series
    def living(self, now):
        """Animals."""
        return now.alive.sum()


def synchronous(steps, every, model=None, **options):
    """Snapshots by hand: the run stands still for each."""
    if model is None:
        return _of_farms(steps, every, *options.items())
    run = dz.simulate(model, 0, **options)
    taken, at = [], []
    for step in range(steps + 1):
        if step:
            run.extend(1)
        if step % every == 0:
            taken.append({name: plain(getattr(run.state, name)).clone() for name in run.state.kinds})
            at.append(step)
    stacked = {name: torch.stack([fields[name] for fields in taken], dim=1) for name in taken[0]}
    return {**stacked, "step": torch.tensor(at)}


@functools.cache
def _of_farms(steps, every, *options):
    """Made once for all tests that ask for it."""
    return synchronous(steps, every, Farm(), **dict(options))


def equal(view, reference):
    for name in view:
        assert view[name].dtype == reference[name].dtype, name
        assert torch.equal(view[name], reference[name].cpu()), name
    for place, step in enumerate(reference["step"].tolist()):
        assert all(torch.equal(field, reference[name][:, place].cpu()) for name, field in view.at(step).items())


def no_threads():
    return not any(thread.name.startswith("denizen-snapshots") for thread in threading.enumerate())


# --- equal to snapshots by hand ---------------------------------------------------------------------------------------


@pytest.fixture(params=[1, 3, 64])
def each(request, inside):
    """Snapshots to a chunk, at most."""
    inside.snapshots_to_a_chunk(request.param)


@pytest.mark.parametrize(("worlds", "slots"), [(1, 1), (3, None)])
def test_equal_to_synchronous_snapshots(tmp_path, each, worlds, slots):
    reference = synchronous(20, 3, replicates=worlds, seed=5)
    wanted = Snapshots(3, slots=slots)
    equal(dz.simulate(Farm(), 20, replicates=worlds, seed=5, snapshots=wanted).snapshots, reference)
    run = dz.simulate(Farm(), 11, replicates=worlds, seed=5, snapshots=wanted, out=tmp_path / "r")
    equal(run.extend(9).snapshots, reference)
    equal(load(tmp_path / "r").snapshots, reference)
    dz.simulate(Farm(), 8, replicates=worlds, seed=5, snapshots=wanted, out=tmp_path / "s")
    equal(resume(tmp_path / "s", Farm(), 12).snapshots, reference)
    assert no_threads()


def test_folders_of_versions_with_other_chunks_go_on(tmp_path, inside):
    inside.snapshots_to_a_chunk(3)
    dz.simulate(Farm(), 4, seed=5, snapshots=Snapshots(1), out=tmp_path / "r")
    inside.snapshots_to_a_chunk(5)
    equal(resume(tmp_path / "r", Farm(), 6).snapshots, synchronous(10, 1, seed=5))
    assert zarr.open_group(tmp_path / "r" / "snapshots", mode="r")["age"].chunks[1] == 3


def test_every_step_and_chosen_fields(tmp_path):
    reference = synchronous(9, 1)
    run = dz.simulate(Farm(), 9, snapshots=Snapshots(1, ["place", "alive"]), out=tmp_path / "r")
    assert list(run.snapshots) == ["place", "alive", "step"]
    equal(run.snapshots, reference)


def test_relaxed_shares_are_stored_as_they_are(tmp_path):
    relaxed = {"relax": dz.relax.MeanField()}
    model = SIR(dz.Graph.from_edges([0, 1, 2, 3], [1, 2, 3, 0], 4), seed_share=0.5, infectious_phases=5)
    reference = synchronous(6, 2, model, **relaxed)
    assert reference["stage"].shape == (1, 4, 4, 7)
    run = dz.simulate(model, 6, snapshots=Snapshots(2), out=tmp_path / "r", **relaxed)
    equal(run.snapshots, reference)
    equal(load(tmp_path / "r").snapshots, reference)


def test_snapshots_of_nobody(tmp_path):
    run = dz.simulate(Farm(num_agents=0), 3, snapshots=Snapshots(1), out=tmp_path / "r")
    assert run.snapshots["alive"].shape == (1, 4, 0)
    assert run.snapshots["grass"].shape == (1, 4, 5)


# --- narrow -----------------------------------------------------------------------------------------------------------


class Own(dz.State):
    """`init` makes more levels and ages than are declared here."""

    stage: Stage = dz.stage("agents", levels=("a", "b"))
    place: Stage = dz.stage("agents", levels=("a", "b"))
    ages: History = dz.history("agents", length=2)
    times: torch.Tensor = dz.count("agents", max=1000)


class Phases(dz.Model):
    """Codes over all levels, ages over all of a history, counts up to a bound."""

    num_agents: int = 11
    levels: int = 9
    places: int = 3
    length: int = 200
    bound: int = 1000

    def init(self, rng):
        """Anything."""
        names = [tuple(f"level {k}" for k in range(count)) for count in (self.levels, self.places)]
        drawn = rng.integers("ages", 0, self.length + 2)
        return Own(
            stage=Stage(rng.integers("stage", 0, self.levels), names[0]),  # int64, stored as int8
            place=Stage(rng.integers("place", 0, self.places).to(torch.int8), names[1]),
            ages=History.start(drawn, length=self.length),
            times=rng.integers("times", 0, self.bound + 1),
        )

    def step(self, now, rng):
        """Up by one and round, and given as plain codes in every third step, as of a field of its own levels."""
        up = now.stage.value + rng.bernoulli("up", 0.8)
        place = Stage(rng.integers("place", 0, self.places).to(torch.int8), now.place.levels)
        ages = now.ages.record(rng.bernoulli("record", 0.3)).clear(rng.bernoulli("clear", 0.1))
        times = rng.integers("times", 0, self.bound + 1)
        return now.replace(stage=up * (up < self.levels), place=place, ages=ages, times=times)

    @dz.series
    def top(self, now):
        """In the highest level."""
        return now.stage.is_(now.stage.levels[-1]).sum()


phases = st.builds(
    Phases,
    num_agents=st.integers(1, 21),
    levels=st.integers(1, 127),
    places=st.integers(2, 17),
    length=st.sampled_from([1, 2, 124, 125, 126, 127, 300, 32000]),
    bound=st.integers(1, 1000),
)


@settings(max_examples=15)
@given(phases, st.integers(1, 3), st.integers(1, 4), st.integers(0, 99))
def test_what_comes_back_is_what_was_there(model, worlds, every, seed):
    options = {"replicates": worlds, "seed": seed, "compile": False}
    reference = synchronous(8, every, model, **options)
    wanted = {"snapshots": Snapshots(every), **options}
    equal(dz.simulate(model, 8, **wanted).snapshots, reference)
    with tempfile.TemporaryDirectory() as folder:
        dz.simulate(model, 5, out=f"{folder}/r", **wanted)
        equal(resume(f"{folder}/r", model, 3, compile=False).snapshots, reference)
        equal(load(f"{folder}/r").snapshots, reference)
        for name, array in zarr.open_group(f"{folder}/r/snapshots", mode="r").arrays():
            values, form = array[:], array.attrs.get("denizen", {})
            bits = {"bits": 1, "2 bits": 2, "4 bits": 4}.get(form.get("stored"), 0)
            if bits:  # as the guide says
                values = (values[..., None] >> np.arange(0, 8, bits) & (1 << bits) - 1).reshape(*values.shape[:2], -1)
                values = values[..., : form["size"]]
            assert np.array_equal(values, reference[name].numpy()), name


NARROW = {"alive": None, "seen": torch.int8, "age": torch.uint8, "weight": torch.float16, "grass": torch.bfloat16}
NARROW |= {"fed": torch.int8}


def test_narrower_dtypes_come_back_in_the_dtypes_of_the_state(tmp_path):
    reference = synchronous(12, 4, replicates=2)
    run = dz.simulate(Farm(), 4, replicates=2, snapshots=Snapshots(4, NARROW), out=tmp_path / "r")
    run.extend(4)
    for view in (resume(tmp_path / "r", Farm(), 4).snapshots, load(tmp_path / "r").snapshots):
        assert list(view) == [*NARROW, "step"]
        for name, dtype in NARROW.items():
            exact = reference[name]
            assert view[name].dtype == exact.dtype
            assert torch.equal(view[name], exact if dtype is None else exact.to(dtype).to(exact.dtype)), name
    stored = zarr.open_group(tmp_path / "r" / "snapshots", mode="r")
    assert {name: (str(stored[name].dtype), stored[name].shape) for name in NARROW} == {
        "alive": ("uint8", (2, 4, 5)),
        "seen": ("int8", (2, 4, 37, 11)),
        "age": ("uint8", (2, 4, 37)),
        "weight": ("float16", (2, 4, 37)),
        "grass": ("int16", (2, 4, 5)),
        "fed": ("int8", (2, 4, 37)),
    }
    assert stored["alive"].attrs["denizen"] == {"dtype": "int8", "stored": "bits", "size": 37}
    half = (stored["grass"][:].astype("uint32") << 16).view("float32")  # as the guide says
    assert np.array_equal(half, load(tmp_path / "r").snapshots["grass"].numpy())


def test_floats_that_do_not_fit_end_the_run_at_the_chunk(tmp_path):
    wanted = Snapshots(1, {"weight": torch.float16})
    with pytest.raises(CapacityError, match="'weight' has float32 values that float16 cannot hold, between steps"):
        dz.simulate(Farm(growth=3.0), 60, snapshots=wanted, out=tmp_path / "r")
    saved = load(tmp_path / "r")
    assert saved.status == "failed"
    exact = synchronous(saved.steps, 1, Farm(growth=3.0))["weight"]
    assert torch.equal(saved.snapshots["weight"], exact.to(torch.float16).to(torch.float32))
    assert zarr.open_group(tmp_path / "r" / "snapshots", mode="r")["weight"].shape[1] == saved.steps + 1


def test_whole_numbers_that_do_not_fit():
    with pytest.raises(CapacityError, match=r"'age' has int32 values that int8 cannot hold.*fields=\{'age': None\}"):
        dz.simulate(Farm(), 140, snapshots=Snapshots(70, {"age": torch.int8}))


@pytest.mark.parametrize(
    ("fields", "words"),
    [
        ("alive", r"such as \['alive'\]"),
        ([], "at least one"),
        (["alive", "alive"], "different names"),
        ({"alve": None}, "did you mean 'alive'"),
        ({"age": torch.float16}, r"int32 values and cannot be stored as torch.float16; expected None \(as it is\)"),
        ({"weight": torch.int8}, "one of torch.float16, torch.bfloat16, torch.float32"),
        ({"alive": torch.int32}, "packed into bits"),
        ({"age": "uint8"}, "torch.uint8"),
    ],
)
def test_fields_that_cannot_be_meant(fields, words):
    with pytest.raises(InputError, match=words):
        dz.simulate(Farm(), 1, snapshots=Snapshots(1, fields))


def test_slots_that_cannot_be_meant():
    for slots in (0, -1, 1.5, True, 10**12):
        with pytest.raises(InputError, match=r"snapshots\.slots"):
            dz.simulate(Farm(), 1, snapshots=Snapshots(1, slots=slots))


# --- bounded ----------------------------------------------------------------------------------------------------------


def test_a_folder_leaves_nothing_in_memory(tmp_path):
    run = dz.simulate(Farm(), 30, snapshots=Snapshots(1), out=tmp_path / "r")
    assert run._snapshots.nbytes == run._snapshots.ring.nbytes + run._snapshots.sink.nbytes
    assert run._snapshots.sink.nbytes < 4 << 20
    kept = dz.simulate(Farm(), 30, snapshots=Snapshots(1))
    assert kept._snapshots.sink.nbytes > 31 * 450
    kept.save(tmp_path / "k")
    assert kept._snapshots.sink.nbytes <= run._snapshots.sink.nbytes
    equal(kept.snapshots, dict(run.snapshots.items()))


def test_a_view_stays_while_the_run_goes_on(tmp_path):
    run = dz.simulate(Farm(), 4, snapshots=Snapshots(2), out=tmp_path / "r")
    view, before = run.snapshots, dict(run.snapshots.items())
    run.extend(4)
    equal(view, before)
    assert repr(run.snapshots).endswith("place, grass after steps 0, 2, 4, 6, 8")
    with pytest.raises(InputError, match="after steps 0, 2, 4"):
        view.at(3)
    with pytest.raises(InputError, match="did you mean 'alive'"):
        view["alve"]
    assert "alve" not in view


# --- what goes wrong --------------------------------------------------------------------------------------------------


@pytest.mark.parametrize("folder", [True, False])
def test_an_interrupt_between_snapshots(tmp_path, folder):
    left = [13]

    def stop(now):
        left[0] -= 1
        if left[0] == 0:
            raise KeyboardInterrupt
        return now.time.value

    run = dz.simulate(Farm(), 0, snapshots=Snapshots(1), record={"c": stop}, out=tmp_path / "r" if folder else None)
    with pytest.raises(KeyboardInterrupt):
        run.extend(30)
    assert no_threads()
    assert 0 < run.steps < 13
    equal(run.snapshots, synchronous(run.steps, 1))
    if folder:
        saved = load(tmp_path / "r")
        assert (saved.status, saved.steps) == ("interrupted", run.steps)
        assert zarr.open_group(tmp_path / "r" / "snapshots", mode="r")["age"].shape[1] == run.steps + 1
        equal(resume(tmp_path / "r", Farm(), record={"c": stop}).snapshots, synchronous(30, 1))
    else:
        equal(run.extend(30 - run.steps).snapshots, synchronous(30, 1))


def test_more_than_counts_is_cut_off_by_a_resume(tmp_path):
    """As a kill leaves it: snapshots of steps that no save counts."""
    run = dz.simulate(Farm(), 6, snapshots=Snapshots(2), out=tmp_path / "r")
    sink = run._folder.sink
    for place in (4, 5):
        sink.write(place, [sink.read(1, field)[None] for field in range(8)])
    sink.sync()
    assert zarr.open_group(tmp_path / "r" / "snapshots", mode="r")["age"].shape[1] == 6
    equal(load(tmp_path / "r").snapshots, synchronous(6, 2))
    equal(resume(tmp_path / "r", Farm(), 1).snapshots, synchronous(7, 2))
    assert zarr.open_group(tmp_path / "r" / "snapshots", mode="r")["age"].shape[1] == 4
