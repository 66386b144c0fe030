"""pytest and xdist: items become cases, cases are prefetched, processes work together."""
