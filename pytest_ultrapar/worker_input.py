"""Where a worker of xdist finds what the controller gave it."""

from __future__ import annotations

INPUT = "ultrapar"
"""Key of our part of `workerinput`; plain values only, never a secret."""
