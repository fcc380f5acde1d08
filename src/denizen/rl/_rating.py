"""Ratings of players from games, and tournaments that play them."""

import dataclasses
import itertools
import math
from collections.abc import Mapping, Sequence
from typing import Any

import numpy as np
from torch import Tensor

from denizen._arguments import number, whole
from denizen._notebook import InNotebook
from denizen.errors import InputError
from denizen.rl._against import Against, check_game
from denizen.rl._evaluate import evaluate
from denizen.rl._opponents import check_plays
from denizen.rl._policy import ActorCritic, check_fits
from denizen.rng import EVALUATION_SEED

ELO = 400 / math.log(10)  # points for a factor of e in the odds: 400 for 10 to 1
_NORMAL = 1.959964  # 95 %
_STEPS, _ENOUGH = 200, 1e-10
_APART = 7919  # seeds of two pairs


@dataclasses.dataclass(frozen=True, repr=False)
class Rating(InNotebook):
    """Strengths of players in Elo points, with a mean of 0: 400 more are odds of 10 to 1.

    Attributes:
        players: names.
        elo: of each, float64.
        error: standard error of each.
        covariance: of all, `[players, players]`.
    """

    players: tuple[str, ...]
    elo: np.ndarray
    error: np.ndarray
    covariance: np.ndarray

    @property
    def interval(self) -> np.ndarray:
        """95 % confidence intervals of points above the mean of all: float64 `[players, 2]`."""
        return np.stack([self.elo - _NORMAL * self.error, self.elo + _NORMAL * self.error], 1)

    def difference(self, one: str, other: str) -> tuple[float, float, float]:
        """(points that a player is ahead of another one, 95 % interval from, to)."""
        i, j = _place(self.players, one, "Rating.difference"), _place(self.players, other, "Rating.difference")
        ahead = float(self.elo[i] - self.elo[j])
        cov = self.covariance
        half = _NORMAL * math.sqrt(max(float(cov[i, i] + cov[j, j] - 2 * cov[i, j]), 0.0))
        return ahead, ahead - half, ahead + half

    def __repr__(self) -> str:
        lines = [
            f"{name}: {elo:.0f} (95 % {low:.0f} to {high:.0f})"
            for name, elo, (low, high) in zip(self.players, self.elo, self.interval, strict=True)
        ]
        return "\n".join(sorted(lines, key=lambda line: -self.elo[lines.index(line)]))


def rating(wins: Any, draws: Any = None, *, players: Sequence[str] | None = None, prior: float = 0.0) -> Rating:
    """Strengths of players by maximum likelihood (Bradley and Terry, 1952), a draw being half a win each.

    The probability that i beats j is 1 / (1 + exp(s_j - s_i)); points are 400 / ln 10 times s. Errors are those of an
    M-estimator: what is known of s_i - s_j grows with the games between them, and draws make scores less noisy.

    Args:
        wins: games that i won against j, `[players, players]`, with 0 on the diagonal.
        draws: drawn games, symmetric; None: there are none.
        players: names; None: numbers.
        prior: drawn games that every pair is credited with, beside those played. With some, players who won or lost
            everything have finite points too.

    Raises:
        InputError: counts that do not fit, or without a maximum: some players never lost a point to the others.
    """
    won = _counts("wins", wins)
    count = len(won)
    drawn = np.zeros_like(won) if draws is None else _counts("draws", draws)
    if drawn.shape != won.shape or not np.array_equal(drawn, drawn.T):
        raise InputError(f"rating: draws {drawn.shape}, expected a symmetric table {won.shape}, as wins")
    names = tuple(str(k) for k in (range(count) if players is None else players))
    if len(names) != count or len(set(names)) < count:
        raise InputError(f"rating: players={names}, expected {count} different names")
    drawn = drawn + number("rating", "prior", prior, 0) * (1 - np.eye(count))
    points = won + drawn / 2
    _check_joined(points, names)
    games = points + points.T
    strength = _likeliest(points, games)
    prob = 1 / (1 + np.exp(strength[None, :] - strength[:, None]))
    known = _laplacian(games * prob * (1 - prob))
    # A score of 0, 1/2 or 1 has variance p (1 - p) - d / 4, where d is the share of draws. Where all games of a pair
    # were drawn that would be none, as if nothing else could happen: it then counts as if none were drawn.
    less = np.where(drawn < games, drawn / 4, 0.0)
    noise = _laplacian(np.maximum(games * prob * (1 - prob) - less, 0.0))
    inverse = np.linalg.pinv(known)
    covariance = ELO**2 * inverse @ noise @ inverse
    return Rating(names, ELO * strength, np.sqrt(np.diag(covariance)), covariance)


def _place(players: Sequence[str], name: str, what: str) -> int:
    if name not in players:
        raise InputError(f"{what}: no player {name!r}; there are {', '.join(players)}")
    return players.index(name)


def _counts(name: str, given: Any) -> np.ndarray:
    try:
        table = np.asarray(given.detach().cpu() if isinstance(given, Tensor) else given, dtype=np.float64)
    except (TypeError, ValueError) as error:
        raise InputError(f"rating: {name} is no table of numbers, expected counts [players, players]") from error
    if table.ndim != 2 or table.shape[0] != table.shape[1] or len(table) < 2:
        raise InputError(f"rating: {name} has shape {table.shape}, expected (players, players) of at least 2")
    if not np.isfinite(table).all() or (table < 0).any() or np.diag(table).any():
        raise InputError(f"rating: {name} has entries that are no counts of games, or a player against itself")
    return table


def _check_joined(points: np.ndarray, names: Sequence[str]) -> None:
    """Raise `InputError` unless every player took a point, over others, from every other one (Ford, 1957)."""
    reach = (points > 0) | np.eye(len(points), dtype=bool)
    for _ in range(len(points).bit_length()):
        reach = (reach.astype(np.int64) @ reach.astype(np.int64)) > 0
    for i, j in itertools.permutations(range(len(points)), 2):
        if not reach[j, i]:
            raise InputError(
                f"rating: {names[j]} took no point from {names[i]}, nor from anybody who did, so no finite difference "
                f"is the likeliest; play more games, or give prior=1"
            )


def _likeliest(points: np.ndarray, games: np.ndarray) -> np.ndarray:
    """Strengths with a mean of 0, by Newton's method with steps that are halved until they help."""
    strength, wanted = np.zeros(len(points)), points.sum(1)

    def judged(at: np.ndarray) -> float:
        return float((points * -np.logaddexp(0.0, at[None, :] - at[:, None])).sum())

    best = judged(strength)
    for _ in range(_STEPS):
        prob = 1 / (1 + np.exp(strength[None, :] - strength[:, None]))
        gradient = wanted - (games * prob).sum(1)
        step = np.linalg.pinv(_laplacian(games * prob * (1 - prob))) @ gradient
        while (new := judged(strength + step)) < best and np.abs(step).max() > _ENOUGH:
            step = step / 2
        strength, best = strength + step - (strength + step).mean(), new
        if np.abs(step).max() <= _ENOUGH:
            break
    return strength


def _laplacian(weights: np.ndarray) -> np.ndarray:
    return np.diag(weights.sum(1)) - weights


@dataclasses.dataclass(frozen=True, repr=False)
class Tournament(InNotebook):
    """Games of all pairs of players, in both seats.

    Attributes:
        players: names.
        won: int64 `[players, players]`: games that i, in the first seat, won against j.
        drawn: the same, of drawn ones.
        lost: the same, of lost ones.
        payoff: float64 `[players, players]`: what i gained a game in the first seat, in the mean; NaN on the diagonal.
    """

    players: tuple[str, ...]
    won: np.ndarray
    drawn: np.ndarray
    lost: np.ndarray
    payoff: np.ndarray

    def rating(self, *, prior: float = 0.0) -> Rating:
        """Strengths from the games in both seats; see `rating`."""
        return rating(self.won + self.lost.T, self.drawn + self.drawn.T, players=self.players, prior=prior)

    def score(self, one: str, other: str) -> float:
        """The share of points of a player against another one, over both seats."""
        i, j = _place(self.players, one, "Tournament.score"), _place(self.players, other, "Tournament.score")
        if i == j:
            raise InputError(f"Tournament.score: {one!r} did not play itself; name two players")
        games = sum(table[i, j] + table[j, i] for table in (self.won, self.drawn, self.lost))
        return float((self.won[i, j] + self.lost[j, i] + (self.drawn[i, j] + self.drawn[j, i]) / 2) / games)

    def __repr__(self) -> str:
        return "\n".join(
            f"{one} against {other}: won {self.won[i, j] + self.lost[j, i]}, "
            f"drawn {self.drawn[i, j] + self.drawn[j, i]}, lost {self.lost[i, j] + self.won[j, i]}"
            for (i, one), (j, other) in itertools.combinations(enumerate(self.players), 2)
        )


def tournament(
    game: Any,
    players: Mapping[str, ActorCritic | None],
    *,
    games: int = 256,
    max_moves: int = 1000,
    greedy: bool = False,
    seed: int = 0,
) -> Tournament:
    """All pairs of players against each other, in both seats, each pair in worlds that run at once.

    ```python
    cup = dz.rl.tournament(ConnectFour(), {"trained": policy, "random": None})
    cup.rating(prior=1)
    ```

    Args:
        game: for two.
        players: by name; None plays at random. They may differ in form.
        games: of a pair in one seat.
        max_moves: budget of a player's moves in a game.
        greedy: the one in the first seat takes its likeliest moves; the other one draws.
        seed: of worlds and draws.

    Raises:
        InputError: an argument does not fit, or a game was not over within the budget.
    """
    check_game(game, "tournament")
    if game.num_players != 2:
        raise InputError(f"tournament: {type(game).__name__} has {game.num_players} players, expected 2")
    if not isinstance(players, Mapping) or len(players) < 2:
        raise InputError("tournament: players: expected at least two, by name: {'new': policy, 'random': None}")
    games = whole("tournament", "games", games, 1)
    max_moves = whole("tournament", "max_moves", max_moves, 1)
    seed = whole("tournament", "seed", seed, 0, EVALUATION_SEED - 1)
    for name, policy in players.items():
        if policy is not None:
            check_fits(policy, game, f"tournament: players[{name!r}]")
            check_plays(policy, f"tournament: players[{name!r}]")
    names = tuple(str(name) for name in players)
    tables = np.zeros((3, len(names), len(names)), dtype=np.int64)
    payoff = np.full(tables.shape[1:], np.nan)
    for k, ((i, one), (j, other)) in enumerate(itertools.permutations(enumerate(players.values()), 2)):
        # Ratings take games as independent, so each pair has random numbers of its own.
        found = _pair(game, one, other, games, max_moves, greedy, (seed + _APART * k) % EVALUATION_SEED)
        tables[:, i, j] = [(found > 0).sum(), (found == 0).sum(), (found < 0).sum()]
        payoff[i, j] = found.mean()
    won, drawn, lost = tables
    return Tournament(names, won, drawn, lost, payoff)


def _pair(
    game: Any, one: ActorCritic | None, other: ActorCritic | None, games: int, most: int, greedy: bool, seed: int
) -> np.ndarray:
    """What the first player gained in each game."""
    if one is None and other is None:
        raise InputError("tournament: two players that play at random; give one of them")
    seat = 0 if one is not None else 1  # who plays at random does so inside the step
    acts, replies = (one, other) if one is not None else (other, one)
    assert acts is not None
    env = Against(game, None if replies is None else [replies], seat=seat)
    result = evaluate(env, acts, num_envs=games, max_steps=most, greedy=greedy and seat == 0, seed=seed)
    if not bool(result.finished.all()):
        raise InputError(f"tournament: {int((~result.finished).sum())} games were not over after max_moves={most}")
    return result.returns.double().numpy() * (1 - 2 * seat)
