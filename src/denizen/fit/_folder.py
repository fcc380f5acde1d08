"""The run folder of a calibration, and that of many which look at a method (`dz.fit.sbc`).

    launches.bin                 what each launch gave; only ever appended to, see `denizen.fit._ledger`
    checkpoints/given-*          arrays of what was given, such as the targets' values
    checkpoints/fit-*            arrays of what was found, once it is

The rest is as in every run folder, see `denizen._run_folder`. The manifest has what was given as `asked`, the model as
`model`, and the fit as `found`, all as `denizen.fit._stored` writes them.
"""

import contextlib
import dataclasses
import shutil
import warnings
from collections.abc import Generator, Mapping
from pathlib import Path
from typing import Any, ClassVar

from denizen._atomic import status_now
from denizen._fingerprint import describe, differences, fingerprint
from denizen._run_folder import NAME, StateFolder, check_free, kind_of, versions
from denizen.errors import DataError, InputError, StorageError
from denizen.fit import _ledger, _stored
from denizen.fit._setup import Absent
from denizen.model import Model

LEDGER = "launches.bin"
LATER = "the same call goes on"
MOST = 4096  # numbers of a parameter that can be read without its model


class CalibrationFolder(StateFolder):
    """A calibration's folder: begun, gone on with, or read."""

    KIND, FORMAT, COUNT = "calibration", "denizen calibration 1", "launches"
    CALLER: ClassVar[str] = "calibrate"
    FILES: ClassVar[Mapping[str, str]] = {"given": "given-{:08d}", "fit": "fit-{:08d}"}

    _begun = False  # by this process

    @classmethod
    def enter(
        cls,
        path: Path,
        model: Any,
        given: Mapping[str, Any],
        device: str,
        settings: Mapping[str, Any] | None,
        new: bool = False,
    ) -> "CalibrationFolder":
        """The folder of a new calibration, or that of the same one, which goes on; this process holds it.

        Args:
            path: the folder.
            model: what is fitted.
            given: arguments that fix the numbers, by name.
            device: kind of device.
            settings: kept in the manifest.
            new: whether the folder must be a new one.

        Raises:
            InputError: the calibration in the folder was begun with something else; says what.
            StorageError: the folder holds something else, another process works on it, or it cannot be written.
        """
        tensors: _stored.Tensors = {}
        facts = {
            "model": model_facts(model),
            "asked": {name: _stored.encode(value, tensors) for name, value in given.items()},
            "device": device,
            "settings": dict(settings) if settings is not None else None,
        }
        if new or kind_of(path) != cls.KIND:
            check_free(path)
            folder = cls.begin(path, facts)
            folder._begun = True
            try:
                folder.save(0, {"given": tensors})
            except BaseException:
                folder.release()
                raise
            return folder
        folder = cls.open(path)
        folder.hold()
        try:
            folder._same(facts)
        except BaseException:
            folder.release()
            raise
        return folder

    def _same(self, facts: Mapping[str, Any]) -> None:
        """Refuse what the calibration was not begun with; warn of what may change its numbers."""
        held = self.manifest
        found = model_differences(held["model"], facts["model"])
        given, saved = facts["asked"], held["asked"]
        for name in given:
            found += _stored.differences(saved.get(name), given[name], name)
        if found:
            raise InputError(
                f"{self.CALLER}: {self.path} holds a calibration that was begun with something else: "
                f"{'; '.join(found)}; choose another folder for out="
            )
        changed = [
            f"{name} {now} (was {held['versions'].get(name)})"
            for name, now in versions().items()
            if held["versions"].get(name) != now
        ]
        if held["device"] != facts["device"]:
            changed.append(f"device {facts['device']} (was {held['device']})")
        if changed:
            warnings.warn(
                f"{self.CALLER}: {self.path} was begun with other versions: {', '.join(changed)}; numbers may differ "
                f"from those of a calibration that was never stopped",
                stacklevel=4,
            )

    @contextlib.contextmanager
    def working(self) -> Generator["_ledger.Ledger"]:
        """Around a search, which gives its launches to the ledger; says how to go on where something ends it."""
        with self.session():
            with self._explained():
                ledger = _ledger.Ledger(self.path / LEDGER, self._explain)
            self._open = ledger
            self.log("works on it")
            try:
                if self.manifest["status"] != "finished":
                    self.note(status="running")
                yield ledger
            except KeyboardInterrupt as stop:
                self._ended("interrupted", ledger)
                stop.add_note(f"{self.path}: {ledger.launches} {self.COUNT} are safe; {LATER}")
                raise
            except BaseException as error:
                if self._begun and not ledger.launches and not isinstance(error, StorageError):
                    self._discard()  # what was refused leaves nothing behind
                else:
                    self._ended("failed", ledger)
                raise
            finally:
                ledger.close()

    def _discard(self) -> None:
        with contextlib.suppress(OSError):
            for made in (LEDGER, NAME, "log.txt"):
                (self.path / made).unlink(missing_ok=True)
            shutil.rmtree(self.path / "checkpoints", ignore_errors=True)

    def _ended(self, status: str, ledger: "_ledger.Ledger") -> None:
        with contextlib.suppress(OSError):  # a full disk; the launches are what counts
            self._commit(status=status, **{self.COUNT: ledger.launches})
        self.log(f"{status} after {ledger.launches} {self.COUNT}")

    def keep(self, found: Any, launches: int, report: str) -> None:
        """Save what was found.

        Args:
            found: a dataclass, such as `Found`.
            launches: that it took.
            report: the same as text, for who reads the folder without its model.
        """
        tensors: _stored.Tensors = {}
        told = {f.name: _stored.encode(getattr(found, f.name), tensors) for f in dataclasses.fields(found)}
        self.save(launches, {"fit": tensors}, found=told, report=report, status="finished")
        self.log(f"finished after {launches} {self.COUNT}")

    def found(self) -> dict[str, Any] | None:
        """Fields of what was kept; None where there is nothing yet."""
        told = self.manifest.get("found")
        if told is None:
            return None
        if not isinstance(told, dict):
            raise DataError(f"{self.path / NAME}: found is {str(told)[:60]}, expected entries by name")
        tensors = self.load("fit")
        return {name: _stored.decode(one, tensors, f"{self.path / NAME}: {name}") for name, one in told.items()}

    def model(self, model: Any) -> Any:
        """A model that is given again, compared with that of the folder; for None its parameters alone."""
        held = self.manifest["model"]
        if model is None:
            return Absent(held)
        changed = model_differences(held, model_facts(model))
        if changed:
            raise InputError(f"{self.path} holds a fit of another model: {'; '.join(changed)}")
        return model

    def given(self, again: Mapping[str, Any], *, simulates: bool, searches: bool) -> dict[str, Any]:
        """What the calibration was given, by name.

        Args:
            again: those that are given again, which must be what they were.
            simulates: whether what only simulations need has to be there.
            searches: whether the method has to be there.

        Raises:
            InputError: one that no folder keeps, and that is not given again; or another one.
        """
        held = self.manifest["asked"]
        if not isinstance(held, dict):
            raise DataError(f"{self.path}: asked is {str(held)[:60]}, expected arguments by name")
        tensors = self.load("given")
        found: dict[str, Any] = {}
        for name, told in held.items():
            if name in again:
                other = _stored.differences(told, _stored.encode(again[name], {}), name)
                if other:
                    raise InputError(f"{self.path} holds a fit that was made with something else: {'; '.join(other)}")
                found[name] = again[name]
            elif name == "interventions" and not simulates:
                found[name] = ()
            elif name == "method" and not searches:
                continue
            else:
                found[name] = _stored.decode(told, tensors, name)
        return found

    @property
    def status(self) -> str:
        """As the manifest says it, or ``"killed"``."""
        return status_now(self.path, self.manifest["status"])

    @property
    def launches(self) -> int:
        """Launches that are safe by now."""
        return max(self.manifest[self.COUNT], _ledger.count(self.path / LEDGER))

    def _explain(self, error: OSError) -> str:
        ledger = self.__dict__.get("_open")
        safe = self.manifest[self.COUNT] if ledger is None else ledger.launches
        return f"run folder {self.path}: {error.strerror or error}; safe are {safe} {self.COUNT}, {LATER}"


class SbcFolder(CalibrationFolder):
    """The folder of `dz.fit.sbc`: its entries are whole fits, and whatever is done once for all of them."""

    KIND, FORMAT, COUNT = "sbc", "denizen sbc 1", "entries"
    CALLER: ClassVar[str] = "sbc"


def model_facts(model: Any) -> dict[str, Any]:
    """What a model is, for comparing and for reading its parameters without it."""
    if not isinstance(model, Model):
        return {"function": describe(model)}
    params = {}
    for name, spec in model.params.items():
        value = getattr(model, name).detach().cpu()
        if value.numel() <= MOST:
            told = {"value": value.double().reshape(-1).tolist(), "shape": list(value.shape)}
            params[name] = {"low": spec.low, "high": spec.high, "learnable": spec.learnable, **told}
    return {**fingerprint(model), "params": params}


def model_differences(saved: Mapping[str, Any], given: Mapping[str, Any]) -> list[str]:
    """What differs between two models' facts, in words."""
    if "function" in saved or "function" in given:
        before, now = saved.get("function", saved.get("class")), given.get("function", given.get("class"))
        return [] if before == now else [f"the model is {now} here and was {before}"]
    return differences(saved, given)
