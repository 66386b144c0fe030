"""What a run is going to be, before its first request."""
