"""Careful readers of foreign files and arrays: no size is believed, nothing is unpickled, every fault names its place.

`denizen.space` reads contacts by them, `denizen.population` its tables and networks.
"""

from denizen.space.files._columns import MAX_AGENTS as MAX_AGENTS
from denizen.space.files._columns import Columns as Columns
from denizen.space.files._columns import check_range as check_range
from denizen.space.files._columns import read_weights as read_weights
from denizen.space.files._columns import whole_numbers as whole_numbers
from denizen.space.files._csv import Text as Text
from denizen.space.files._csv import columns as columns
from denizen.space.files._csv import decimal_commas as decimal_commas
from denizen.space.files._csv import is_missing as is_missing
from denizen.space.files._csv import is_number as is_number
from denizen.space.files._csv import open_text as open_text
from denizen.space.files._csv import texts as texts
from denizen.space.files._lines import finite as finite
from denizen.space.files._lines import lines as lines
from denizen.space.files._lines import table as table
from denizen.space.files._npz import npz_names as npz_names
from denizen.space.files._npz import read_npz as read_npz
from denizen.space.files._reading import check_size as check_size
from denizen.space.files._reading import content as content
from denizen.space.files._reading import reading as reading
from denizen.space.files._reading import utf8 as utf8
