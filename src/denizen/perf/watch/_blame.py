"""Errors of the user's code, told with the user's line; what of torch's cannot be examined, told by its name."""

import contextlib
import re
import traceback
from collections.abc import Callable, Generator

from denizen.errors import DenizenError
from denizen.perf.watch._operations import SIMULATED
from denizen.perf.watch._places import USER, Place, role, shown

_NO_KERNEL = re.compile(rf"Could not run '([^']+)' with arguments from the '(\w*){SIMULATED}'", re.IGNORECASE)
# By what torch says, and the files that it passed through: what the simulated device or a dispatch mode cannot carry.
_LIMITS: tuple[tuple[str, Callable[[str, str], bool]], ...] = (
    ("nested tensors", lambda said, files: f"NestedTensor{SIMULATED}" in said or "_constant_symnode.py" in files),
    ("nested tensors", lambda said, _: "NestedTensorImpl doesn't support" in said),
    ("FlexAttention", lambda said, _: said.startswith("FlexAttention is only") and SIMULATED in said),
    ("subclasses of tensors (as_subclass)", lambda said, _: said.startswith("Creating a new Tensor subclass")),
    ("DLPack", lambda said, _: "Dlpack" in said and SIMULATED in said),
    ("the address of a tensor's memory", lambda said, _: "data pointer on an invalid python storage" in said),
    ("`x.data = y` across devices", lambda said, _: "variable.set_data" in said and "incompatible" in said),
    ("CUDA graphs", lambda said, _: "dummy base class CUDAGraph" in said),
)


RAISED = "raised by"  # begins the note of `users_code`


def could_not_look(what: str, error: BaseException | None = None) -> DenizenError:
    """The error for what cannot be examined, with the user's line where an error of torch's showed it."""
    place = place_of(error) if error is not None else None
    at = f" ({shown(place.file)}:{place.line} in {place.function})" if place is not None else ""
    return DenizenError(
        f"could not look: {what}{at} cannot be looked at by counting operations; profile it on a GPU (dz.perf.profile) "
        "or leave it out of what is looked at"
    )


def unseen(error: BaseException) -> str:
    """What an error of torch's shows to be beyond looking; "" for an error of another kind."""
    said = str(error)
    files = "\n".join(frame.filename for frame in traceback.extract_tb(error.__traceback__))
    known = next((name for name, tells in _LIMITS if tells(said, files)), "")
    missing = _NO_KERNEL.search(said)
    if not known and missing is not None:
        known = f"{missing[1]} on {missing[2] or 'dense'} tensors"
    return known


def place_of(error: BaseException) -> Place | None:
    """The user's innermost line that an error passed through; None where there is none."""
    for frame in reversed(traceback.extract_tb(error.__traceback__)):
        if role(frame.filename) == USER and frame.lineno:
            return Place(frame.filename, frame.lineno, frame.name)
    return None


@contextlib.contextmanager
def users_code(what: str) -> Generator[None]:
    """Around calls of the user's code: its errors stay what they are, with a note that names the line.

    Args:
        what: was called, such as ``"the step of bench"``.

    Raises:
        DenizenError: torch shows that it cannot be examined.
    """
    try:
        yield
    except DenizenError:
        raise
    except Exception as error:
        name, place = unseen(error), place_of(error)
        if name:
            raise could_not_look(name, error) from error
        if place is not None and not getattr(error, "__notes__", None):
            error.add_note(f"{RAISED} {what} at {shown(place.file)}:{place.line} in {place.function}: {place.code}")
        raise
