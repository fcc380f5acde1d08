"""A city to control, by default a small synthetic one."""

from typing import TYPE_CHECKING, Any

from denizen.errors import InputError, nearest
from denizen.population import Population, synthetic
from denizen.zoo.covid.config import covid

if TYPE_CHECKING:
    from .model import EpidemicControl

R = 4.75  # a week, of every week: the COVID model's default, without the published series' end


def control(
    population: Population | None = None, *, size: int = 2000, weeks: int = 16, **params: Any
) -> "EpidemicControl":
    """Epidemic control in a population.

    Args:
        population: as `denizen.zoo.covid.covid` takes it; None: a synthetic one like Astoria.
        size: of the synthetic population.
        weeks: of a life.
        **params: `closure_effect`, `closure_cost`, `campaign_cost`, `shots`.

    Raises:
        InputError: an unknown option, or a value that does not fit.
    """
    from .model import EpidemicControl

    for name in params:
        if name not in EpidemicControl.params:
            known = nearest(name, ("population", "size", "weeks", *EpidemicControl.params))
            raise InputError(f"control: unknown option {name!r}; {known}")
    people = population if population is not None else synthetic(size=size)
    model = covid(people, R=[R], symmetrize=True)
    if not bool((model.origin > 0).any()):
        raise InputError(f"control: nobody of {model.num_agents:,} is ill at the start; take a larger population")
    return EpidemicControl(model=model, weeks=weeks, **params)
