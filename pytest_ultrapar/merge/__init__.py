"""`ultrapar merge`: one run of several that are its parts.

`joining.py` (pure) says whether runs are parts of one, `merging.py` makes the whole. `clocks.py`
(pure) puts the times of all parts on one clock.
"""
