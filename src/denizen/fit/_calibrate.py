"""`calibrate`: checks the arguments, searches, and hands the fit over."""

from collections.abc import Iterator, Mapping, Sequence
from contextlib import contextmanager
from pathlib import Path
from typing import Any

import torch

from denizen._arguments import folder as folder_path
from denizen._arguments import json_values, switch
from denizen._printing import progress as progress_bar
from denizen.errors import InputError
from denizen.fit._diagnostics import diagnose
from denizen.fit._experiment import Simulator
from denizen.fit._fit import Fit, Found, of_search
from denizen.fit._folder import CalibrationFolder
from denizen.fit._gauss_newton import GaussNewton
from denizen.fit._method import Iteration, Method, Tell
from denizen.fit._setup import Setup, set_up
from denizen.model import Intervention, Model
from denizen.run import choose_device


def calibrate(
    model: Model | Simulator,
    targets: Mapping[str, Any],
    *,
    priors: Mapping[str, Any] | Sequence[str] | None = None,
    method: Method | None = None,
    steps: int | None = None,
    replicates: int = 16,
    holdout: int = 0,
    start: Any = None,
    seed: int = 0,
    interventions: Sequence[Intervention] = (),
    device: torch.device | str | None = None,
    out: Path | str | None = None,
    settings: Mapping[str, Any] | None = None,
    progress: bool = True,
) -> Fit:
    """Fit parameters of a model to observed series, with intervals that a model's own randomness is part of.

    Args:
        model: its present values are where the search begins. Or a function of (theta `[B, P]`, numbers of B worlds)
            that gives series `[B, steps]`, by name or one for all; alike numbers must give alike random draws.
        targets: what was observed, by name of the series: an array with one value a step, or a `dz.fit.Target`.
        priors: names of the parameters to fit, or distributions of torch (None: flat) by name. None fits all that the
            model declares learnable. Numbers of a target may be named, too, such as ``"cases.report"``, and what stands
            for a distribution may be `dz.fit.Shared`, `PerGroup`, `Walk` or `Steps`. A parameter without a prior is
            flat between its bounds in transformed units: the logarithm for one bound, the logit for two. A function
            needs a distribution for each parameter.
        method: how to search; None: `dz.fit.GaussNewton()`.
        steps: simulated in each run; None: until the last window of the targets ends.
        replicates: worlds of the last iterations.
        start: date of the first step, for targets and interventions with dates; None: the first day of the earliest
            window of a target.
        holdout: last values of each target that are kept back, for `Fit.score`.
        seed: of the simulated worlds. Fits of other seeds differ by the noise of their worlds.
        interventions: as for `dz.simulate`.
        device: as for `dz.simulate`.
        out: folder to write the calibration to while it goes on. The same call goes on where it was stopped, bit for
            bit on the same kind of device, and of a calibration that has ended it gives the fit at once.
        settings: kept in the folder's manifest, for programs that build models from settings; JSON values only.
        progress: show what is going on.

    Returns:
        A `Fit`: ``fit.model`` is the fitted model, ``print(fit)`` the estimates.

    Raises:
        InputError: for an argument that does not fit, or where nothing depends on a parameter. Or the calibration in
            the folder was begun with another one; says what differs.
        StorageError: the folder could not be written, or holds something else; says what is safe.
    """
    switch("calibrate", "progress", progress)
    if out is not None:
        json_values("calibrate", "settings", settings or {})
    elif settings is not None:
        raise InputError("calibrate: settings= is kept in the folder of the calibration; pass out= with it")
    method = GaussNewton() if method is None else method
    setup = set_up(
        "calibrate",
        model,
        targets,
        priors=priors,
        method=method,
        steps=steps,
        replicates=replicates,
        holdout=holdout,
        start=start,
        seed=seed,
        interventions=interventions,
        device=device,
    )
    if out is None:
        return _searched(setup, method, progress)
    kind = choose_device(device, "calibrate")[0].type if isinstance(model, Model) else "cpu"
    folder = CalibrationFolder.enter(folder_path("calibrate", "out", out), model, setup.given, kind, settings)
    with folder.working() as ledger:
        found = folder.found()
        if found is not None:
            return of_search(setup, Found(**found))
        setup.experiment.ledger = ledger
        fit = _searched(setup, method, progress)
        setup.experiment.ledger = None
        folder.keep(fit._found(), ledger.launches, str(fit))
        return fit


def _searched(setup: Setup, method: Method, progress: bool) -> Fit:
    with _told(progress) as tell:
        solution = method.solve(setup.experiment, setup.replicates, tell)
    diagnostics = diagnose(setup.experiment, solution, setup.replicates)
    return of_search(setup, Found(solution, setup.experiment.runs, diagnostics))


@contextmanager
def _told(show: bool) -> Iterator[Tell]:
    if not show:
        yield lambda iteration: None
        return
    bar = progress_bar(endless=True)
    task = bar.add_task("calibrate", total=None, rate="")
    bar.live.transient = True  # what is refused before the first iteration is told alone

    def tell(iteration: Iteration) -> None:
        bar.live.transient = False
        bar.update(
            task,
            description=f"calibrate: iteration {iteration.number + 1}, {iteration.shown}",
            rate=f"{iteration.runs:,} runs",
        )

    bar.start()
    try:
        yield tell
    finally:
        (bar.live if bar.live.transient else bar).stop()  # the bar's own ends with a line
