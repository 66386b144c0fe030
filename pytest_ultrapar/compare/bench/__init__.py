"""`ultrapar bench`: the same cases in several modes, one report on how much faster each is."""
