"""Time the journal per record; run with `pytest tests/benchmarks --benchmark-only`."""

from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.records import Attempt, EpisodeEnded, TurnMessage
from pytest_ultrapar.store.journal import JournalReader, JournalWriter
from pytest_ultrapar.store.journal_history import RecoveredIndex
from pytest_ultrapar.store.redact import Redactor

ATTEMPT = Attempt(
    turn=0,
    attempt=0,
    provider="azure",
    instance="deployment-1",
    key="key0",
    t_ready_s=1.0,
    t_lease_s=1.1,
    t_send_s=1.2,
    t_end_s=1.4,
    outcome="ok",
    in_flight_at_send=7,
    t_first_byte_s=1.3,
    status=200,
)


@pytest.fixture
def episode():
    """A one-turn episode of 5 kB, like that from a workflow case."""
    return EpisodeEnded(
        "0123456789abcdef",
        "gw0",
        "returned",
        1_700_000_000_000_000,
        1_700_000_000_200_000,
        0.2,
        value=msgspec.Raw(msgspec.json.encode({"calls": ["file_operations.reader"] * 20})),
        attempts=[ATTEMPT],
        messages=[
            TurnMessage(0, "user", "Read the file and write what it says. " * 80),
            TurnMessage(0, "assistant", "<tool_call>reader</tool_call> " * 30),
        ],
        n_turns=1,
    )


def test_journal_append_benchmark(benchmark, tmp_path, episode):
    redactor = Redactor([f"sk-{i}abcdefghijklmnopqrstuvwxyz0123456789" for i in range(3)])
    writer = JournalWriter(tmp_path, "gw0", redactor.bytes)
    position = benchmark(writer.append, episode)
    writer.close()
    assert 4_500 < position.length < 5_500


def test_journal_read_benchmark(benchmark, tmp_path, episode):
    writer = JournalWriter(tmp_path, "gw0", lambda data: data)
    position = writer.append(episode)
    reader = JournalReader(tmp_path)
    assert benchmark(reader.read, position) == episode
    reader.close()
    writer.close()


def test_recovered_lookup_benchmark(benchmark, tmp_path):
    index = RecoveredIndex(tmp_path)
    assert benchmark(index.lookup, "0123456789abcdef") is None
    index.close()
