"""Budgets: how often a region of code may keep the device waiting."""
