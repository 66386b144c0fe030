"""Locks on the API keys of a run or a check on this machine, taken before it sends."""
