"""A training is built where neither rich nor tyro is: its number of steps."""

import sys

for name in ("rich", "tyro"):
    sys.modules[name] = None  # type: ignore[assignment]

from denizen.app._build import build  # noqa: E402

words = {"world_name": "cartpole", "algo": "ppo", "steps": None, "set": {}, "world": {}, "policy": {}}
print(build(words, 0).steps)
