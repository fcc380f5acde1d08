"""What the log of events of the SIR model finds out: who infected whom."""

from torch import Tensor

from denizen.rng import Rng

from .model import SIR, People


def infections(model: SIR, before: People, happened: Tensor, rng: Rng) -> dict[str, object]:
    """Columns ``by`` and ``layer`` of infections: one of the infected contacts each, by its share of the hazard."""
    infected = before.stage.is_(*model.phases)
    return {"by": model.contacts.attribute(rng, "by", happened, infected, step=before.time.step)}
