"""What an edge list looks like: self-loops, repeated rows, contacts written once or twice, degrees.

Nothing here changes an edge list. A contact list in which every contact is written once carries an infection one way
only; `EdgeFacts.sentences` says so, and `Population.edges(symmetrize=True)` adds the other direction.
"""

from dataclasses import dataclass

import numpy as np

from denizen.space.generators._pairs import pair_code


@dataclass(frozen=True)
class EdgeFacts:
    """Diagnostics of one directed edge list over `agents` agents.

    `duplicates` counts rows that repeat an earlier row; `reverse_pairs` counts unordered pairs that occur in both
    directions (self-loops are not pairs). Degrees are taken over all rows and all agents.
    """

    agents: int
    rows: int
    self_loops: int
    duplicates: int
    reverse_pairs: int
    participants: int
    in_degree_max: int
    in_degree_zero: int
    in_degree_sd: float
    out_degree_max: int
    out_degree_zero: int
    out_degree_sd: float

    @property
    def one_way(self) -> bool:
        """Whether no contact occurs in both directions."""
        return self.rows > self.self_loops and self.reverse_pairs == 0

    def sentences(self, network: str) -> list[str]:
        """What a user should know before running on this network."""
        said = []
        if self.self_loops:
            said.append(f"network {network!r}: {self.self_loops} self-loops; dropped unless keep_self_loops=True.")
        if self.duplicates:
            said.append(
                f"network {network!r}: {self.duplicates} rows repeat an earlier one; kept, each counts as a contact."
            )
        if self.one_way:
            said.append(
                f"network {network!r}: no contact is written in both directions, so infection runs one way along each; "
                "symmetrize=True adds the other direction."
            )
        elif self.reverse_pairs:
            pairs = self.rows - self.self_loops - self.duplicates - self.reverse_pairs
            if pairs > self.reverse_pairs:
                said.append(
                    f"network {network!r}: {self.reverse_pairs} of {pairs} contacts are written in both directions; "
                    "infection runs one way along the others; symmetrize=True adds the other direction."
                )
        return said


def edge_facts(source: np.ndarray, target: np.ndarray, agents: int) -> EdgeFacts:
    """Measure an edge list.

    Args:
        source: int32 [edges], ids in 0..agents-1.
        target: int32 [edges].
        agents: number of agents.

    Returns:
        The facts. Time is that of sorting the edges once.
    """
    loops = source == target
    keys = pair_keys(source, target, agents)
    keys.sort()
    same_row = keys[1:] == keys[:-1]
    distinct = np.concatenate([keys[:1], keys[1:][~same_row]]) if same_row.any() else keys
    pairs = distinct >> 1  # the lowest bit is the direction
    into = np.bincount(target, minlength=agents)
    out = np.bincount(source, minlength=agents)
    return EdgeFacts(
        agents=agents,
        rows=len(source),
        self_loops=int(loops.sum()),
        duplicates=int(same_row.sum()),
        reverse_pairs=int((pairs[1:] == pairs[:-1]).sum()),
        participants=int(((into + out) > 0).sum()),
        in_degree_max=int(into.max(initial=0)),
        in_degree_zero=int((into == 0).sum()),
        in_degree_sd=float(into.std()) if agents else 0.0,
        out_degree_max=int(out.max(initial=0)),
        out_degree_zero=int((out == 0).sum()),
        out_degree_sd=float(out.std()) if agents else 0.0,
    )


def pair_keys(source: np.ndarray, target: np.ndarray, agents: int) -> np.ndarray:
    """One int64 per edge: the unordered pair, then the direction in the lowest bit. [edges]"""
    keys = pair_code(source, target, agents)
    keys <<= 1
    keys += source > target
    return keys


def without_reverse(source: np.ndarray, target: np.ndarray, agents: int) -> np.ndarray:
    """Which edges have no edge back, so that adding one makes the contact mutual. bool [edges], self-loops False."""
    keys = pair_keys(source, target, agents)
    if not len(keys):
        return np.zeros(0, dtype=np.bool_)
    order = np.argsort(keys)
    keys = keys[order]
    pairs = keys >> 1
    starts = np.flatnonzero(np.concatenate([[True], pairs[1:] != pairs[:-1]]))
    ends = np.append(starts[1:], len(keys))
    mutual = np.empty(len(keys), dtype=np.bool_)  # a pair is mutual where its first and last key differ in direction
    mutual[order] = np.repeat(keys[starts] != keys[ends - 1], ends - starts)
    return ~mutual & (source != target)
