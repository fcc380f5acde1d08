"""What `denizen show` does with the folder of `dz.fit.sbc`."""

from typing import TYPE_CHECKING

from denizen.app._calibrate import show_folder

if TYPE_CHECKING:
    from denizen._printing import Console
    from denizen.app._cli import Show


def show(command: "Show", console: "Console") -> None:
    """How it stands, and the ranks where it has come to its end; the call that began it goes on."""
    from denizen.fit import SbcFolder

    show_folder(SbcFolder.open(command.run), console)
