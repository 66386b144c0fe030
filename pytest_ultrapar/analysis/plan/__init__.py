"""The forecast of a run before its first request."""
