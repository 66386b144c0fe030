"""The files of a run: journal, tables, manifest, run directory.

`journal.py` writes each episode to disk before its result is used. `journal_history.py` reads the
state of each case from the journal. `run_directory.py` and `manifest.py` describe the run itself.
`tables.py` names the columns of the tables, and `table_set.py` publishes all tables together. All
text passes through `redact.py`, which knows all secrets, before it is written.
"""
