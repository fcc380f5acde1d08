"""Whether a machine and its settings are set up for speed."""
