"""Populations: agents as columns, contacts as edge lists, read from folders, tables and column stores, or made up.

`load` reads, `synthetic` makes a stand-in of Astoria, `Population` is what both return. Nothing here runs foreign
code: pickled columns go through a reader that imports nothing.
"""

from denizen.population._checks import EdgeFacts as EdgeFacts
from denizen.population._checks import edge_facts as edge_facts
from denizen.population._data_frames import from_frames as from_frames
from denizen.population._load import load as load
from denizen.population._population import Population as Population
from denizen.population._synthetic import synthetic as synthetic
