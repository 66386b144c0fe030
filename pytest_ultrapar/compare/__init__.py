"""Compare finished runs, and check them against rules.

`pairing.py` finds the cases that two runs have in common, and `figures.py` computes the figures.
`report.py` turns these into text, and `page.py` turns them into HTML. `rules.py` parses rules, and
`gate.py` checks a run against them. `bench/` runs one suite in several modes and compares the runs.
"""
