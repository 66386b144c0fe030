"""`ultrapar merge`: make one run from its parts.

`part_checks.py` decides whether runs are parts of one run, and `clocks.py` converts the times of
all parts to one clock. Both do no I/O. `write_merged.py` makes the merged run.
"""
