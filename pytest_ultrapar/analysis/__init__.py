"""Figures of runs: statistics, the lower bound, where the time went, limits held or not.

Begin with `compaction.py`: it makes tables, summary and benchmark JSON of a run's journal. A
process of its own does that (`compactor.py`, started by `compactor_process.py`); while cases run
it takes up the journal as it grows (`intake.py`), at the lowest priority. `statistics.py`,
`requests.py`, `performance.py`, `attribution.py` and `repetitions.py` are pure arithmetic on
cases and requests. `measured_run.py` reads a finished run back. `plan/` has the same figures of a
run that has not begun.
"""
