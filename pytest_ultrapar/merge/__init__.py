"""`ultrapar merge`: make one run from its parts.

`part_checks.py` (pure) decides whether runs are parts of one run, and `write_merged.py` makes that
run. `clocks.py` (pure) converts the times of all parts to one clock.
"""
