"""Wire formats: one module for each resource of an API, imported at the first request to it."""
