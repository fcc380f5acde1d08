"""Verdicts on any PyTorch loop: what keeps the device waiting, and at which line."""

import importlib
import typing

if typing.TYPE_CHECKING:
    from denizen.perf._bench.bench import bench as bench
    from denizen.perf._bench.report import BenchCase as BenchCase
    from denizen.perf._bench.report import BenchReport as BenchReport
    from denizen.perf._bench.report import Ratio as Ratio
    from denizen.perf._bench.report import Regression as Regression
    from denizen.perf._bench.variant import Variant as Variant
    from denizen.perf._budget.budget import Budget as Budget
    from denizen.perf._budget.budget import budget as budget
    from denizen.perf._budget.report import BudgetReport as BudgetReport
    from denizen.perf._doctor.checklist import Checklist as Checklist
    from denizen.perf._doctor.checklist import checklist as checklist
    from denizen.perf._doctor.diagnosis import Cost as Cost
    from denizen.perf._doctor.diagnosis import Diagnosis as Diagnosis
    from denizen.perf._doctor.doctor import doctor as doctor
    from denizen.perf._doctor.region import Region as Region
    from denizen.perf._doctor.region import examine_script as examine_script
    from denizen.perf._doctor.region import region as region
    from denizen.perf._doctor.report import DoctorReport as DoctorReport
    from denizen.perf._doctor.roofline import Roofline as Roofline
    from denizen.perf._doctor.subject import built as built
    from denizen.perf._environment import Environment as Environment
    from denizen.perf._environment import Fact as Fact
    from denizen.perf._environment import environment as environment
    from denizen.perf._equivalent.compare import TOLERANCES as TOLERANCES
    from denizen.perf._equivalent.compare import Compared as Compared
    from denizen.perf._equivalent.compare import Verdict as Verdict
    from denizen.perf._equivalent.equivalent import equivalent as equivalent
    from denizen.perf._equivalent.steps import equivalent_steps as equivalent_steps
    from denizen.perf._profile.gaps import Gap as Gap
    from denizen.perf._profile.gaps import attribute as attribute
    from denizen.perf._profile.profile import Profiler as Profiler
    from denizen.perf._profile.profile import profile as profile
    from denizen.perf._profile.report import ProfileReport as ProfileReport
    from denizen.perf._profile.trace import Trace as Trace
    from denizen.perf._profile.trace import read_trace as read_trace
    from denizen.perf.watch._event_log import allow as allow
    from denizen.perf.watch._findings import Finding as Finding

# Each name is imported where it is first used: what counts (`denizen.perf.watch`) is used by every run, and the
# verdicts beside it need not be loaded with it.
_NAMES = {
    "_bench.bench": ("bench",),
    "_bench.report": ("BenchCase", "BenchReport", "Ratio", "Regression"),
    "_bench.variant": ("Variant",),
    "_budget.budget": ("Budget", "budget"),
    "_budget.report": ("BudgetReport",),
    "_doctor.checklist": ("Checklist", "checklist"),
    "_doctor.diagnosis": ("Cost", "Diagnosis"),
    "_doctor.doctor": ("doctor",),
    "_doctor.region": ("Region", "examine_script", "region"),
    "_doctor.report": ("DoctorReport",),
    "_doctor.roofline": ("Roofline",),
    "_doctor.subject": ("built",),
    "_environment": ("Environment", "Fact", "environment"),
    "_equivalent.compare": ("Compared", "TOLERANCES", "Verdict"),
    "_equivalent.equivalent": ("equivalent",),
    "_equivalent.steps": ("equivalent_steps",),
    "_profile.gaps": ("Gap", "attribute"),
    "_profile.profile": ("Profiler", "profile"),
    "_profile.report": ("ProfileReport",),
    "_profile.trace": ("Trace", "read_trace"),
    "watch._findings": ("Finding",),
    "watch._event_log": ("allow",),
}
_MODULES = {name: module for module, names in _NAMES.items() for name in names}


def __getattr__(name: str) -> typing.Any:
    if name not in _MODULES:
        raise AttributeError(f"module 'denizen.perf' has no attribute {name!r}")
    found = getattr(importlib.import_module(f"denizen.perf.{_MODULES[name]}"), name)
    globals()[name] = found
    return found


def __dir__() -> list[str]:
    return sorted({*globals(), *_MODULES})
