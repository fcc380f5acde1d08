"""The few operations that simulations need: random words and masks, sums over neighbours, codes and tables, rows.

A file has the reference in plain torch, the op that is registered with torch for vmap, autograd and compilation, and
its form without memory. Fast variants with the same bits are beside it: `_cpu_*` with numba, `_cuda_*` with Triton.
What networks and their training need is in `denizen.nn.kernels`; `docs/guides/add-an-op.md` shows how to add one.
"""

from denizen.ops._appending import MOST_COLUMNS as MOST_COLUMNS
from denizen.ops._appending import TOGETHER as TOGETHER
from denizen.ops._appending import Happened as Happened
from denizen.ops._appending import Race as Race
from denizen.ops._appending import append_events as append_events
from denizen.ops._attribution import attribute as attribute
from denizen.ops._cell_moves import aside as aside
from denizen.ops._cell_moves import counted as counted
from denizen.ops._cell_moves import fill_cells as fill_cells
from denizen.ops._cell_moves import settle_cells as settle_cells
from denizen.ops._codes import add_histogram as add_histogram
from denizen.ops._codes import grow as grow
from denizen.ops._codes import histogram as histogram
from denizen.ops._codes import in_range as in_range
from denizen.ops._codes import lookup as lookup
from denizen.ops._codes import lookup_narrow as lookup_narrow
from denizen.ops._codes import pack as pack
from denizen.ops._couples import couples as couples
from denizen.ops._direction import SWITCH as SWITCH
from denizen.ops._direction import Traffic as Traffic
from denizen.ops._direction import direction as direction
from denizen.ops._draws import draw_among as draw_among
from denizen.ops._draws import draw_exponential as draw_exponential
from denizen.ops._draws import draw_mask as draw_mask
from denizen.ops._draws import draw_words as draw_words
from denizen.ops._forming import form as form
from denizen.ops._forming import form_ties as form_ties
from denizen.ops._inductor import fuse_draws as fuse_draws
from denizen.ops._inductor import start_compilers as start_compilers
from denizen.ops._inductor import stop_compilers as stop_compilers
from denizen.ops._library import Tracer as Tracer
from denizen.ops._library import fold_worlds as fold_worlds
from denizen.ops._library import gates_kept as gates_kept
from denizen.ops._library import keep_compiler_out as keep_compiler_out
from denizen.ops._library import once_for_all as once_for_all
from denizen.ops._library import reference_only as reference_only
from denizen.ops._library import register as register
from denizen.ops._library import register_mutating as register_mutating
from denizen.ops._library import reverse_only as reverse_only
from denizen.ops._library import traced as traced
from denizen.ops._library import unfold_worlds as unfold_worlds
from denizen.ops._library import variant as variant
from denizen.ops._library import vmap_rule as vmap_rule
from denizen.ops._moves import move_rows as move_rows
from denizen.ops._neighbours import FRACTION_BITS as FRACTION_BITS
from denizen.ops._neighbours import add_counts as add_counts
from denizen.ops._neighbours import add_fixed as add_fixed
from denizen.ops._neighbours import edge_targets as edge_targets
from denizen.ops._neighbours import from_fixed as from_fixed
from denizen.ops._neighbours import sum_counts as sum_counts
from denizen.ops._neighbours import sum_fixed as sum_fixed
from denizen.ops._neighbours import sum_real as sum_real
from denizen.ops._pair_program import PairBuilder as PairBuilder
from denizen.ops._pairing import pair_kinds as pair_kinds
from denizen.ops._pairs import bin_agents as bin_agents
from denizen.ops._pairs import nearest_agent as nearest_agent
from denizen.ops._pairs import sum_pairs as sum_pairs
from denizen.ops._placing import place_rows as place_rows
from denizen.ops._rounding import FEW as FEW
from denizen.ops._rounding import rounded as rounded
from denizen.ops._rounding import rounding as rounding
from denizen.ops._slots import NO_ROOM as NO_ROOM
from denizen.ops._slots import join as join
from denizen.ops._slots import seated as seated
from denizen.ops._slots import sum_slots as sum_slots
from denizen.ops._slots import taken as taken
from denizen.ops._stepping import step_rows as step_rows
