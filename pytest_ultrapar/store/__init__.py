"""What a run leaves behind: journal, tables, manifest, run directory.

`journal.py` has an episode on disk before it is used; `recovered.py` says how each case stands by
it. `run_directory.py` and `manifest.py` are the run itself. `tables.py` names the columns,
`table_set.py` puts tables in their place together. Whatever is written passes `redact.py`, which
knows all secrets.
"""
