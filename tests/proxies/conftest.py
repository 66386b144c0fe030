from __future__ import annotations

from collections.abc import Iterator

import pytest

from tests.proxies.catalogue import LATENCY_S
from tests.proxies.judged_run import provider


@pytest.fixture(scope="package")
def upstream(tmp_path_factory: pytest.TempPathFactory) -> Iterator[int]:
    """The port of a simulated provider without limits."""
    with provider(LATENCY_S, tmp_path_factory.mktemp("upstream")) as port:
        yield port
