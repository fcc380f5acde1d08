"""Training of agent attention networks: variants agree, going on gives the same numbers, stopping works."""

import dataclasses
import json
import math
import subprocess
import sys
from pathlib import Path

import pytest
import torch

from denizen.errors import DataError, InputError, StorageError
from denizen.nn import attention_maps, quantize_int8, task
from denizen.zoo import dotgat
from denizen.zoo.dotgat import Settings, pictures
from denizen.zoo.dotgat.folder import Folder
from denizen.zoo.dotgat.step import Step

TINY = Settings(
    agents=4,
    features=4,
    times=8,
    rank=2,
    hidden=8,
    heads=2,
    neighbours=2,
    processes=40,
    batch=8,
    epochs=4,
    learning_rate=5e-3,
    share=0.5,
    message_steps=1,
    precision="float32",
)


def tiny(**changes):
    return dataclasses.replace(TINY, **changes)


def test_reference_and_fast_have_the_same_losses_over_twenty_steps():
    losses = [dotgat.train(tiny(variant=variant, dropout=0.0)).losses for variant in ("reference", "fast")]
    assert len(losses[0]) == 24
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)
    assert losses[1][-1] < losses[1][0]


@pytest.mark.compile
@pytest.mark.slow
def test_compiled_has_the_same_losses():
    losses = [dotgat.train(tiny(variant=variant, dropout=0.0)).losses for variant in ("compiled", "fast")]
    assert losses[0] == pytest.approx(losses[1], rel=1e-4)


@pytest.mark.cuda
def test_captured_has_the_same_losses():
    if not torch.cuda.is_available():
        pytest.skip("no CUDA device")
    losses = [
        dotgat.train(tiny(variant=variant, dropout=0.0), device="cuda").losses for variant in ("captured", "fast")
    ]
    assert losses[0] == pytest.approx(losses[1], rel=1e-3)


def test_captured_on_a_stand_in_for_cuda(monkeypatch):
    """Warm-up is undone, inputs are copied, replays are steps; the graph is a closure that steps again."""
    settings = tiny(dropout=0.0)
    data = dotgat.draw(settings)
    batch = [(data.inputs["training"][:8], data.targets["training"][:8])]

    def made():
        torch.manual_seed(0)
        model, judge = dotgat.Answers(settings, data), dotgat.Judge(settings, data)
        return model, Step(settings, model, judge, torch.device("cpu"))

    plain_model, plain = made()
    expected = [float(plain(batch)) for _ in range(4)]
    model, captured = made()
    captured._captures = True

    class Graph:
        def replay(self):
            captured._graph._result = captured._eager(captured._window)

    class Nothing:
        def __init__(self, *args, **named): ...
        def __enter__(self): ...
        def __exit__(self, *args): ...
        def wait_stream(self, other): ...

    for name in ("Stream", "stream", "graph"):
        monkeypatch.setattr(torch.cuda, name, Nothing)
    monkeypatch.setattr(torch.cuda, "current_stream", Nothing)
    monkeypatch.setattr(torch.cuda, "CUDAGraph", Graph)
    assert [float(captured(batch)) for _ in range(4)] == expected
    assert all(torch.equal(a, b) for a, b in zip(model.parameters(), plain_model.parameters(), strict=True))


@pytest.mark.parametrize("task", ["argmax", "lastrow", "argmax_next", "nonlin_function", "lrmc"])
@pytest.mark.parametrize("variant", ["reference", "fast"])
def test_every_task_trains(task, variant):
    trained = dotgat.train(tiny(task=task, variant=variant, epochs=1, transport=True, density=0.9))
    assert trained.results["baselines"]
    assert all(value == value for value in trained.results["test"].values())


def test_accumulated_steps_are_those_of_the_large_batch():
    small = dotgat.train(tiny(batch=4, accumulate=2, dropout=0.0, epochs=2))
    large = dotgat.train(tiny(batch=8, dropout=0.0, epochs=2))
    assert small.losses == pytest.approx(large.losses, rel=1e-4)


def test_going_on_gives_the_same_bits(tmp_path):
    whole = dotgat.train(TINY, tmp_path / "whole")

    class Stop(Exception): ...

    def stop(row):
        if row["epoch"] == 2:
            raise Stop

    with pytest.raises(Stop):
        dotgat.train(TINY, tmp_path / "parts", report=stop)
    assert Folder.open(tmp_path / "parts").manifest["epochs"] == 2
    rest = dotgat.resume(tmp_path / "parts")
    assert rest.metrics == whole.metrics
    assert rest.results["test"] == whole.results["test"]
    for name, value in whole.model.state_dict().items():
        assert torch.equal(value, rest.model.state_dict()[name])
    loaded, settings, _ = dotgat.load(tmp_path / "parts")
    assert settings == TINY
    assert all(torch.equal(v, loaded.state_dict()[k]) for k, v in rest.model.state_dict().items())
    again = dotgat.resume(tmp_path / "parts")
    assert again.losses == []
    assert again.results["test"] == whole.results["test"]


def test_the_second_process_goes_on_with_the_same_bits(monkeypatch):
    """What is saved are the generators of the first one."""
    kind = dotgat.train.__globals__["_Training"]
    monkeypatch.setitem(dotgat.train.__globals__, "_rank", lambda: 1)
    settings, data = tiny(dropout=0.5), dotgat.draw(TINY)
    whole, rest = kind(settings, data, "cpu"), kind(settings, data, "cpu")
    whole._epoch()
    held = {name: value.clone() for name, value in whole.tensors().items()}
    torch.manual_seed(77)
    held["random.cpu"] = torch.get_rng_state()
    expected = whole._epoch()
    rest.load(held)
    assert rest._epoch() == expected


def test_eight_bits_cost_little_of_the_measure():
    trained = dotgat.train(tiny(epochs=15, mixing="block"))
    data, small = dotgat.draw(trained.settings), quantize_int8(trained.model)
    judge, split = dotgat.Judge(trained.settings, data), (data.inputs["test"], data.targets["test"])
    whole, quantized = (dotgat.model.evaluate(one, judge, *split, 8)["loss"] for one in (trained.model, small))
    assert quantized == pytest.approx(whole, rel=0.02)
    assert quantized != whole


def test_patience_and_the_best_epoch():
    trained = dotgat.train(tiny(epochs=60, patience=3, learning_rate=0.05))
    losses = [row["validation_loss"] for row in trained.metrics]
    assert trained.reason == "3 validations without a better one"
    assert losses.index(min(losses)) == len(losses) - 4
    data = dotgat.draw(trained.settings)
    found = dotgat.model.evaluate(
        trained.model, dotgat.Judge(trained.settings, data), data.inputs["validation"], data.targets["validation"], 8
    )
    assert found["loss"] == pytest.approx(min(losses), rel=1e-5)


def test_a_training_that_diverges_says_so():
    assert "lower the learning rate" in dotgat.train(tiny(learning_rate=1e4)).reason
    lost = dotgat.train(tiny(task="lrmc", features=8, learning_rate=1e35))  # to NaN
    assert "lower the learning rate" in lost.reason
    assert math.isnan(lost.metrics[-1]["validation_nuclear_norm"])


def test_a_solved_task_ends_with_what_solved_it(monkeypatch):
    """Between two validations as well: its weights are those that were learnt, not the first ones."""
    monkeypatch.setitem(dotgat.train.__globals__, "SOLVED", 1e9)
    trained = dotgat.train(tiny(validate_every=4))
    assert trained.reason.startswith("the loss fell below")
    assert len(trained.metrics) == 1
    assert trained.metrics[0]["validation_loss"] > 0
    torch.manual_seed(TINY.seed)
    first = dotgat.model.Answers(TINY, dotgat.draw(TINY))
    assert not torch.equal(trained.model.body.embed, first.body.embed)


def test_a_disk_that_is_full_in_the_end_says_so(tmp_path, monkeypatch):
    folder = tmp_path / "run"
    dotgat.train(tiny(epochs=1), folder)
    monkeypatch.setattr(
        Folder, "_commit", lambda *args, **more: (_ for _ in ()).throw(OSError(28, "No space left on device"))
    )
    with pytest.raises(StorageError, match="No space left on device; safe are"):
        dotgat.resume(folder)


@pytest.mark.parametrize(
    ("changes", "part"),
    [
        ({"task": "x"}, "dotgat: task='x', .*valid: argmax"),
        ({"batch": 512}, "raise processes="),
        ({"accumulate": 50}, "only 6 batches"),
        ({"variant": "captured"}, "needs a CUDA device"),
        ({"variant": "quick"}, "dotgat: variant='quick', .*valid: captured, compiled, fast, reference"),
        ({"epochs": 0}, "at least 1"),
        ({"seed": -1}, "seed=-1"),
        ({"agents": 2.5}, "agents=2.5, expected a whole number"),
        ({"task": "lrmc", "density": 1.0}, "none is left to complete"),
        ({"learning_rate": 0.0}, "above 0"),
        ({"weight_decay": -1.0}, "at least 0"),
        ({"variant": "reference", "checkpoint_steps": True}, "take --variant fast"),
        ({"variant": "captured", "checkpoint_steps": True}, "no graph can record"),
    ],
)
def test_what_cannot_be_trained_is_refused_before_a_folder_is_made(tmp_path, changes, part):
    with pytest.raises(InputError, match=part):
        dotgat.train(tiny(**changes), tmp_path / "out", device="cpu")
    assert not (tmp_path / "out").exists()


def test_folders_that_cannot_be_used(tmp_path):
    (tmp_path / "full").mkdir()
    (tmp_path / "full" / "x").write_text("")
    with pytest.raises(StorageError, match="not empty"):
        dotgat.train(TINY, tmp_path / "full")
    with pytest.raises(DataError, match="nowhere does not exist"):
        dotgat.resume(tmp_path / "nowhere")
    folder = tmp_path / "run"
    dotgat.train(tiny(epochs=1), folder)
    manifest = json.loads((folder / "manifest.json").read_text())
    (folder / "manifest.json").write_text(json.dumps({**manifest, "settings": {"agent": 3}}))
    with pytest.raises(DataError, match="did you mean 'agents'"):
        dotgat.resume(folder)
    (folder / "manifest.json").write_text(json.dumps(manifest))
    next(folder.glob("checkpoints/last-*")).write_bytes(b"x")
    with pytest.raises(DataError, match="damaged or changed"):
        dotgat.resume(folder)


def test_baselines_by_hand():
    """Of the next row: two agents, each seeing one of two columns; the third column is the one of ones."""
    rows = torch.tensor([[[1.0, 5.0, 1.0], [2.0, 6.0, 1.0], [4.0, 9.0, 1.0]]])
    inputs, targets = {"training": rows, "test": rows}, {"training": rows[:, 1:, :2], "test": rows[:, 1:, :2]}
    inputs = {name: x[:, :-1] for name, x in inputs.items()}
    sensing = torch.tensor([[1.0, 0.0, 1.0], [0.0, 1.0, 1.0]])
    found = dotgat.baselines(dotgat.Data(task("nextrow"), sensing, None, inputs, targets, {}))
    # Rows 1, 5 and 2, 6 before 2, 6 and 4, 9; means of what comes: 3 and 7.5.
    assert found["mean"] == pytest.approx((1 + 1.5**2 + 1 + 1.5**2) / 4)
    assert found["last value"] == pytest.approx((1 + 1 + 4 + 9) / 4)
    assert found["last value, alone"] == pytest.approx((1 + 1.5**2 + 4 + 1.5**2 + 1 + 1 + 1 + 9) / 8)
    assert found["mean of seen columns, alone"] == pytest.approx((1 + 25 + 4 + 49 + 9 + 1 + 4 + 9) / 8)
    classes = {name: x.argmax(-1) for name, x in targets.items()}
    found = dotgat.baselines(dotgat.Data(task("argmax_next"), sensing, None, inputs, classes, {}))
    assert found == {"last value": 1.0, "last value, alone": 0.5, "most frequent class": 1.0}


def test_a_linear_map_looks_where_the_answer_is():
    """A row of white noise tells nothing of the one before it."""
    found = dotgat.baselines(dotgat.draw(tiny(task="nonlin_function", kernel="whitenoise", processes=200)))
    assert found["linear"] < 0.3 * found["mean"]
    assert found["linear"] < found["linear, alone"]
    assert "last value" not in found


def test_a_manifest_tells_what_is_seen_and_who_can_talk(tmp_path):
    dotgat.train(tiny(epochs=1), tmp_path / "columns")
    facts = Folder.open(tmp_path / "columns").manifest["data"]
    assert (facts["columns_seen"], facts["social"]["edges"], facts["social"]["components"]) == (2, 8, 1)
    dotgat.train(tiny(epochs=1, task="lrmc", neighbours=0, density=0.8), tmp_path / "entries")
    facts = Folder.open(tmp_path / "entries").manifest["data"]
    assert 0 < facts["coverage"] <= 1
    assert 0 < facts["overlap_mean"] < 1
    assert "social" not in facts


def test_pictures_and_maps(tmp_path):
    trained = dotgat.train(tiny(epochs=2))
    data = dotgat.draw(TINY)
    made = pictures.draw_all(trained.model, data, trained.metrics, trained.results, tmp_path)
    assert [path.name for path in made] == ["curves.png", "attention.png", "social_graph.png"]
    maps = attention_maps(trained.model.body, data.inputs["test"])
    assert maps.social.shape == (1, 2, 4, 4)
    assert maps.memory.shape == (1, 2, 4, 7, 7)
    torch.testing.assert_close(maps.social.sum(-1), torch.ones(1, 2, 4))
    assert not maps.memory.triu(1).any()
    unchecked = [{"epoch": 1, "loss": 9.0}]  # of a training that diverged before its first validation
    assert pictures.curves(unchecked, {}, False, tmp_path / "unchecked.png").exists()
    silent = dotgat.train(tiny(epochs=1, neighbours=0))
    assert pictures.social_graph(silent.model, tmp_path / "none.png") is None


def test_the_command_line(tmp_path, command_line, monkeypatch):
    monkeypatch.setenv("COLUMNS", "200")
    words = ["train", "dotgat", "--agents", "3", "--features", "4", "--times", "6", "--rank", "2", "--hidden", "8"]
    words += ["--heads", "2", "--processes", "30", "--batch", "8", "--epochs", "1", "--quiet"]
    folder = tmp_path / "run"
    code, out, _ = command_line(*words, "--out", folder)
    assert (code, out.strip()) == (0, str(folder))
    assert (folder / "curves.png").exists()
    code, _, err = command_line("train", "dotgat", "--resume", folder, "--agents", "4")
    assert code == 2
    assert "leave other flags out" in err
    assert command_line("train", "dotgat", "--resume", folder, "--quiet")[0] == 0
    for told in (command_line("resume", folder), command_line("show", folder)):
        assert told[0] == 0
        assert told[1].count("agents together") == 1
        assert told[1].count("social graph: 6 pairs, 2 to 2 contacts each, connected") == 1
    code, _, err = command_line("resume", folder, "--steps", "3")
    assert code == 2
    assert "--steps" in err


@pytest.mark.slow
def test_two_processes_train_as_one(tmp_path):
    words = ["train", "dotgat", "--agents", "3", "--features", "4", "--times", "6", "--rank", "2", "--hidden", "8"]
    words += ["--heads", "2", "--processes", "30", "--batch", "8", "--epochs", "2", "--dropout", "0", "--device", "cpu"]
    words += ["--precision", "float32", "--quiet", "--out"]
    together = [sys.executable, str(Path(__file__).parents[1] / "ranks.py"), "-m", "denizen"]
    subprocess.run([*together, *words, str(tmp_path / "two")], check=True, capture_output=True)
    subprocess.run([sys.executable, "-m", "denizen", *words, str(tmp_path / "one")], check=True)
    two, one = (Folder.open(tmp_path / name).manifest["metrics"] for name in ("two", "one"))
    for mine, theirs in zip(two, one, strict=True):
        assert mine == pytest.approx(theirs, rel=1e-4)


SEEDS = pytest.mark.parametrize("seed", [0, *(pytest.param(seed, marks=pytest.mark.long) for seed in range(1, 5))])


@pytest.mark.slow
@SEEDS
def test_agents_that_talk_learn_more(seed):
    """Talking agents beat what single ones can reach, and the same agents without messages; seeing all beats both."""
    settings = Settings(
        agents=6,
        features=6,
        times=16,
        rank=3,
        hidden=16,
        heads=2,
        processes=400,
        epochs=30,
        batch=32,
        share=0.34,
        learning_rate=5e-3,
        dropout=0.0,
        precision="float32",
        mixing="block",
        seed=seed,
    )
    talking = dotgat.train(settings).results
    silent = dotgat.train(dataclasses.replace(settings, neighbours=0)).results
    seeing = dotgat.train(dataclasses.replace(settings, share=1.0)).results
    test, simple = talking["test"], talking["baselines"]
    assert test["agent_mse"] < 0.6 * min(simple[name] for name in ("mean", "last value, alone", "linear, alone"))
    assert test["agent_mse"] < 0.6 * silent["test"]["agent_mse"]
    assert seeing["test"]["agent_mse"] < test["agent_mse"]


@pytest.mark.slow
@SEEDS
def test_agents_that_see_everything_beat_the_last_value_and_a_linear_map(seed):
    """The other baselines are far off; the nearest, a linear map of all columns, is worse by 6 to 9 %."""
    settings = Settings(
        agents=6,
        features=6,
        times=16,
        rank=3,
        hidden=32,
        heads=2,
        message_steps=1,
        processes=800,
        epochs=60,
        share=1.0,
        batch=32,
        learning_rate=5e-3,
        dropout=0.0,
        precision="float32",
        mixing="block",
        patience=0,
        seed=seed,
    )
    results = dotgat.train(settings).results
    assert results["test"]["agent_mse"] < min(results["baselines"].values())
