"""Figures of runs: statistics, the lower bound, where the time went, limits held or not."""
