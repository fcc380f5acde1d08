"""Where the numbers of the wolf-sheep model come from, and how large its meadow is."""

from typing import TYPE_CHECKING, Any

from denizen.model import whole
from denizen.space import Grid
from denizen.zoo._contacts import check_params

if TYPE_CHECKING:
    from .model import WolfSheep

ROOM = 1  # of each kind, a cell; a run that needs more stops and says so


def wolf_sheep(
    *,
    side: int = 25,
    sheep: int = 60,
    wolves: int = 40,
    regrow_steps: int = 20,
    sheep_room: int | None = None,
    wolf_room: int | None = None,
    **params: Any,
) -> "WolfSheep":
    """Wolves, sheep and grass on a square meadow without borders.

    The defaults are those of the small case of JuliaDynamics/ABMFrameworksComparison. Its large one is
    ``wolf_sheep(side=100, sheep=1000, wolves=500, regrow_steps=10, sheep_birth=0.4, wolf_birth=0.2)``.

    Args:
        side: cells along each side.
        sheep: at the start.
        wolves: at the start.
        regrow_steps: until eaten grass has grown again.
        sheep_room: most sheep that there can be at once; default: 1 a cell, at least those at the start.
        wolf_room: most wolves; the same.
        **params: `sheep_birth`, `wolf_birth`, `sheep_gain`, `wolf_gain`.

    Raises:
        InputError: for an unknown parameter or a value that does not fit.
    """
    from .model import WolfSheep

    check_params("wolf_sheep", WolfSheep, params)
    side = whole("wolf_sheep", "side", side, 3)
    counts = {"sheep": whole("wolf_sheep", "sheep", sheep, 0), "wolves": whole("wolf_sheep", "wolves", wolves, 0)}
    room = {
        kind: max(ROOM * side * side, counts[kind])
        if given is None
        else whole("wolf_sheep", name, given, max(counts[kind], 1))
        for kind, name, given in (("sheep", "sheep_room", sheep_room), ("wolves", "wolf_room", wolf_room))
    }
    return WolfSheep(
        Grid((side, side)),
        num_sheep=counts["sheep"],
        num_wolves=counts["wolves"],
        sheep_room=room["sheep"],
        wolf_room=room["wolves"],
        regrow_steps=whole("wolf_sheep", "regrow_steps", regrow_steps, 1, 30_000),
        **params,
    )
