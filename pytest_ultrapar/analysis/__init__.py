"""Figures of runs: statistics, the lower bound, the use of time, and an audit of the limits.

Start reading at `compaction.py`, which makes the tables, the summary and the benchmark JSON from a
run's journal. It runs in its own process (`compaction_child.py`, started by
`compaction_process.py`). While cases run, this process reads the journal as it grows
(`journal_scan.py`), at the lowest priority. `statistics.py`, `requests.py`, `performance.py`,
`attribution.py` and `repetitions.py` are pure arithmetic on cases and requests. `measured_run.py`
reads a finished run. `plan/` forecasts the same figures before a run.
"""
