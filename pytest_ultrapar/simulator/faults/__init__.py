"""Scripted faults: the faults file, its checks, and the effects on requests at run time."""
