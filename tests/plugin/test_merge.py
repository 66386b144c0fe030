"""Real runs of parts of a suite, merged: the merged run can be used like any run."""

from __future__ import annotations

from pathlib import Path

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar import cli
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.journal import scan_segment, segments
from pytest_ultrapar.store.journal_history import decode_head
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.plugin.conftest import cases

BODY = cases(["say a", "say b", "filter", "status 500 down", "say c"], 'grade(answer == "a")')


def part(project, name, *options):
    project.run("-n0", "--ultrapar-max-attempts=1", f"--ultrapar-out={name}", *options)
    return str(project.pytester.path / name)


def rows(directory, table="results"):
    return pq.read_table(f"{directory}/{table}.parquet").to_pylist()


def outcomes(directory):
    return {row["nodeid"]: (row["case_id"], row["seed"], row["outcome"]) for row in rows(directory)}


@pytest.mark.slow
@pytest.mark.cpu_s(3)
def test_three_merged_parts_equal_the_whole_run(project, capsys):
    project.suite(BODY)
    whole = part(project, "all")
    parts = [
        part(project, "a", "-k", "(say and a) or filter"),
        part(project, "b", "-k", "say and b"),
        part(project, "c", "-k", "not (say and a) and not (say and b) and not filter"),
    ]
    capsys.readouterr()
    n_sent = len(project.server.prompts)
    out = str(project.pytester.path / "merged")
    # One case is infra.
    assert cli.main(["merge", *parts, "--out", out, "--coverage", "0.8"]) == 0
    assert len(project.server.prompts) == n_sent
    assert outcomes(out) == outcomes(whole)
    assert len(rows(out, "attempts")) == sum(len(rows(one, "attempts")) for one in parts)
    assert len(rows(out, "transcripts")) == len(rows(whole, "transcripts"))
    assert "5 cases" in capsys.readouterr().out

    # A run can be shown, gated, regraded and replayed; so can this one.
    assert cli.main(["show", out]) == 0
    assert cli.main(["gate", out, "--rule", "solved_rate>=0.01"]) == 0
    assert cli.main(["compare", whole, out]) == 0
    project.run("-n0", f"--ultrapar-regrade={out}", "--ultrapar-out=graded")
    assert outcomes(project.pytester.path / "graded") == outcomes(out)
    project.run("-n0", f"--ultrapar-replay={out}", "--ultrapar-out=replayed")
    assert len(rows(project.pytester.path / "replayed")) == 5


@pytest.mark.slow
def test_an_interrupted_part_is_merged_resumed_and_merged_again(project):
    project.suite(BODY)
    first = part(project, "a", "-k", "say", "-x")
    second = part(project, "b", "-k", "not say")
    out = str(project.pytester.path / "merged")
    cli.main(["merge", first, second, "--out", out])
    n_before = len(rows(out))
    project.run("-n0", "-k", "say", f"--ultrapar-resume={first}")
    again = str(project.pytester.path / "again")
    cli.main(["merge", first, second, "--out", again])
    assert len(rows(again)) == 5 >= n_before
    assert [one.resumed for one in read_manifest(project.pytester.path / "again").merged.parts] == [
        True,
        False,
    ]


def as_host(project, name, n):
    """A run of all cases that was killed after one of them, as a host of a cluster run."""
    directory = Path(part(project, name))
    fields = {"cluster_run": "nightly", "host": name, "segments": {}, "ended_at": None}
    write_manifest(directory, msgspec.structs.replace(read_manifest(directory), **fields))
    case_id = read_cases(directory)[n].case_id
    for path in segments(directory / "journal"):
        kept = [
            path.read_bytes()[position.offset : position.offset + position.length]
            for position, record in scan_segment(path, decode_head)
            if getattr(record, "case_id", None) == case_id
        ]
        path.write_bytes(b"".join(kept))
    return str(directory)


@pytest.mark.slow
def test_merged_cluster_run_can_be_resumed(project):
    """Its hosts planned the same cases; the resume sends the cases that neither host sent."""
    project.suite(BODY)
    hosts = [as_host(project, name, n) for n, name in enumerate("ab")]
    out = str(project.pytester.path / "merged")
    assert cli.main(["merge", *hosts, "--out", out]) == 1
    assert len(rows(out)) == 2
    project.run("-n0", f"--ultrapar-resume={out}")
    assert len(rows(out)) == 5
    assert [row["host"] for row in rows(out)] == ["a", "b", None, None, None]
    assert [one.host for one in read_manifest(project.pytester.path / "merged").merged.parts] == [
        "a",
        "b",
    ]
