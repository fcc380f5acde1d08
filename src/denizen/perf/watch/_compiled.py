"""How many graphs torch has compiled."""

import sys


def graphs_compiled() -> int:
    """Graphs that torch._dynamo compiled in this process; 0 without importing it where nothing has yet.

    A read costs a look into two dictionaries, so that a run can take the difference around every chunk of steps.
    """
    dynamo = sys.modules.get("torch._dynamo.utils")
    return 0 if dynamo is None else dynamo.counters["stats"]["unique_graphs"]
