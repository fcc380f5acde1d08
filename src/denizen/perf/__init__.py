"""Verdicts on any PyTorch loop: what keeps the device waiting, and at which line."""

from denizen._watch._findings import Finding as Finding
from denizen._watch._recorder import allow as allow
from denizen.perf._budget import Budget as Budget
from denizen.perf._budget import budget as budget
from denizen.perf._budget_report import BudgetReport as BudgetReport
from denizen.perf._checklist import Checklist as Checklist
from denizen.perf._checklist import checklist as checklist
from denizen.perf._doctor import doctor as doctor
from denizen.perf._doctor_diagnosis import Cost as Cost
from denizen.perf._doctor_diagnosis import Diagnosis as Diagnosis
from denizen.perf._doctor_region import Region as Region
from denizen.perf._doctor_region import region as region
from denizen.perf._doctor_report import DoctorReport as DoctorReport
from denizen.perf._doctor_roofline import Roofline as Roofline
from denizen.perf._environment import Environment as Environment
from denizen.perf._environment import Fact as Fact
from denizen.perf._environment import environment as environment
from denizen.perf._gaps import Gap as Gap
from denizen.perf._gaps import attribute as attribute
from denizen.perf._profile import Profiler as Profiler
from denizen.perf._profile import profile as profile
from denizen.perf._profile_report import ProfileReport as ProfileReport
from denizen.perf._profile_trace import Trace as Trace
from denizen.perf._profile_trace import read_trace as read_trace
