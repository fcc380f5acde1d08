"""Benchmarks of steps: rates with intervals, ratios, regressions."""
