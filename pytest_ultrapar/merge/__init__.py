"""`ultrapar merge`: make one run from the parts of a run.

`part_checks.py` decides whether runs are parts of one run, and `clocks.py` converts the times of
all parts to one clock. Neither of them does any I/O. `write_merged.py` makes the merged run.
"""
