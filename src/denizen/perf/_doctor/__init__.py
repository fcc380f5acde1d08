"""The doctor: which lines of a step cost what, and what to write instead."""
