"""The figures of a run: statistics, the lower bound, the use of time, and an audit of the limits.

Start reading at `compaction.py`, which makes the tables, the summary and the benchmark JSON from a
run's journal. The compaction runs in its own process (`compaction_child.py`, started by
`compaction_process.py`). While cases are running, this process already reads the growing journal at
the lowest priority (`journal_scan.py`). `statistics.py`, `requests.py`, `performance.py`,
`attribution.py` and `repetitions.py` are pure arithmetic on cases and requests. `measured_run.py`
reads a finished run. `plan/` forecasts a run's figures before the run starts.
"""
