"""Whole runs on a real open server with a real small model, whose wisdom is not asserted."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
