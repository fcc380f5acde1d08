"""Stands for a library: an interrupt comes while it is imported."""

import os
import signal
import time

os.kill(os.getpid(), signal.Signals[os.environ["INTERRUPT"]])
time.sleep(20)
raise ImportError("the interrupt was lost")
