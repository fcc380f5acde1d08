"""Python looks for garbage as before after a part in which it does not."""

import gc

import pytest

from denizen._garbage import uncollected


def test_garbage_is_looked_for_again_afterwards_as_before():
    with uncollected():
        assert not gc.isenabled()
        with uncollected():
            pass
        assert not gc.isenabled()
    assert gc.isenabled()
    with pytest.raises(ValueError, match="within"), uncollected():
        raise ValueError("within")
    assert gc.isenabled()
    gc.disable()
    try:
        with uncollected():
            pass
        assert not gc.isenabled()
    finally:
        gc.enable()
