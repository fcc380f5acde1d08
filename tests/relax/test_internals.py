"""How measures share out their worlds, which nothing public shows."""

from denizen.relax._measure import _blocks


def test_no_block_has_one_world() -> None:
    for worlds in range(8, 70):
        blocks = list(_blocks(worlds))
        assert [number for block in blocks for number in block] == list(range(worlds, 2 * worlds))
        assert min(map(len, blocks)) > 1
        assert max(map(len, blocks)) <= 17
