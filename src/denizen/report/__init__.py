"""Pages of results: one html file with charts, tables and pictures, which opens without a network.

`Page` collects parts and writes them. `Curve`, `Panel` and `Interval` are what its charts show.
"""

from denizen.report._charts import Curve as Curve
from denizen.report._charts import Interval as Interval
from denizen.report._charts import Panel as Panel
from denizen.report._page import Page as Page
