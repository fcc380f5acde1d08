"""Doors for users of other simulators: the calls that they know, on denizen's engine."""
