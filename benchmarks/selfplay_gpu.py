"""Self-play on a card: checks, Connect Four against random moves and the exact solver, poker's exploitability, speed.

    python benchmarks/selfplay_gpu.py [--device cuda] [--parts check,connect_four,kuhn] [--updates 250] [--out FILE]

check: a captured training of Kuhn by self-play against the same one run eagerly, with its pool. connect_four: trains
7 x 6 with convolutions; then shares of games won against random moves in either seat, of positions in which the
likeliest move is right by the solver, and points ahead of earlier policies. connect_four_mlp: two linear layers, eight
times as many updates. connect_four_empty: those without openings. kuhn: exploitability of the last policy and of the
average of all. On demand: the latter two of Connect Four, kuhn_entropy and leduc_entropy, as the zoo has them. Each
part prints as it ends.
"""

import argparse
import copy
import json
import sys
import time
from pathlib import Path

sys.path.insert(0, str(Path(__file__).resolve().parents[1] / "src"))

import torch
from _report import commit, machine, now

import denizen as dz
from denizen.zoo.kuhn import Kuhn

STONES, POSITIONS = (16, 20, 26, 32), 500  # positions of random games: stones, how many of each
OPENINGS = 65_536
GAMES = 4096
FULL = {"num_envs": 4096, "num_steps": 32, "num_minibatches": 8, "update_epochs": 2}
SMALL = {"num_envs": 64, "num_steps": 16, "num_minibatches": 2, "update_epochs": 1}
POKER = {"num_envs": 2048, "num_steps": 16, "num_minibatches": 4, "update_epochs": 4}


def wait(device):
    if device == "cuda":
        torch.cuda.synchronize()


def begun(env, policy, algorithm, device, updates):
    """(training, its updates after their warm-up)."""
    training = algorithm.init(env, policy, total_steps=updates * algorithm.samples, seed=1, device=device)
    update = dz.rl.Updates(training, compile=device == "cuda")
    update.warm_up()
    return training, update


def check(device, _updates):
    """Captured and eager give the same pool and, to rounding, the same policy."""
    found = []
    for compiled in (device == "cuda", False):
        env = dz.rl.SelfPlay(Kuhn(), pool=3, every=1)
        algorithm = dz.PPO(**SMALL, learning_rate=1e-3)
        training = algorithm.init(env, dz.rl.mlp(env, (16, 16)), total_steps=6 * algorithm.samples, device=device)
        update = dz.rl.Updates(training, compile=compiled)
        update.warm_up()
        before = None
        for _ in range(6):
            before = [p.clone() for p in training.policy.actor.parameters()]
            update()
        latest = [training.pool.weights[f"actor.{name}"][0] for name in ("weight", "bias")]
        assert all(torch.equal(one, other) for one, other in zip(before, latest, strict=True)), "the pool lags behind"
        assert int(training.pool.members) == 4
        found.append((update.path, [p.detach().cpu() for p in training.policy.parameters()]))
    (path, one), (_, other) = found
    apart = max(float((a - b).abs().max()) for a, b in zip(one, other, strict=True))
    assert apart < 1e-3, apart
    return {"path": path, "apart": apart}


def connect_four(device, updates, form="conv", openings=OPENINGS):
    """Trains, then plays."""
    from denizen.zoo.connect_four import connect_four
    from denizen.zoo.connect_four.judge import agreement, late_positions
    from denizen.zoo.connect_four.solver import Solver

    env = connect_four(openings=openings)
    game = env.game
    if form == "conv":
        policy = dz.rl.conv(env, (64, 64), 256, critic_hidden=(), seed=1)
    else:
        policy, updates = dz.rl.mlp(env, (256, 256), activation=torch.nn.ReLU, seed=1), 8 * updates
    settings = FULL if device == "cuda" else SMALL
    annealed = {"learning_rate": dz.rl.Linear(1e-3, 5e-5), "ent_coef": dz.rl.Linear(0.1, 0.02)}
    algorithm = dz.PPO(**settings, **annealed, gamma=1.0, normalise_advantages=False)
    earlier = {"first": copy.deepcopy(policy)}
    training, update = begun(env, policy, algorithm, device, updates)
    wait(device)
    began, row = time.perf_counter(), {}
    for number in range(updates):
        if number == updates // 2:
            earlier["half"] = copy.deepcopy(policy)
        row = update()
    wait(device)
    took = time.perf_counter() - began
    training.check()
    steps = updates * algorithm.samples
    told = {
        "path": update.path,
        "ready_s": update.seconds_to_ready,
        "updates": updates,
        "steps": steps,
        "steps_per_second": steps / took,
        "score_in_self_play": float(row["score"]),
        "entropy": float(row["entropy"]),
    }
    for seat, name in enumerate(("first", "second")):
        for greedy in (True, False):
            lives = dz.rl.evaluate(
                dz.rl.Against(game, seat=seat), policy, num_envs=GAMES, max_steps=21, greedy=greedy, seed=3
            )
            kind = "greedy" if greedy else "sampled"
            told[f"won_{name}_{kind}"] = float((lives.returns > 0).float().mean())
    cup = dz.rl.tournament(game, {"last": policy, **earlier}, games=512)
    told["points"] = {name: round(float(elo)) for name, elo in zip(cup.players, cup.rating(prior=1).elo, strict=True)}
    policy.to("cpu")
    solver = Solver(game)
    for stones in STONES:
        clock = time.perf_counter()
        positions = late_positions(game, stones, POSITIONS, seed=99)
        told[f"right_{stones}_stones"] = agreement(policy, solver, positions)._asdict()
        told[f"solver_{stones}_stones_s"] = time.perf_counter() - clock
    return told


def connect_four_mlp(device, updates):
    """The same with linear layers."""
    return connect_four(device, updates, form="mlp")


def connect_four_empty(device, updates):
    """Likewise, all games from the empty board."""
    return connect_four(device, updates, form="mlp", openings=0)


def poker(device, name):
    """The zoo's settings for as many steps as `denizen train` takes."""
    entry = dz.zoo.entry(name)
    env = entry.build()
    tree, given = dz.rl.GameTree(env.game), dict(entry.settings["ppo"])
    for key in ("learning_rate", "ent_coef"):
        given[key] = dz.rl.Linear(*(float(end) for end in given[key].split(":")))
    algorithm = dz.PPO(**given)
    updates = -(-entry.steps // algorithm.samples)
    policy = dz.rl.mlp(env, seed=1)
    training = algorithm.init(env, policy, total_steps=entry.steps, seed=1, device=device)
    update = dz.rl.Updates(training, compile=device == "cuda")
    update.warm_up()
    tables, rows = [], []
    for number in range(1, updates + 1):
        update()
        tables.append(tree.table(policy))
        if number % 20 == 0:
            rows.append((number, tree.exploitability(tables[-1]), tree.exploitability(tree.average(tables))))
    return {"uniform": tree.exploitability(None), "rows (updates, last, average)": rows, "path": update.path}


def kuhn_entropy(device, _updates):
    """Against the policy as it is, with entropy in units of the payoff."""
    return poker(device, "kuhn")


def leduc_entropy(device, _updates):
    """Likewise."""
    return poker(device, "leduc")


def kuhn(device, updates):
    """Fictitious play: the policy answers all that it was. Without entropy it stops moving, and answers nothing."""
    game = Kuhn()
    tree = dz.rl.GameTree(game)
    env = dz.rl.SelfPlay(game, pool=64, every=1, latest=0.0)
    policy = dz.rl.mlp(env, (64, 64), seed=1)
    settings = POKER if device == "cuda" else SMALL
    algorithm = dz.PPO(**settings, learning_rate=1e-3, gamma=1.0, gae_lambda=1.0, ent_coef=0.05)
    _, update = begun(env, policy, algorithm, device, 10**6)
    tables, rows = [], []
    for _ in range(updates):
        update()
        tables.append(tree.table(policy))
        if len(tables) & (len(tables) - 1) == 0:
            rows.append((len(tables), tree.exploitability(tables[-1]), tree.exploitability(tree.average(tables))))
    rows.append((len(tables), tree.exploitability(tables[-1]), tree.exploitability(tree.average(tables))))
    return {"uniform": tree.exploitability(None), "rows (updates, last, average)": rows, "path": update.path}


PARTS = {"check": check, "connect_four": connect_four, "kuhn": kuhn}
MORE = {
    "connect_four_mlp": connect_four_mlp,
    "connect_four_empty": connect_four_empty,
    "kuhn_entropy": kuhn_entropy,
    "leduc_entropy": leduc_entropy,
}


def main():
    parser = argparse.ArgumentParser(description=__doc__, formatter_class=argparse.RawDescriptionHelpFormatter)
    parser.add_argument("--device", default="cuda", choices=("cuda", "cpu"))
    parser.add_argument("--parts", default=",".join(PARTS))
    parser.add_argument("--updates", type=int, default=250)
    parser.add_argument("--out", type=Path)
    args = parser.parse_args()
    told = {"commit": commit(), "machine": machine(), "when": now()}
    for name in args.parts.split(","):
        began = time.perf_counter()
        told[name] = (PARTS | MORE)[name](args.device, args.updates)
        told[name]["seconds"] = time.perf_counter() - began
        print(name, json.dumps(told[name], indent=1), flush=True)
        if args.out is not None:
            args.out.write_text(json.dumps(told, indent=1) + "\n")


if __name__ == "__main__":
    main()
