"""`ultrapar merge`: combine the parts of a run into one run.

`part_checks.py` decides whether runs are parts of one run, and `clocks.py` converts the times of
all parts to one clock. Neither of them does any I/O. `write_merged.py` makes the merged run.
"""
