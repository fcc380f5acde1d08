"""Products of disease models: vaccines, campaigns, strains, waning, tests, tracing, isolation, rates, life tables.

Each is a small frozen object. What changes from step to step lies in fields of the state, which the author declares.
"""

from denizen.disease._campaign import Campaign as Campaign
from denizen.disease._isolation import Isolation as Isolation
from denizen.disease._life import LifeTable as LifeTable
from denizen.disease._life import birthday as birthday
from denizen.disease._life import years as years
from denizen.disease._rates import RateTable as RateTable
from denizen.disease._strains import CrossImmunity as CrossImmunity
from denizen.disease._strains import compete as compete
from denizen.disease._strains import independent as independent
from denizen.disease._strains import sums as sums
from denizen.disease._testing import Results as Results
from denizen.disease._testing import Test as Test
from denizen.disease._tracing import Traced as Traced
from denizen.disease._tracing import Tracing as Tracing
from denizen.disease._vaccine import Vaccine as Vaccine
from denizen.disease._waning import Waning as Waning
