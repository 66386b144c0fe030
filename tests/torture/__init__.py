"""Whole runs that are killed, stopped and interrupted, and what must hold afterwards.

`python -m tests.torture --help` says how to run it, `docs/fault-catalogue.md` what it checks.
"""
