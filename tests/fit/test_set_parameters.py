"""Parameters that an intervention sets in every step: other values of them would count nowhere, and are refused."""

from typing import Any

import pytest

import denizen as dz
from denizen.errors import InputError
from denizen.model import Ask, Course, During, Intervention
from denizen.space import generators
from denizen.sweeps import sweep
from denizen.zoo.sir import SIR

DAYS = Course(target="infectious_days", values=[7.0, 9.0], every=5)
ASKED = Ask(target="infect_rate", groups=["all"], answer=lambda group, step: 0.1)
TARGETS = {"cases": dz.fit.Target([2, 4], every=5, noise=dz.fit.NegativeBinomial(5.0))}
GRAPH = dz.Graph.from_edges(generators.erdos_renyi(60, 8.0, seed=1))


class Planned(SIR):
    """With interventions of its own, as a plan file has them."""

    @property
    def interventions(self) -> tuple[Intervention, ...]:
        return (DAYS, ASKED)


def swept(name: str, model: SIR, given: Any) -> Any:
    return sweep(model, {name: [0.1, 0.5]}, steps=5, replicates=1, interventions=given, progress=False)


def fitted(name: str, model: SIR, given: Any) -> dz.fit.Fit:
    options: dict[str, Any] = {"replicates": 2, "device": "cpu", "progress": False}
    return dz.calibrate(model, TARGETS, priors=[name], interventions=given, **options)


def filtered(model: SIR, given: Any) -> Any:
    return dz.fit.filter(model, TARGETS, particles=32, interventions=given, device="cpu")


@pytest.mark.parametrize("own", [True, False])
@pytest.mark.parametrize("name", ["infectious_days", "infect_rate"])
def test_what_an_intervention_sets_is_refused_elsewhere(own: bool, name: str) -> None:
    model, given = (Planned(GRAPH), ()) if own else (SIR(GRAPH), (DAYS, ASKED))
    told = {"infectious_days": "a Course of 'infectious_days'", "infect_rate": "an Ask of 'infect_rate'"}[name]
    with pytest.raises(InputError, match=f"{told}, which sets what is to be swept"):
        swept(name, model, given)
    with pytest.raises(InputError, match=f"{told}, which sets what is to be fitted"):
        fitted(name, model, given)
    found = filtered(model, given)
    for change in (found.scenario, lambda params: found.forecast(1, draws=2, params=params)):
        with pytest.raises(InputError, match=f"{told}, which sets what params changes"):
            change({name: 2.0})


def test_a_scenario_of_a_fit_changes_what_counts() -> None:
    fit = fitted("infect_rate", SIR(GRAPH), (DAYS,))
    with pytest.raises(InputError, match=r"Fit.scenario: interventions has a Course of 'infectious_days'"):
        fit.scenario({"infectious_days": 2.0})
    with pytest.raises(InputError, match=r"Fit.scenario: interventions has a Course of 'infect_rate', .* was fitted"):
        fit.scenario(interventions=[Course(target="infect_rate", values=[0.0], name="shut")])
    compared = fit.compare(fit.scenario({"infect_rate": 0.0}), draws=4)
    assert "infect_rate=0.0" in str(compared)


def test_an_ask_of_some_steps_leaves_the_others_to_the_parameter() -> None:
    some = Ask(target="infect_rate", groups=["all"], answer=lambda group, step: 0.1, when=During(2, 4))
    cases = swept("infect_rate", SIR(GRAPH, seed_share=0.2), (some,))["cases"]
    assert (cases[0] != cases[1]).any()


@pytest.mark.parametrize("other", [Course(target="infect_rate", values=[0.1], name="other"), ASKED])
def test_two_that_set_one_parameter_are_named(other: Intervention) -> None:
    one = Course(target="infect_rate", values=[0.05, 0.02], name="one")
    with pytest.raises(InputError, match=f"'one' sets 'infect_rate', and so does the .* {other.name!r}"):
        dz.simulate(SIR(GRAPH), 2, interventions=[one, other])
