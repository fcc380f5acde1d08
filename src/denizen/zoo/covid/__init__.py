"""COVID; see README.md."""

from denizen.zoo.covid.config import AGE_GROUPS as AGE_GROUPS
from denizen.zoo.covid.config import Course as Course
from denizen.zoo.covid.config import covid as covid
from denizen.zoo.covid.config import gamma_kernel as gamma_kernel
from denizen.zoo.covid.model import STAGES as STAGES
from denizen.zoo.covid.model import Covid as Covid
from denizen.zoo.covid.model import People as People
