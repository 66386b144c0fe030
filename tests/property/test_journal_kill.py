"""A record whose append returned is in the journal, whenever the process is killed."""

from __future__ import annotations

import random
import signal
import subprocess
import sys

import pytest

from pytest_ultrapar.store.journal import Damage, segments
from tests.journals import scan_journal

WRITER = """
import sys
from pathlib import Path
from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.store.journal import JournalWriter

writer = JournalWriter(Path(sys.argv[1]), "gw0", lambda data: data)
number = 0
while True:
    text = "x" * (number * 7919 % 20_000)
    writer.append(EpisodeEnded(f"{number:016x}", "gw0", "returned", 1, 2, 0.5, stdout=text))
    sys.stdout.write(f"{number}\\n")
    sys.stdout.flush()
    number += 1
"""


def killed_after(directory, n_told):
    """The number of records that the writer had reported when it was killed."""
    writer = subprocess.Popen(
        [sys.executable, "-c", WRITER, directory], stdout=subprocess.PIPE, text=True
    )
    for _ in range(n_told):
        writer.stdout.readline()
    writer.send_signal(signal.SIGKILL)
    # The last reports between the last line read here and its death are still in the pipe.
    told = n_told + len(writer.stdout.read().splitlines())
    assert writer.wait() == -signal.SIGKILL
    writer.stdout.close()
    return told


def check(directory, n_told):
    told = killed_after(directory, n_told)
    found = [record for _, record in scan_journal(directory)]
    assert not [record for record in found if isinstance(record, Damage)]
    assert told - 1 <= len(found) <= told + 1
    assert [record.case_id for record in found] == [f"{i:016x}" for i in range(len(found))]
    assert len(segments(directory)) == 1


def test_journal_of_a_killed_process_has_all_reported_records(tmp_path):
    for n_told in (1, 2, 57):
        directory = tmp_path / str(n_told)
        directory.mkdir()
        check(directory, n_told)


@pytest.mark.slow
def test_journal_survives_fifty_kills(tmp_path):
    rng = random.Random(1)
    for number in range(50):
        directory = tmp_path / str(number)
        directory.mkdir()
        check(directory, rng.randrange(1, 400))
