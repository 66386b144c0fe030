"""Whole runs on a real open server with a real small model; the answers are not checked."""

from __future__ import annotations

from pathlib import Path

ROOT = Path(__file__).parents[2]
