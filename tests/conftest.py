"""What holds for all tests."""

from __future__ import annotations

import os

from hypothesis import settings

# Tests start some two hundred Python processes. Where the environment forbids compiled files, as
# images of containers do, each of them would compile this package anew, which takes 0.6 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)

# A busy machine makes any example slow; what is slow for good is seen in `--durations`.
settings.register_profile("ultrapar", deadline=None)
settings.load_profile("ultrapar")
