"""The doctor's trials by hand: a step, what is found in it, and what it takes without."""

from denizen.perf._doctor.costs import Trial as Trial
from denizen.perf._doctor.diagnosis import at as at
from denizen.perf._doctor.subject import Subject as Subject
from denizen.perf.watch._places import Place as Place
