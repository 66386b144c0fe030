"""A small answer that unpacks to a huge one costs bounded memory: row 6 of the catalogue."""

from __future__ import annotations

import pytest

from tests.faults.test_large_answers import MOST_MIB, peak_mib

pytestmark = pytest.mark.slow


@pytest.mark.parametrize("fault", ["gzip_bomb", "double_bomb"])
def test_packed_answer_costs_bounded_memory(project, fault):
    usual = peak_mib(project, "say fine")[1]
    project.server.reset()
    played, peak = peak_mib(project, f"{fault} it")
    assert played.outcome(f"{fault} it") == ("infra", "malformed")
    assert len(project.server.log) == 1
    assert peak - usual < MOST_MIB
