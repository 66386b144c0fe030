"""pytest and xdist: items become cases, cases run ahead of them, processes work together."""
