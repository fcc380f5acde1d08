"""CartPole with Stable-Baselines3 until the last 100 lives have a mean return of 475; see `cartpole_cpu.py`.

sb3_cartpole.py SEED STEPS zoo|cleanrl      # rl-baselines3-zoo's tuned settings, or CleanRL's
"""

import sys

from stable_baselines3 import PPO
from stable_baselines3.common.callbacks import BaseCallback
from stable_baselines3.common.env_util import make_vec_env

SETTINGS = {
    "zoo": {
        "n_envs": 8,
        "n_steps": 32,
        "batch_size": 256,
        "gae_lambda": 0.8,
        "gamma": 0.98,
        "n_epochs": 20,
        "ent_coef": 0.0,
        "learning_rate": lambda left: 1e-3 * left,
        "clip_range": lambda left: 0.2 * left,
    },
    "cleanrl": {
        "n_envs": 4,
        "n_steps": 128,
        "batch_size": 128,
        "gae_lambda": 0.95,
        "gamma": 0.99,
        "n_epochs": 4,
        "ent_coef": 0.01,
        "learning_rate": lambda left: 2.5e-4 * left,
        "clip_range": 0.2,
    },
}


class Until(BaseCallback):
    """Ends the training when the goal is met; asked after each rollout."""

    def _on_step(self) -> bool:
        return True

    def _on_rollout_end(self) -> None:
        lives = [life["r"] for life in self.model.ep_info_buffer]
        if len(lives) == 100 and sum(lives) / 100 >= 475:
            print(self.num_timesteps, flush=True)
            sys.exit()


def main():
    settings = dict(SETTINGS[sys.argv[3]])
    worlds = make_vec_env("CartPole-v1", n_envs=settings.pop("n_envs"), seed=int(sys.argv[1]))
    PPO("MlpPolicy", worlds, seed=int(sys.argv[1]), device="cpu", **settings).learn(int(sys.argv[2]), Until())
    print("never")


main()
