from __future__ import annotations

import msgspec

from pytest_ultrapar.analysis.run_summary import CaseNote, Cell, ResultsOfTest, RunSummary
from pytest_ultrapar.analysis.slowdown import Slowdown
from pytest_ultrapar.analysis.statistics import Latency, MeanScore, RunStatistics
from pytest_ultrapar.broker.protocol import LaneStatus
from pytest_ultrapar.coordinator.finish import stopped_early
from pytest_ultrapar.report.sections import text_lines
from pytest_ultrapar.report.summary import SIMULATED, summary_sections
from pytest_ultrapar.report.text import text_table
from pytest_ultrapar.store.journal import Damage

OUTCOMES = ("solved", "partial", "unsolved", "infra", "error", "skipped")


def counts(*of_each, **named):
    return dict.fromkeys(OUTCOMES, 0) | dict(zip(OUTCOMES, of_each, strict=False)) | named


STATISTICS = RunStatistics(
    n_planned=30,
    n_final=28,
    counts=counts(12, 4, 8, 3, 1),
    n_graded=24,
    coverage=0.8,
    n_timed=25,
    makespan_s=10.0,
    throughput=2.5,
    serial_s=300.0,
    basis="estimated",
    speedup=30.0,
    latency=Latency(25, 1.0, 0.9, 1.5, 2.0, 3.0, 3.5),
    n_attempts=40,
    tokens_in=12_000,
    tokens_out=None,
    scores={"workflow": MeanScore(0.625, 24)},
)
SUMMARY = RunSummary(
    run_id="r",
    mode="ultra",
    rate_mode="fixed",
    simulated=True,
    statistics=STATISTICS,
    summary_by=("model", "flaw"),
    cells=[
        Cell(
            ("m1", "drop"),
            14,
            12,
            counts(9, 1, 2, 2),
            {"workflow": MeanScore(0.75, 12)},
            (0.468, 0.911),
        ),
        Cell(
            ("m2", "order"),
            14,
            12,
            counts(3, 3, 6, 1, 1),
            {"workflow": MeanScore(0.5, 12)},
            (0.089, 0.532),
        ),
    ],
    resumed=False,
    n_requests=51,
    kinds={"infra/timeout": 3, "error/ValueError": 1},
    notes=[CaseNote("t.py::test[1]", "error", "ValueError", "ValueError: \x1b[31mno\nsecond line")],
    never_ran=["t.py::test[7]"],
    damage=[],
    files=["results.parquet", "benchmark.json"],
)


def lane(state="up", reason="", n_rate_limited=0):
    return LaneStatus("azure/dep0/key0", state, reason, 0, 5, 40, 30, n_rate_limited, 0, {})


def lines(summary=SUMMARY, lanes=()):
    """All lines of a summary, with notes unfolded."""
    told = text_lines(summary_sections(summary, lanes, directory="out"))
    return [line.removeprefix("  ") for line in told]


def below(title, told):
    return told[told.index(title) + 1 :]


def test_summary_table_has_a_row_for_each_pair_of_names():
    table = below("Results", lines())[:4]
    assert table == [
        "model  flaw    n  solved  95 % interval  workflow  partial  unsolved  not graded",
        "m1     drop   12  75.0 %   46.8 to 91.1     0.750    8.3 %    16.7 %           2",
        "m2     order  12  25.0 %    8.9 to 53.2     0.500   25.0 %    50.0 %           2",
        "all           24  50.0 %              -     0.625   16.7 %    33.3 %           4",
    ]


def test_each_test_has_a_table_of_its_own():
    wholes = [Cell((model,), 9, 9, counts(9), {}) for model in ("m1", "m2")]
    tests = [
        ResultsOfTest("test_a", ("model",), [Cell(("m1",), 3, 3, counts(3), {})]),
        ResultsOfTest("test_b", ("model", "flaw"), SUMMARY.cells, wholes),
    ]
    told = lines(msgspec.structs.replace(SUMMARY, tests=tests, n_tests=4))
    assert below("Results of test_a", told)[:3] == [
        "model  n   solved  95 % interval  partial  unsolved  not graded",
        "m1     3  100.0 %              -    0.0 %     0.0 %           0",
        "",
    ]
    assert "2 more tests in the tables" in below("Results", told)[:6]
    assert below("Results of test_b", told)[:6] == [
        "model  flaw    n   solved  95 % interval  workflow  partial  unsolved  not graded",
        "m1     all     9  100.0 %              -         -    0.0 %     0.0 %           0",
        "m1     drop   12   75.0 %   46.8 to 91.1     0.750    8.3 %    16.7 %           2",
        "m2     all     9  100.0 %              -         -    0.0 %     0.0 %           0",
        "m2     order  12   25.0 %    8.9 to 53.2     0.500   25.0 %    50.0 %           2",
        "all           24   50.0 %              -     0.625   16.7 %    33.3 %           4",
    ]


def test_single_test_has_no_second_table():
    one = ResultsOfTest("test_a", SUMMARY.summary_by, SUMMARY.cells)
    assert lines(msgspec.structs.replace(SUMMARY, tests=[one], n_tests=1)) == lines()


def test_single_case_has_no_speedup():
    some = msgspec.structs.replace(SUMMARY, client_bound="the client was busy")
    assert "speed-up" in "\n".join(lines(some))
    assert "CLIENT-BOUND" in "\n".join(lines(some))
    statistics = msgspec.structs.replace(STATISTICS, n_timed=1)
    text = "\n".join(lines(msgspec.structs.replace(some, statistics=statistics)))
    assert "ultra: 1 case in 10" in text
    assert "speed-up" not in text
    assert "CLIENT-BOUND" not in text


def test_summary_shows_results_with_their_counts():
    text = "\n".join(lines())
    assert (
        "30 cases: 12 solved, 4 partial, 8 unsolved, 3 infra, 1 error, 2 never ran;"
        " coverage 80.0 %" in text
    )
    assert "mean scores: workflow 0.625 (n = 24)" in text
    assert "ultra: 25 cases in 10.0 s, 2.5/s; latency p50 0.90 s, p95 2.00 s, p99 3.00 s" in text
    assert "\nspeed-up 30.0x over a serial run (5 min 00 s, an estimate that is usually too" in text
    assert "\n40 requests, 12,000 tokens in\n" in text
    assert "\n11 more requests in episodes that are not (yet) counted\n" in text
    assert text.endswith("results in out: results.parquet, benchmark.json")


def of_own_times(interval, stretch=None):
    statistics = msgspec.structs.replace(STATISTICS, basis="at_most", speedup_interval=interval)
    changed = {"statistics": statistics, "stretch": stretch, "bound_s": 8.0, "binding": "p/k (qps)"}
    return lines(msgspec.structs.replace(SUMMARY, **changed, efficiency=0.8))


def test_speedup_without_a_sample_is_an_upper_bound():
    most = "speed-up at most 30.0x over a serial run: 30.0 cases in progress on average"
    measures = "; measure the speed-up with --ultrapar-baseline=7"
    for interval in (None, (0.0, 33.0)):
        assert f"{most}{measures}" in of_own_times(interval)
    slow = Slowdown(4.2, 39.6, 2.31, 2.1, 2.5, None)
    took = "answers took 2.3x as long with 40 requests in flight as with 4"
    told = of_own_times((0.0, 33.0), slow)
    assert f"{most}; {took}{measures}" in told
    bound = f"lower bound 8.00 s (p/k (qps)); efficiency 80.0 % at these response times, but {took}"
    assert bound in told


def test_speedup_is_reported_if_load_did_not_slow_answers_down():
    told = of_own_times((25.0, 33.0), Slowdown(1.5, 39.6, 1.02, 0.9, 1.1, 1.2))
    assert (
        "speed-up 30.0x (interval of at least 95 %: 25.0x to 33.0x) over a serial"
        " run (5 min 00 s, from response times, which did not rise with the number of requests in"
        " flight)"
    ) in told
    assert not [line for line in told if "took" in line]


def test_summary_counts_finished_and_interrupted_cases_without_a_grade():
    stopped = msgspec.structs.replace(SUMMARY, n_ungraded=1, n_interrupted=1, never_ran=[])
    text = "\n".join(lines(stopped))
    assert " 1 error, 1 finished but not graded, 1 interrupted; coverage" in text
    assert "never ran" not in text
    assert stopped_early(stopped) == (
        "stopped early: 25 of 30 cases have a result; 1 episode finished and will be graded on"
        " resume; 1 interrupted case will be sent again"
    )
    assert stopped_early(SUMMARY) == "stopped early: 25 of 30 cases have a result"


def test_summary_of_a_simulated_run_begins_with_a_mark():
    assert lines()[1] == SIMULATED
    real = msgspec.structs.replace(SUMMARY, simulated=False)
    assert not [line for line in lines(real) if "SIMULATED" in line]


def test_summary_has_a_sentence_for_each_removed_or_paused_lane():
    removed = "key azure/key0 was refused (401\x07): removed for the rest of the run"
    paused = "lane azure/dep0/key0 failed once (timeout): paused for 1.00 s"
    text = "\n".join(lines(lanes=[lane("out", removed), lane("paused", paused), lane()]))
    assert "\nkey azure/key0 was refused (401\\x07): removed for the rest of the run\n" in text
    assert f"\n{paused}\n" in text
    assert "were rate limited" not in text
    assert "7 of 80 requests were rate" in "\n".join(lines(lanes=[lane(), lane("up", "", 7)]))


def test_summary_shows_each_problem_escaped_on_one_line():
    damaged = msgspec.structs.replace(SUMMARY, damage=[Damage("w-gw0-1-0.jsonl", 5, 9, "broken")])
    found = lines(damaged)
    assert "kinds: 3 infra/timeout, 1 error/ValueError" in found
    assert r"  error: t.py::test[1]: ValueError: \x1b[31mno" in found
    assert "  never ran: t.py::test[7]" in found
    assert any("w-gw0-1-0.jsonl, 9 bytes from byte 5: broken" in line for line in found)
    assert not [line for line in found if "\n" in line or "\x1b" in line]


def test_kinds_of_cases_are_not_mixed_with_requests():
    failed = msgspec.structs.replace(lane(), n_failed=2, n_rate_limited=7)
    sections = {
        one.title: one.notes for one in summary_sections(SUMMARY, [failed], directory="out")
    }
    kinds, said = sections["Cases by kind"]
    assert kinds == "kinds: 3 infra/timeout, 1 error/ValueError"
    assert said.endswith(" requests, 2 failed, 7 rate limited")
    assert not [note for note in sections["Failures"] if "kinds" in note]


def test_text_table_names_the_width_that_shows_its_hidden_columns():
    table = (["name", "a", "b", "c", "d"], [["m", "1", "2", "3", "4000"]])
    narrow = text_table(*table, n_names=1, width=15)
    assert narrow == ["name  a  b  c", "m     1  2  3", "(1 more column hidden; set COLUMNS=19)"]
    whole = text_table(*table, n_names=1, width=19)
    assert [len(line) for line in whole] == [19, 19]
    assert text_table(*table, n_names=1, width=5)[2:] == ["(2 more columns hidden; set COLUMNS=19)"]


def test_cases_with_the_same_reason_share_a_line_with_their_number():
    notes = [
        CaseNote(f"t.py::test[{n}]", "infra", "daily_quota", "daily limit of k (rpd = 3) used up")
        for n in range(7)
    ]
    other = CaseNote("t.py::other", "infra", "timeout", "no answer")
    statistics = msgspec.structs.replace(STATISTICS, counts=counts(12, 4, 8, 0, 9))
    told = lines(msgspec.structs.replace(SUMMARY, statistics=statistics, notes=[*notes, other]))
    at = told.index("  infra: t.py::test[0] and 6 more: daily limit of k (rpd = 3) used up")
    assert told[at + 1 : at + 3] == ["  infra: t.py::other: no answer", "  ... and 1 more"]


def test_regraded_replay_names_the_run_that_sent_its_requests():
    replay = msgspec.structs.replace(SUMMARY, replayed="first", n_replayed=7)
    said = "replay of run first: 7 answers replayed, 51 requests sent"
    assert said in lines(replay)
    assert f"{said} by run second" in lines(msgspec.structs.replace(replay, regraded="second"))
