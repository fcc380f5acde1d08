"""What the log of events of the SEIR model finds out: who infected whom."""

from torch import Tensor

from denizen.rng import Rng

from .model import SEIR, People


def infections(model: SEIR, before: People, happened: Tensor, rng: Rng) -> dict[str, object]:
    """Columns ``by`` and ``layer`` of infections: one of the infectious contacts each, by its share of the hazard."""
    infectious = before.stage.is_(*model.sick)
    return {"by": model.contacts.attribute(rng, "by", happened, infectious, step=before.time.step)}
