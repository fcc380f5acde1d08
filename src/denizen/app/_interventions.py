"""Interventions that words of the command line say: factors of parameters and of layers, for some of the time."""

from collections.abc import Mapping
from typing import Any

from denizen._units import in_days
from denizen.app._settings import number, whole
from denizen.errors import ConfigError, InputError
from denizen.model import During, Scale

FORM = "FACTOR, or FACTOR@FROM, or FACTOR@FROM:UNTIL, several with commas between"


def scales(given: Mapping[str, str], time_unit: str = "day") -> list[Scale]:
    """What ``--scale infect_rate=0.5@20:40 contacts.school=0@2020-03-15`` says.

    FROM and UNTIL are days or dates; of a model whose unit of time is none of the calendar's, steps.

    Args:
        given: by name of a parameter, or of a layer as ``contacts.school``.
        time_unit: of the model.

    Raises:
        ConfigError: something of another form; names the flag.
    """
    made = []
    for target, text in given.items():
        for k, part in enumerate(text.split(","), start=1):
            told = f"--scale {target}={part.strip()}"
            factor, at, span = (word.strip() for word in part.partition("@"))
            try:
                when = _when(span.split(":"), in_days(time_unit) is None) if at else During(0)
                name = f"scale {target}" if k == 1 else f"scale {target} {k}"
                made.append(Scale(target=target, factor=number(factor), when=when, name=name))
            except InputError as error:
                raise ConfigError(f"{told}: {error}; the form is {FORM}") from error
            except ValueError as error:
                raise ConfigError(f"{told}: expected {FORM}; {error}") from error
    return made


def _when(ends: list[str], steps: bool) -> During:
    if steps:
        return During(*map(whole, ends)) if len(ends) <= 2 else During(days=ends)
    times: list[Any] = []
    for end in map(str.strip, ends):
        try:
            times.append(number(end))  # 1e-1 is one, though there is a dash in it
        except ValueError:
            if "-" not in end:
                raise
            times.append(end)
    dated = any(isinstance(time, str) for time in times)
    return During(dates=tuple(times)) if dated else During(days=tuple(times))
