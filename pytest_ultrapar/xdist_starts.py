"""In xdist's controller: a worker that is killed while it starts is started again.

Without this it would be an internal error: xdist 3.8.0 replaces a worker that dies once it runs
(dsession.py:238), but lets through what execnet raises when it dies while `NodeManager.setup_node`
(workermanage.py:107) still talks to it. A started process is known by its `XSpec`, whose id must be
a new one each time (dsession.py:392).
"""

from __future__ import annotations

from typing import Any

import pytest

_MOST_IN_A_ROW = 5
"""More are no accident: a process that cannot even start would be started for ever."""


def start_again(node_manager: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Have a node manager start workers again that die while they start.

    Args:
        node_manager: xdist's, before it starts any.
    """
    setup_node = node_manager.setup_node

    def setup(spec: Any, putevent: Any) -> Any:  # noqa: ANN401
        for _ in range(_MOST_IN_A_ROW):
            try:
                return setup_node(spec, putevent)
            except (OSError, EOFError) as error:
                said = error
                spec.id = None
                node_manager.group.allocate_id(spec)
        msg = (
            f"{_MOST_IN_A_ROW} worker processes in a row ended while they started; the last: {said}"
        )
        raise pytest.UsageError(msg)

    node_manager.setup_node = setup
