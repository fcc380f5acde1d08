"""Functions of the user that a training calls on the host, where it looks up anyway: after saves and validations."""

import dataclasses
from collections.abc import Callable
from pathlib import Path
from typing import Any

from denizen.errors import InputError, expect_function
from denizen.rl import _processes as processes
from denizen.rl._evaluate import Evaluation

OnSave = Callable[[Path, int], object]
OnValidation = Callable[[Any, int], object]  # an evaluation; of worlds with roles a dict of them


@dataclasses.dataclass(frozen=True)
class Callbacks:
    """What to call; of several processes the first one does.

    Attributes:
        on_save: of (folder, updates done), after a save; None: nothing.
        on_validation: of (evaluation, updates done), after a validation; None: nothing.
    """

    on_save: OnSave | None = None
    on_validation: OnValidation | None = None

    def check(self, what: str, folder: object, validate_every: int | None) -> None:
        """Raise `InputError` where one cannot be called so, or never would be.

        Args:
            what: who asks, for messages.
            folder: of the training; None where none is kept.
            validate_every: updates between validations; None where there are none.
        """
        if self.on_save is not None:
            expect_function(f"{what}: on_save", self.on_save, "folder", "updates")
            if folder is None:
                raise InputError(f"{what}: on_save= without folder=; nothing would be saved, so pass folder= with it")
        if self.on_validation is not None:
            expect_function(f"{what}: on_validation", self.on_validation, "evaluation", "updates")
            if validate_every is None:
                raise InputError(f"{what}: on_validation= without validate_every=; say every how many updates")

    def saved(self, folder: Path, updates: int) -> None:
        """A save is on disk."""
        if self.on_save is not None and processes.rank() == 0:
            self.on_save(folder, updates)

    def validated(self, evaluation: Evaluation | dict[str, Evaluation], updates: int) -> None:
        """A validation has been taken note of."""
        if self.on_validation is not None and processes.rank() == 0:
            self.on_validation(evaluation, updates)
