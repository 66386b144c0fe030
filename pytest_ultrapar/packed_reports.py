"""Reports on their way from an xdist worker to the controller, as one string of bytes each.

execnet writes and reads every word of a report in Python: a case's three reports, some 40 words
each, took a third of the time that a worker's main thread spent on a case, and as much again of the
controller.
"""

from __future__ import annotations

import marshal
from typing import Any

_PACKED = "ultrapar_packed"


def pack(data: dict[str, Any]) -> dict[str, Any]:
    """The data of a report in a form that execnet takes at once.

    Args:
        data: What `pytest_report_to_serializable` returned. If it holds what cannot be packed it
            goes unpacked, and execnet says what it thinks of it.
    """
    try:
        return {_PACKED: marshal.dumps(data)}
    except ValueError:
        return data


def unpack(data: dict[str, Any]) -> dict[str, Any] | None:
    """What was packed; None for data that was not."""
    packed = data.get(_PACKED)
    # From our own worker, which runs the same interpreter; JSON would make lists of tuples.
    return None if packed is None else marshal.loads(packed)  # noqa: S302
