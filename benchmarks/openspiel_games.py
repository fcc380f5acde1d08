"""Random games of OpenSpiel, as tests/zoo/test_games.py plays them again: `python benchmarks/openspiel_games.py FILE`.

Needs `pip install open_spiel`. Written are, of each game, the cards, the moves, the choices that were open before each
move, who moved, and what the game paid.
"""

import json
import random
import sys
from pathlib import Path
from typing import Any

GAMES = {"kuhn_poker": (3, 2, 30), "leduc_poker": (6, 3, 150), "connect_four": (0, 0, 25)}  # deck, dealt, games


def one(game: Any, deck: int, dealt: int, draw: random.Random) -> dict[str, Any]:
    """A game under random moves."""
    state, cards = game.new_initial_state(), draw.sample(range(deck), dealt)
    told: dict[str, Any] = {"cards": cards, "moves": [], "open": [], "players": []}
    waiting = list(cards)
    while not state.is_terminal():
        if state.is_chance_node():
            state.apply_action(waiting.pop(0))
            continue
        move = draw.choice(state.legal_actions())
        told["moves"].append(move)
        told["open"].append(state.legal_actions())
        told["players"].append(state.current_player())
        state.apply_action(move)
    return {**told, "returns": state.returns()}


def main(path: Path) -> None:
    """Write the games."""
    import pyspiel

    draw = random.Random(0)
    made = {
        name: [one(pyspiel.load_game(name), deck, dealt, draw) for _ in range(count)]
        for name, (deck, dealt, count) in GAMES.items()
    }
    path.write_text(json.dumps(made, separators=(",", ":")) + "\n")


if __name__ == "__main__":
    main(Path(sys.argv[1]))
