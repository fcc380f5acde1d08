"""Doors for users of other simulators: their names, denizen's engine."""
