"""Experiments on worlds of the zoo, from training to report, and the statistics that they stand on."""
