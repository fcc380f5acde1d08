"""Running models: simulate, runs, snapshots, run folders."""

from denizen._device import choose_device as choose_device
from denizen._results import Comparison as Comparison
from denizen._results import Difference as Difference
from denizen._results import EventTable as EventTable
from denizen._run_folder import StateFolder as StateFolder
from denizen.run._cuda_graph import CapturedFunction as CapturedFunction
from denizen.run._cuda_graph import NotCapturedError as NotCapturedError
from denizen.run._event_log import EventLog as EventLog
from denizen.run._gradient import Gradient as Gradient
from denizen.run._manifest import Manifest as Manifest
from denizen.run._manifest import read_manifest as read_manifest
from denizen.run._precision import Precision as Precision
from denizen.run._precision import check_precision as check_precision
from denizen.run._resume import resume as resume
from denizen.run._run import Run as Run
from denizen.run._saved import SavedRun as SavedRun
from denizen.run._saved import load as load
from denizen.run._simulate import simulate as simulate
from denizen.run._snapshots import Snapshots as Snapshots
from denizen.run._snapshots import SnapshotView as SnapshotView
from denizen.run._torch_switches import TorchSwitches as TorchSwitches
