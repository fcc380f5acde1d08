"""Particle filters: closed forms whose likelihood is known, plain runs weighed by hand, and what is refused."""

import math
from typing import Any

import numpy as np
import pytest
from scipy.special import gammaln
from torch import Tensor

import denizen as dz
from denizen.errors import DenizenError, InputError, ModelError
from denizen.space import generators
from denizen.zoo.sir import SIR, sir

PHI, MOVE, SEEN = 0.8, 1.0, 0.7


class Place(dz.State):
    x: Tensor = dz.real("agents")


class Walker(dz.Model):
    """One agent whose place is a stationary AR(1) process."""

    phi: Tensor = dz.param(PHI, low=-1.0, high=1.0)
    mean: Tensor = dz.param(0.0)
    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Place:
        return Place(x=rng.normal("start", self.mean, MOVE / (1 - self.phi**2).sqrt()))

    def step(self, now: Any, rng: dz.rng.Rng) -> Place:
        return now.replace(x=self.mean + self.phi * (now.x - self.mean) + MOVE * rng.normal("move"))

    @dz.series
    def place(self, now: Any) -> Tensor:
        return now.x.sum()


def walked(steps: int, number: int = 0) -> np.ndarray:
    rng = np.random.default_rng([3, number])
    x, found = rng.normal() * MOVE / math.sqrt(1 - PHI**2), []
    for _ in range(steps):
        x = PHI * x + MOVE * rng.normal()
        found.append(x + SEEN * rng.normal())
    return np.array(found)


def kalman(values: np.ndarray) -> tuple[float, float, float]:
    """Log-likelihood of the walker, and mean and variance of its place at the end."""
    log, mean, variance = 0.0, 0.0, MOVE**2 / (1 - PHI**2)
    for value in values:
        mean, variance = PHI * mean, PHI**2 * variance + MOVE**2
        if not np.isnan(value):
            total = variance + SEEN**2
            log -= 0.5 * (math.log(2 * math.pi * total) + (value - mean) ** 2 / total)
            gain = variance / total
            mean, variance = mean + gain * (value - mean), variance * (1 - gain)
    return log, mean, variance


def place_seen(values: Any) -> dict[str, dz.fit.Target]:
    return {"place": dz.fit.Target(values, scale="identity", noise=dz.fit.Normal(SEEN))}


@pytest.fixture(scope="module")
def values() -> np.ndarray:
    found = walked(12)
    found[4] = np.nan
    return found


def test_the_likelihood_of_a_linear_gaussian_model_is_kalmans(values: np.ndarray) -> None:
    """Without bias in the likelihood, within 3 standard errors over 40 seeds; its stated error is what it scatters."""
    found = [dz.fit.filter(Walker(), place_seen(values), particles=128, seed=seed, device="cpu") for seed in range(40)]
    apart = np.array([one.log_likelihood for one in found]) - kalman(values)[0]
    ratio = np.exp(apart)
    assert abs(ratio.mean() - 1) < 3 * ratio.std(ddof=1) / math.sqrt(40)
    stated = math.sqrt(np.mean([one.se**2 for one in found]))
    assert 0.7 < stated / apart.std(ddof=1) < 1.4  # the standard error of a standard deviation of 40 is 11 %
    assert stated < 0.7


def test_filtered_states_and_forecasts_are_kalmans(values: np.ndarray) -> None:
    filtered = dz.fit.filter(Walker(), place_seen(values), particles=4_000, device="cpu")
    _, mean, variance = kalman(values)
    low, middle, high = filtered.curve([0.1587, 0.5, 0.8413])["place"][:, -1]
    assert middle == pytest.approx(mean, abs=0.08)
    assert (high - low) / 2 == pytest.approx(math.sqrt(variance), rel=0.1)
    for wrong, words in ((0.5, "expected a list"), ([], "expected a list"), ([2], "from 0 to 1")):
        with pytest.raises(InputError, match=words):
            filtered.curve(wrong)  # type: ignore[arg-type]  # pyrefly: ignore
    ahead = filtered.forecast(3, draws=4_000)["place"]
    for k in range(1, 4):
        spread = PHI ** (2 * k) * variance + sum(PHI ** (2 * j) * MOVE**2 for j in range(k)) + SEEN**2
        assert ahead[:, k - 1].mean() == pytest.approx(PHI**k * mean, abs=4 * math.sqrt(spread / 4_000) + 0.08)
        assert ahead[:, k - 1].std() == pytest.approx(math.sqrt(spread), rel=0.06)


class Rate(dz.State):
    rate: Tensor = dz.real("agents")


class Clock(dz.Model):
    """A rate drawn once from a gamma distribution, shape 3 and mean 6."""

    num_agents: int = 1

    def init(self, rng: dz.rng.Rng) -> Rate:
        return Rate(rate=rng.gamma("rate", 3.0, 2.0))

    def step(self, now: Any, rng: dz.rng.Rng) -> Rate:
        return now.replace(rate=now.rate)

    @dz.series
    def rate(self, now: Any) -> Tensor:
        return now.rate.sum()


def test_the_evidence_of_poisson_counts_with_a_gamma_rate_is_exact() -> None:
    counts = np.array([5.0, 8.0, 3.0, 6.0])
    total, num = counts.sum(), len(counts)
    exact = (
        gammaln(3 + total)
        - gammaln(3)
        - gammaln(counts + 1).sum()
        - 3 * math.log(2)
        - (3 + total) * math.log(num + 0.5)
    )
    target = {"rate": dz.fit.Target(counts, noise=dz.fit.Poisson())}
    found = [dz.fit.filter(Clock(), target, particles=500, seed=seed, device="cpu") for seed in range(30)]
    ratio = np.exp(np.array([one.log_likelihood for one in found]) - exact)
    assert abs(ratio.mean() - 1) < 3 * ratio.std(ddof=1) / math.sqrt(30)
    assert ratio.std(ddof=1) < 0.2


@pytest.fixture(scope="module")
def epidemic() -> SIR:
    town = generators.erdos_renyi(400, 10.0, seed=0)
    return sir(town, infect_rate=0.05, infectious_days=7.0, seed_share=0.05)


def test_without_resampling_it_is_the_mean_over_plain_runs(epidemic: SIR) -> None:
    """Two targets with windows that end apart, gaps, a reporting share; every noise that comes with denizen."""
    run = dz.simulate(epidemic, 28, replicates=32, seed=5, device="cpu")
    weekly = dz.fit.Target([80.0, 90.0, 40.0, 12.0], every=7, report=0.5, noise=dz.fit.NegativeBinomial(0.5))
    level = [np.nan, 90, 80, np.nan, 20]
    targets = {
        "cases": weekly,
        "infected": dz.fit.Target(level, every=5, first=4, noise=dz.fit.Normal(200.0)),
        "recovered": dz.fit.Target([0.0, 1.0], noise=dz.fit.Poisson(), report=0.05),
    }
    log_probs = np.zeros(32)
    for name, kind in (("cases", "flow"), ("infected", "level"), ("recovered", "level")):
        target = targets[name]
        assert target.noise is not None
        means = target.windows(run[name].numpy(), kind)
        log_probs += np.nansum(target.noise.log_prob(target.values, means), axis=1)
    filtered = dz.fit.filter(epidemic, targets, particles=32, seed=5, device="cpu")
    assert (filtered.ess > 16).all()
    assert filtered.at.tolist() == [1, 2, 7, 13, 14, 18, 21, 28]
    top = log_probs.max()
    assert filtered.log_likelihood == pytest.approx(top + math.log(np.exp(log_probs - top).mean()), abs=1e-9)


def test_noise_of_ones_own_is_asked_on_the_host(values: np.ndarray) -> None:
    class Own(dz.fit.Normal):
        pass

    own = {"place": dz.fit.Target(values, scale="identity", noise=Own(SEEN))}
    first, second = (dz.fit.filter(Walker(), one, particles=64, device="cpu") for one in (own, place_seen(values)))
    assert first.log_likelihood == pytest.approx(second.log_likelihood, abs=1e-9)


def test_the_same_seed_gives_the_same_bits_and_another_seed_others(epidemic: SIR) -> None:
    target = {"cases": dz.fit.Target([60, 110, 90, 40, 12], every=5, noise=dz.fit.NegativeBinomial(50))}
    first, again, other = (dz.fit.filter(epidemic, target, particles=40, seed=seed, device="cpu") for seed in (1, 1, 2))
    assert (first.ess < 20).any(), "nothing was resampled"
    assert first.log_likelihood == again.log_likelihood
    assert (first.ess == again.ess).all()
    assert (first.forecast(2)["cases"] == again.forecast(2)["cases"]).all()
    assert (first.forecast(2)["cases"] == first.forecast(2)["cases"]).all()
    assert (first.forecast(2, seed=1)["cases"] != first.forecast(2)["cases"]).any()
    assert first.log_likelihood != other.log_likelihood
    assert len(np.unique(first.forecast(2, draws=40)["cases"])) > 10, "copies drew alike"


CLOSED = dz.model.Scale(target="infect_rate", factor=0.0, when=dz.model.During(25), name="closed")
ONCE = dz.model.Scale(
    target="infect_rate", factor=0.9, when=dz.model.Trigger(lambda now: now.stage.is_("infected").sum() > 60)
)
NOTHING = dz.model.Scale(target="infect_rate", factor=1.0, when=dz.model.During(0), name="nothing")


@pytest.fixture(scope="module")
def filtered(epidemic: SIR) -> dz.fit.Filtered:
    target = {"cases": dz.fit.Target([60, 110, 90, 40, 12], every=5, noise=dz.fit.NegativeBinomial(50))}
    return dz.fit.filter(epidemic, target, particles=40, seed=1, device="cpu", interventions=[ONCE])


def test_forecasts_with_a_change_go_on_from_the_same_states_in_the_same_worlds(filtered: dz.fit.Filtered) -> None:
    plain = filtered.forecast(3, draws=20)["cases"]
    assert (filtered.forecast(3, draws=20, interventions=[NOTHING])["cases"] == plain).all()
    assert (filtered.forecast(3, draws=20, params={"infect_rate": 0.05})["cases"] == plain).all()
    assert plain.any()
    assert not filtered.forecast(3, draws=20, interventions=[CLOSED])["cases"].any()
    assert not filtered.forecast(3, draws=20, params={"infect_rate": 0.0})["cases"].any()
    assert (filtered.forecast(3, draws=20)["cases"] == plain).all()  # the filter is as it was


def test_scenarios_from_filtered_states_beside_each_other(filtered: dz.fit.Filtered) -> None:
    closed = filtered.scenario(interventions=[CLOSED], name="closed")
    found = filtered.compare(closed, steps=15, draws=30)
    cases = found["cases"]
    assert cases.b == 0 < cases.a
    assert cases.difference == pytest.approx(-cases.a)
    assert filtered.compare(filtered.scenario(interventions=[NOTHING]), steps=15)["cases"].high == 0
    slower = filtered.scenario({"infect_rate": 0.02})
    assert dz.fit.compare(slower, closed, steps=15)["cases"].difference < 0
    assert "a: as filtered\nb: closed\n30 worlds" in str(found)
    assert filtered.compare(slower, draws=4).rows[0].a > 0  # as many steps as were filtered


def test_a_fit_goes_on_from_filtered_states_with_a_change(epidemic: SIR) -> None:
    target = {"cases": dz.fit.Target([60, 110, 90, 40], every=5, noise=dz.fit.NegativeBinomial(50))}
    fit = dz.calibrate(epidemic, target, priors=["infect_rate"], replicates=4, device="cpu", progress=False)
    plain = fit.forecast(1, draws=6, particles=20)["cases"]
    assert (fit.forecast(1, draws=6, particles=20, interventions=[NOTHING])["cases"] == plain).all()
    assert not fit.forecast(1, draws=6, particles=20, params={"infect_rate": 0.0})["cases"].any()
    closed = dz.model.Scale(target="infect_rate", factor=0.0, when=dz.model.During(20))
    found = fit.compare(fit.scenario(interventions=[closed]), draws=6, particles=20, steps=10)["cases"]
    assert found.b == 0 < found.a < 110
    assert fit.compare(fit, draws=6, particles=20, steps=10)["cases"].difference == 0
    assert fit.compare(fit.bootstrap(10), draws=4, particles=20, steps=5)["cases"].a > 0
    with pytest.raises(InputError, match="without particles= the runs begin at the first step"):
        fit.forecast(1, interventions=[closed])


def test_what_cannot_be_changed_is_told(filtered: dz.fit.Filtered, epidemic: SIR) -> None:
    with pytest.raises(InputError, match=r"Filtered.forecast: params has 'infect_rat'; did you mean 'infect_rate'"):
        filtered.forecast(1, params={"infect_rat": 0.1})
    with pytest.raises(InputError, match=r"Filtered.scenario: interventions=.*expected a list"):
        filtered.scenario(interventions=CLOSED)  # type: ignore[arg-type]  # pyrefly: ignore
    with pytest.raises(InputError, match="expected values by name"):
        filtered.scenario(["infect_rate"])  # type: ignore[arg-type]  # pyrefly: ignore
    with pytest.raises(InputError, match=r"expected what filtered.scenario"):
        filtered.compare(filtered)  # type: ignore[arg-type]  # pyrefly: ignore
    with pytest.raises(InputError, match="at least 0"):
        filtered.forecast(1, params={"infect_rate": -1.0})
    other = dz.fit.filter(epidemic, {"cases": dz.fit.Target([60], every=5, noise=dz.fit.Poisson())}, particles=8)
    with pytest.raises(InputError, match="the states of one filter"):
        filtered.compare(other.scenario())


REFUSED = [
    ({"cases": [1, 2, 3]}, {}, InputError, "has no noise"),
    ({"casse": dz.fit.Target([1], noise=dz.fit.Poisson())}, {}, InputError, "did you mean 'cases'"),
    ({"cases": dz.fit.Target([1], noise=dz.fit.Poisson(), weight=2)}, {}, InputError, "leave weight out"),
    ({"cases": dz.fit.Target([[1, 2]], noise=dz.fit.Poisson())}, {}, InputError, r"shape \(2,\), expected \(\)"),
    ({"infected": dz.fit.Target([1], kind="flow", noise=dz.fit.Poisson())}, {}, InputError, "is a level"),
    ({"cases": dz.fit.Target([1], noise=dz.fit.Poisson())}, {"particles": 1}, InputError, "particles=1"),
    ({"cases": dz.fit.Target([1], noise=dz.fit.Poisson())}, {"seed": -1}, InputError, "seed=-1"),
    (
        {"cases": dz.fit.Target([20, 5_000], noise=dz.fit.Poisson())},
        {},
        ModelError,
        r"value 1 = 5000 \(step 2\): 1.0 of 8",
    ),
    (
        {"cases": dz.fit.Target([1], noise=dz.fit.Poisson())},
        {"particles": 10**13},
        InputError,
        r"lower particles \(about",
    ),
    ({}, {}, InputError, "expected observed series by name"),
]


@pytest.mark.parametrize(("targets", "options", "kind", "words"), REFUSED)
def test_what_does_not_fit_is_refused(
    epidemic: SIR, targets: Any, options: dict[str, Any], kind: type[DenizenError], words: str
) -> None:
    with pytest.raises(kind, match=words) as caught:
        dz.fit.filter(epidemic, targets, **{"particles": 8, "device": "cpu"} | options)
    assert "\n" not in str(caught.value)
    assert str(caught.value).startswith("filter: ")


def test_a_class_or_a_function_is_no_model_to_filter() -> None:
    for model in (Walker, lambda theta, worlds: theta):
        with pytest.raises(InputError, match="filter: model is"):
            dz.fit.filter(model, place_seen([1.0]))  # type: ignore[arg-type]  # pyrefly: ignore


def test_worlds_that_die_out_are_told(epidemic: SIR) -> None:
    few = epidemic.replace(seed_share=0.003)
    target = {"cases": dz.fit.Target([np.nan, np.nan, np.nan, 40], every=5, noise=dz.fit.NegativeBinomial(2))}
    filtered = dz.fit.filter(few, target, particles=64, device="cpu")
    assert 0 < filtered.extinct[0] < 64
    assert any(f"{filtered.extinct[0]} of 64 particles could not give" in note for note in filtered.notes)
    assert "log-likelihood" in str(filtered)
    alone = few.replace(infect_rate=0.0)
    with pytest.raises(ModelError, match=r"64 of 64 cannot give it at all \(extinct\)"):
        dz.fit.filter(alone, target, particles=64, device="cpu")


@pytest.mark.cuda
def test_both_devices_agree(epidemic: SIR) -> None:
    target = {"cases": dz.fit.Target([60, 110, 90, 40, 12], every=5, noise=dz.fit.NegativeBinomial(50))}
    here, there = (dz.fit.filter(epidemic, target, particles=256, device=device) for device in ("cpu", "cuda"))
    assert here.log_likelihood == pytest.approx(there.log_likelihood, abs=1e-6)
    assert here.ess == pytest.approx(there.ess, rel=1e-6)
