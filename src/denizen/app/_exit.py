"""Exit codes: the one table of all commands, which docs/guides/command-line.md and their help repeat."""

DONE = 0  # also where a check found nothing
FOUND = 1  # a check found something: findings, something slower, something different
WRONG = 2  # words that mean nothing, input that cannot be used, an error in the user's code, or a fault of denizen
STOPPED = 130  # Ctrl-C or SIGTERM; what was computed is saved where a command saves
