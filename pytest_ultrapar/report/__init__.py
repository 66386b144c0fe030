"""The texts that users read during a run and after it.

`progress.py` and `live_view.py` show a run in progress, `summary.py` and `terminal_summary.py` a
finished run. `text.py` formats numbers, tables and text from outside for a terminal. `pages/`
writes `report.html`; `browse/` contains `ultrapar show`, `runs` and `clean`.
"""
