"""What a step recorded as having happened: tensors by name, for the series of the same step."""

from collections.abc import Iterator

from torch import Tensor

from denizen.errors import ModelError, nearest


class Events:
    """What `Rng.record` has noted in this step, by name; read-only.

    Names in a scope begin with it, those of an intervention with its name: ``events["campaign/doses"]``.
    """

    def __init__(self, recorded: dict[str, Tensor], scope: str = "") -> None:
        """Args:
        recorded: everything noted in the step so far, by full name; the view follows it.
        scope: what the names that are seen begin with, such as ``"day/3/"``, and are given without.
        """
        self._recorded, self._scope = recorded, scope

    def __getitem__(self, name: str) -> Tensor:
        """The tensor that was recorded under a name.

        Raises:
            ModelError: nothing was recorded under it in this step; names what was.
        """
        full = self._scope + name
        if full not in self._recorded:
            known = list(self)
            told = nearest(name, known) if known else "the step recorded none; write rng.record(name, mask) in it"
            raise ModelError(f"events[{name!r}]: nothing was recorded under this name in the step; {told}")
        return self._recorded[full]

    def __iter__(self) -> Iterator[str]:
        scope = self._scope
        return iter([name[len(scope) :] for name in self._recorded if name.startswith(scope)])

    def __contains__(self, name: object) -> bool:
        return name in list(self)

    def __repr__(self) -> str:
        return f"Events({', '.join(self)})"
