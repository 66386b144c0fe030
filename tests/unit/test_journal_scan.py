"""A journal read while it grows gives the same tables as a journal read after the run."""

from __future__ import annotations

import random
import shutil
from datetime import UTC, datetime

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.journal_scan import JournalScan
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.store import table_set
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.unit.finished_run import NOW, case, episode, grade, make_run, write_journal

TABLES = ("results", "attempts", "transcripts")


def made(run, begun=None):
    """Summary and tables without digests: files with the same rows may differ in row groups."""
    summary = msgspec.structs.replace(compact(run.path, begun=begun), digests={})
    return summary, {name: pq.read_table(run.path / f"{name}.parquet") for name in TABLES}


def from_scratch(run):
    """Summary and tables of a copy, which a compaction reads for the first time."""
    copy = run.path.with_name("copy")
    shutil.copytree(run.path, copy)
    summary = msgspec.structs.replace(compact(copy), digests={})
    tables = {name: pq.read_table(copy / f"{name}.parquet") for name in TABLES}
    shutil.rmtree(copy)
    return summary, tables


def growing(run, rng):
    """Write the journal of a run again, in pieces that end anywhere in a line."""
    left = {path: path.read_bytes() for path in segments(run.journal)}
    for path in left:
        path.unlink()
    while left:
        path = rng.choice(list(left))
        n = rng.randint(1, 300)
        with path.open("ab") as file:
            file.write(left[path][:n])
        left[path] = left[path][n:]
        if not left[path]:
            del left[path]
        yield


@pytest.mark.parametrize("seed", range(8))
def test_journal_read_while_it_grows_gives_the_same_tables(run, seed):
    write_journal(run, "gw2", episode(99, 1.0, 2.0))
    rng = random.Random(seed)
    expected = from_scratch(run)
    begun = JournalScan(run.path)
    for _ in growing(run, rng):
        # Sometimes stop in the middle, as at the end of a run.
        begun.read_new(lambda: rng.random() < 0.3)
    begun.read_new()
    assert begun.fits(read_manifest(run.path))
    assert made(run, begun) == expected


@pytest.mark.parametrize("what", ["changed", "gone", "shorter", "twice", "resumed"])
def test_unusual_changes_cause_a_full_read(run, what):
    begun = JournalScan(run.path)
    path = segments(run.journal)[0]
    data = path.read_bytes()
    if what == "changed":
        path.write_bytes(data.replace(b'"case0"', b'"caseX"', 1))
    begun.read_new()
    if what == "gone":
        path.unlink()
    elif what == "shorter":
        path.write_bytes(b"".join(data.splitlines(keepends=True)[:-1]))
    elif what == "twice":
        (run.journal / "w-gw7-1-0.jsonl").write_bytes(data)
    elif what == "resumed":
        later = datetime.fromtimestamp(NOW.timestamp() + 4.5, UTC)
        plan = msgspec.structs.replace(read_manifest(run.path), measured_from=later)
        write_manifest(run.path, plan)
    begun.read_new()
    assert not begun.fits(read_manifest(run.path))
    expected = from_scratch(run)
    assert made(run, begun) == expected


def test_conversation_that_is_damaged_at_the_second_read_is_left_out(tmp_path, monkeypatch):
    monkeypatch.setattr(table_set, "TEXT_KEPT", 1)
    run = make_run(tmp_path / "out", [case(0), case(1)])
    said = [TurnMessage(0, "user", "what?")]
    for n in range(2):
        write_journal(run, f"gw{n}", episode(n, 1.0, 2.0, worker=f"gw{n}", messages=said), grade(n))
    begun = JournalScan(run.path)
    begun.read_new()
    path = segments(run.journal)[0]
    path.write_bytes(path.read_bytes().replace(b"what?", b"that?"))
    summary, tables = made(run, begun)
    assert tables["transcripts"]["case_id"].to_pylist() == ["case1"]
    assert [damage.segment for damage in summary.damage] == [path.name]
    assert tables["results"]["n_attempts"].to_pylist() == [1, 1]
