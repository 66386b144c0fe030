"""A provider made of code: limits, latencies and models that act, behind a real HTTP server."""
