"""The folder of a calibration: killed at any moment it goes on, bit for bit; changed arguments are refused by name."""

import json
import os
import shutil
import warnings
from collections.abc import Callable, Sequence
from pathlib import Path
from typing import Any

import numpy as np
import pytest
import torch
from torch import Tensor
from torch.distributions import LogNormal, Normal, Uniform

import denizen as dz
from denizen.errors import DataError, InputError, StorageError
from denizen.space import generators
from denizen.zoo.sir import sir
from forked import end_of, fork
from models_to_fit import interrupt_at_launch

TIMES = torch.arange(12) / 12
PRIORS = {"level": Normal(0.0, 10.0), "slope": Uniform(-9.0, 9.0)}
VALUES = 1.0 + 2.0 * TIMES.numpy() + 0.3 * np.random.default_rng(1).normal(size=12)


def line(theta: Tensor, worlds: Sequence[int]) -> Tensor:
    noise = torch.as_tensor(np.stack([np.random.default_rng([5, world]).normal(size=12) for world in worlds]))
    return theta[:, :1] + theta[:, 1:] * TIMES + 0.3 * noise


class Stopping:
    """The same, stopped at a call."""

    def __init__(self, at: int, how: Callable[[], Any]) -> None:
        self.calls, self._at, self._how = 0, at, how

    def __call__(self, theta: Tensor, worlds: Sequence[int]) -> Tensor:
        self.calls += 1
        if self.calls == self._at:
            self._how()
        return line(theta, worlds)


def manifest_of(folder: Path) -> dict[str, Any]:
    return json.loads((folder / "manifest.json").read_text())


def fitted(model: Any = line, **options: Any) -> dz.fit.Fit:
    targets = {"y": dz.fit.Target(VALUES, scale="identity")}
    return dz.calibrate(model, targets, **{"priors": PRIORS, "progress": False, **options})


def told(fit: dz.fit.Fit) -> list[Any]:
    return [fit.params, fit.interval(), fit.runs, [(one.loss, one.step, one.runs) for one in fit.trace], fit.notes]


@pytest.fixture(scope="module")
def whole() -> list[Any]:
    return told(fitted())


def interrupt() -> None:
    raise KeyboardInterrupt


def test_a_folder_changes_no_number_and_a_second_call_simulates_nothing(tmp_path: Path, whole: list[Any]) -> None:
    counting = Stopping(0, interrupt)
    assert told(fitted(counting, out=tmp_path / "a")) == whole
    calls = counting.calls
    assert told(fitted(counting, out=tmp_path / "a")) == whole
    assert counting.calls == calls
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    assert (manifest["kind"], manifest["status"], manifest["launches"]) == ("calibration", "finished", calls)


@pytest.mark.parametrize("at", [1, 2, 5])
def test_ctrl_c_keeps_what_is_done(tmp_path: Path, whole: list[Any], at: int) -> None:
    with pytest.raises(KeyboardInterrupt) as stop:
        fitted(Stopping(at, interrupt), out=tmp_path / "a")
    assert f"{at - 1} launches are safe; the same call goes on" in stop.value.__notes__[0]
    assert manifest_of(tmp_path / "a")["status"] == "interrupted"
    rest = Stopping(0, interrupt)
    assert told(fitted(rest, out=tmp_path / "a")) == whole
    assert rest.calls == manifest_of(tmp_path / "a")["launches"] - (at - 1)


def test_a_kill_at_any_byte_of_the_ledger(tmp_path: Path, whole: list[Any]) -> None:
    with pytest.raises(KeyboardInterrupt):
        fitted(Stopping(6, interrupt), out=tmp_path / "a")
    size = (tmp_path / "a/launches.bin").stat().st_size
    for number, length in enumerate([0, 1, 7, 30, *np.random.default_rng(0).integers(0, size, 8).tolist(), size - 1]):
        folder = shutil.copytree(tmp_path / "a", tmp_path / f"cut-{number}")
        os.truncate(folder / "launches.bin", length)
        assert told(fitted(Stopping(0, interrupt), out=folder)) == whole


def test_kill_9(tmp_path: Path, whole: list[Any], command_line: Any) -> None:
    stopping = Stopping(4, lambda: os.kill(os.getpid(), 9))
    child = fork(lambda: fitted(stopping, out=tmp_path / "a"), tmp_path / "told.txt")
    assert end_of(child) == -9, (tmp_path / "told.txt").read_text()
    assert "killed, 3 launches" in " ".join(command_line("show", tmp_path / "a")[1].split())
    assert told(fitted(Stopping(0, interrupt), out=tmp_path / "a")) == whole


def test_what_changed_is_refused_by_name(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fitted(Stopping(3, interrupt), out=tmp_path / "a")
    wrong: list[tuple[dict[str, Any], str]] = [
        ({"seed": 1}, "seed is 1 here and was 0"),
        ({"replicates": 20}, "replicates is 20 here and was 16"),
        ({"method": dz.fit.GaussNewton(iterations=3)}, r"method\.iterations is 3 here and was left out"),
        ({"priors": {**PRIORS, "level": Normal(0.0, 9.0)}}, r"priors\['level'\].scale is 9.0 here and was 10.0"),
        ({"priors": dict(reversed(PRIORS.items()))}, "priors is {slope"),
        ({"model": line}, "the model is .*line .* here and was .*Stopping"),
    ]
    for changed, message in wrong:
        with pytest.raises(InputError, match=f"begun with something else: .*{message}"):
            fitted(**{"model": Stopping(0, interrupt), **changed}, out=tmp_path / "a")
    changed = {"y": dz.fit.Target(VALUES + 1, scale="identity")}
    with pytest.raises(InputError, match=r"targets\['y'\]\.values is .* here and was"):
        dz.calibrate(Stopping(0, interrupt), changed, priors=PRIORS, progress=False, out=tmp_path / "a")


def test_other_folders_are_left_alone(tmp_path: Path) -> None:
    (tmp_path / "full").mkdir()
    (tmp_path / "full/mine.txt").write_text("mine")
    with pytest.raises(StorageError, match="is not empty"):
        fitted(out=tmp_path / "full")
    dz.simulate(sir(generators.erdos_renyi(20, 3.0, seed=0)), 2, out=tmp_path / "run", device="cpu")
    with pytest.raises(StorageError, match="is not empty"):
        fitted(out=tmp_path / "run")
    assert manifest_of(tmp_path / "run")["kind"] == "simulation"
    with pytest.raises(DataError, match="kind 'simulation', expected 'calibration'"):
        dz.fit.Fit.load(tmp_path / "run")
    with pytest.raises(InputError, match="pass out= with it"):
        fitted(settings={"a": 1})


def test_what_is_refused_before_a_launch_leaves_nothing(tmp_path: Path) -> None:
    model = sir(generators.erdos_renyi(20, 3.0, seed=0))
    for where in (tmp_path / "new", tmp_path / "new"):  # the second time it is there, and holds a lock
        with pytest.raises(InputError, match="no noise"):
            dz.calibrate(
                model, {"cases": [1.0, 2.0]}, priors={"infect_rate": LogNormal(-3.0, 0.5)}, device="cpu", out=where,
                method=dz.fit.ParticleFilter(), progress=False,
            )  # fmt: skip
    assert {path.name for path in tmp_path.rglob("*")} == {"new", ".lock"}  # locks stay where they are


def test_two_processes_do_not_write_to_one_folder(tmp_path: Path, whole: list[Any]) -> None:
    def meanwhile() -> None:
        with pytest.raises(StorageError, match="another run is writing"):
            fitted(Stopping(0, interrupt), out=tmp_path / "a")

    assert told(fitted(Stopping(3, meanwhile), out=tmp_path / "a")) == whole


def test_a_full_disk_says_what_is_safe(tmp_path: Path, whole: list[Any], monkeypatch: pytest.MonkeyPatch) -> None:
    real = os.pwrite

    def full(descriptor: int, data: Any, at: int) -> int:
        if at > 0:
            real(descriptor, data[: len(data) // 2], at)
            raise OSError(28, "No space left on device")
        return real(descriptor, data, at)

    with monkeypatch.context() as patched:
        patched.setattr(os, "pwrite", full)
        with pytest.raises(StorageError, match="No space left on device; safe are 1 launches, the same call goes on"):
            fitted(out=tmp_path / "a")
    assert manifest_of(tmp_path / "a")["status"] == "failed"
    assert told(fitted(out=tmp_path / "a")) == whole


def test_a_search_that_takes_another_way_is_told(tmp_path: Path) -> None:
    for name, level in (("a", 0.0), ("b", 1.0)):
        with pytest.raises(KeyboardInterrupt):
            fitted(Stopping(6, interrupt), out=tmp_path / name, priors={**PRIORS, "level": Normal(level, 10.0)})
    shutil.copy(tmp_path / "b/launches.bin", tmp_path / "a/launches.bin")  # as if the first had been another one
    with pytest.warns(UserWarning, match="launch 1 is not the one that was kept"):
        fitted(Stopping(0, interrupt), out=tmp_path / "a")


def test_damage_is_named(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fitted(Stopping(6, interrupt), out=tmp_path / "a")
    file = tmp_path / "a/launches.bin"
    data = bytearray(file.read_bytes())
    data[60] ^= 1
    file.write_bytes(data)
    with pytest.raises(DataError, match=r"launches\.bin: the entry of launch 1 is damaged"):
        fitted(Stopping(0, interrupt), out=tmp_path / "a")


def test_another_version_is_a_warning(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fitted(Stopping(3, interrupt), out=tmp_path / "a")
    manifest = json.loads((tmp_path / "a/manifest.json").read_text())
    manifest["versions"]["torch"] = "2.11.0"
    (tmp_path / "a/manifest.json").write_text(json.dumps(manifest))
    with pytest.warns(UserWarning, match=r"torch .* \(was 2\.11\.0\)"):
        fitted(Stopping(0, interrupt), out=tmp_path / "a")


METHODS: dict[str, Any] = {
    "GaussNewton": dz.fit.GaussNewton(iterations=3),
    "CMAES": dz.fit.CMAES(runs=60),
    "TPE": dz.fit.TPE(runs=60),
    "Gradient": dz.fit.Gradient(iterations=4, optimizer=torch.optim.SGD),
    "ABCSMC": dz.fit.ABCSMC(runs=120, particles=20, keep=10),
    "SyntheticLikelihood": dz.fit.SyntheticLikelihood(chains=2, burn_in=4, iterations=10, tried=40),
    "ParticleFilter": dz.fit.ParticleFilter(particles=16, chains=2, burn_in=10, iterations=10, tried=4),
    "IteratedFilter": dz.fit.IteratedFilter(particles=32, iterations=3),
}


QUICK = ("GaussNewton",)


@pytest.mark.parametrize(
    "name", [name if name in QUICK else pytest.param(name, marks=pytest.mark.slow) for name in METHODS]
)
def test_every_method_goes_on(name: str, tmp_path: Path, monkeypatch: pytest.MonkeyPatch) -> None:
    """Ctrl-C after the third launch: what goes on has the numbers of a calibration that was never stopped."""
    model = sir(generators.erdos_renyi(60, 8.0, seed=0), infect_rate=0.06, seed_share=0.1)
    values = dz.simulate(model, 14, seed=9, device="cpu")["cases"][0].numpy()
    target = dz.fit.Target(values, noise=dz.fit.NegativeBinomial(5.0))
    options: dict[str, Any] = {"priors": {"infect_rate": LogNormal(-3.0, 0.5)}, "replicates": 4, "device": "cpu"}

    def call(folder: str) -> dz.fit.Fit:
        return dz.calibrate(
            model, {"cases": target}, **options, method=METHODS[name], progress=False, out=tmp_path / folder
        )

    with warnings.catch_warnings():
        warnings.simplefilter("ignore", category=UserWarning)  # of optuna, about itself
        whole = told(call("whole"))
        calls = interrupt_at_launch(4, monkeypatch)
        with pytest.raises(KeyboardInterrupt):
            call("a")
        assert str(told(call("a"))) == str(whole)
    assert len(calls) == manifest_of(tmp_path / "whole")["launches"] + 1
    assert str(told(dz.fit.Fit.load(tmp_path / "a"))) == str(whole)


# --- fits -------------------------------------------------------------------------------------------------------------


def test_a_fit_is_saved_and_read(tmp_path: Path) -> None:
    model = sir(generators.erdos_renyi(300, 8.0, seed=0), infect_rate=0.05)
    values = dz.simulate(model, 35, seed=9, device="cpu")["cases"][0].reshape(-1, 7).sum(1).numpy()
    target = dz.fit.Target(values, every=7, noise=dz.fit.NegativeBinomial(20))
    options: dict[str, Any] = {"priors": {"infect_rate": LogNormal(-3.0, 0.5)}, "replicates": 4, "holdout": 1}
    fit = dz.calibrate(model, {"cases": target}, **options, device="cpu", progress=False, out=tmp_path / "run")
    fit.save(tmp_path / "saved")
    for name in ("run", "saved"):
        bare = dz.fit.Fit.load(tmp_path / name)
        assert told(bare) == told(fit)
        assert bare.model is None
        with pytest.raises(InputError, match=r"Fit\.load\(path, model=…\) simulates"):
            bare.curve()
        with pytest.raises(InputError, match="copy its folder"):
            bare.save(tmp_path / "again")
        again = dz.fit.Fit.load(tmp_path / name, model, device="cpu")
        assert told(again) == told(fit)
        assert np.array_equal(again.forecast(draws=4)["cases"], fit.forecast(draws=4)["cases"])
        assert again.score(draws=8) == fit.score(draws=8)
        with pytest.raises(InputError, match="fit of another model: seed_share is"):
            dz.fit.Fit.load(tmp_path / name, model.replace(seed_share=0.5))
    with pytest.raises(StorageError, match="not empty"):
        fit.save(tmp_path / "saved")


def test_a_calibration_without_a_fit_is_told(tmp_path: Path) -> None:
    with pytest.raises(KeyboardInterrupt):
        fitted(Stopping(3, interrupt), out=tmp_path / "a")
    with pytest.raises(DataError, match="has not come to a fit: interrupted, 2 launches"):
        dz.fit.Fit.load(tmp_path / "a")


class Mine:
    """A noise of somebody's."""

    def draw(self, mean: np.ndarray, uniform: np.ndarray) -> np.ndarray:
        return mean

    def log_prob(self, values: np.ndarray, mean: np.ndarray) -> np.ndarray:
        return -((values - mean) ** 2)


def test_what_no_folder_keeps_is_given_again(tmp_path: Path) -> None:
    targets = {"y": dz.fit.Target(VALUES, scale="identity", noise=Mine())}
    fit = dz.calibrate(line, targets, priors=PRIORS, progress=False, out=tmp_path / "a")
    with pytest.raises(InputError, match=r"targets has .*Mine, which no folder keeps; give it again"):
        dz.fit.Fit.load(tmp_path / "a")
    assert told(dz.fit.Fit.load(tmp_path / "a", targets=targets)) == told(fit)
    with pytest.raises(InputError, match=r"made with something else: targets\['y'\]\.scale"):
        dz.fit.Fit.load(tmp_path / "a", targets={"y": dz.fit.Target(VALUES, noise=Mine())})


def test_no_warning_where_all_is_well(tmp_path: Path) -> None:
    with warnings.catch_warnings():
        warnings.simplefilter("error")
        fitted(out=tmp_path / "a")
        fitted(out=tmp_path / "a")
