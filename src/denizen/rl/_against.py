"""`Against` and `SelfPlay`: a game as seen by one of its players, whose opponents move inside the step.

A transition then spans the others' moves: what they pay reaches the one who waits, advantages skip moments in which one
does not act, and nothing in rollouts, masks or learners has to know of turns.
"""

from collections.abc import Mapping, Sequence
from typing import Any

import torch
from torch import Tensor

from denizen._arguments import share, whole
from denizen.errors import InputError
from denizen.model import Env, Space, State, count, real, series
from denizen.rl._distributions import Categorical
from denizen.rl._game import Game, entry
from denizen.rl._opponents import Opponents, check_opponents, check_plays
from denizen.rl._policy import ActorCritic
from denizen.rl._rows import in_world
from denizen.rl._worlds import named
from denizen.rng import Rng


class Against(Env):
    """A game against opponents that stay as they are; whom a world plays, and in which seat, is drawn for each life.

    ```python
    env = dz.rl.Against(ConnectFour(), [policy, older])
    dz.rl.evaluate(env, policy).mean  # 1 for a game that is won, -1 for one that is lost
    ```

    Its metrics are `won`, `drawn` and `lost` games, and `score`: the share of points, half of one for a draw.

    Attributes:
        game: the game.
        opponents: policies of one form, made for the game; None: choices that are open, each as likely.
        seat: of the one who acts here; None: drawn for each life, all alike.
    """

    game: Game
    opponents: Any = None
    seat: int | None = None

    def __post_init__(self) -> None:
        super().__post_init__()
        name = type(self).__name__
        check_game(self.game, name)
        if self.seat is not None:
            whole(name, "seat", self.seat, 0, self.game.num_players - 1, hint=", or None")
        if self.opponents is not None and not isinstance(self.opponents, Opponents):
            check_opponents(self.opponents, self.game, name)
            object.__setattr__(self, "opponents", Opponents(list(self.opponents)))

    def to(self, device: torch.device | str) -> "Against":
        """With the game on a device, and the opponents' weights."""
        return super().to(device).with_values({"game": self.game.to(device)})

    @property
    def num_agents(self) -> int:
        """That of the game."""
        return self.game.num_agents

    @property
    def _looks(self) -> Env:
        return self.game

    @property
    def action_space(self) -> Space:
        """That of the game."""
        return self.game.action_space

    @property
    def observation_space(self) -> Space:
        """That of the game."""
        return self.game.observation_space

    # --- the world ----------------------------------------------------------------------------------------------------

    def init(self, rng: Rng) -> State:
        """A game, after what others move before the first move here."""
        return self._begun(self.game.init(rng), rng["against"])

    def reset(self, ended: Any, rng: Rng) -> State:
        """The same, as the game begins anew."""
        return self._begun(self.game.reset(ended, rng), rng["against"])

    def step(self, now: Any, action: Tensor, rng: Rng) -> State:
        """One move, and those of the others up to the next one here."""
        # What others were paid for before the first move here belongs to that move.
        owed = torch.where(now.time.step == 0, now.paid, 0.0)
        first = len(rng._bad)
        moved = self._moved(now, action, owed, rng)
        over = self.game.terminated(now).to(torch.bool)  # before the first move here: no move changes anything then
        rng._count_only(first, ~over)
        moved = now.replace(**{name: torch.where(over, getattr(now, name), getattr(moved, name)) for name in now.kinds})
        return self._replies(moved, rng["against"])

    def _begun(self, now: Any, rng: Rng) -> State:
        drawn = rng.on("games", 1)
        seat = drawn.integers("seat", 0, self.game.num_players)[0]
        if self.seat is not None:
            seat = torch.full_like(seat, self.seat)
        own = {"seat": seat, "member": self._member(drawn), "paid": torch.zeros(seat.shape, device=seat.device)}
        cls = _CLASSES.get(type(now)) or _class_of(type(now))  # looked up, so that it can be traced
        now = cls(**{name: getattr(now, name) for name in now.kinds}, **own)
        return self._replies(now, rng)

    def _member(self, rng: Rng) -> Tensor:
        """Whom to play: int64 `[]`."""
        uniform = rng.uniform("member")[0]
        return (uniform * (1 if self.opponents is None else self.opponents.members)).to(torch.int64)

    def _replies(self, now: Any, rng: Rng) -> Any:
        """The game when it is over, or the move is here again."""
        for number in range(self.game.most_replies):
            others = (self.game.player(now) != now.seat) & ~self.game.terminated(now).to(torch.bool)
            moves = rng["reply", number]
            first = len(rng._bad)
            moved = self._moved(now, self._reply(now, moves), now.paid, moves)
            rng._count_only(first, others)
            now = now.replace(
                **{name: torch.where(others, getattr(moved, name), getattr(now, name)) for name in now.kinds}
            )
        return now

    def _moved(self, now: Any, action: Tensor, paid: Tensor, rng: Rng) -> Any:
        """The state after a move, with what it paid the one who acts here."""
        new = self.game.step(now, action, rng)
        paid = paid + entry(self.game.payoff(now, new), now.seat)
        return now.replace(**{**{name: getattr(new, name) for name in self._fields(now)}, "paid": paid})

    @staticmethod
    def _fields(now: Any) -> list[str]:
        return [name for name in now.kinds if name not in _OWN]

    def _reply(self, now: Any, rng: Rng) -> Tensor:
        """What an opponent does: int64 `[]`."""
        seen, open_ = self.game.observe(now)[None], self.game.action_mask(now)
        choices = self.game.action_space.n  # type: ignore[attr-defined]  # pyrefly: ignore  # a Discrete, as checked
        numbers = torch.zeros(choices, device=seen.device)
        if self.opponents is not None:
            numbers = self.opponents(seen, now.member.to(torch.int64))
        judged = Categorical.of(numbers[None], None if open_ is None else open_[None].to(torch.bool))
        return in_world(judged.sample(rng.on("games", 1).uniform("move")[None]), self.game.action_space)[0]

    # --- looks --------------------------------------------------------------------------------------------------------

    def observe(self, now: Any) -> Tensor:
        """As the game has it."""
        return self.game.observe(now)

    def reward(self, before: Any, action: Tensor, now: Any) -> Tensor:
        """What the move here and the others' moves after it paid the one who acts here."""
        return now.paid

    def terminated(self, now: Any) -> Tensor:
        """As the game has it."""
        return self.game.terminated(now)

    def action_mask(self, now: Any) -> Tensor | None:
        """As the game has it."""
        return self.game.action_mask(now)

    def network_input(self, observation: Tensor) -> Tensor:
        """As the game has it."""
        return self.game.network_input(observation)

    def draw(self, now: Any) -> Sequence[str] | Tensor:
        """As the game has it."""
        return self.game.draw(now)

    @series
    def won(self, before: Any, now: Any) -> Tensor:
        """Games that paid."""
        return (self.game.terminated(now) & (now.paid > 0)).to(torch.float32)

    @series
    def drawn(self, before: Any, now: Any) -> Tensor:
        """Games that paid nothing."""
        return (self.game.terminated(now) & (now.paid == 0)).to(torch.float32)

    @series
    def lost(self, before: Any, now: Any) -> Tensor:
        """Games that cost."""
        return (self.game.terminated(now) & (now.paid < 0)).to(torch.float32)

    def measures(self, sums: Mapping[str, Tensor]) -> dict[str, Tensor]:
        """The share of points in games that ended."""
        ended = sums["won"] + sums["drawn"] + sums["lost"]
        return {"score": torch.where(ended > 0, (sums["won"] + sums["drawn"] / 2) / ended.clamp(min=1), torch.nan)}


class SelfPlay(Against):
    """A game against the policy that trains: as it is now, and as it was at intervals.

    ```python
    env = dz.rl.SelfPlay(ConnectFour())
    dz.train(env, dz.rl.mlp(env), dz.PPO(), total_steps=10_000_000)
    ```

    A training has a pool of its own, which is saved with it. Without one, as in `evaluate`, this is `Against(game)`: an
    opponent that plays at random.

    Attributes:
        pool: earlier policies that are kept; once there are more, they are a uniform sample of all.
        every: updates between two that are kept.
        latest: share of games against the policy as it is at the beginning of an update.
        practice: the game as trainings play it, such as one that begins with openings; None: `game`.
    """

    pool: int = 8
    every: int = 10
    latest: float = 0.5
    practice: Game | None = None

    def __post_init__(self) -> None:
        if self.opponents is not None and not isinstance(self.opponents, Opponents):
            raise InputError("SelfPlay: opponents are those of the training; for others take dz.rl.Against")
        super().__post_init__()
        for name in ("pool", "every"):
            whole("SelfPlay", name, getattr(self, name), 1)
        share("SelfPlay", "latest", self.latest)
        if self.practice is not None:
            check_game(self.practice, "SelfPlay: practice")
            for name in ("action_space", "observation_space", "num_players"):
                one, other = getattr(self.game, name), getattr(self.practice, name)
                if one != other:
                    raise InputError(f"SelfPlay: practice has {name} {other}, expected that of game, {one}")

    def of_training(self, policy: ActorCritic, seed: int) -> "SelfPlay":
        """With a pool for a policy's training, which begins with the policy alone."""
        check_plays(policy, "SelfPlay: policy")
        played = {"game": self.practice or self.game, "practice": None}
        return self.with_values({"opponents": Pool(policy, self.pool + 1, self.every, seed), **played})

    def _member(self, rng: Rng) -> Tensor:
        """The first place is the policy as it is; the others are drawn among those that hold one."""
        if self.opponents is None:
            return super()._member(rng)
        earlier = 1 + (rng.uniform("member")[0] * (self.opponents.members - 1)).to(torch.int64)
        return torch.where(rng.uniform("latest")[0] < self.latest, 0, earlier)


class Pool(Opponents):
    """Opponents of a training: the policy as it is, and earlier ones."""

    def __init__(self, policy: ActorCritic, places: int, every: int, seed: int) -> None:
        super().__init__([policy, policy], places=places, kept=False)  # a fingerprint is of what a training begins with
        self._every, self._seed = every, seed

    def before_update(self, policy: ActorCritic, updates: Tensor) -> None:
        """Take in what an update begins with."""
        self.follow(policy, updates, self._every, self._seed)


def for_training(env: Any, policy: ActorCritic, seed: int) -> Any:
    """The environment of a training: with a pool of its own where the policy plays itself."""
    return env.of_training(policy, seed) if isinstance(env, SelfPlay) else env


def pool_of(env: Env, algorithm: Any) -> Pool | None:
    """Where an environment's opponents follow the policy that trains; None: they do not.

    Raises `InputError` for a game by itself: values and advantages would run from one player's moves into the other's.
    """
    if isinstance(env, Game):
        name = type(env).__name__
        raise InputError(
            f"{name} is a game, whose moves are those of all players by turns; train dz.rl.SelfPlay({name}()), or "
            f"dz.rl.Against({name}(), opponents)"
        )
    held = env.opponents if isinstance(env, SelfPlay) else None
    if isinstance(env, SelfPlay) and not isinstance(held, Pool):
        name = type(algorithm).__name__
        raise InputError(
            f"train: algorithm={name}, which does not train by self-play; take dz.PPO or dz.GRPO for SelfPlay"
        )
    return held


def check_game(game: Any, what: str) -> None:
    """Raise `InputError` where this is no game that can be played inside a step."""
    from denizen.model import Discrete

    if not isinstance(game, Game):
        raise InputError(f"{what}: game is {named(game)}, expected a dz.rl.Game, such as ConnectFour()")
    if game.time_limit is not None or type(game).truncated is not Env.truncated or game.num_actors is not None:
        raise InputError(
            f"{what}: {type(game).__name__} has a time_limit, truncated or num_actors; a game has one who moves and "
            f"ends by terminated, so count moves in its state"
        )
    if not isinstance(game.action_space, Discrete):
        raise InputError(f"{what}: {type(game).__name__} has action_space {game.action_space}, expected a Discrete")


_OWN = ("seat", "member", "paid")


_CLASSES: dict[type[State], type[Any]] = {}


def _class_of(state: type[State]) -> type[Any]:
    """A state's class with what belongs to the one who acts here."""
    taken = [name for name in _OWN if name in state.kinds]
    if taken:
        raise InputError(f"Against: {state.__name__} has a field {taken[0]!r}, a name that Against needs; rename it")
    annotations = dict.fromkeys(_OWN, Tensor)
    fields = {"seat": count(), "member": count(), "paid": real()}
    made = type(f"{state.__name__}Against", (state,), {"__annotations__": annotations, **fields})
    return _CLASSES.setdefault(state, made)
