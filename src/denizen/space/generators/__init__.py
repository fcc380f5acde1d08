"""Contact networks from a seed: random, regular and household-shaped graphs as edge arrays.

Numpy only, no Python loop over agents or edges, memory linear in the edges. The same seed gives the same edges under
one numpy version (numpy does not promise its streams across versions). Every graph is simple: no self-loop, no contact
twice.
"""

from denizen.space.generators._growth import barabasi_albert as barabasi_albert
from denizen.space.generators._growth import configuration_model as configuration_model
from denizen.space.generators._lattice import grid as grid
from denizen.space.generators._lattice import watts_strogatz as watts_strogatz
from denizen.space.generators._places import households_and_workplaces as households_and_workplaces
from denizen.space.generators._random import erdos_renyi as erdos_renyi
from denizen.space.generators._random import random_in_neighbours as random_in_neighbours
