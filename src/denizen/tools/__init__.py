"""Helpers for any PyTorch training loop: data, precision, metrics, timers. Each works without the others.

No trainer, no base class, no callbacks: a helper is a function or a small object that your loop calls.
"""

from denizen.perf.state import Snapshot as Snapshot
from denizen.perf.state import TrainingState as TrainingState
from denizen.perf.watch import Timing as Timing
from denizen.tools._accumulate import Accumulate as Accumulate
from denizen.tools._accumulate import windows as windows
from denizen.tools._amp import Amp as Amp
from denizen.tools._batch_size import BatchSizes as BatchSizes
from denizen.tools._batch_size import SizeTrial as SizeTrial
from denizen.tools._batch_size import find_batch_size as find_batch_size
from denizen.tools._checkpoint import Checkpointing as Checkpointing
from denizen.tools._checkpoint import MemoryFit as MemoryFit
from denizen.tools._checkpoint import checkpoint_blocks as checkpoint_blocks
from denizen.tools._checkpoint import fit_memory as fit_memory
from denizen.tools._checkpoint_measure import BlockCost as BlockCost
from denizen.tools._defaults import FastDefaults as FastDefaults
from denizen.tools._defaults import set_fast_defaults as set_fast_defaults
from denizen.tools._loader import PrefetchLoader as PrefetchLoader
from denizen.tools._mapped import MappedDataset as MappedDataset
from denizen.tools._mapped import WindowSampler as WindowSampler
from denizen.tools._memory import Held as Held
from denizen.tools._memory import MemoryReport as MemoryReport
from denizen.tools._memory import memory_report as memory_report
from denizen.tools._metrics import MetricsWriter as MetricsWriter
from denizen.tools._sinks import JsonLines as JsonLines
from denizen.tools._sinks import Parquet as Parquet
from denizen.tools._sinks import Sink as Sink
from denizen.tools._sinks import TensorBoard as TensorBoard
from denizen.tools._sinks import WeightsAndBiases as WeightsAndBiases
from denizen.tools._timers import Timers as Timers
from denizen.tools._tune import Trial as Trial
from denizen.tools._tune import TunedLoader as TunedLoader
from denizen.tools._tune import tune_workers as tune_workers
from denizen.tools._waiting import Waiting as Waiting
from denizen.tools._warm_up import warm_up as warm_up
