"""The version, in one place: hatchling reads it when it builds, `denizen.__version__` re-exports it."""

__version__ = "0.1.0"
