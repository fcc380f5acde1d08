"""The replay against plain loops over what happened: every step that can be drawn, in every case."""

import pytest
import torch

from denizen.rl._replay import Replay, most_cuts

GAMMA = 0.5


class Told:
    """Random lives of some rows as lists, and the replay that was given them.

    With `few` resets only some rows have last looks; others wait, and what they show next is their last look.
    """

    def __init__(self, steps, total, rows=3, n=1, chunk=1, limit=None, gaps=False, few=False, seed=0):
        draw = torch.Generator().manual_seed(seed)
        self.steps, self.total, self.rows, self.n = steps, total, rows, n
        self.looks = torch.arange(1.0, (total + 1) * rows + 1).view(total + 1, rows)
        self.last = -self.looks[:-1]  # what is seen last of a life that is cut off in a step
        self.reward = torch.rand(total, rows, generator=draw)
        chance = torch.rand(total, rows, generator=draw)
        self.dead, self.cut = chance < 0.2, chance > 0.7
        if limit is not None:
            self.cut = (torch.arange(1, total + 1) % limit == 0)[:, None].expand(total, rows)
        self.valid = torch.ones(total, rows, dtype=torch.bool)
        wait = torch.rand(total, rows, generator=draw) < 0.5
        for t in range(1, total if gaps else 0):  # who waits does so from the end of a life on
            self.valid[t] = ~(wait[t] & (self.dead[t - 1] | self.cut[t - 1] | ~self.valid[t - 1]))
        self.dead, self.cut = self.dead & self.valid, self.cut & self.valid
        if few:  # the last row never begins anew at once
            self.last[:, -1] = self.looks[1:, -1]
        most = most_cuts(steps, limit, limit is None)
        shown = {"one": self.looks[0][:, None], "many": self.looks[0].to(torch.int16)}
        self.replay = Replay(steps, shown, torch.zeros(rows), gamma=GAMMA, n_steps=n, most_cuts=most, gaps=gaps)
        for at in range(0, total, chunk):
            part = slice(at, at + chunk)
            seen, now, last = self.looks[part], self.looks[at + chunk], self.last[part]
            happened = {
                "observation": {"one": seen[..., None], "many": seen.to(torch.int16)},
                "action": 2 * seen,
                "reward": self.reward[part],
                "terminated": self.dead[part],
                "truncated": self.cut[part],
                "valid": self.valid[part],
            }
            given = torch.arange(rows - few).flip(0)
            last = last[:, given]
            finals = {
                "rows": given.expand(chunk, -1),
                "observation": {"one": last[..., None], "many": last.to(torch.int16)},
            }
            self.replay.add(happened, {"one": now[:, None], "many": now.to(torch.int16)}, None, finals)

    def expected(self, t, row):
        """(reward, discount, following look) of a step, by the definition."""
        total, factor = 0.0, 1.0
        for k in range(t, min(t + self.n, self.total)):
            total += factor * float(self.reward[k, row])
            factor *= GAMMA
            following = float(self.looks[k + 1, row])
            if self.dead[k, row]:
                return total, 0.0, None
            if self.cut[k, row]:
                return total, factor, float(self.last[k, row])
        return total, factor, following


CASES = [
    {"steps": 8, "total": 5},  # not full yet
    {"steps": 8, "total": 8},
    {"steps": 5, "total": 17},  # round the ring three times
    {"steps": 7, "total": 24, "chunk": 3},  # a rollout over the ring's edge
    {"steps": 6, "total": 20, "n": 3},
    {"steps": 6, "total": 21, "n": 3, "chunk": 3, "limit": 4},
    {"steps": 4, "total": 16, "chunk": 4, "limit": 1},  # all is cut off
    {"steps": 9, "total": 30, "n": 4, "gaps": True},
    {"steps": 9, "total": 30, "n": 2, "chunk": 5, "gaps": True},
    {"steps": 9, "total": 30, "n": 2, "chunk": 5, "gaps": True, "few": True},
]


@pytest.mark.parametrize("case", CASES, ids=str)
def test_every_step_is_what_happened(case):
    told = Told(**case)
    replay, filled = told.replay, min(told.total, told.steps)
    age, row = torch.meshgrid(torch.arange(filled), torch.arange(told.rows), indexing="ij")
    batch = replay.batch(age.flatten(), row.flatten())
    for place, (a, r) in enumerate(zip(age.flatten().tolist(), row.flatten().tolist(), strict=True)):
        t = told.total - filled + a
        if not told.valid[t, r]:
            continue
        reward, discount, following = told.expected(t, r)
        assert batch.observation["one"][place, 0] == told.looks[t, r]
        assert batch.action[place] == 2 * told.looks[t, r]
        assert batch.reward[place].item() == pytest.approx(reward, rel=1e-6)
        assert batch.discount[place].item() == pytest.approx(discount)
        if following is not None:
            assert batch.following["one"][place, 0] == following
            assert batch.following["many"][place] == following
    assert batch.following["many"].dtype == torch.int16


@pytest.mark.parametrize("gaps", [False, True])
def test_draws_are_uniform_among_steps_that_were_lived(gaps):
    told = Told(steps=6, total=15, rows=4, gaps=gaps)
    filled, lanes = 6, 60_000
    words = torch.randint(0, 2**32, (lanes,), generator=torch.Generator().manual_seed(1))
    age, row = told.replay.draw(words)
    counts = torch.zeros(filled, 4).index_put((age, row), torch.ones(lanes), accumulate=True)
    lived = told.valid[-filled:]
    assert told.replay.stored() == lived.sum()
    assert (counts[~lived] == 0).all()
    mean = lanes / float(lived.sum())
    chi = float(((counts[lived] - mean) ** 2 / mean).sum())
    assert chi < float(lived.sum()) + 4 * (2 * float(lived.sum())) ** 0.5


def test_a_mask_comes_with_the_look_that_it_is_of():
    masks = torch.eye(3, dtype=torch.bool)
    replay = Replay(3, torch.zeros(1, 1), torch.zeros(1), gamma=0.9, action_mask=masks[:1], most_cuts=3)
    flags = {name: torch.tensor([[False], [False]]) for name in ("terminated", "truncated")}
    flags["truncated"] = torch.tensor([[False], [True]])
    happened = {
        "observation": torch.zeros(2, 1, 1),
        "action": torch.zeros(2, 1),
        "reward": torch.zeros(2, 1),
        "valid": torch.ones(2, 1, dtype=torch.bool),
        "action_mask": masks[:2, None],
        **flags,
    }
    finals = {
        "rows": torch.zeros(2, 1, dtype=torch.int64),
        "observation": torch.zeros(2, 1, 1),
        "action_mask": ~masks[:2, None],
    }
    replay.add(happened, torch.zeros(1, 1), masks[2:3], finals)
    following = replay.batch(torch.tensor([0, 1]), torch.tensor([0, 0])).following_mask
    assert torch.equal(following, torch.stack([masks[1], ~masks[1]]))


@pytest.mark.parametrize(("limit", "at_will", "most"), [(None, False, 0), (5, False, 2), (10, False, 1), (5, True, 10)])
def test_room_for_last_looks(limit, at_will, most):
    assert most_cuts(10, limit, at_will) == most
