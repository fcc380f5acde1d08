"""Traffic after Nagel and Schreckenberg; see README.md."""

from denizen.zoo import ModelEntry

from .config import flow_of_slow_cars as flow_of_slow_cars
from .config import flow_without_dawdling as flow_without_dawdling
from .config import traffic as traffic
from .model import Road as Road
from .model import Traffic as Traffic

ENTRY = ModelEntry(about="Nagel and Schreckenberg's cars, and jams out of nothing", model=Traffic, build=traffic)
