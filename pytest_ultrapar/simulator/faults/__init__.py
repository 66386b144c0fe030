"""Faults by script: what a user writes, checked, and what it does to requests at run time."""
