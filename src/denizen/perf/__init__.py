"""Verdicts on any PyTorch loop: what keeps the device waiting, and at which line."""

from denizen._watch._findings import Finding as Finding
from denizen._watch._recorder import allow as allow
from denizen.perf._budget import Budget as Budget
from denizen.perf._budget import budget as budget
from denizen.perf._budget_report import BudgetReport as BudgetReport
