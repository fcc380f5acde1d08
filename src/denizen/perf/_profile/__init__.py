"""Profiles of a loop: what the device waited for, from traces of torch's profiler."""
