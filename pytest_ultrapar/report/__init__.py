"""What people read while a run goes on and when it is over.

`progress.py` and `live_view.py` are for a run that goes on, `summary.py` and `brief.py` for its
end. `text.py` writes numbers, tables and foreign text for a terminal. `pages/` makes
`report.html`; `browse/` is `ultrapar show`, `runs` and `clean`.
"""
