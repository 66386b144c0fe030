"""The claims of a run or a check on this machine before it sends: API keys and daily units."""
