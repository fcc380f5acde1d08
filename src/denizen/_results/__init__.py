"""Results of runs, in memory or from a folder: series and events as tables, pictures and comparisons, and their words.

What simulations give, and sweeps, fits, reports and the command line show.
"""

from denizen._results.compare import Comparison as Comparison
from denizen._results.compare import Difference as Difference
from denizen._results.compare import Series as Series
from denizen._results.compare import common as common
from denizen._results.compare import compare_series as compare_series
from denizen._results.compare import in_common as in_common
from denizen._results.compare import series_of as series_of
from denizen._results.compare import student as student
from denizen._results.event_table import EventTable as EventTable
from denizen._results.event_table import Rows as Rows
from denizen._results.results import LINES as LINES
from denizen._results.results import QUANTILES as QUANTILES
from denizen._results.results import Fitting as Fitting
from denizen._results.results import Results as Results
from denizen._results.results import Shown as Shown
from denizen._results.results import banded as banded
from denizen._results.results import height_label as height_label
from denizen._results.results import number as number
from denizen._results.results import shown_series as shown_series
from denizen._results.results import time_label as time_label
from denizen._results.table import FORMATS as FORMATS
from denizen._results.table import WIDER as WIDER
from denizen._results.table import as_numbers as as_numbers
from denizen._results.table import check_names as check_names
from denizen._results.table import columns as columns
from denizen._results.table import dates as dates
from denizen._results.table import numbered as numbered
from denizen._results.table import write_netcdf as write_netcdf
from denizen._results.table import write_table as write_table
