"""`denizen` whose third update fails, and which saves whenever it can."""

import runpy

from denizen.rl import PPO
from denizen.run import StateFolder

StateFolder.due = lambda self: True
update = PPO.update


def faulty(ppo, training):
    if int(training.updates) == 2:
        raise RuntimeError("the third update fails")
    return update(ppo, training)


PPO.update = faulty
runpy.run_module("denizen", run_name="__main__", alter_sys=True)
