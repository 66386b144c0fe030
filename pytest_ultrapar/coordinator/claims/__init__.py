"""What a run or a check claims on this host before it sends: API keys, and units of the day."""
