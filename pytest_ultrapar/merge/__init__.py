"""`ultrapar merge`: make one run from its parts.

`joining.py` (pure) decides whether runs are parts of one run, and `merging.py` makes that run.
`clocks.py` (pure) converts the times of all parts to one clock.
"""
