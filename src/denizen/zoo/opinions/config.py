"""How many agents there are, and what theory says of their opinions."""

from typing import TYPE_CHECKING, Any

from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import Opinions


def opinions(*, num_agents: int = 1000, **params: Any) -> "Opinions":
    """Agents who all may meet.

    Args:
        num_agents: how many.
        **params: `confidence`, `move`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import Opinions

    check_params("opinions", Opinions, params)
    return Opinions(num_agents=num_agents, **params)


def main_clusters(confidence: float) -> int:
    """About how many large groups are left in the end (Deffuant et al., Adv. Complex Syst. 3, 87, 2000)."""
    return max(1, int(1 / (2 * confidence)))
