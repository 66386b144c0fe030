"""Wire formats: a module for each resource of an API, imported at its first request."""
