"""Finished runs beside each other, and rules that a run must keep.

`pairing.py` finds cases that two runs have in common, `figures.py` makes figures of them,
`report.py` text and `page.py` a page. `rules.py` reads rules, `gate.py` judges by them. `bench/`
runs one suite in several modes and compares those.
"""
