"""Whole runs that are killed, stopped and interrupted, and the rules that hold afterwards.

`python -m tests.torture --help` explains how to run it, and `docs/fault-catalogue.md` its checks.
"""
