"""How a run uses pytest in each process: items become cases, and cases are prefetched.

`selection.py` and `collection.py` turn tests into cases. `prefetcher.py` starts the episodes of the
cases, and hands each item back when its episode has ended. `reports.py` turns pytest's reports into
grades. `run_config.py` provides the run's pool and settings. `worker.py` is the plugin in an xdist
worker. Only `internals.py` uses pytest's internals; `required_internals.py` lists them.
"""
