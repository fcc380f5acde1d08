"""Random numbers as a pure function of seed, world, stream name, step and agent."""

from denizen.rng._events import Events as Events
from denizen.rng._quantiles import gamma_quantile as gamma_quantile
from denizen.rng._quantiles import poisson_quantile as poisson_quantile
from denizen.rng._relax import Hard as Hard
from denizen.rng._relax import Relax as Relax
from denizen.rng._relax import Weigh as Weigh
from denizen.rng._relax import weighs as weighs
from denizen.rng._rng import BY_ID as BY_ID
from denizen.rng._rng import EVALUATION_SEED as EVALUATION_SEED
from denizen.rng._rng import LOG_COLUMNS as LOG_COLUMNS
from denizen.rng._rng import MAX_SEED as MAX_SEED
from denizen.rng._rng import Known as Known
from denizen.rng._rng import Rng as Rng
from denizen.rng._rng import identities as identities
from denizen.rng._rng import stream_number as stream_number
