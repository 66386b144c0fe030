"""Reserve API keys and daily units on this machine, before a run or a check sends requests."""
