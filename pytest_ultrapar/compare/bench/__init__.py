"""`ultrapar bench`: run the same cases in several modes, and report how fast each mode is."""
