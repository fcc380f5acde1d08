"""COVID; see README.md."""

from denizen.zoo import ModelEntry

from .config import AGE_GROUPS as AGE_GROUPS
from .config import Course as Course
from .config import covid as covid
from .config import gamma_kernel as gamma_kernel
from .model import STAGES as STAGES
from .model import Covid as Covid
from .model import People as People
from .vaccine import CovidWithVaccine as CovidWithVaccine


def notes(model: Covid, steps: int) -> list[str]:
    """What a reader of the results should know about the parameters."""
    found = []
    weeks = model.R.numel()
    if steps > 7 * weeks:
        given = "1 week" if weeks == 1 else f"{weeks} weeks"
        found.append(f"R is given for {given}; from week {weeks + 1} on the last value holds, {model.R[-1].item():g}")
    if not model.sample_deaths:
        found.append(
            "daily_deaths are expected ones, so nobody enters the stage dead; --set sample_deaths=true draws them"
        )
    return found


ENTRY = ModelEntry(
    about="COVID: exposure history, weekly R, isolation, deaths",
    model=Covid,
    build=covid,
    steps=120,
    population="synthetic:astoria",
    notes=notes,
)
