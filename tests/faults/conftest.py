from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.faults.played import KEY_NAMES
from tests.faults.raw_server import RawServer
from tests.plugin.conftest import project, workers

__all__ = ["project", "workers"]


@pytest.fixture(scope="session")
def _raw_server() -> Iterator[RawServer]:
    server = RawServer()
    server.key_names = KEY_NAMES
    server.start()
    yield server
    server.stop()


@pytest.fixture
def server(_raw_server: RawServer) -> RawServer:
    _raw_server.reset()
    return _raw_server
