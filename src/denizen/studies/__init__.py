"""Experiments on worlds of the zoo, from training to report, and the statistics that they stand on."""

from denizen.studies._experiment import Plan as Plan
from denizen.studies._experiment import held as held
