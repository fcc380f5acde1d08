"""Products of disease models: vaccines and campaigns, strains, waning, tests, isolation, rates by age, life tables.

Each is a small frozen object. What changes from step to step lies in fields of the state, which the author declares.
"""

from denizen.disease._campaign import Campaign as Campaign
from denizen.disease._vaccine import Vaccine as Vaccine
from denizen.disease._waning import Waning as Waning
