"""Tables of a run with a damaged journal: no value is invented or counted twice."""

from __future__ import annotations

import json
import re
import shutil

import msgspec
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.measured_run import find_measured_run, read_rows
from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.merge.write_merged import merge
from pytest_ultrapar.report.browse.run_cases import read_run_cases
from pytest_ultrapar.store.cases_file import iter_plan, read_cases
from pytest_ultrapar.store.journal import Damage, frame, largest_sizes, segments
from pytest_ultrapar.store.journal_history import recover
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.regraded import take_episodes
from pytest_ultrapar.store.run_directory import RunDirectory
from pytest_ultrapar.store.table_rows import read_rows as read_table
from pytest_ultrapar.store.tables import EPISODE_COLUMNS
from tests.unit.finished_run import NOW, episode, grade, rows_by_case, run_of_seven, write_journal

OF_THE_EPISODE = [column.name for column in EPISODE_COLUMNS]


def test_compact_reports_damage_and_continues(run):
    path = segments(run.journal)[0]
    data = bytearray(path.read_bytes())
    data[data.index(b'"case0"', data.index(b"ended"))] ^= 1
    path.write_bytes(data)
    summary = compact(run.path)
    assert [damage.segment for damage in summary.damage] == [path.name]
    # The grade of the case exists, its conversation is lost, and its columns stay empty.
    row = rows_by_case(run)["case0"]
    assert (row["outcome"], row["worker"]) == ("solved", "gw0")
    assert {name: row[name] for name in OF_THE_EPISODE} == dict.fromkeys(OF_THE_EPISODE)


def test_compact_of_a_damaged_run_as_json_has_nulls_and_can_be_compared(run):
    write_manifest(
        run.path,
        msgspec.structs.replace(read_manifest(run.path), storage_format="json", ended_at=NOW),
    )
    write_journal(run, "gw3", grade(6, at_s=60.0))
    summary = compact(run.path)
    lines = (run.path / "results.jsonl").read_text().splitlines()
    rows = {row["case_id"]: row for row in map(json.loads, lines)}
    assert rows["case6"]["started_at"] is None
    assert (rows["case5"]["outcome"], rows["case5"]["duration_s"]) == ("skipped", 0.0)
    assert summary.statistics.n_final == 7
    compared = read_rows(find_measured_run(str(run.path)))
    assert (compared["case6"].graded, compared["case6"].timed) == (True, False)
    assert compared["case0"].timed


@pytest.mark.parametrize("storage", ["json", "parquet"])
def test_changed_table_is_refused(run, storage):
    """Only the digest shows the change: JSON and the footer of Parquet have no checksum."""
    manifest = msgspec.structs.replace(read_manifest(run.path), storage_format=storage)
    write_manifest(run.path, manifest)
    compact(run.path)
    path = run.path / {"json": "results.jsonl", "parquet": "results.parquet"}[storage]
    whole = path.read_bytes()
    assert len(read_table(run.path, "results", ["outcome"])) == 6
    for changed in (whole.replace(b"solved", b"sol3ed", 1), whole[:-12] + b"~" + whole[-11:]):
        path.write_bytes(changed)
        with pytest.raises(ResultsError, match=r"does not match the digest in summary\.json"):
            read_table(run.path, "results", ["outcome"])


@pytest.mark.parametrize("what", ["missing", "empty", "shorter", "unchanged", "longer"])
def test_compact_reports_segments_that_lost_records(run, what):
    path = segments(run.journal)[0]
    size = path.stat().st_size
    manifest = read_manifest(run.path)
    known = largest_sizes(run.journal, {})
    assert known[path.name] == size
    write_manifest(run.path, msgspec.structs.replace(manifest, segments=known))
    lines = path.read_bytes().splitlines(keepends=True)
    if what == "missing":
        path.unlink()
    else:
        kept = {"empty": [], "shorter": lines[:-1], "longer": [*lines, b"torn"]}
        path.write_bytes(b"".join(kept.get(what, lines)))
    left = path.stat().st_size if path.exists() else 0
    damage = compact(run.path).damage
    if left >= size:
        assert damage == []
        return
    reason = "the file is missing" if what == "missing" else "its end is missing"
    assert damage == [Damage(path.name, left, size - left, reason)]
    # A resumed run still knows the larger size.
    assert largest_sizes(run.journal, known) == known


@pytest.mark.parametrize("how", ["in a separate segment", "at the end of a segment"])
def test_records_of_another_run_are_reported_and_ignored_by_all_readers(run, tmp_path, how):
    other = run_of_seven(tmp_path / "other")
    write_journal(other, "gw5", episode(6, 70.0, 71.0), grade(6, "unsolved", at_s=90.0))
    before = compact(run.path)
    rows = rows_by_case(run)
    own = segments(run.journal)
    (foreign,) = other.journal.glob("w-gw5-*")
    if how == "in a separate segment":
        shutil.copy(foreign, run.journal)
        damaged, at = run.journal / foreign.name, 0
    else:
        damaged, at = own[0], own[0].stat().st_size
        with damaged.open("ab") as file:
            file.write(foreign.read_bytes())
    why = f"skipped: it is from run {other.run_id}, not {run.run_id}"
    gap = Damage(damaged.name, at, foreign.stat().st_size, why)

    after = compact(run.path)
    assert (after.damage, rows_by_case(run)) == ([gap], rows)
    assert after.statistics == before.statistics
    assert read_run_cases(run.path).damage == (gap,)
    assert "case6" not in recover(run.path)[0]
    assert recover(run.path)[2] == [gap]

    made = merge([str(run.path)], tmp_path / "merged", NOW)
    assert "case6" not in rows_by_case(RunDirectory(made.directory, "", -1))
    assert [why.partition(",")[0] in one.reason for one in made.summary.damage] == [True]
    again = RunDirectory.create(tmp_path / "again", NOW)
    assert take_episodes(run.path, again.path)[1] == [gap]
    assert all(again.run_id.encode() in path.read_bytes() for path in segments(again.journal)[:1])
    again.close()


def test_cases_that_do_not_match_the_manifest_are_refused(run):
    path = run.path / "cases.json"
    whole = path.read_bytes()
    path.write_bytes(whole.replace(b'"level":1', b'"level":7', 1))
    for read in (read_cases, lambda run_dir: list(iter_plan(run_dir)), compact, read_run_cases):
        with pytest.raises(ResultsError, match=r"does not match the digest in manifest\.json"):
            read(run.path)
    path.write_bytes(whole)
    assert len(read_cases(run.path)) == len(list(iter_plan(run.path))) == 7
    # As after a session that was killed before it wrote the manifest, or of an earlier version.
    write_manifest(run.path, msgspec.structs.replace(read_manifest(run.path), cases_digest=""))
    path.write_bytes(whole.replace(b'"level":1', b'"level":7', 1))
    assert read_cases(run.path)[0].params["level"] == 7


def test_changed_manifest_and_summary_are_refused(run, tmp_path):
    compact(run.path)
    for name, field in (("manifest.json", rb'"seed": \d'), ("summary.json", rb'"n_planned":\d')):
        path = run.path / name
        whole = path.read_bytes()
        found = re.search(field, whole)
        path.write_bytes(whole[: found.end() - 1] + b"9" + whole[found.end() :])
        with pytest.raises((ConfigError, ResultsError), match=r"damaged: its checksum is wrong"):
            find_measured_run(str(run.path))
        path.write_bytes(whole)
    other = run_of_seven(tmp_path / "other")
    shutil.copy(other.path / "manifest.json", run.path)
    with pytest.raises(ResultsError, match=f"is from run {other.run_id}, but run.lock next to it"):
        read_manifest(run.path)


def test_damaged_lock_does_not_lose_the_run_id(run):
    (run.path / "run.lock").write_bytes(b"")
    again = RunDirectory.open_existing(run.path)
    again.close()
    assert again.run_id == run.run_id


def test_compact_continues_after_an_episode_of_another_version(run):
    payload = msgspec.json.decode(msgspec.json.encode(episode(6, 1.0, 2.0)))
    payload["attempts"][0]["status"] = "two hundred"
    (run.journal / "w-gw7-1-0.jsonl").write_bytes(frame(msgspec.json.encode(payload)))
    write_journal(run, "gw2", grade(6))
    summary = compact(run.path)
    assert summary.statistics.n_final == 7
    assert [damage.segment for damage in summary.damage] == ["w-gw7-1-0.jsonl"]
    assert "another version" in summary.damage[0].reason
