"""Sweeps: a model under many sets of parameters, all in the same worlds, in one folder."""

from denizen.sweeps._builder import Builder as Builder
from denizen.sweeps._designs import Design as Design
from denizen.sweeps._designs import Grid as Grid
from denizen.sweeps._designs import Latin as Latin
from denizen.sweeps._designs import Listed as Listed
from denizen.sweeps._designs import Random as Random
from denizen.sweeps._designs import Saltelli as Saltelli
from denizen.sweeps._designs import Sobol as Sobol
from denizen.sweeps._executors import Ray as Ray
from denizen.sweeps._folder import SweepFolder as SweepFolder
from denizen.sweeps._indices import Indices as Indices
from denizen.sweeps._results import Sweep as Sweep
from denizen.sweeps._results import load as load
from denizen.sweeps._sweep import sweep as sweep
