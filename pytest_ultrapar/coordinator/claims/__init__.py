"""Before a run or a check sends requests: claim API keys and daily units on this machine."""
