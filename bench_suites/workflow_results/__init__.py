"""What runs of the phases 5.1 to 5.5 say: the aggregate's files and a table for each phase.

`python -m bench_suites.workflow_results RUN`. Importing this package imports nothing else: pytest's
controller loads `plugin`, and must stay light.
"""
