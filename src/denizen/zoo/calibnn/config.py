"""Sizes of the network, and the parameters that it gives."""

import dataclasses
from collections.abc import Sequence

from denizen.errors import InputError
from denizen.model import share, whole


@dataclasses.dataclass(frozen=True)
class CalibNNConfig:
    """What a `CalibNN` is made of.

    Attributes:
        features: covariates of a week.
        weekly: names of parameters with a value for each week of the covariates, such as ``"R"``.
        constant: names of parameters that are one number.
        hidden: width of the recurrent layer and of the heads.
        dropout: of the weeks' summaries, while it is trained.
    """

    features: int
    weekly: Sequence[str] = ()
    constant: Sequence[str] = ()
    hidden: int = 32
    dropout: float = 0.0

    def __post_init__(self) -> None:
        whole("CalibNN", "features", self.features, 1)
        whole("CalibNN", "hidden", self.hidden, 1)
        share("CalibNN", "dropout", self.dropout)
        for name, names in (("weekly", self.weekly), ("constant", self.constant)):
            if isinstance(names, str):
                raise InputError(f"CalibNN: {name}={names!r}, expected a list of names of parameters")
        if not [*self.weekly, *self.constant]:
            raise InputError("CalibNN: neither weekly nor constant names a parameter, so there is nothing to give")
