"""`ultrapar bench`: run the same cases in several modes and report how much faster each mode is."""
