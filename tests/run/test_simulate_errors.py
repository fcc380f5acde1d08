"""Every argument of `simulate`, `extend` and a run, wrong in some way: an error in words that names it."""

import re
from collections.abc import Callable
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import DataError, DenizenError, InputError, ModelError, StorageError
from denizen.model import Act, Ask, During, Scale, Trigger
from denizen.relax import MeanField
from denizen.run import Snapshots, load
from denizen.space import Graph, Layers
from denizen.zoo.cartpole import CartPole
from denizen.zoo.sir import SIR

MODEL = SIR(Graph.from_edges([0, 1, 2], [1, 2, 0], 4), seed_share=0.5)
NAN, INF = float("nan"), float("inf")


class Town(dz.Model):
    """Layers, a vector and a parameter by group."""

    layers: Layers
    shares: Tensor = dz.param([0.1, 0.2], low=0.0, high=1.0)
    label: str = "town"

    def init(self, rng: dz.rng.Rng) -> dz.State:
        return MODEL.init(rng)

    def step(self, now: Any, rng: dz.rng.Rng) -> dz.State:
        return now


TOWN = Town(Layers({"home": Graph.from_edges([0], [1], 4)}))


def refused(words: str, kind: type[DenizenError] = InputError, **arguments: Any) -> None:
    arguments = {"model": MODEL, "steps": 2, **arguments}
    with pytest.raises(kind, match=words) as error:
        dz.simulate(**arguments)
    assert len(str(error.value)) < 600


@pytest.mark.parametrize(
    ("argument", "values"),
    [
        ("model", [None, SIR, "sir", 5]),
        ("steps", [-1, 1.5, "10", None, True, NAN, np.array([1, 2])]),
        ("replicates", [0, -1, 2.0, "3", None, True]),
        ("worlds", [[], [-1], [2**32], [0.5], ["a"], 5, [True], "01"]),
        ("seed", [-1, 2**32, 1.0, "0", None, False]),
        ("device", ["gpu", "cpu:99:1", 5, "cuda:99", "meta", "mps"]),
        ("dt", [0, -0.5, NAN, INF, "1", None, True, torch.tensor(1.0)]),
        ("params", [5, ["infect_rate"], {"infct_rate": [0.1]}, {"infect_rate": 0.1}, {"infect_rate": [0.1, 0.2]}]),
        ("params", [{"infect_rate": [-1.0]}, {"infect_rate": [NAN]}, {"infect_rate": ["x"]}, {"infect_rate": [[0.1]]}]),
        ("record", [5, ["ill"], {"ill": 5}, {"cases": lambda now: 0}, {"x": lambda: 0}, {"x": lambda a, b, c: 0}]),
        ("record", [{5: lambda now: now.time.step}]),
        ("interventions", [5, [5], ["close"], Scale(target="infect_rate", factor=0.5, when=During(0))]),
        ("snapshots", [5, "all", Snapshots(every=0), Snapshots(every=1.5), Snapshots(every=1, fields=["stag"])]),
        ("relax", ["mean", 5, MeanField]),
        ("ids", [[0, 1, 2, 3], torch.arange(3), torch.zeros(4).long(), torch.arange(4).float(), -torch.arange(4)]),
        ("compile", ["yes", 1, 0.5]),
        ("progress", ["yes", None, 5]),
        ("out", [5, 1.5]),
    ],
)
def test_wrong_arguments(argument: str, values: list[Any]) -> None:
    for value in values:
        refused(argument, **{argument: value})


def test_cuda_where_there_is_none() -> None:
    if torch.cuda.is_available():
        pytest.skip("there is a CUDA device")
    refused("sees no CUDA device.*use device='cpu'", device="cuda:0")


def test_numbers_of_numpy_and_torch_sizes_are_numbers() -> None:
    run = dz.simulate(MODEL, np.int64(2), replicates=np.int32(2), seed=np.uint32(3), dt=np.float32(0.5))
    assert run["cases"].shape == (2, 2)
    assert dz.simulate(MODEL, 2, worlds=np.array([3, 1]))["cases"].shape == (2, 2)
    assert dz.simulate(MODEL, 2, worlds=range(3)).worlds == [0, 1, 2]
    assert dz.simulate(MODEL, 2, worlds=torch.tensor([3, 1])).worlds == [3, 1]


def test_worlds_and_replicates_together() -> None:
    refused("replicates=3 and 2 worlds", worlds=[1, 2], replicates=3)
    assert dz.simulate(MODEL, 1, worlds=[4, 7], replicates=2).worlds == [4, 7]


@pytest.mark.parametrize(
    ("make", "words"),
    [
        (lambda: Scale(target="infct_rate", factor=0.5, when=During(0)), "no 'infct_rate'; did you mean 'infect_rate'"),
        (lambda: Scale(target="contacts.home", factor=0.5, when=During(0)), "'contacts' is not Layers"),
        (lambda: Scale(target="contacts", factor=0.5, when=During(0)), "'contacts' is Graph, expected a parameter"),
        (lambda: Scale(target="infect_rate", factor=NAN, when=During(0)), "factor"),
        (lambda: Scale(target="infect_rate", factor="half", when=During(0)), "factor"),
        (lambda: Scale(target="infect_rate", factor=0.5, when=5), "when=5"),
        (lambda: Scale(target="infect_rate", factor=0.5, when=During(-1)), "start=-1"),
        (lambda: Scale(target="infect_rate", factor=0.5, when=During(3, 2)), "stop=2"),
        (lambda: Scale(target="infect_rate", factor=0.5, when=During(0.5)), "start=0.5"),
        (lambda: Scale(target="infect_rate", factor=0.5, when=Trigger(5)), "start"),
        (lambda: Act(change=5, when=During(0)), "change"),
        (lambda: Ask(target="infct_rate", groups=["a", "b"], answer=lambda g, t: 0), "did you mean 'infect_rate'"),
        (lambda: Ask(target="infect_rate", groups=[], answer=lambda g, t: 0), "groups"),
        (lambda: Ask(target="infect_rate", groups=["a"], answer=0.5), "answer"),
        (
            lambda: Ask(target="infect_rate", groups=["a"], answer=lambda g, t: 0, when=Trigger(lambda now: True)),
            "when",
        ),
        (lambda: Act(name=5, change=lambda model, now, rng: now, when=During(0)), "name"),
    ],
)
def test_wrong_interventions(make: Callable[[], Any], words: str) -> None:
    with pytest.raises(InputError, match=words) as error:
        dz.simulate(MODEL, 1, interventions=[make()])
    assert len(str(error.value)) < 600


def test_wrong_targets_of_richer_models() -> None:
    refused("unknown layer 'wrk'", model=TOWN, interventions=[Scale(target="layers.wrk", factor=0.0, when=During(0))])
    refused("'label' is str", model=TOWN, interventions=[Scale(target="label", factor=0.0, when=During(0))])
    three = Ask(target="shares", groups=("a", "b", "c"), answer=lambda g, t: 0)
    refused(r"shares.*\(2,\).*3 groups", model=TOWN, interventions=[three])


def test_interventions_of_one_name() -> None:
    twice = [Scale(target="infect_rate", factor=0.5, when=During(k)) for k in range(2)]
    refused("two interventions are called 'scale'; give each its own name=", interventions=twice)


def test_unknown_series_snapshots_and_further_steps() -> None:
    run = dz.simulate(MODEL, 2)
    with pytest.raises(InputError, match=re.escape("run['case']: no such series; did you mean 'cases'?")):
        run["case"]
    with pytest.raises(InputError, match="snapshots=Snapshots"):
        run.snapshots  # noqa: B018 - a property
    for steps in (-1, 1.5, "3", None, True):
        with pytest.raises(InputError, match="steps="):
            run.extend(steps)
    assert run.steps == 2
    assert run.extend(0).steps == 2


def test_no_steps() -> None:
    run = dz.simulate(MODEL, 0, replicates=3)
    assert run["cases"].shape == (3, 0)
    assert run.state.stage.value.shape == (3, 4)


def test_a_folder_that_is_not_empty(tmp_path: Path) -> None:
    (tmp_path / "notes.txt").write_text("mine")
    with pytest.raises(DenizenError, match=re.escape(str(tmp_path))):
        dz.simulate(MODEL, 1, out=tmp_path)
    assert (tmp_path / "notes.txt").read_text() == "mine"


# --- models that break the rules while they run -----------------------------------------------------------------------


class Mask(dz.State):
    on: Tensor = dz.mask("agents")


class Broken(dz.Model):
    """Does what `what` says."""

    num_agents: int = 8
    what: str = ""

    def init(self, rng: dz.rng.Rng) -> Any:
        values = {
            "init dict": {"on": 1},
            "init none": None,
            "init number": Mask(on=1),
            "init float": Mask(on=torch.ones(8)),
        }
        values |= {
            "init size": Mask(on=torch.ones(7).to(torch.int8)),
            "init two": Mask(on=2 * torch.ones(8).to(torch.int8)),
        }
        values |= {"init axes": Mask(on=torch.ones(8, 2).to(torch.int8))}
        if self.what == "init probability":
            rng.bernoulli("x", 1.5)
        return values.get(self.what, Mask(on=rng.bernoulli("on", 0.5)))

    def step(self, now: Any, rng: dz.rng.Rng) -> Any:
        if self.what == "hazard":
            return now.replace(on=rng.event("x", now.time.step.float() - 99 * (now.time.step == 40)))
        if self.what == "nan":
            return now.replace(on=rng.event("x", torch.where(now.time.step == 40, NAN, 0.1)))
        returned = {"step none": None, "step number": 5, "step dict": {"on": now.on}}
        if self.what == "step float":
            return now.replace(on=now.on * 0.5)
        if self.what == "step size":
            return now.replace(on=now.on[:4])
        if self.what == "twice":
            return now.replace(on=rng.event("x", 1.0) * rng.event("x", 0.5))
        if self.what == "late two":
            return now.replace(on=now.on + (now.time.step == 40).to(torch.int8) * 2)
        return returned.get(self.what, now)

    @dz.series
    def level(self, now: Any) -> Any:
        return 5 if self.what == "series number" else now.on.sum()


@pytest.mark.parametrize(
    ("what", "words"),
    [
        ("init dict", "got dict"),
        ("init none", "got NoneType"),
        ("init number", "Mask.on is int 1"),
        ("init float", "Mask.on is a mask and was given torch.float32"),
        ("init size", "Mask.on has 7 entries.*8"),
        ("init two", r"Mask.on \(mask\) is out of range \(or NaN\) in init$"),
        ("init axes", r"Mask.on has shape \(8, 2\)"),
        ("init probability", r"rng.bernoulli\('x'\).*in init.*from 0 to 1"),
        ("step none", "return now.replace"),
        ("step number", "got int"),
        ("step dict", "got dict"),
        ("step float", "would cut off"),
        ("step size", "Mask.on"),
        ("twice", "twice in one step"),
        ("hazard", r"rng.event\('x'\).*not negative"),
        ("nan", r"rng.event\('x'\).*NaN"),
        ("late two", r"Mask.on \(mask\) is out of range"),
        ("series number", "series 'level' returned int 5"),
    ],
)
@pytest.mark.parametrize("replicates", [1, 2])
def test_broken_models(what: str, words: str, replicates: int) -> None:
    refused(words, ModelError, model=Broken(what=what), steps=60, replicates=replicates)


def test_chunks_before_a_fault_are_kept() -> None:
    run = dz.simulate(Broken(what="late two"), 30)
    kept = run["level"].clone()
    with pytest.raises(ModelError, match="between steps 30 and"):
        run.extend(100)
    assert run.steps >= 30
    assert torch.equal(run["level"][:, :30], kept)


@pytest.mark.parametrize("first", [1, 3, 40])  # within a chunk, and where one begins
@pytest.mark.parametrize(
    ("form", "name"), [(lambda on: on[:2], r"int8\[2\]"), (lambda on: on.sum().float(), r"float32\[\]")]
)
def test_a_series_keeps_its_form(first: int, form: Callable[[Tensor], Tensor], name: str) -> None:
    calls = iter(range(1000))
    record = {"mine": lambda now: form(now.on) if next(calls) > first else now.on.sum()}
    run = dz.simulate(Broken(), first + 1, record=record, compile=False)
    with pytest.raises(ModelError, match=rf"series 'mine' changed from int64\[\] to {name} in step {first + 1};"):
        run.extend(5)
    assert run["mine"].shape == (1, first + 1)


class Sizeless(dz.Model):
    """Says nothing about its size."""


def test_a_model_without_size_or_functions() -> None:
    refused("num_agents", ModelError, model=Sizeless())

    class Empty(dz.Model):
        num_agents: int = 3

    refused(r"Empty has no init\(self, rng\)", ModelError, model=Empty())
    refused("num_agents", ModelError, model=Empty(num_agents=-1))
    for wrong in (2.5, None):
        with pytest.raises(InputError, match=f"^Empty: num_agents={wrong}, expected a whole number$"):
            Empty(num_agents=wrong)  # type: ignore[arg-type]

    class Loose(dz.Model):
        num_agents: Any = 3

    for wrong in (-1, 2.5, None):
        refused("num_agents", ModelError, model=Loose(num_agents=wrong))


def test_more_replicates_than_memory_holds() -> None:
    refused(r"replicates need at least .* GiB are free on cpu; lower replicates \(about [\d,]+", replicates=10**10)


@pytest.mark.parametrize("ids", [None, torch.tensor([3, 1, 0, 2])])
def test_every_field_of_a_runs_state_has_the_axis_of_replicates(ids: Tensor | None) -> None:
    state = dz.simulate(MODEL, 2, replicates=3, ids=ids).state
    expected = torch.arange(4) if ids is None else ids
    assert torch.equal(state.id, expected.expand(3, -1))


def test_a_plot_of_no_steps(tmp_path: Path) -> None:
    run = dz.simulate(MODEL, 0, out=tmp_path / "run")
    for results in (run, load(tmp_path / "run")):
        with pytest.raises(InputError, match="plot: SIR has no steps yet, so there is nothing to draw"):
            results.plot(tmp_path / "plot.png")
    assert not (tmp_path / "plot.png").exists()
    assert "SIR" in run.extend(1).plot().get_suptitle()


@pytest.mark.parametrize("run", ["simulate", "resume", "Gradient"])
@pytest.mark.parametrize(
    ("model", "words"),
    [
        (
            CartPole(),
            "model is CartPole, an environment, and its step needs actions; dz.train and dz.rl.evaluate run it",
        ),
        (SIR, r"model is the class SIR, expected an instance of a dz.Model: SIR\(…\)"),
        (dz.rl.mlp(CartPole(), (4,)), "model is ActorCritic, expected an instance of a dz.Model"),
    ],
)
def test_what_is_no_model_to_run_is_refused_by_name(tmp_path, run, model, words):
    def begin():
        if run == "simulate":
            dz.simulate(model, steps=2)
        elif run == "resume":
            dz.simulate(MODEL, steps=1, out=tmp_path / "r")
            dz.run.resume(tmp_path / "r", model)
        else:
            dz.run.Gradient(
                model, steps=2, loss=lambda series: series["cases"].sum(), wrt=["infect_rate"], relax=MeanField()
            )

    with pytest.raises(InputError, match=f"{run}: {words}"):
        begin()


def test_a_target_that_is_no_text_is_refused():
    refused("Scale: target=3, expected the name", interventions=[Scale(target=3, factor=0.5, when=During(0, 1))])


def test_a_run_is_saved_to_a_path_and_a_plot_to_a_file(tmp_path):
    run = dz.simulate(MODEL, steps=2)
    with pytest.raises(InputError, match=r"run\.save: path=3, expected the path of a folder"):
        run.save(3)  # pyrefly: ignore
    with pytest.raises(InputError, match="plot: path=3, expected the path of a file"):
        run.plot(3)  # pyrefly: ignore
    with pytest.raises(StorageError, match="it is a folder; name a file in it"):
        run.plot(tmp_path)
    assert not tmp_path.with_name(f"{tmp_path.name}.png").exists()  # as matplotlib would have it
    with pytest.raises(StorageError, match="'xyz' is not supported"):
        run.plot(tmp_path / "a.xyz")


def test_a_file_and_a_training_are_told_from_a_run(tmp_path):
    (tmp_path / "model.py").write_text("")
    with pytest.raises(DataError, match=r"model\.py is a file; expected a run folder"):
        load(tmp_path / "model.py")
    (tmp_path / "manifest.json").write_text('{"format": "denizen training 1"}')
    with pytest.raises(DataError, match="of kind 'training', expected 'simulation'"):
        load(tmp_path)


def test_what_numpy_counts_is_stored_and_what_json_cannot_hold_is_told(tmp_path):
    dz.simulate(MODEL, 4, snapshots=Snapshots(every=np.int64(2)), out=tmp_path / "run")
    assert load(tmp_path / "run").steps == 4
    with pytest.raises(InputError, match=r"simulate: settings\['a'\] = <object"):
        dz.simulate(MODEL, 2, out=tmp_path / "other", settings={"a": object()})
    assert not (tmp_path / "other").exists()
    assert dz.real(max=float("inf")) is not None
