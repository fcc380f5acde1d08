"""What notebooks show: text and pictures of results, without magics, and progress without ipywidgets."""

import copy
import sys
from types import SimpleNamespace

import pytest
import torch

import denizen as dz
from denizen.space import generators
from denizen.zoo.cartpole import CartPole
from denizen.zoo.sir import SIR, sir

PICTURE = '<img alt="{}" src="data:image/png;base64,'


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(200, 6.0, seed=0), infect_rate=0.1)


@pytest.fixture(scope="module")
def run(model: SIR) -> dz.run.Run:
    return dz.simulate(model, 8, replicates=3, device="cpu")


def test_a_run_shows_its_table_and_its_curves(run: dz.run.Run, tmp_path) -> None:
    shown = run._repr_html_()
    assert shown.startswith("<pre style=")
    assert "median (5–95 %) over 3 replicates" in shown
    assert PICTURE.format("Run") in shown
    dz.simulate(run.model, 8, replicates=3, device="cpu", out=tmp_path / "r")
    assert PICTURE.format("SavedRun") in dz.run.load(tmp_path / "r")._repr_html_()
    assert PICTURE.format("Run") not in dz.simulate(run.model, 0, device="cpu")._repr_html_()


def test_a_figure_is_a_picture_without_pyplot(run: dz.run.Run) -> None:
    assert run.plot()._repr_png_().startswith(b"\x89PNG")


def test_what_people_hold_shows_what_printing_it_shows(model: SIR, run: dz.run.Run) -> None:
    from denizen.population import from_frames

    people = from_frames({"age": [1, 2]}, {"source": [0], "target": [1]})
    for shown, told in [
        (model, "infect_rate"),
        (model.contacts, "Graph(200 agents"),
        (people, "network contacts: 1 edges"),
        (run.summary(), "cases"),
        (run.compare(run), "b - a"),
        (dz.check(model, steps=2), "all rules hold"),
    ]:
        found = shown._repr_html_()
        assert found.startswith("<pre style="), shown
        assert told in found.replace("&lt;", "<"), shown


def test_trainings_and_evaluations() -> None:
    env, policy = CartPole(), dz.rl.mlp(CartPole(), (8,))
    trained = dz.train(env, policy, dz.PPO(num_envs=4, num_steps=16), 256, device="cpu", progress=False, compile=False)
    assert PICTURE.format("Trained") in trained._repr_html_()
    assert "return" in dz.rl.evaluate(env, policy, num_envs=2, max_steps=20, device="cpu")._repr_html_()


def test_reports_of_loops() -> None:
    layer = torch.nn.Linear(4, 4)

    def make():
        return lambda: layer(torch.ones(2, 4)).sum().backward()

    assert "<pre" in dz.doctor(make())._repr_html_()
    with dz.budget(host_reads=9, ops=0) as budget:
        pass
    assert "budget" in budget.report._repr_html_()


def test_names_are_text_and_no_html(run: dz.run.Run) -> None:
    found = run.compare(run, names=("<script>alert(1)</script>", "[bold]b[/]"))._repr_html_()
    assert "<script>" not in found
    assert "[bold]b[/]" in found


def test_texts_of_tables_are_whole_in_a_notebook(run: dz.run.Run, monkeypatch) -> None:
    wanted = str(run.summary())
    monkeypatch.setattr("rich.console._is_jupyter", lambda: True)
    assert str(run.summary()) == wanted  # rich would show the table and give no text


def test_a_cell_is_called_by_its_number(monkeypatch) -> None:
    class Compiler:
        def format_code_name(self, name: str) -> tuple[str, str] | None:
            return ("Cell", "In[7]") if name == __file__ else None

    shell = SimpleNamespace(compile=Compiler())
    monkeypatch.setitem(sys.modules, "IPython", SimpleNamespace(get_ipython=lambda: shell))
    layer = torch.nn.Linear(4, 4)

    def make(device):
        moved = copy.deepcopy(layer).to(device)
        return lambda: moved(torch.ones(2, 4, device=device)).sum().item()

    found = dz.doctor(make=make)
    assert "Cell In[7]:" in str(found)
    assert __file__ not in str(found)


def test_everything_public_is_listed() -> None:
    listed = [name for name in dir(dz) if not name.startswith("_")]
    assert set(dz.__all__) - {"__version__"} <= set(listed)
    assert {"population", "fit", "rl", "run", "perf", "zoo", "sweeps"} <= set(listed)
    assert {"importlib", "typing"}.isdisjoint(listed)
