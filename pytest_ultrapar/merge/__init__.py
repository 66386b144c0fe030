"""`ultrapar merge`: one run of several that are its parts."""
