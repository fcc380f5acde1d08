"""A simulated accelerator: real values on the CPU behind a device of their own, so that no GPU is needed to count."""
