"""The whole state of a training loop, kept and put back in place, and what a step uses of it."""
