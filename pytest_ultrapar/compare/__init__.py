"""Finished runs beside each other, and rules that a run must keep."""
