"""The whole state of a training loop, kept and put back in place, and what a step uses of it."""

from denizen.perf.state._training_state import Keeper as Keeper
from denizen.perf.state._training_state import Snapshot as Snapshot
from denizen.perf.state._training_state import TrainingState as TrainingState
from denizen.perf.state._training_state import used as used
