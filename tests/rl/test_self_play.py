"""Games seen by one player: transitions over the others' moves by a float64 loop, opponents, pools, refusals."""

import pytest
import torch
from torch.fx.experimental.proxy_tensor import make_fx

import denizen as dz
from denizen.zoo.connect_four import ConnectFour
from denizen.zoo.kuhn import Kuhn
from denizen.zoo.leduc import Leduc

GAMMA, LAMBDA = 0.9, 0.8


def leduc_by_hand(cards, moves):
    """((player, what it sees), move) for each move, and what the hand pays; the rules once more, in plain Python."""
    stakes, told, rank = [1, 1], [], [card // 2 for card in cards]
    for number in (0, 1):
        raises = turn = 0
        while True:
            player, move = turn % 2, moves[4 * number + turn] - 1
            table = [number == 1 and rank[2] == one for one in range(3)]
            done = [m if 4 * (k // 4) + k % 4 < 4 * number + turn else 0 for k, m in enumerate(moves)]
            seen = [rank[player] == one for one in range(3)] + table
            seen += [m == 2 for m in done] + [m == 3 for m in done] + [player == one for one in range(2)]
            told.append((player, [int(s) for s in seen], move))
            if move == 0:
                gain = stakes[player] * (1 if player else -1)
                return told, [gain, -gain]
            stakes[player] = stakes[1 - player]
            if move == 2:
                stakes[player] += 2 + 2 * number
                raises += 1
            turn += 1
            if move == 1 and turn > 1:
                break
    worth = [rank[p] + 3 * (rank[p] == rank[2]) for p in (0, 1)]
    gain = stakes[0] * ((worth[0] > worth[1]) - (worth[0] < worth[1]))
    return told, [gain, -gain]


def test_transitions_span_the_others_moves():
    """Observations, actions, rewards and advantages of one life in each world against a loop over whole games."""
    game, count, steps = Leduc(), 96, 8
    policy, opponents = dz.rl.mlp(game, (8,), seed=3), [dz.rl.mlp(game, (8,), seed=seed) for seed in (4, 5)]
    algorithm = dz.PPO(num_envs=count, num_steps=steps, max_resets=1)  # hardly any world begins anew
    training = algorithm.init(dz.rl.Against(game, opponents), policy, total_steps=count * steps, device="cpu")
    rollout = training.rollout
    rollout.collect()
    fields = {name: field.clone() for name, field in rollout.fields.items()}
    cards, moves, seats_of = (
        getattr(training.worlds.state_of(rollout.state.worlds), name).tolist() for name in ("cards", "moves", "seat")
    )
    gained = dz.rl.advantages(
        *(fields[name] for name in ("reward", "value")),
        rollout.bootstrap,
        *(fields[name] for name in ("terminated", "truncated", "valid")),
        GAMMA,
        LAMBDA,
    )
    rollout.collect()  # to see who began anew in the last step
    over = (fields["terminated"].cumsum(0) - fields["terminated"].long()).bool()
    anew = (fields["valid"] & over).any(0) | rollout.fields["valid"][0]
    assert int(anew.sum()) <= steps
    last_moves, seats = set(), set()
    for world in (~anew).nonzero().flatten().tolist():
        told, paid = leduc_by_hand(cards[world], moves[world])
        seat = seats_of[world]
        mine = [(seen, move) for player, seen, move in told if player == seat]
        valid = fields["valid"][:, world]
        assert valid.tolist() == [k < len(mine) for k in range(steps)]
        assert fields["observation"][valid, world].tolist() == [seen for seen, _ in mine]
        assert fields["action"][valid, world].tolist() == [move for _, move in mine]
        assert fields["reward"][:, world].tolist() == [
            float(paid[seat]) if k == len(mine) - 1 else 0.0 for k in range(steps)
        ]
        assert int(fields["terminated"][:, world].sum()) == 1
        values, ahead = fields["value"][valid, world].double().tolist(), 0.0
        for k in range(len(mine) - 1, -1, -1):
            last = k == len(mine) - 1
            delta = (paid[seat] if last else GAMMA * values[k + 1]) - values[k]
            ahead = delta + (0.0 if last else GAMMA * LAMBDA * ahead)
            assert float(gained.advantage[k, world]) == pytest.approx(ahead, abs=1e-5)
            assert float(gained.returns[k, world]) == pytest.approx(ahead + values[k], abs=1e-5)
        last_moves.add(told[-1][0] == seat)
        seats.add(seat)
    assert last_moves == {True, False}  # games that end by either one's move
    assert seats == {0, 1}


def always(game, move):
    """A policy that takes one move wherever it is open."""
    policy = dz.rl.mlp(game, (4,))
    with torch.no_grad():
        policy.actor.weight.zero_()
        policy.actor.bias.copy_(60.0 * (torch.arange(game.action_space.n) == move) + 0.0 * move)
    return policy


def test_each_world_plays_one_of_the_opponents():
    """Each of three members in a third of the games, known by its moves; the seat is drawn apart."""
    game, count = ConnectFour(rows=4, columns=4), 1200
    worlds = dz.rl.Worlds(dz.rl.Against(game, [always(game, move) for move in (0, 1, 3)]), count, device="cpu")
    worlds.reset()
    worlds.step(torch.full((count,), 2))
    now = worlds.state()
    theirs = now.stones.gather(1, 1 - now.seat[:, None].long())[:, 0]
    column = torch.tensor([0, 1, 3])[now.member.long()]
    assert bool((theirs >> (column * 5) & 1).bool().all())
    assert bool((torch.where(now.seat == 0, now.moves == 2, now.moves == 3)).all())
    share = torch.stack([(now.member == k) & (now.seat == seat) for k in range(3) for seat in (0, 1)]).float().mean(1)
    assert bool(((share - 1 / 6).abs() < 4 * (5 / 36 / count) ** 0.5).all()), share


def test_no_world_gets_weights_of_its_own():
    """Batched over worlds, an opponent's judgement holds nothing as large as weights times worlds."""
    game, worlds = ConnectFour(), 50
    policies = [dz.rl.mlp(game, (16, 16), seed=seed) for seed in range(3)]
    opponents = dz.rl.Against(game, policies).opponents
    look = torch.randint(0, 2, (worlds, 2, 6, 7), dtype=torch.uint8, generator=torch.Generator().manual_seed(0))
    member = torch.arange(worlds) % 3

    def judged(look, member):
        return torch.vmap(lambda one, whom: opponents(one[None], whom))(look, member)

    nodes = make_fx(judged)(look, member).graph.nodes
    most = max(node.meta["val"].numel() for node in nodes if isinstance(node.meta.get("val"), torch.Tensor))
    assert most == 3 * worlds * 84  # the looks, for each member
    with torch.no_grad():
        found = [policy(look, torch.zeros(worlds, 0)).actions.log_probs for policy in policies]
        alone = torch.stack(found)[member, torch.arange(worlds)]
        assert torch.allclose(judged(look, member).log_softmax(1), alone, atol=1e-6)


def test_opponents_act_as_in_an_evaluation():
    game = Kuhn()
    width = dz.rl.mlp(game).body[1].in_features
    layers = [torch.nn.Flatten(), torch.nn.BatchNorm1d(width), torch.nn.Dropout(0.9), torch.nn.Linear(width, 8)]
    policy = dz.rl.ActorCritic(game, torch.nn.Sequential(*layers).eval()).train()
    game = dz.rl.Against(game, [policy])
    before = torch.get_rng_state()
    worlds = dz.rl.Worlds(game, 4, device="cpu")
    worlds.reset()
    worlds.step(torch.zeros(4, dtype=torch.int64))
    assert torch.equal(torch.get_rng_state(), before)
    assert policy.training
    assert float(policy.body[1].running_mean.abs().sum()) == 0


def test_random_opponents_take_what_is_open():
    game = ConnectFour(rows=1, columns=4)
    worlds = dz.rl.Worlds(dz.rl.Against(game, seat=0), 600, device="cpu")
    worlds.reset()
    worlds.step(torch.zeros(600, dtype=torch.int64))
    now = worlds.state()
    found = torch.stack([now.stones[:, 1] == 1 << (2 * column) for column in (1, 2, 3)]).float().mean(1)
    assert bool(((found - 1 / 3).abs() < 4 * (2 / 9 / 600) ** 0.5).all()), found
    assert float(found.sum()) == pytest.approx(1)


PLAY = {"num_envs": 16, "num_steps": 8, "num_minibatches": 2, "update_epochs": 1}


def test_training_goes_on_bit_for_bit_with_its_pool(tmp_path):
    env = dz.rl.SelfPlay(Kuhn(), pool=3, every=2)
    settings = {"device": "cpu", "compile": False, "progress": False}

    def fresh(seed=7):
        return dz.rl.mlp(env, (8,), seed=seed)

    algorithm = dz.PPO(**PLAY, learning_rate=0.01)
    whole = dz.train(env, fresh(), algorithm, 12 * 128, folder=tmp_path / "whole", **settings)
    dz.train(env, fresh(), algorithm, 5 * 128, folder=tmp_path / "parts", **settings)
    assert env.opponents is None  # each training has a pool of its own
    parts = dz.rl.resume(tmp_path / "parts", env, fresh(8), algorithm, steps=7 * 128, device="cpu", progress=False)
    for one, other in zip(whole.policy.parameters(), parts.policy.parameters(), strict=True):
        assert torch.equal(one, other)
    saved = [dz.rl._training_folder.TrainingFolder.open(tmp_path / n).load("checkpoint") for n in ("whole", "parts")]
    pool = [name for name in saved[0] if name.startswith("pool.")]
    assert len(pool) == 5  # members, and two layers
    assert all(torch.equal(saved[0][name], saved[1][name]) for name in pool)
    assert int(saved[0]["pool.members"]) == 4
    last = dz.rl.read_metrics(tmp_path / "whole")[-1]
    assert last["score"] == pytest.approx(last["won"] / last["episodes"])  # no hand of Kuhn's is drawn
    told = dz.rl.evaluate(env, whole.policy)  # at random outside of a training
    assert torch.equal(told.returns, dz.rl.evaluate(dz.rl.Against(Kuhn()), whole.policy).returns)


def test_the_pool_is_the_policy_and_a_uniform_sample_of_earlier_ones():
    """Over 100 seeds each of 6 policies is among 2 places as often (reservoir sampling), and the newest is first."""
    game, kept = Kuhn(), torch.zeros(6)
    policy = dz.rl.mlp(game, (2,))
    for seed in range(100):
        pool = dz.rl._against.Pool(policy, 3, 2, seed)
        for updates in range(12):
            with torch.no_grad():
                policy.actor.bias.fill_(updates)
            pool.before_update(policy, torch.tensor(updates))
        held = pool.weights["actor.bias"][:, 0]
        assert held[0] == 11
        assert int(pool.members) == 3
        assert bool((held[1:] % 2 == 0).all())
        assert len(set(held[1:].tolist())) == 2
        kept += torch.bincount((held[1:] / 2).long(), minlength=6)
    assert bool(((kept / 100 - 1 / 3).abs() < 4 * (2 / 9 / 100) ** 0.5).all()), kept


def test_the_latest_is_met_as_often_as_asked_for():
    env = dz.rl.SelfPlay(Kuhn(), pool=2, latest=0.25).of_training(dz.rl.mlp(Kuhn(), (4,)), 0)
    env.opponents.members.fill_(3)
    worlds = dz.rl.Worlds(env, 1600, device="cpu")
    worlds.reset()
    share = torch.bincount(worlds.state().member.long(), minlength=3) / 1600
    assert torch.allclose(share, torch.tensor([0.25, 0.375, 0.375]), atol=4 * (0.25 / 1600) ** 0.5)


def test_what_is_no_game_or_no_opponent():
    game, refused = Kuhn(), dz.errors.InputError
    memory = dz.rl.mlp(game, (4,), memory_size=4)
    for given, text in (
        ([], "opponents is empty"),
        ([dz.rl.mlp(game, (4,)), dz.rl.mlp(game, (8,))], r"opponents\[1\] has another form than opponents\[0\]"),
        ([dz.rl.mlp(game, (4,)), dz.rl.mlp(game, (4,), activation=torch.nn.ReLU)], r"body.2: ReLU\(\), and Tanh\(\)"),
        ([always(game, 0), always(game, torch.nan)], r"opponents\[1\] has weights that are not finite"),
        ([dz.rl.mlp(Leduc(), (4,))], r"opponents\[0\]: policy was made for Leduc"),
        ([memory], "has a memory"),
        (dz.rl.mlp(game, (4,)), "expected a list of policies"),
    ):
        with pytest.raises(refused, match=text):
            dz.rl.Against(game, given)
    with pytest.raises(refused, match=r"seat=2, expected a whole number"):
        dz.rl.Against(game, seat=2)
    with pytest.raises(refused, match=r"game is Against, expected a dz.rl.Game"):
        dz.rl.Against(dz.rl.Against(game))
    with pytest.raises(refused, match=r"latest=2"):
        dz.rl.SelfPlay(game, latest=2)
    with pytest.raises(refused, match="SelfPlay: opponents are those of the training"):
        dz.rl.SelfPlay(game, [dz.rl.mlp(game, (4,))])
    for algorithm, policy in ((dz.PPO(**PLAY), dz.rl.mlp(game, (4,))), (dz.rl.DQN(), dz.rl.q_mlp(game, (4,)))):
        with pytest.raises(refused, match=r"Kuhn is a game, .* train dz.rl.SelfPlay\(Kuhn\(\)\)"):
            algorithm.init(game, policy, total_steps=10**6, device="cpu")
    with pytest.raises(refused, match=r"pool=0"):
        dz.rl.SelfPlay(game, pool=0)
    with pytest.raises(refused, match="SelfPlay: policy has a memory"):
        dz.PPO(**PLAY).init(dz.rl.SelfPlay(game), memory, total_steps=1, device="cpu")
    env = dz.rl.SelfPlay(game)
    with pytest.raises(refused, match=r"train: algorithm=\w+, which does not train by self-play; take dz\.PPO"):
        dz.rl.DQN().init(env, dz.rl.q_mlp(env, (4,)), total_steps=10**6, device="cpu")


@pytest.mark.parametrize("seat", [0, 1])
def test_ppo_finds_the_best_response(seat):
    """To a fixed opponent, in either seat, Kuhn's exact best response is worth 0.5 and 0.417 a hand."""
    game = Kuhn()
    tree = dz.rl.GameTree(game)
    algorithm = dz.PPO(num_envs=128, num_steps=16, gamma=1.0, ent_coef=0.0, learning_rate=0.02)
    env = dz.rl.Against(game, seat=seat)
    training = algorithm.init(env, dz.rl.mlp(game, (32,)), total_steps=12 * algorithm.samples, device="cpu")
    update = dz.rl.Updates(training, compile=False)
    for _ in range(12):
        update()
    policy = training.policy
    worth = tree.value(policy, None) if seat == 0 else -tree.value(None, policy)
    assert worth == pytest.approx(tree.best_response(None, seat)[0], abs=0.02)


@pytest.mark.slow
def test_entropy_by_payoff_brings_kuhn_to_rest():
    """As the zoo trains Kuhn, with a quarter of its updates: fictitious play below reaches 0.15 and turns back."""
    entry = dz.zoo.entry("kuhn")
    env, tree = entry.build(), dz.rl.GameTree(Kuhn())
    algorithm = dz.PPO(
        **entry.settings["ppo"] | {"learning_rate": dz.rl.Linear(3e-3, 0.0), "ent_coef": dz.rl.Linear(0.3, 0.1)}
    )
    training = algorithm.init(env, dz.rl.mlp(env), total_steps=120 * algorithm.samples, device="cpu")
    update, tables = dz.rl.Updates(training, compile=False), []
    for _ in range(30):
        update()
        tables.append(tree.table(training.policy))
    assert tree.exploitability(tree.average(tables)) < 0.11  # 0.083 with seed 1


@pytest.mark.slow
def test_the_average_of_policies_that_answer_earlier_ones_is_exploited_less():
    """Kuhn by fictitious play with PPO: the last policy goes round in circles, the average of all does not."""
    game = Kuhn()
    tree, env = dz.rl.GameTree(game), dz.rl.SelfPlay(game, pool=64, every=1, latest=0.0)
    algorithm = dz.PPO(num_envs=128, num_steps=16, learning_rate=3e-3, gamma=1.0, gae_lambda=1.0, ent_coef=0.05)
    training = algorithm.init(env, dz.rl.mlp(env, (32, 32)), total_steps=48 * algorithm.samples, device="cpu")
    update, tables = dz.rl.Updates(training, compile=False), []
    for _ in range(48):
        update()
        tables.append(tree.table(training.policy))
    uniform, last = tree.exploitability(None), [tree.exploitability(table) for table in tables[8:]]
    average = tree.exploitability(tree.average(tables))
    assert average < uniform / 2  # 0.166 of 0.458
    assert max(last) > average  # up to 0.29


@pytest.mark.slow
def test_connect_four_is_learned_by_self_play():
    """On 6 x 7 against random moves, and against the policy that training began with."""
    game = ConnectFour()
    env = dz.rl.SelfPlay(game, pool=4, every=10)
    policy, first = dz.rl.mlp(env, (64, 64), activation=torch.nn.ReLU), dz.rl.mlp(env, (64, 64))
    algorithm = dz.PPO(num_envs=64, num_steps=32, learning_rate=2e-3)
    dz.train(env, policy, algorithm, 40 * algorithm.samples, device="cpu", compile=False, progress=False)
    cup = dz.rl.tournament(game, {"trained": policy, "random": None}, games=400, max_moves=21)
    assert cup.score("trained", "random") > 0.8  # 0.90 after 40 updates
    beaten = dz.rl.evaluate(dz.rl.Against(game, [first]), policy, num_envs=400, max_steps=21)
    assert float((beaten.returns > 0).float().mean()) > 0.7
