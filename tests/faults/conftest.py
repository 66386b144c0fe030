from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.played import KEY_NAMES
from tests.plugin.conftest import project, server, workers
from tests.scripted_server import ScriptedServer

__all__ = ["project", "server", "workers"]


@pytest.fixture(scope="session")
def _server() -> Iterator[ScriptedServer]:
    with ScriptedServer(KEY_NAMES) as server:
        yield server
