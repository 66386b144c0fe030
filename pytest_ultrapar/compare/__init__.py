"""Compare finished runs, and judge them by rules.

`pairing.py` finds the common cases of two runs, `figures.py` computes figures, `report.py` makes
text and `page.py` HTML. `rules.py` reads rules, `gate.py` judges by them. `bench/` runs one suite
in several modes and compares the runs.
"""
