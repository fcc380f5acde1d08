"""Tests of kernels of networks take `tools` as those of ops do."""

import sys
from pathlib import Path

sys.path.insert(0, str(Path(__file__).parents[2]))

from kernel_tools import _triton_on_the_cpu, tools

__all__ = ["_triton_on_the_cpu", "tools"]
