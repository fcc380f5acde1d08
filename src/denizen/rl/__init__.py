"""Reinforcement learning inside worlds that live on the device."""

from denizen.model import Box as Box
from denizen.model import Discrete as Discrete
from denizen.model import Env as Env
from denizen.model import Look as Look
from denizen.rl._distributions import Categorical as Categorical
from denizen.rl._distributions import Gaussian as Gaussian
from denizen.rl._draws import Draws as Draws
from denizen.rl._draws import Shuffles as Shuffles
from denizen.rl._evaluate import Evaluation as Evaluation
from denizen.rl._evaluate import evaluate as evaluate
from denizen.rl._gae import advantages as advantages
from denizen.rl._policy import ActorCritic as ActorCritic
from denizen.rl._policy import conv as conv
from denizen.rl._policy import mlp as mlp
from denizen.rl._ppo import PPO as PPO
from denizen.rl._ppo import Training as Training
from denizen.rl._schedules import Linear as Linear
from denizen.rl._train import Trained as Trained
from denizen.rl._train import resume as resume
from denizen.rl._train import train as train
from denizen.rl._value import PopArt as PopArt
from denizen.rl._value import ValueHead as ValueHead
from denizen.rl._worlds import Step as Step
from denizen.rl._worlds import Worlds as Worlds
