"""Going on from a folder equals never having stopped: series, state, snapshots, bit for bit."""

import json
import re
import subprocess
import sys
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen import population
from denizen.errors import DataError, InputError
from denizen.model import Act, During, Scale, Trigger, births
from denizen.run import Snapshots, resume
from denizen.zoo.covid import covid
from denizen.zoo.sir import SIR

KILL_LOOP = Path(__file__).with_name("kill_loop.py")


def model(**params) -> SIR:
    ring = torch.arange(200)
    graph = dz.Graph.from_edges(ring, (ring + 1) % 200, 200, directed=False)
    return SIR(graph, **{"infect_rate": 0.3, "seed_share": 0.05, **params})


def leaves(run):
    return run._run_state.leaves


def equal(first, second):
    assert first.steps == second.steps
    for name in first.series_names:
        assert first[name].dtype == second[name].dtype
        assert torch.equal(first[name], second[name]), name
    assert all(torch.equal(a, b) for a, b in zip(leaves(first), leaves(second), strict=True))
    assert torch.equal(first._run_state.switches, second._run_state.switches)
    if first._snapshots is not None:
        assert all(torch.equal(kept, second.snapshots[name]) for name, kept in first.snapshots.items())


def lockdown():
    return Trigger(lambda now: now.stage.is_("infected").sum() > 40, lambda now: now.stage.is_("infected").sum() < 20)


def vaccinate(model, now, rng):
    return now.replace(stage=now.stage.move(rng.bernoulli("dose", 0.02), "recovered", source="susceptible"))


def measures():
    return [
        Scale(target="infect_rate", factor=0.2, when=lockdown()),
        Act(change=vaccinate, when=During(5, 9)),
        # Begins at a step that comes before every stop of a run here: only what was kept tells that it is on.
        Scale(target="infect_rate", factor=0.5, name="kept", when=Trigger(at(5), at(25))),
    ]


def at(step):
    return lambda now: now.time.step == step


CASES = {
    "plain": {},
    "one world of many": {"worlds": [7]},
    "half steps and snapshots": {"dt": 0.5, "snapshots": Snapshots(4, ["stage"])},
    "parameters of each replicate": {"replicates": 3, "params": {"infect_rate": [0.1, 0.3, 0.9]}},
    "identities": {"ids": torch.arange(200).flip(0) * 3},
    "interventions with memory": {"interventions": measures(), "replicates": 2},
    "relaxed": {"relax": dz.relax.StraightThrough()},
    "further series": {"record": {"two": lambda now: torch.stack([now.time.value, now.time.value])}},
}
AGAIN = ("interventions", "relax", "record")


@pytest.mark.parametrize("options", CASES.values(), ids=CASES)
def test_resumed_equals_uninterrupted(tmp_path, options):
    whole = dz.simulate(model(), 30, seed=3, **options)
    dz.simulate(model(), 11, seed=3, out=tmp_path / "r", **options)
    again = {name: value for name, value in options.items() if name in AGAIN}
    resume(tmp_path / "r", model(), 6, **again)
    equal(whole, resume(tmp_path / "r", model(), 13, **again))


@pytest.mark.parametrize("settings", [{}, {"sample_deaths": True, "isolation": lambda group, day: 0.3 * (day % 2)}])
def test_covid(tmp_path, settings):
    people = population.synthetic("astoria", size=400)
    made = covid(people, **settings)
    dz.simulate(made, 15, replicates=2, out=tmp_path / "r")
    equal(dz.simulate(made, 40, replicates=2), resume(tmp_path / "r", covid(people, **settings), 25))


class Herd(dz.State):
    """Every kind of field."""

    alive: torch.Tensor = dz.mask("agents")
    age: torch.Tensor = dz.count("agents")
    weight: torch.Tensor = dz.real("agents")
    fed: torch.Tensor = dz.history("agents", length=4)
    place: torch.Tensor = dz.stage("agents", levels=("barn", "field", "road"))
    grass: torch.Tensor = dz.real("cells")


class Farm(dz.Model):
    """Births and deaths within a capacity."""

    num_agents: int = 60
    birth: torch.Tensor = dz.param(0.1, low=0.0)

    def init(self, rng):
        """A third of the places taken."""
        alive = (torch.arange(60) < 20).to(torch.int8)
        zero = 0 * alive
        fields = {"age": zero, "weight": rng.normal("weight"), "fed": zero, "place": zero, "grass": torch.ones(5)}
        return Herd(alive=alive, **fields)

    def step(self, now, rng):
        """Eat, move, breed, die."""
        fed = now.fed.record(now.fed.never() * rng.bernoulli("eat", 0.3))
        now = now.replace(age=now.age + now.alive, fed=fed, weight=now.weight + 0.1 * rng.normal("grow"))
        now = now.replace(place=now.place.move(rng.bernoulli("go", 0.2), "field", source="barn"), grass=now.grass * 0.9)
        now = births(now, rng, now.alive * rng.bernoulli("birth", self.birth), age=0 * now.age)
        return now.replace(alive=now.alive * (1 - rng.bernoulli("death", 0.08)))

    @dz.series
    def herd(self, now):
        """Animals."""
        return now.alive.sum()

    @dz.series
    def mean_weight(self, now):
        """Of all places."""
        return now.weight.mean()


@pytest.mark.parametrize("worlds", [1, 3])
def test_births_and_deaths_and_every_kind_of_field(tmp_path, worlds):
    whole = dz.simulate(Farm(), 24, replicates=worlds, snapshots=Snapshots(5))
    dz.simulate(Farm(), 9, replicates=worlds, snapshots=Snapshots(5), out=tmp_path / "r")
    resumed = resume(tmp_path / "r", Farm(), 15)
    equal(whole, resumed)
    assert torch.equal(whole.state.id, resumed.state.id)


def test_none_runs_what_is_missing(tmp_path):
    calls = []

    def stop(now):
        calls.append(1)
        if len(calls) == 20:
            raise KeyboardInterrupt
        return now.time.value

    with pytest.raises(KeyboardInterrupt):
        dz.simulate(model(), 50, record={"clock": stop}, out=tmp_path / "r")
    resumed = resume(tmp_path / "r", model(), record={"clock": stop})
    assert resumed.steps == 50
    assert resume(tmp_path / "r", model(), record={"clock": stop}).steps == 50


# --- what differs is refused ------------------------------------------------------------------------------------------


class Other(SIR):
    """Another class with the same fields."""


def other_graph():
    ring = torch.arange(200)
    return SIR(dz.Graph.from_edges(ring, (ring + 2) % 200, 200, directed=False), infect_rate=0.3, seed_share=0.05)


@pytest.mark.parametrize(
    ("make", "message"),
    [
        (lambda: model(infect_rate=0.25), "infect_rate is .*0.25 here and was .*0.3"),
        (other_graph, "contacts is Graph of 200 agents and 400 edges"),
        (
            lambda: Other(**{n: v for n, v in model().__dict__.items() if n in SIR.__dataclass_fields__}),
            "class is .*Other",
        ),
        (lambda: 5, "expected an instance of a dz.Model"),
    ],
)
def test_another_model_is_refused(tmp_path, make, message):
    dz.simulate(model(), 3, out=tmp_path / "r")
    with pytest.raises(InputError, match=message):
        resume(tmp_path / "r", make())


def test_a_changed_step_is_refused(tmp_path, monkeypatch):
    dz.simulate(model(), 3, out=tmp_path / "r")
    monkeypatch.setattr(SIR, "step", lambda self, now, rng: now)
    with pytest.raises(InputError, match="method step has other code"):
        resume(tmp_path / "r", model())
    monkeypatch.setattr(sys, "version_info", (3, 99))  # another Python writes other bytecode
    resume(tmp_path / "r", model(), 0)


@pytest.mark.parametrize(
    "changed",
    [
        {"interventions": []},
        {"interventions": [Scale(target="infect_rate", factor=0.3, when=lockdown()), measures()[1]]},
        {"interventions": [Scale(target="infect_rate", factor=0.2, when=During(3)), measures()[1]]},
        {"record": {}},
        {"record": {"more": lambda now: now.time.value + 1}},
        {"relax": dz.relax.MeanField()},
    ],
)
def test_other_arguments_are_refused(tmp_path, changed):
    given = {"interventions": measures(), "record": {"more": lambda now: now.time.value}, "relax": None}
    dz.simulate(model(), 3, out=tmp_path / "r", **given)
    with pytest.raises(InputError, match=f"{next(iter(changed))}= differs"):
        resume(tmp_path / "r", model(), **{**given, **changed})
    resume(tmp_path / "r", model(), 0, **given)


def test_other_versions_are_told(tmp_path):
    dz.simulate(model(), 3, out=tmp_path / "r")
    manifest = tmp_path / "r" / "manifest.json"
    told = json.loads(manifest.read_text())
    told["versions"]["denizen"] = "99"
    manifest.write_text(json.dumps(told))
    with pytest.warns(UserWarning, match=rf"99.*here is {re.escape(dz.__version__)}"):
        resume(tmp_path / "r", model(), 0)


def test_the_device_can_be_chosen(tmp_path):
    dz.simulate(model(), 3, out=tmp_path / "r")
    with pytest.raises(InputError, match="device"):
        resume(tmp_path / "r", model(), device="abacus")
    assert resume(tmp_path / "r", model(), 1, device="cpu").steps == 4


def test_a_state_that_cannot_be_is_refused(tmp_path):
    run = dz.simulate(model(), 3, out=tmp_path / "r")
    run._run_state.leaves[0] = torch.full_like(run._run_state.leaves[0], 9)
    run.save(tmp_path / "bad")
    with pytest.raises(DataError, match="cannot have"):
        resume(tmp_path / "bad", model(), 0)


# --- kill -9 ----------------------------------------------------------------------------------------------------------


def kill_loop(folder: Path, steps: int, jobs: list[str]) -> None:
    words = [sys.executable, "-W", "error", str(KILL_LOOP), str(folder), str(steps), *jobs]
    done = subprocess.run(words, capture_output=True, text=True, check=False)
    assert done.returncode == 0, done.stderr
    assert re.findall(r"^(\S+): \d+ kills survived$", done.stdout, re.MULTILINE) == jobs


@pytest.mark.skipif(not hasattr(__import__("os"), "fork"), reason="no fork on this system")
def test_killed_at_random_moments(tmp_path):
    kill_loop(tmp_path, 100, ["plain:1:3", "captured:1:2"])


@pytest.mark.slow
@pytest.mark.parametrize("seeds", [(2, 3), (4, 5)])
@pytest.mark.parametrize("how", ["plain", "captured"])
def test_killed_at_many_random_moments(tmp_path, how, seeds):
    kill_loop(tmp_path, 150, [f"{how}:{seed}:25" for seed in seeds])
