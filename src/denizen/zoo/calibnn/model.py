"""A recurrent network from weekly covariates of a place to parameters of its model."""

from torch import Tensor, nn

from denizen.errors import InputError

from .config import CalibNNConfig


class CalibNN(nn.Module):
    """Reads the weeks forwards and backwards, and gives free numbers by name, as `dz.fit.train_network` takes them.

    A gated recurrent unit (Cho et al. 2014) runs over the weeks in both directions. A head gives each week's numbers
    from the week's summary; another one gives the constants from the mean of the summaries, weighed by an attention
    over weeks. The heads begin near 0, so the search begins with the models' own values.
    """

    def __init__(self, config: CalibNNConfig) -> None:
        """Args: config: sizes and names."""
        super().__init__()
        self.config = config
        width = 2 * config.hidden
        self.weeks = nn.GRU(config.features, config.hidden, bidirectional=True)
        self.dropout = nn.Dropout(config.dropout)
        self.weekly = self._head(width, len(config.weekly)) if config.weekly else None
        self.constant = self._head(width, len(config.constant)) if config.constant else None
        self.attention = nn.Linear(width, 1, bias=False) if config.constant else None

    def _head(self, width: int, numbers: int) -> nn.Sequential:
        last = nn.Linear(self.config.hidden, numbers)
        nn.init.zeros_(last.bias)
        nn.init.normal_(last.weight, std=1e-3)  # at 0 no slope would reach the layers before
        return nn.Sequential(nn.Linear(width, self.config.hidden), nn.Tanh(), last)

    def forward(self, covariates: Tensor) -> dict[str, Tensor]:
        """Free numbers by name: `[weeks]` of weekly parameters, 0-d of constants.

        Args:
            covariates: `[weeks, features]`, best of mean 0 and standard deviation 1 over all places.
        """
        if covariates.dim() != 2 or covariates.shape[1] != self.config.features:
            raise InputError(
                f"CalibNN: covariates have shape {tuple(covariates.shape)}, expected [weeks, {self.config.features}]"
            )
        seen = self.dropout(self.weeks(covariates)[0])
        found: dict[str, Tensor] = {}
        if self.weekly is not None:
            found |= dict(zip(self.config.weekly, self.weekly(seen).unbind(1), strict=True))
        if self.constant is not None and self.attention is not None:
            weights = self.attention(seen).softmax(dim=0)
            found |= dict(zip(self.config.constant, self.constant((weights * seen).sum(0)).unbind(), strict=True))
        return found
