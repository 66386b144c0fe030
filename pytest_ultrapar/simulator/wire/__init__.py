"""Wire formats: a module for each resource that clients ask, imported when one asks it."""
