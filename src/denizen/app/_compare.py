"""`denizen compare`: simulations, trainings, or scenarios of calibrations beside each other."""

import dataclasses
from pathlib import Path
from typing import TYPE_CHECKING, Annotated, Any, ClassVar, Literal

from tyro.conf import Positional, arg

from denizen.app._exit import DONE
from denizen.app._report import tell
from denizen.app._train import Pairs
from denizen.errors import ConfigError, nearest

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.fit import Fit, Scenario


@dataclasses.dataclass(frozen=True)
class Compare:
    """`denizen compare`."""

    about: ClassVar[str] = """Compare simulations, trainings, or scenarios of a calibration.

examples:
  denizen compare runs/covid-20261128-120000 runs/covid-20261128-120500    the second minus the first
  denizen compare runs/cartpole-ppo-20261128-120000 runs/cartpole-ppo-20261128-130000    learning curves
  denizen compare runs/covid-fit-20261128-120000 --b R=0.8                     the fit, and with another value
  denizen compare runs/sir-fit-20261128-120000 --a infect_rate=0.05 --b infect_rate=0.03 --steps 60
  denizen compare runs/sir-fit-20261128-120000 runs/sir-fit-20261128-130000    two fits"""

    runs: Annotated[Positional[tuple[Path, ...]], arg(metavar="RUN [RUN ...]", help_behavior_hint="")]
    """Run folders: two or more of simulations or of trainings, or one or two of calibrations."""
    a: Pairs = ()
    """Parameters of the first scenario that differ from the fit."""
    b: Pairs = ()
    """Parameters of the second."""
    model: Annotated[str, arg(metavar="FILE.py:NAME", help_behavior_hint="")] = ""
    """The file that the model of a calibration came from. A file runs only where you name it."""
    draws: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: 64)")] = None
    """Pairs of worlds, of scenarios."""
    level: Annotated[float, arg(metavar="SHARE")] = 0.9
    """Level of the intervals, of simulations and scenarios."""
    steps: Annotated[int | None, arg(metavar="N", help_behavior_hint="(default: those of the calibration)")] = None
    """Steps of each run of a scenario."""
    device: Literal["auto", "cpu", "cuda"] = "auto"
    """Where to run scenarios."""
    out: Annotated[Path | None, arg(metavar="FILE", help_behavior_hint="(default: compare.html or .png)")] = None
    """Page of simulations, or picture of trainings, to write."""

    def __call__(self, console: "Console") -> int:
        """Print the tables; of trainings draw the picture."""
        from denizen.app import _evaluate
        from denizen.app._folders import expect

        kinds = {expect(run, "compare") for run in self.runs}
        if len(kinds) > 1:
            raise ConfigError(f"compare: the folders hold runs of kinds {' and '.join(sorted(kinds))}, expected one")
        if not 0 < self.level < 1:
            raise ConfigError(f"--level {self.level:g}: expected a share above 0 and below 1, such as 0.9")
        if kinds == {"calibration"}:
            self._scenarios(console)
            return DONE
        for name in ("a", "b", "model", "steps", "draws", "device"):
            if getattr(self, name) not in ((), "", None, "auto"):
                raise ConfigError(f"--{name} is for calibrations; name folders of such, or leave it out")
        if kinds == {"simulation"}:
            self._simulations(console)
        else:
            _evaluate.compare_trainings(self.runs, self.out or Path("compare.png"), console)
        return DONE

    def _simulations(self, console: "Console") -> None:
        from denizen.app._run import simulated
        from denizen.report import Page
        from denizen.report._comparison import comparisons
        from denizen.run import load

        if len(self.runs) < 2:
            raise ConfigError("compare: give two folders of simulations or more; the first is what others differ from")
        out = self.out or Path("compare.html")
        if out.suffix != ".html":
            raise ConfigError(f"--out {out}: expected a name that ends in .html, for the page of a comparison")
        runs = [simulated(folder, load(folder)) for folder in self.runs]
        first, *others = (run.results for run in runs)
        found = [
            first.compare(other, level=self.level, names=(str(self.runs[0]), str(folder)))
            for folder, other in zip(self.runs[1:], others, strict=True)
        ]
        for one in found:
            console.print(one)
        page = Page(" and ".join(dict.fromkeys(run.results.name for run in runs)), f"{len(runs)} runs compared")
        comparisons(page, runs, found)
        tell(page.write(out), console)

    def _scenarios(self, console: "Console") -> None:
        from denizen.app._settings import within
        from denizen.fit import compare

        draws = 64 if self.draws is None else self.draws
        within("--draws", draws, 2)
        within("--steps", self.steps, 1)
        if self.out is not None:
            raise ConfigError("--out is for simulations and trainings; leave it out")
        if len(self.runs) > 2 or (len(self.runs) == 1 and not (self.a or self.b)):
            raise ConfigError("compare: give one calibration with --a or --b NAME=VALUE, or two calibrations")
        fits = [self._read(run, console) for run in self.runs]
        with console.status("simulating both …"):
            found = compare(
                self._scenario(fits[0], self.a, "--a", self.runs[0]),
                self._scenario(fits[-1], self.b, "--b", self.runs[-1]),
                draws=draws,
                steps=self.steps,
                level=self.level,
            )
        console.print(found)

    def _read(self, run: Path, console: "Console") -> "Fit":
        from denizen.app._calibrate import model_again
        from denizen.fit import CalibrationFolder, Fit

        built = model_again(CalibrationFolder.open(run), self.model, "compare", console)
        return Fit.load(run, built, device=None if self.device == "auto" else self.device)

    def _scenario(self, fit: "Fit", groups: Any, flag: str, run: Path) -> "Scenario":
        from denizen.app._settings import pairs, setting_of
        from denizen.zoo import ModelEntry

        model = fit.model
        assert model is not None
        entry, params = ModelEntry(about="", model=type(model), build=type(model)), {}
        for name, text in pairs(groups, flag).items():
            told = f"{flag} {name}={text}"
            if name not in model.params:
                raise ConfigError(f"{told}: {run} has no such parameter; {nearest(name, model.params)}")
            params[name] = setting_of(entry, name, text, told)
            model.params[name].read(params[name], f"{flag} {name}")
        return fit.scenario(params, name="" if len(self.runs) == 1 or params else str(run))
