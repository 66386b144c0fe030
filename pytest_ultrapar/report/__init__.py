"""The output that users read during a run and after its end.

`progress.py` and `live_view.py` show a run in progress. `summary.py` and `terminal_summary.py` show
a finished run. `text.py` formats numbers and tables for a terminal, and makes text from other
programs safe to print. `pages/` writes `report.html`; `browse/` contains `ultrapar show`, `runs`
and `clean`.
"""
