"""Reads what a measurement says of its goals."""

from __future__ import annotations


def goals(*lines):
    """The last table: by figure its value, goal and verdict; empty without one."""
    rows = [line.strip("| ").split("|") for line in "\n".join(lines).splitlines()]
    heads = [n for n, cells in enumerate(rows) if cells[0].strip() == "figure"]
    if not heads:
        return {}
    head = heads[-1]
    return {cells[0].strip(): [one.strip() for one in cells[1:]] for cells in rows[head + 2 :]}
