"""Networks of agents: attention over each agent's own past and over the others, with weights of each agent's own.

`denizen.nn.kernels` holds the operations that networks and their training bring themselves.
"""

from denizen.nn._config import DotGATConfig as DotGATConfig
from denizen.nn._config import Isolated as Isolated
from denizen.nn._covariance import Cauchy as Cauchy
from denizen.nn._covariance import Matern as Matern
from denizen.nn._covariance import WhiteNoise as WhiteNoise
from denizen.nn._dynamic import DynamicDotGAT as DynamicDotGAT
from denizen.nn._heads import Aggregator as Aggregator
from denizen.nn._heads import Classifier as Classifier
from denizen.nn._heads import DotGAT as DotGAT
from denizen.nn._heads import FactorPredictor as FactorPredictor
from denizen.nn._heads import Predictor as Predictor
from denizen.nn._heads import SharedDecoder as SharedDecoder
from denizen.nn._int8 import quantize_int8 as quantize_int8
from denizen.nn._losses import RunningMeans as RunningMeans
from denizen.nn._losses import agent_cross_entropy as agent_cross_entropy
from denizen.nn._losses import agent_mse as agent_mse
from denizen.nn._losses import classification_metrics as classification_metrics
from denizen.nn._losses import completion_loss as completion_loss
from denizen.nn._losses import completion_loss_original as completion_loss_original
from denizen.nn._losses import completion_metrics as completion_metrics
from denizen.nn._losses import regression_metrics as regression_metrics
from denizen.nn._losses import sinkhorn_distance as sinkhorn_distance
from denizen.nn._maps import AttentionMaps as AttentionMaps
from denizen.nn._maps import attention_maps as attention_maps
from denizen.nn._reference import AgentStates as AgentStates
from denizen.nn._reference import DotGATReference as DotGATReference
from denizen.nn._reference import DynamicDotGATReference as DynamicDotGATReference
from denizen.nn._sensing import EntrySensing as EntrySensing
from denizen.nn._sensing import sense_columns as sense_columns
from denizen.nn._sensing import sense_entries as sense_entries
from denizen.nn._series import BlockMixing as BlockMixing
from denizen.nn._series import RandomMixing as RandomMixing
from denizen.nn._series import Series as Series
from denizen.nn._series import draw_series as draw_series
from denizen.nn._series import draw_unstructured as draw_unstructured
from denizen.nn._series import split_processes as split_processes
from denizen.nn._social import EdgeBias as EdgeBias
from denizen.nn._social import SmallWorld as SmallWorld
from denizen.nn._social import SocialBias as SocialBias
from denizen.nn._social import SocialGraph as SocialGraph
from denizen.nn._tasks import TASKS as TASKS
from denizen.nn._tasks import NonlinearTarget as NonlinearTarget
from denizen.nn._tasks import Task as Task
from denizen.nn._tasks import examples as examples
from denizen.nn._tasks import task as task
