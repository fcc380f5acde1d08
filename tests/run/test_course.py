"""Parameters that change in time: `Course`."""

from pathlib import Path
from typing import Any

import pytest
import torch
from torch import Tensor

import denizen as dz
from denizen.errors import InputError
from denizen.model import Course, During, Scale
from denizen.space import generators
from denizen.zoo.covid import covid
from denizen.zoo.sir import SIR, sir


class Counter(dz.State):
    total: Tensor = dz.real("agents")


class Adds(dz.Model):
    """Everybody has `first` at the start, and `rate` is added in each step."""

    num_agents: int = 3
    rate: Tensor = dz.param(0.0, low=-1.0, high=9.0)
    pair: Tensor = dz.param([0.0, 0.0])

    def init(self, rng: dz.rng.Rng) -> Counter:
        return Counter(total=self.rate.expand(3))

    def step(self, now: Any, rng: dz.rng.Rng) -> Counter:
        return now.replace(total=now.total + self.rate + self.pair.sum())

    @dz.series
    def total(self, now: Any) -> Tensor:
        return now.total[0]


RATE = Course(target="rate", values=[1, 2, 4], every=2)


def total(*interventions: Any, steps: int = 8, **options: Any) -> list:
    run = dz.simulate(Adds(), steps, interventions=interventions, device="cpu", **options)
    return run["total"].tolist()


def test_values_in_time() -> None:
    assert total(RATE)[0] == [2, 3, 5, 7, 11, 15, 19, 23]  # begins with 1, and the last value holds on
    pair = Course(target="pair", values=[[1, 1], torch.tensor([3.0, 4.0])], every=1, name="pair")
    assert total(pair, steps=3)[0] == [2, 9, 16]
    assert total(RATE, pair, steps=2)[0] == [4, 12]


@pytest.mark.parametrize("compile", [False, pytest.param(True, marks=[pytest.mark.compile, pytest.mark.slow])])
def test_each_replicate_has_values_of_its_own(compile: bool) -> None:
    values = [[1.0, 2.0, 4.0], [0.0, 1.0, 0.0], [0.0, 0.0, 0.0]]
    found = total(RATE, steps=5, worlds=[0, 0, 1], params={"rate": values}, compile=compile)
    assert found == [[2, 3, 5, 7, 11], [0, 0, 1, 2, 2], [0, 0, 0, 0, 0]]


def test_with_others_and_in_the_order_given() -> None:
    twice = Scale(target="rate", factor=2.0, when=During(1, 2))
    assert total(RATE, twice, steps=3)[0] == [2, 4, 6]
    with pytest.raises(dz.errors.ModelError, match=r"'scale' .*took the parameter 'rate'"):
        total(RATE, Scale(target="rate", factor=3.0, when=During(4)))


@pytest.fixture(scope="module")
def model() -> SIR:
    return sir(generators.erdos_renyi(300, 8.0, seed=0), infect_rate=0.06, infectious_days=4.0)


def test_a_constant_course_changes_no_bit(model: SIR) -> None:
    plain = dz.simulate(model, 30, replicates=3, seed=1, device="cpu")
    course = Course(target="infect_rate", values=[0.06] * 3, every=7)
    run = dz.simulate(model.replace(infect_rate=0.5), 30, replicates=3, seed=1, device="cpu", interventions=[course])
    assert torch.equal(run["cases"], plain["cases"])


def test_it_is_what_the_weeks_of_covid_are() -> None:
    weeks = [4.0, 1.0, 6.0]
    inside = covid(dz.population.synthetic(size=800, networks=["0"]), R=weeks)
    plain = dz.simulate(inside, 25, seed=1, device="cpu")
    course = Course(target="R", values=[[one] for one in weeks])
    run = dz.simulate(inside.replace(R=[2.0]), 25, seed=1, device="cpu", interventions=[course])
    assert torch.equal(run["daily_infected"], plain["daily_infected"])


def test_a_run_goes_on_from_its_folder(model: SIR, tmp_path: Path) -> None:
    course = Course(target="infect_rate", values=[0.2, 0.0, 0.1], every=5)
    options: dict[str, Any] = {"device": "cpu", "interventions": [course]}
    whole = dz.simulate(model, 20, worlds=[0, 0], params={"infect_rate": [[0.2, 0.0, 0.1], [0.1, 0.0, 0.3]]}, **options)
    dz.simulate(
        model,
        8,
        worlds=[0, 0],
        params={"infect_rate": [[0.2, 0.0, 0.1], [0.1, 0.0, 0.3]]},
        out=tmp_path / "r",
        **options,
    )
    again = dz.run.resume(tmp_path / "r", model, steps=12, **options)
    assert torch.equal(again["cases"], whole["cases"])
    other = Course(target="infect_rate", values=[0.2, 0.0, 0.3], every=5)
    with pytest.raises(InputError, match=r"differs|not the one"):
        dz.run.resume(tmp_path / "r", model, steps=1, device="cpu", interventions=[other])


def test_slopes_of_each_value(model: SIR) -> None:
    gradient = dz.run.Gradient(
        model,
        lambda series: series["cases"].sum(),
        steps=14,
        wrt=["infect_rate"],
        relax=dz.relax.MeanField(),
        interventions=[Course(target="infect_rate", values=[0.06, 0.03], every=7)],
        device="cpu",
    )
    gradient()
    assert gradient.gradients["infect_rate"].shape == (2,)
    assert (gradient.gradients["infect_rate"] > 0).all()


def test_the_check_takes_it(model: SIR) -> None:
    course = Course(target="infect_rate", values=[0.06, 0.03], every=1)
    assert dz.check(model, interventions=[course], gradient=False).ok


@pytest.mark.parametrize(
    ("options", "message"),
    [
        ({"target": "rat"}, "the model has no parameter 'rat'; did you mean 'rate'"),
        ({"values": []}, r"values=\[\], expected a list of values"),
        ({"values": 3.0}, "values=3.0, expected a list of values"),
        ({"values": [1.0, 10.0]}, r"Course: values\[1\] = 10: expected -1 to 9"),
        ({"values": [1.0, [2.0, 3.0]]}, r"Course: values\[1\] has shape \(2,\)"),
        ({"every": 0}, "every=0"),
    ],
)
def test_wrong_courses_are_told(options: dict, message: str) -> None:
    with pytest.raises(InputError, match=message):
        total(Course(**{"target": "rate", "values": [1.0], **options}))


def test_values_of_another_length_are_told() -> None:
    with pytest.raises(InputError, match=r"params\['rate'\] has shape \(2,\), expected \(2, 3\)"):
        total(RATE, replicates=2, params={"rate": [1.0, 2.0]})


@pytest.mark.cuda
def test_on_a_gpu_within_captured_steps(model: SIR) -> None:
    course = Course(target="infect_rate", values=[0.2, 0.0, 0.1], every=5)
    values = {"infect_rate": [[0.2, 0.0, 0.1], [0.1, 0.0, 0.3]]}
    here, there = (
        dz.simulate(model, 40, worlds=[0, 0], params=values, interventions=[course], device=device)["cases"].cpu()
        for device in ("cpu", "cuda")
    )
    assert torch.equal(here, there)
