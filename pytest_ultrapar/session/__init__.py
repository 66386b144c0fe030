"""pytest in each process of a run: items become cases, and cases are prefetched.

`selection.py` and `collection.py` make cases of tests, `prefetcher.py` starts their episodes and
hands items back as those end, `reports.py` says what came of them. `run_config.py` has what
pytest's config knows of the run. A worker of xdist is `worker.py`. Internals of pytest are used
in `internals.py` only; `required_internals.py` lists them.
"""
