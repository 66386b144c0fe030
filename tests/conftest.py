"""What holds for all tests."""

from __future__ import annotations

import os

# Tests start some two hundred Python processes. Where the environment forbids compiled files, as
# images of containers do, each of them would compile this package anew, which takes 0.6 s.
os.environ.pop("PYTHONDONTWRITEBYTECODE", None)
