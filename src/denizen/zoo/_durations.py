"""Durations in phases, shared by SIR and SEIR."""

from torch import Tensor

from denizen.errors import InputError


def check_duration(stage: str, days: Tensor, phases: int, dt: float) -> None:
    """Raise `InputError` where `phases` phases of a stage, each at least a step long, outlast `days`."""
    shortest = phases * dt
    if bool((days.detach() < shortest * (1 - 1e-6)).any()):
        count = "1 phase" if phases == 1 else f"{phases} phases"
        raise InputError(
            f"{stage}_days={float(days.min()):g} is shorter than {count} of a step each ({shortest:g} days); raise it, "
            f"or lower dt{' or ' + stage + '_phases' if phases > 1 else ''}"
        )
