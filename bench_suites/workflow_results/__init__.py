"""The results of the phases 5.1 to 5.5: a table for each phase, and the files of the aggregate.

Run `python -m bench_suites.workflow_results RUN`. This package imports no other module, since the
controller loads `plugin` and must use little memory.
"""
