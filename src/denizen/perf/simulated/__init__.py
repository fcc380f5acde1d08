"""A simulated accelerator: real values on the CPU behind a device of their own, so that no GPU is needed to count."""

from denizen.perf.simulated._alias import cuda_alias as cuda_alias
from denizen.perf.simulated._device import gpu_or_simulated as gpu_or_simulated
from denizen.perf.simulated._device import simulated_device as simulated_device
