"""Structures that agents live on: contact graphs, layers of them, their generators, and grids of cells."""

from denizen.space import generators as generators
from denizen.space._between import pairing as pairing
from denizen.space._between import partners as partners
from denizen.space._between import sum_by as sum_by
from denizen.space._edges import EdgeList as EdgeList
from denizen.space._graph import Graph as Graph
from denizen.space._grid import Grid as Grid
from denizen.space._layers import Layers as Layers
from denizen.space._mixing import Mixing as Mixing
from denizen.space._mixing import read_contact_matrix as read_contact_matrix
from denizen.space._origin import Origin as Origin
from denizen.space._places import Places as Places
from denizen.space._readers import from_arrays as from_arrays
from denizen.space._readers import from_networkx as from_networkx
from denizen.space._readers import from_scipy as from_scipy
from denizen.space._readers import read_edges as read_edges
from denizen.space._space import Near as Near
from denizen.space._space import Space as Space
from denizen.space._structure import Structure as Structure
from denizen.space._ties import Ties as Ties
from denizen.space._ties import random_contacts as random_contacts
