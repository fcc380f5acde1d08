"""The whole tree of a small game: values, best responses and exploitability of policies, exactly, in float64.

nodes     every state that play can reach, level by level
sets      what a player cannot tell apart: nodes of one level in which the same player sees the same
policy    probabilities of choices in each set, `[sets, choices]`
"""

import dataclasses
from collections.abc import Callable, Sequence
from typing import Any

import numpy as np
import torch
from torch import Tensor

from denizen import _tree
from denizen.errors import CapacityError, InputError
from denizen.rl._against import check_game
from denizen.rl._policy import ActorCritic, Policy, check_fits
from denizen.rl._worlds import named

MOST_NODES = 2_000_000
_SURE = 1e-6  # by how much probabilities may miss a sum of 1

# What plays: a policy; a function from (observations, open choices) to probabilities; a table `[sets, choices]`; None
# takes all open choices alike.
Player = ActorCritic | Callable[[Tensor, Tensor], Tensor] | Tensor | None


@dataclasses.dataclass(frozen=True)
class Level:
    """Nodes after so many moves.

    Attributes:
        parent: of each node, among those of the level before.
        move: that led to it.
        paid: float64 `[nodes, players]`: by that move.
        deciding: nodes in which somebody moves.
        player: of each of those.
        place: of each of those, its set.
    """

    parent: np.ndarray
    move: np.ndarray
    paid: np.ndarray
    deciding: np.ndarray
    player: np.ndarray
    place: np.ndarray


class GameTree:
    """All of a game for two whose chance is in its start, with what each player sees.

    ```python
    tree = dz.rl.GameTree(Kuhn())
    tree.exploitability(policy)  # 0 for an equilibrium of a zero-sum game
    ```

    Players must remember: what they see tells all that they saw and did before.

    Attributes:
        game: the game.
        observation: of each set, what the player sees: `[sets, …]`.
        player: of each set: int64 `[sets]`.
        open: bool `[sets, choices]`.
        num_nodes: of the tree.
    """

    def __init__(self, game: Any) -> None:
        """Args:
        game: with `starts`.

        Raises:
            InputError: it is no game for two, or the players do not remember.
            CapacityError: it has more than 2,000,000 nodes.
            ModelError: it has no `starts`.
        """
        check_game(game, "GameTree")
        if game.num_players != 2:
            raise InputError(f"GameTree: {type(game).__name__} has {game.num_players} players, expected 2")
        self.game = game.to("cpu")
        self._levels: list[Level] = []
        self._looks: list[Tensor] = []
        self._masks: list[Tensor] = []
        self._players: list[Tensor] = []
        self.num_nodes = self._sets = 0
        with torch.no_grad():
            self._grow()
        self.observation, self.open = torch.cat(self._looks), torch.cat(self._masks)
        self.player = torch.cat(self._players)

    # --- the tree -----------------------------------------------------------------------------------------------------

    def _grow(self) -> None:
        game = self.game
        state, chance = game.starts()
        self._chance = chance.double().numpy()
        count = len(self._chance)
        parent, move, paid = np.arange(count), np.zeros(count, dtype=np.int64), np.zeros((count, 2))
        while len(parent):
            self.num_nodes += len(parent)
            if self.num_nodes > MOST_NODES:
                raise CapacityError(f"GameTree: {type(game).__name__} has more than {MOST_NODES:,} nodes")
            deciding = np.flatnonzero(~torch.vmap(game.terminated)(state).to(torch.bool).numpy())
            state = _taken(state, deciding)
            if not len(deciding):
                none = np.zeros(0, dtype=np.int64)
                self._levels.append(Level(parent, move, paid, deciding, none, none))
                return
            player = torch.vmap(game.player)(state).to(torch.int64)
            open_ = self._open(state, len(deciding))
            self._levels.append(
                Level(parent, move, paid, deciding, player.numpy(), self._placed(state, player, open_).numpy())
            )
            where, choice = open_.nonzero().unbind(1)
            before = _taken(state, where)
            state = torch.vmap(lambda now, action: game.step(now, action, None))(before, choice)
            parent, move = deciding[where.numpy()], choice.numpy()
            paid = torch.vmap(game.payoff)(before, state).double().numpy()

    def _open(self, state: Any, count: int) -> Tensor:
        if self.game.action_mask(_tree.map_tensors(lambda tensor: tensor[0], state)) is None:
            return torch.ones(count, self.game.action_space.n, dtype=torch.bool)
        return torch.vmap(self.game.action_mask)(state).to(torch.bool)

    def _placed(self, state: Any, player: Tensor, open_: Tensor) -> Tensor:
        """The set of each node; new ones are noted."""
        look = torch.vmap(self.game.observe)(state)
        rows = torch.cat([player[:, None].double(), look.flatten(1).double()], 1)
        found, place = torch.unique(rows, dim=0, return_inverse=True)
        first = torch.full((len(found),), len(rows)).scatter_reduce(0, place, torch.arange(len(rows)), "amin")
        if bool((open_ != open_[first][place]).any()):
            raise InputError(f"GameTree: {type(self.game).__name__}: what a player sees does not tell what is open")
        self._looks.append(look[first])
        self._masks.append(open_[first])
        self._players.append(player[first])
        place = place + self._sets
        self._sets += len(found)
        return place

    # --- policies -----------------------------------------------------------------------------------------------------

    def table(self, player: Player) -> Tensor:
        """Probabilities of a player's choices in all sets: float64 `[sets, choices]`.

        Raises:
            InputError: it plays something else, or its numbers are no probabilities.
        """
        if player is None:
            probs = self.open.double()
            return probs / probs.sum(1, keepdim=True)
        if isinstance(player, ActorCritic):
            probs = self._of_policy(player)
        elif isinstance(player, Policy) or not (isinstance(player, Tensor) or callable(player)):
            raise InputError(
                f"GameTree: a player is {named(player)}, expected a dz.rl.ActorCritic, a function from (observations, "
                f"open choices) to probabilities, a table of them, or None"
            )
        else:
            given = player if isinstance(player, Tensor) else player(self.observation, self.open)
            if not isinstance(given, Tensor):
                raise InputError(f"GameTree: a player gave {named(given)}, expected a tensor of probabilities")
            probs = given.detach().cpu().double()
        wrong = probs.shape != self.open.shape or bool((probs < 0).any() | ~torch.isfinite(probs).all())
        if wrong or bool(((probs.sum(1) - 1).abs() > _SURE).any() | (probs[~self.open] > 0).any()):
            raise InputError(
                f"GameTree: a player of {type(self.game).__name__} gave {tuple(probs.shape)}, expected probabilities "
                f"{tuple(self.open.shape)}, each row with a sum of 1 and 0 for what is closed"
            )
        return probs / probs.sum(1, keepdim=True)

    def _of_policy(self, policy: ActorCritic) -> Tensor:
        check_fits(policy, self.game, "GameTree")
        if policy.memory_size:
            raise InputError("GameTree: the policy has a memory; what it does is no function of what it sees")
        device = policy.actor.weight.device
        look, open_ = self.observation.to(device), self.open.to(device)
        with torch.no_grad():
            judged = policy(look, policy.first_memory(len(look), device), open_, actor_only=True)
        return judged.actions.log_probs.double().exp().cpu()  # type: ignore[attr-defined]  # pyrefly: ignore

    def average(self, players: Sequence[Player], weights: Sequence[float] | None = None) -> Tensor:
        """The policy that plays as a player drawn once for each game: float64 `[sets, choices]`.

        In a set each counts by the probability that its own moves lead there, so that the average of policies that
        train against each other is that of fictitious play (Heinrich et al., 2015).

        Args:
            players: at least one.
            weights: of them; None: all alike.
        """
        if not players or (weights is not None and len(weights) != len(players)):
            raise InputError(f"GameTree.average: {len(players)} players, weights={weights}; expected as many of both")
        if weights is not None and not (all(0 <= weight < np.inf for weight in weights) and sum(weights) > 0):
            raise InputError(f"GameTree.average: weights={weights}, expected numbers of at least 0, not all of them 0")
        whole, sums = np.zeros(self.open.shape), np.zeros(self._sets)
        for number, player in enumerate(players):
            table = self.table(player).numpy()
            reach = self._own_reach(table) * (1.0 if weights is None else weights[number])
            whole += reach[:, None] * table
            sums += reach
        uniform = self.table(None).numpy()
        reached = sums[:, None] > 0
        return torch.from_numpy(np.where(reached, whole / np.where(reached, sums[:, None], 1.0), uniform))

    def _own_reach(self, table: np.ndarray) -> np.ndarray:
        """For each set, the probability that the moves of the one who decides there lead to it."""
        reach = np.zeros(self._sets)
        for level, own in zip(self._levels, self._reaches(table, table), strict=True):
            reach[level.place] = own[level.deciding, level.player]  # alike in all nodes of a set
        return reach

    def _reaches(self, first: np.ndarray, second: np.ndarray) -> list[np.ndarray]:
        """For each level, the probability that each player's own moves lead to a node: `[nodes, players]`."""
        found: list[np.ndarray] = []
        for number, level in enumerate(self._levels):
            if not number:
                found.append(np.ones((len(level.parent), 2)))
                continue
            before = self._levels[number - 1]
            at = np.searchsorted(before.deciding, level.parent)
            mover, place = before.player[at], before.place[at]
            prob = np.where(mover == 0, first[place, level.move], second[place, level.move])
            own = found[-1][level.parent].copy()
            own[np.arange(len(own)), mover] *= prob
            found.append(own)
        return found

    def _chances(self) -> list[np.ndarray]:
        """For each level, the probability of the start of each node."""
        found = [self._chance]
        for level in self._levels[1:]:
            found.append(found[-1][level.parent])
        return found

    # --- what policies are worth --------------------------------------------------------------------------------------

    def value(self, first: Player, second: Player) -> float:
        """What the first player gains a game, in the mean."""
        return float(self._worth(self.table(first).numpy(), self.table(second).numpy(), None, 0)[0])

    def best_response(self, opponent: Player, seat: int) -> tuple[float, Tensor]:
        """(what the best reply to an opponent gains a game, the reply: float64 `[sets, choices]`).

        In sets of the other seat the reply takes open choices alike.

        Args:
            opponent: plays the other seat.
            seat: 0 or 1: of the reply.
        """
        if seat not in (0, 1):
            raise InputError(f"GameTree.best_response: seat={seat!r}, expected 0 or 1")
        table = self.table(opponent).numpy()
        value, reply = self._worth(table, table, seat, seat)
        return value, torch.where((self.player == seat)[:, None], torch.from_numpy(reply), self.table(None))

    def nash_conv(self, first: Player, second: Player | str = "same") -> float:
        """What best replies gain beyond a pair of policies, summed over both players; 0 for an equilibrium.

        Args:
            first: plays the first seat.
            second: plays the second one; by default the same.
        """
        if isinstance(second, str) and second != "same":
            raise InputError(f'GameTree.nash_conv: second={second!r}, expected a player, or "same"')
        other = first if isinstance(second, str) else second
        one, two = self.best_response(other, 0)[0], self.best_response(first, 1)[0]
        tables = self.table(first).numpy(), self.table(other).numpy()
        return one + two - sum(float(self._worth(*tables, None, seat)[0]) for seat in (0, 1))

    def exploitability(self, policy: Player) -> float:
        """Half of `nash_conv`: what a best reply gains against a policy in both seats, a game."""
        return self.nash_conv(policy) / 2

    def _worth(self, first: np.ndarray, second: np.ndarray, best: int | None, whose: int) -> tuple[float, np.ndarray]:
        """(what a player gains a game, its best reply), where `best` plays its best in place of its table."""
        reaches, chances = self._reaches(first, second), self._chances()
        reply = np.zeros(self.open.shape)
        choices = self.open.shape[1]
        below = np.zeros(0)
        for number in range(len(self._levels) - 1, -1, -1):
            level = self._levels[number]
            worth = np.zeros(len(level.parent))
            if len(level.deciding):
                after = self._levels[number + 1]
                at = np.searchsorted(level.deciding, after.parent)
                of_moves = np.zeros((len(level.deciding), choices))
                of_moves[at, after.move] = below + after.paid[:, whose]
                place = level.place
                probs = np.where(level.player[:, None] == 0, first[place], second[place])
                if best is not None:
                    own = level.player == best
                    others = reaches[number][level.deciding, 1 - best] * chances[number][level.deciding]
                    sums = np.zeros(self.open.shape)
                    np.add.at(sums, place[own], (others[:, None] * of_moves)[own])
                    sets = np.unique(place[own])
                    ranked = np.where(self.open.numpy()[sets], sums[sets], -np.inf)
                    reply[sets, ranked.argmax(1)] = 1.0
                    probs = np.where(own[:, None], reply[place], probs)
                worth[level.deciding] = (probs * of_moves).sum(1)
            below = worth
        return float((below * self._chance).sum()), reply


def _taken(state: Any, index: Any) -> Any:
    """Some of the states along the leading axis."""
    index = torch.as_tensor(index)
    return _tree.map_tensors(lambda tensor: tensor[index], state)
