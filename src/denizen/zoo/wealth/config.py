"""How many people exchange money, and how much there is."""

from typing import TYPE_CHECKING

if TYPE_CHECKING:
    from .model import Wealth


def wealth(*, num_agents: int = 1_000, mean_wealth: int = 10) -> "Wealth":
    """People who begin with equal purses and pass coins on.

    Args:
        num_agents: number of people.
        mean_wealth: coins of each at the start, and on average for ever: the temperature.

    Raises:
        InputError: for a number that does not fit.
    """
    from .model import Wealth

    return Wealth(num_agents=num_agents, mean_wealth=mean_wealth)
