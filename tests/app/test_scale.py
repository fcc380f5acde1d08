"""Factors of parameters and layers on the command line: `denizen run --scale`."""

import json
import re
from pathlib import Path

import pytest
import torch

import denizen as dz
from denizen.model import During, Scale
from denizen.space.generators import erdos_renyi
from denizen.zoo.sir import sir

WRONG = ["half", "0.5@", "0.5@40:20", "0.5@1:2:3", "nan@3", "0.5@-1", "0.5@20-40", "0.5@20:2020-03-01"]


@pytest.mark.parametrize("text", WRONG)
def test_words_that_mean_nothing_are_told_with_the_flag(denizen, text):
    for model in ("sir", "traffic"):  # in days and in steps
        code, out, err = denizen("run", model, "--scale", f"infect_rate={text}")
        assert (code, out) == (2, "")
        assert re.match(r"error --scale infect_rate=.*FACTOR@FROM:UNTIL", " ".join(err.split())), err


def test_a_run_with_a_factor_is_that_of_python_and_goes_on(denizen):
    words = ("run", "sir", "--agents", "200", "--replicates", "2", "--no-compile", "--quiet", "--set", "seed_share=0.1")
    code, _, told = denizen(*words, "--steps", "5", "--scale", "infect_rate=0.1@2:4", "--out", "run")
    assert code == 0, told
    assert json.loads(Path("run/manifest.json").read_text())["settings"]["config"]["scale"] == {
        "infect_rate": "0.1@2:4"
    }
    assert denizen("resume", "run", "--steps", "3", "--quiet")[0] == 0
    model = sir(erdos_renyi(200, mean_degree=10, seed=0), seed_share=0.1)
    low = Scale(target="infect_rate", factor=0.1, when=During(days=(2, 4)))
    wanted = dz.simulate(model, 8, replicates=2, interventions=[low], compile=False)
    assert torch.equal(dz.run.load("run")["cases"], wanted["cases"])

    code, _, told = denizen(*words, "--steps", "5", "--scale", "infct_rate=0.1@2:4")
    assert code != 0
    assert "did you mean 'infect_rate'" in told


def test_a_file_says_every_other_intervention(denizen):
    """The plan of the guide, as a user would copy it: run, and gone on with."""
    page = (Path(__file__).parents[2] / "docs/guides/interventions.md").read_text()
    block = next(part for part in page.split("```") if part.startswith("python") and "class Plan(" in part)
    Path("plan.py").write_text("from denizen.model import During, Scale\n" + block.removeprefix("python"))
    words = ("--agents", "300", "--steps", "4", "--replicates", "2", "--no-compile", "--quiet")
    code, _, told = denizen("run", "plan.py:Plan", *words, "--set", "seed_share=0.1", "--out", "run")
    assert code == 0, told
    assert denizen("resume", "run", "plan.py:Plan", "--steps", "2", "--quiet")[0] == 0
    doses = dz.run.load("run")["vaccinated"]
    assert doses.tolist() == [[20 * day for day in range(1, 7)]] * 2
