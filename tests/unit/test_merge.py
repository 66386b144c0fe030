"""`ultrapar merge`: merged runs, refused parts, and the report of the merged run."""

from __future__ import annotations

import errno
import os
import re
import resource
import shutil
from dataclasses import replace
from datetime import timedelta

import msgspec
import pyarrow.parquet as pq
import pytest

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitChange, LimitRecord
from pytest_ultrapar.broker.health import PAUSES_FILE, LanePause, PauseRecord
from pytest_ultrapar.broker.protocol import LaneStatus
from pytest_ultrapar.merge import write_merged
from pytest_ultrapar.merge.clocks import clocks_of
from pytest_ultrapar.merge.write_merged import STAGE, merge
from pytest_ultrapar.pool.model import EffectiveValue, Limit
from pytest_ultrapar.store.cases_file import Generated, read_cases, read_tables, write_tables
from pytest_ultrapar.store.journal import segments
from pytest_ultrapar.store.manifest import FILE_NAME, read_manifest, write_manifest
from pytest_ultrapar.store.string_parts import PARTS_NAME
from tests.unit.finished_run import (
    LANE,
    NOW,
    T0_US,
    attempt,
    case,
    episode,
    grade,
    make_run,
    run_of_one,
    write_journal,
)


def part(path, numbers, outcome="solved", at_s=50.0, records=(), **fields):
    """A run of some cases, each answered in a second."""
    run = make_run(path, [case(n) for n in numbers], ended_at=NOW, **fields)
    own = []
    for n in numbers:
        # No two parts answer a case in the same microsecond.
        begin_s = n + 1.0 + at_s / 1e3
        own += [episode(n, begin_s, begin_s + 1.0), grade(n, outcome, at_s)]
    write_journal(run, "gw0", *own, *records)
    return run.path


def rows(directory, table="results"):
    return pq.read_table(directory / f"{table}.parquet").to_pylist()


def merged(out, *runs):
    return merge([str(run) for run in runs], out, NOW)


def said_of(ultrapar, out, *words, code=0):
    """Merge these runs, which ends with this exit code; return the output."""
    ended, said, _ = ultrapar("merge", *map(str, words), "--out", str(out))
    assert ended == code
    return said


def refused(ultrapar, out, *runs):
    """The error of a merge that is refused."""
    code, said, error = ultrapar("merge", *map(str, runs), "--out", str(out))
    assert (code, said) == (4, "")
    assert error.startswith("ultrapar merge: error: ")
    assert error.count("\n") == 1
    return error


def refusal(ultrapar, out, *runs):
    """The error of a merge that is refused and leaves nothing behind."""
    said = refused(ultrapar, out, *runs)
    assert not out.exists() or not any(out.iterdir())
    return said


def changed(path, **fields):
    write_manifest(path, msgspec.structs.replace(read_manifest(path), **fields))
    return path


# -- the merged run --------------------------------------------------------------------------------


def test_two_shards_become_one_run(tmp_path, ultrapar):
    lane = dict.fromkeys(("in_flight", "peak_in_flight", "n_rate_limited", "n_failed"), 0)
    status = LaneStatus(LANE.lane_id, "up", "", granted=3, n_ok=3, waited_s={"x": 1.0}, **lane)
    limits = [Limit("azure/key0", "key", workers=n, qps=2.0) for n in (3, 2)]
    second = part(
        tmp_path / "b", [3, 4], shard="2/2", host="beta", pool_limits=(limits[1],), lanes=[status]
    )
    first = part(
        tmp_path / "a",
        [0, 1, 2],
        shard="1/2",
        host="alpha",
        pool_limits=(limits[0],),
        lanes=[status],
    )
    out = tmp_path / "whole"
    told = said_of(ultrapar, out, second, first)
    assert [(row["case_id"], row["host"]) for row in rows(out)] == [
        ("case0", "alpha"),
        ("case1", "alpha"),
        ("case2", "alpha"),
        ("case3", "beta"),
        ("case4", "beta"),
    ]
    assert {row["host"] for row in rows(out, "attempts")} == {"alpha", "beta"}
    manifest = read_manifest(out)
    assert manifest.pool_limits == (Limit("azure/key0", "key", workers=5, qps=4.0),)
    assert [lane.granted for lane in manifest.lanes] == [6]
    assert manifest.lanes[0].waited_s == {"x": 2.0}
    assert [one.shard for one in manifest.merged.parts] == ["1/2", "2/2"]
    assert [one.index for one in read_cases(out)] == [0, 1, 2, 3, 4]
    assert "5 cases: 5 solved" in told
    compact(first)
    more = {"show": [], "report": [], "gate": ["--rule", "solved_rate>=0.9"], "compare": [first]}
    for command, words in more.items():
        assert ultrapar(command, *map(str, (out, *words)))[0] == 0, command


def test_missing_shard_is_reported_with_its_number_of_cases(tmp_path, ultrapar):
    whole = Generated(9, "ab")
    runs = [part(tmp_path / str(k), [k, 10 + k], shard=f"{k}/4", generated=whole) for k in (1, 2)]
    more = part(tmp_path / "4", [4], shard="4/4", generated=whole)
    said = said_of(ultrapar, tmp_path / "w", *runs, more, code=1)
    assert "missing shards contain at most 4 cases" in said
    said = said_of(ultrapar, tmp_path / "x", *runs, code=1)
    assert "missing shards contain at most 5 cases" in said
    other = part(tmp_path / "3", [3], shard="3/4", generated=Generated(8, "ab"))
    said = refusal(ultrapar, tmp_path / "y", *runs, other)
    assert "the set of cases in all shards is 9 cases (ab) in" in said


def test_shard_without_a_case_adds_nothing(tmp_path, ultrapar):
    whole = Generated(4, "ab")
    runs = [part(tmp_path / str(k), [k, 10 + k], shard=f"{k}/3", generated=whole) for k in (1, 3)]
    empty = part(tmp_path / "2", [])
    (empty / FILE_NAME).unlink()
    for out, named in (("w", [empty, *runs]), ("x", runs)):
        said = said_of(ultrapar, tmp_path / out, *named)
        assert "4 cases: 4 solved" in said
        assert "missing" not in said
    alone = part(tmp_path / "alone", [1])
    assert "ended before its first case" in refusal(ultrapar, tmp_path / "y", alone, empty)


def test_hosts_of_one_shard_plan_its_cases_once(tmp_path, ultrapar):
    whole = Generated(9, "ab")
    fields = {"cluster_run": "r", "shard": "1/2", "generated": whole}
    runs = []
    for host, own in (("a", [0, 1, 2]), ("b", [3])):
        run = make_run(tmp_path / host, [case(n) for n in range(4)], host=host, **fields)
        done = [(episode(n, n + 1.0, n + 2.0), grade(n)) for n in own]
        write_journal(run, "gw0", *(record for pair in done for record in pair))
        runs.append(run.path)
    said = said_of(ultrapar, tmp_path / "w", *runs, code=1)
    assert "shard 2/2 is missing: its cases never ran" in said
    assert [one.n_results for one in read_manifest(tmp_path / "w").merged.parts] == [3, 1]
    report = (tmp_path / "w" / "report.md").read_text(encoding="utf-8")
    assert re.search(r"\| 1/2 +\| b +\| +4 \| +1 \|", report)


def test_cases_that_a_host_lost_are_named_with_the_command_to_reopen_them(tmp_path, ultrapar):
    runs = []
    for n, host in enumerate("ab"):
        run = make_run(tmp_path / host, [case(i) for i in range(3)], cluster_run="r", host=host)
        write_journal(run, "gw0", episode(n, 1.0, 2.0), grade(n))
        runs.append(run.path)
    said = said_of(ultrapar, tmp_path / "w", *runs, code=1)
    assert "no result for 1 case of run r" in said
    assert f"ultrapar cluster reopen r {tmp_path / 'w'}" in said
    assert "  s/phase53/test_x.py::test[2]" in said
    assert "is below 98.0% (--coverage): " in said


def test_merged_run_cannot_be_a_part(tmp_path, ultrapar):
    runs = [part(tmp_path / str(k), [k], shard=f"{k}/3") for k in (1, 2, 3)]
    merged(tmp_path / "two", runs[0], runs[2])
    said = refusal(ultrapar, tmp_path / "w", tmp_path / "two", runs[1])
    ids = ", ".join(sorted(read_manifest(run).run_id for run in (runs[0], runs[2])))
    assert f"is a merged run: pass the runs that it was merged from ({ids})" in said


def test_merged_run_next_to_all_its_parts_is_left_out(tmp_path, ultrapar):
    """For example if `hosts/*` contains the run that the last host merged."""
    runs = [part(tmp_path / str(k), [k], shard=f"{k}/3") for k in (1, 2, 3)]
    merged(tmp_path / "two", *runs[:2])
    said = said_of(ultrapar, tmp_path / "w", tmp_path / "two", *runs)
    assert f"{tmp_path / 'two'} is left out" in said
    assert len(rows(tmp_path / "w")) == 3


def test_repeated_case_counts_by_a_measurement_before_infra_then_by_the_first(tmp_path, ultrapar):
    a = part(tmp_path / "a", [0, 1, 2], "infra", at_s=10.0)
    b = part(tmp_path / "b", [1, 2, 3], "unsolved", at_s=30.0)
    c = part(tmp_path / "c", [2], "solved", at_s=20.0)
    out = tmp_path / "whole"
    told = said_of(ultrapar, out, a, b, c, code=1)
    assert {row["case_id"]: row["outcome"] for row in rows(out)} == {
        "case0": "infra",
        "case1": "unsolved",
        "case2": "solved",
        "case3": "unsolved",
    }
    # Each request was sent and paid for.
    assert len(rows(out, "attempts")) == 7
    whole = read_manifest(out).merged
    assert whole.n_repeated == 2
    assert [one.n_results for one in whole.parts] == [1, 2, 1]
    said = "2 cases had a result in more than one part"
    assert said in told
    assert said in (out / "report.md").read_text(encoding="utf-8")


def test_grade_belongs_to_the_episode_of_its_own_part(tmp_path):
    """The other part's episode ends between the end and the grade of the first."""
    a = run_of_one(tmp_path / "a", episode(0, 1.0, 2.0), grade(0, "solved", 9.0))
    b = run_of_one(tmp_path / "b", episode(0, 3.0, 8.0), grade(0, "unsolved", 10.0))
    merged(tmp_path / "w", b.path, a.path)
    (row,) = rows(tmp_path / "w")
    assert (row["outcome"], row["duration_s"]) == ("solved", 1.0)


def test_times_are_moved_to_one_clock(tmp_path):
    """The second host was started later, so its monotonic clock is behind."""
    cases = [case(0), case(1)]
    limits = {"t_s": 0.5, "workers": 3, "qps": None, "in_flight": 1, "reason": "grew"}
    runs = []
    for n, (host, clock_s) in enumerate((("a", 0.0), ("b", 1000.0))):
        run = make_run(tmp_path / host, [cases[n]], host=host)
        sent = [attempt(5.0 - clock_s, 6.0 - clock_s, t_first_byte_s=5.5 - clock_s)]
        write_journal(run, "gw0", episode(n, 5.0, 6.0, attempts=sent), grade(n))
        change = LimitChange("lab", **{**limits, "t_s": 5.25 - clock_s})
        pause = LanePause("azure", "dep0", "key0", "rate", 5.25 - clock_s, 5.5 - clock_s)
        at_us = T0_US + 5_250_000
        for name, record in (
            (LIMITS_FILE, LimitRecord(at_us, change)),
            (PAUSES_FILE, PauseRecord(at_us, pause)),
        ):
            (run.path / name).write_bytes(msgspec.json.encode(record) + b"\n")
        runs.append(run.path)
    out = tmp_path / "whole"
    made = merged(out, *runs)
    for row in rows(out, "attempts"):
        assert [row[name] for name in ("t_send_s", "t_first_byte_s", "t_end_s")] == pytest.approx(
            [5.0, 5.5, 6.0]
        )
    assert [row["t_s"] for row in rows(out, "limits")] == pytest.approx([5.25, 5.25])
    assert [(row["host"], row["t_end_s"]) for row in rows(out, "pauses")] == [
        ("a", pytest.approx(5.5)),
        ("b", pytest.approx(5.5)),
    ]
    assert made.summary.statistics.makespan_s == pytest.approx(1.0)
    assert made.summary.peak_in_flight == 2
    assert made.manifest.merged.n_clocks == 2


def test_each_shard_is_audited_against_its_own_part_of_a_limit(tmp_path, ultrapar):
    """The second shard has one seat and two requests in flight; the merged run has three seats."""
    lane = replace(LANE, limits=("azure/key0",))
    runs = []
    for k, (seats, n) in enumerate(((2, 1), (1, 2)), 1):
        limit = Limit("azure/key0", "key", workers=seats)
        run = make_run(
            tmp_path / str(k),
            [case(10 * k + i) for i in range(n)],
            shard=f"{k}/2",
            pool_lanes=(lane,),
            pool_limits=(limit,),
        )
        for i in range(n):
            write_journal(run, f"gw{i}", episode(10 * k + i, 1.0, 2.0), grade(10 * k + i))
        runs.append(run.path)
    made = merged(tmp_path / "w", *runs)
    assert [one.exceeded for one in made.manifest.merged.parts] == [(), ("azure/key0 (workers)",)]
    (whole,) = made.summary.audit
    assert (whole.in_flight, whole.workers, whole.passed) == (3, 3, ())
    assert "LIMIT EXCEEDED by shard 2/2" in (tmp_path / "w" / "report.md").read_text("utf-8")


def test_damage_of_a_part_is_damage_of_the_merged_run(tmp_path):
    a, b, c = (part(tmp_path / name, [2 * n, 2 * n + 1]) for n, name in enumerate("abc"))
    (segment,) = segments(a / "journal")
    text = segment.read_bytes()
    segment.write_bytes(text[:60] + b"#" + text[61:])
    (torn,) = segments(b / "journal")
    changed(b, segments={torn.name: torn.stat().st_size + 40, "w-gw9-1-0.jsonl": 30})
    torn.write_bytes(torn.read_bytes()[:-10])
    made = merged(tmp_path / "w", a, b, c)
    reasons = sorted(one.reason for one in made.summary.damage)
    assert reasons == [
        "its end is missing",
        "the checksum or the format of this line is wrong",
        "the file is missing",
    ]
    assert made.summary.statistics.n_final == 5
    assert len(rows(tmp_path / "w")) == 5


# -- refused parts ---------------------------------------------------------------------------------


@pytest.mark.parametrize(
    ("fields", "said"),
    [
        ({"seed": 6}, "the run seed is 5 in {a} and 6 in {b}"),
        ({"mode": "phase"}, "the mode is ultra in {a} and phase in {b}"),
        ({"rate_mode": "adaptive"}, "the rate mode is fixed in {a} and adaptive in {b}"),
        ({"models": ("m1",)}, "the list of models is m1, m2 in {a} and m1 in {b}"),
        ({"simulated": False}, "the kind of answers is simulated in {a} and real in {b}"),
        ({"data": {"digest": "x"}}, "the digest is none in {a} and x in {b}"),
        ({"record": "full"}, "the value of --ultrapar-record is text in {a} and full in {b}"),
        ({"storage_format": "json"}, "the format of tables is parquet in {a} and json in {b}"),
        ({"cluster_run": "n"}, "the cluster run is none in {a} and n in {b}"),
        ({"versions": {"pytest-ultrapar": "9"}}, "the version of pytest-ultrapar is not known in"),
        ({"shard": "1/2"}, "{a} is unsharded, {b} is one of 2 shards"),
        ({"regraded": "r"}, "{b} is a regrade of the run r: merge"),
        (
            {"answered_by": {"m1": "else"}},
            "the source of m1's answers is who in {a} and else in {b}",
        ),
    ],
)  # fmt: skip
def test_parts_of_different_runs_are_refused(tmp_path, ultrapar, fields, said):
    a = part(tmp_path / "a", [0], answered_by={"m1": "who"})
    b = part(tmp_path / "b", [1], **{"answered_by": {"m1": "who"}, **fields})
    assert said.format(a=a, b=b) in refusal(ultrapar, tmp_path / "w", a, b)


def asked(**values):
    return tuple(
        EffectiveValue(f"azure/m1 {name.replace('__', ' ')}", value, "pool.toml")
        for name, value in values.items()
    )


@pytest.mark.parametrize(
    ("then", "now", "said"),
    [
        ({"max_tokens": 50}, {"max_tokens": 500}, "max_tokens of azure/m1 is 50 in {a} and 500"),
        ({"max_tokens": 50}, {}, "the max_tokens of azure/m1 is 50 in {a} and none in {b}"),
        (
            {"parameter__seed": "not sent"},
            {},
            "parameter mapping of azure/m1 is seed: not sent in {a}",
        ),
        ({"address": "https://one"}, {"address": "https://two"}, "address of azure/m1 is"),
    ],
)
def test_parts_with_different_request_settings_need_allow_differences(
    tmp_path, ultrapar, then, now, said
):
    a = part(tmp_path / "a", [0], effective=asked(**then))
    b = part(tmp_path / "b", [1], effective=asked(**now))
    said = said.format(a=a, b=b)
    out = tmp_path / "w"
    error = refusal(ultrapar, out, a, b)
    assert said in error
    assert "--allow-differences" in error
    assert said in said_of(ultrapar, out, a, b, "--allow-differences")
    assert said in (out / "report.md").read_text(encoding="utf-8").replace("\u200b", "")


def test_hosts_with_other_cases_or_limits_are_refused(tmp_path, ultrapar):
    same = {"cluster_run": "n"}
    limit = Limit("azure/key0", "key", workers=3)
    a = part(tmp_path / "a", [0], **same, pool_limits=(limit,))
    b = part(tmp_path / "b", [0, 1], **same)
    c = part(tmp_path / "c", [0], **same, pool_limits=(Limit("azure/key0", "key", workers=4),))
    said = refusal(ultrapar, tmp_path / "w", a, b)
    assert f"the set of planned cases is 1 case in {a} and 2 cases in {b}" in said
    said = refusal(ultrapar, tmp_path / "w", a, c)
    assert f"the limit azure/key0 is workers = 3 in {a} and workers = 4 in {c}" in said


def test_shards_that_do_not_fit_are_refused(tmp_path, ultrapar):
    a, b, c = (
        part(tmp_path / name, [n], shard=shard)
        for n, (name, shard) in enumerate((("a", "1/2"), ("b", "1/3"), ("c", "1/2")))
    )
    said = refusal(ultrapar, tmp_path / "w", a, b)
    assert f"{a} is one of 2 shards, {b} is one of 3 shards" in said
    assert "are both shard 1/2" in refusal(ultrapar, tmp_path / "w", a, c)


def test_same_run_twice_is_refused(tmp_path, ultrapar):
    a = part(tmp_path / "a", [0])
    assert "was passed twice" in refusal(ultrapar, tmp_path / "w", a, a)
    shutil.copytree(a, tmp_path / "copy")
    assert f"as {a} and as {tmp_path / 'copy'}" in refusal(
        ultrapar, tmp_path / "w", a, tmp_path / "copy"
    )


def test_folder_that_is_not_empty_is_refused_and_unchanged(tmp_path, ultrapar):
    a = part(tmp_path / "a", [0])
    places = (
        (tmp_path / "a", "is one of the runs to merge, or is inside one"),
        (tmp_path / "a" / "deep" / "x", "is one of the runs to merge, or is inside one"),
        (tmp_path, "is not empty"),
    )
    for where, said in places:
        assert said in refused(ultrapar, where, a)
    (tmp_path / "file").touch()
    assert "cannot use" in refused(ultrapar, tmp_path / "file", a)
    assert len(rows(merged(tmp_path / "w", a).directory)) == 1


def test_full_disk_leaves_nothing_behind(tmp_path, ultrapar):
    a = part(tmp_path / "a", list(range(40)))
    soft, hard = resource.getrlimit(resource.RLIMIT_FSIZE)
    resource.setrlimit(resource.RLIMIT_FSIZE, (20_000, hard))
    try:
        said = refusal(ultrapar, tmp_path / "w", a)
    finally:
        resource.setrlimit(resource.RLIMIT_FSIZE, (soft, hard))
    assert "cannot write the merged run" in said
    assert not (tmp_path / "w").exists()


def test_disk_that_is_full_at_the_last_file_leaves_nothing_behind(tmp_path, monkeypatch, ultrapar):
    a = part(tmp_path / "a", [0])

    def no_room(directory, run_id):
        raise OSError(errno.ENOSPC, os.strerror(errno.ENOSPC), str(directory))

    monkeypatch.setattr(write_merged, "mark_as_run", no_room)
    (tmp_path / "w").mkdir()
    assert "No space left on device" in refusal(ultrapar, tmp_path / "w", a)
    assert [*(tmp_path / "w").iterdir()] == []


def test_remains_of_a_killed_merge_are_overwritten(tmp_path):
    a = part(tmp_path / "a", [0])
    (tmp_path / "w" / STAGE / "journal").mkdir(parents=True)
    merged(tmp_path / "w", a)
    assert len(rows(tmp_path / "w")) == 1
    assert not (tmp_path / "w" / STAGE).exists()


# -- details ---------------------------------------------------------------------------------------


def test_clocks_are_separated_by_their_time_of_boot():
    anchors_s = {"b": 100.002, "a": 100.0, "d": 1_003.0, "c": 1_000.0, "e": 2_000.0}
    assert clocks_of(anchors_s) == {
        "a": 100.0,
        "b": 100.0,
        "c": 1_000.0,
        "d": 1_000.0,
        "e": 2_000.0,
    }


def test_resumed_part_is_measured_as_a_whole(tmp_path):
    since = NOW + timedelta(seconds=100)
    run = make_run(tmp_path / "a", [case(0), case(1)], resumed=True, measured_from=since)
    write_journal(run, "gw0", episode(0, 1.0, 2.0), grade(0))
    write_journal(run, "gw0", episode(1, 101.0, 102.0), grade(1, at_s=102.5))
    made = merged(tmp_path / "w", run.path)
    assert made.summary.statistics.makespan_s == pytest.approx(101.0)
    assert "was resumed" in (tmp_path / "w" / "report.md").read_text(encoding="utf-8")


def test_merge_without_a_run_is_refused(tmp_path, ultrapar):
    assert "no run is given" in refusal(ultrapar, tmp_path / "w")
    assert "no run found at" in refusal(ultrapar, tmp_path / "w", tmp_path / "none")
    a = part(tmp_path / "a", [0])
    (a / FILE_NAME).unlink()
    assert "ended before its first case" in refusal(ultrapar, tmp_path / "w", a)


def test_long_strings_are_copied(tmp_path):
    a, b = part(tmp_path / "a", [0]), part(tmp_path / "b", [1])
    for run, name in ((a, "aa"), (b, "bb"), (b, "aa")):
        (run / PARTS_NAME).mkdir(exist_ok=True)
        (run / PARTS_NAME / name).write_bytes(name.encode())
    merged(tmp_path / "w", a, b)
    assert sorted(path.name for path in (tmp_path / "w" / PARTS_NAME).iterdir()) == ["aa", "bb"]


def test_table_layouts_of_all_suites_are_copied(tmp_path):
    a, b = part(tmp_path / "a", [0]), part(tmp_path / "b", [1])
    write_tables(a, {})
    write_tables(b, {"phase53": ("flaw", "level")})
    merged(tmp_path / "w", a, b)
    assert read_tables(tmp_path / "w") == {"phase53": ("flaw", "level")}
