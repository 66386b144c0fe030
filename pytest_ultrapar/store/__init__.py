"""The files of a run: journal, tables, manifest, run directory.

`journal.py` puts each episode on disk before it is used; `journal_history.py` reads the state of
each case from it. `run_directory.py` and `manifest.py` describe the run itself. `tables.py` names
the columns, and `table_set.py` publishes all tables together. All written text passes through
`redact.py`, which knows all secrets.
"""
