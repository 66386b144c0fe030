from __future__ import annotations

import msgspec
import pytest

from pytest_ultrapar.analysis.requests import LimitAudit
from pytest_ultrapar.analysis.run_summary import CaseNote, Cell, ResultsOfTest, all_of
from pytest_ultrapar.analysis.statistics import MeanScore
from pytest_ultrapar.report.cluster_progress import HostPart
from pytest_ultrapar.report.terminal_summary import MOST_LINES, MOST_WIDTH, brief_lines
from pytest_ultrapar.report.text import n_cells
from tests.unit.test_report_lanes import lane
from tests.unit.test_report_summary import STATISTICS, SUMMARY, counts

FLAWS = ("sequence_disorder", "tool_misuse", "parameter_error", "logical_inconsistency")


def cell(*names, n=10, solved=5):
    return Cell(names, n + 1, n, counts(solved, 0, n - solved, 1), {})


def brief(summary=SUMMARY, lanes=(), width=MOST_WIDTH, **given):
    return brief_lines(summary, lanes, directory="out", width=width, **given)


def of_cells(*cells, by=("model", "flaw")):
    return msgspec.structs.replace(SUMMARY, cells=list(cells), summary_by=by)


def test_rows_are_models_best_first_and_columns_are_the_next_dimension():
    summary = of_cells(
        cell("good", "easy", "tool_misuse", solved=9),
        cell("good", "easy", "missing_step", solved=10),
        cell("bad", "easy", "tool_misuse", solved=0),
        cell("bad", "hard", "tool_misuse", n=30, solved=3),
        by=("model", "difficulty", "flaw"),
    )
    told = brief(summary)
    at = told.index("")
    assert told[at + 1 : at + 6] == [
        "model   n  solved  easy  hard",
        "good   20     95%   95%     -",
        "bad    40      8%    0%   10%",
        "all    60     37%   63%   10%",
        "n: graded cases; report.md has intervals",
    ]


def of_tests(n_models, names, **fields):
    """A summary with these tests, each by model and level, with a score."""
    models = [f"m{n:02d}" for n in range(n_models)]
    tests = []
    for name in names:
        cells = [
            scored(cell(model, level, n=40, solved=n), n / 100)
            for n, model in enumerate(models)
            for level in ("easy", "hard")
        ]
        tests.append(ResultsOfTest(name, ("model", "level"), cells))
    every = [
        all_of([one for test in tests for one in test.cells if one.names[0] == model], model)
        for model in models
    ]
    summary = of_cells(*every, by=("model",))
    return msgspec.structs.replace(summary, tests=tests, n_tests=len(tests), **fields)


def scored(one, mean):
    return msgspec.structs.replace(one, scores={"grounded": MeanScore(mean, one.n_graded)})


def table_of(told):
    return told[told.index("") + 1 :]


def test_each_test_has_a_table_below_the_table_of_all_cases():
    told = brief(of_tests(2, ["test_a", "test_b"]))
    assert table_of(told)[:13] == [
        "all cases    n  solved  grounded",
        "m01        160      2%      0.01",
        "m00        160      0%      0.00",
        "all        320      1%      0.01",
        "",
        "test_a   n  solved  grounded  easy  hard",
        "m01     80      2%      0.01    2%    2%",
        "m00     80      0%      0.00    0%    0%",
        "",
        "test_b   n  solved  grounded  easy  hard",
        "m01     80      2%      0.01    2%    2%",
        "m00     80      0%      0.00    0%    0%",
        "n: graded cases; report.md has intervals",
    ]


def test_tests_that_do_not_fit_are_columns_of_all_cases():
    told = table_of(brief(of_tests(4, [f"test_{word}" for word in ("tone", "maths", "code")])))
    assert told[:3] == [
        "model    n  solved  grounded  tone  maths  code",
        "m03    240      8%      0.03    8%     8%    8%",
        "m02    240      5%      0.02    5%     5%    5%",
    ]


def test_tests_come_before_speed_and_warnings_before_tests():
    summary = of_tests(3, ["test_a", "test_b"], client_bound="cores are short " * 8)
    lanes = [
        msgspec.structs.replace(lane(), lane=f"p/m{n}/k", outcomes={"timeout": 3}) for n in range(3)
    ]
    told = brief(summary, lanes)
    assert len(told) == MOST_LINES
    assert any(line.startswith("test_b ") for line in told)
    at = told.index("n: graded cases; report.md has intervals")
    assert told[at + 2].startswith("CLIENT-BOUND: cores are short")
    assert told[-2].startswith("... and ")


def test_tests_that_do_not_fit_are_rows_if_there_is_one_model():
    told = table_of(brief(of_tests(1, [f"test_{number}" for number in range(9)])))
    assert told[:2] == ["test      n  solved  grounded", "test_0   80      0%      0.00"]


def test_dimension_of_a_single_test_is_in_the_table_of_all_cases():
    told = table_of(brief(of_tests(2, ["test_a"])))
    assert told[:2] == [
        "model    n  solved  grounded  easy  hard",
        "m01     80      2%      0.01    2%    2%",
    ]


@pytest.mark.parametrize(("n", "n_shown"), [(20, 20), (27, 20)])
@pytest.mark.parametrize("has_page", [True, False])
def test_twenty_models_are_shown_and_the_others_counted(n, n_shown, has_page):
    told = brief(of_tests(n, ["test_a", "test_b"]), has_page=has_page)
    assert len(told) <= MOST_LINES
    rows = [line.split()[0] for line in table_of(told) if line.startswith("m") and "%" in line]
    assert rows[0] == f"m{n - 1}"
    assert len(rows) == n_shown
    where = "report.html" if has_page else "report.md"
    assert any(line.startswith(f"+ 7 more rows in {where}; ") for line in told) == (n > n_shown)


def test_model_without_a_graded_case_comes_last():
    nothing = Cell(("none",), 1, 0, counts(0), {})
    told = table_of(brief(of_cells(nothing, cell("bad", solved=0), by=("model",))))
    assert told[1:3] == ["bad    10      0%", "none    0       -"]


@pytest.mark.parametrize("width", [60, 80, 100, 240])
@pytest.mark.parametrize(
    "name", ["a-model-with-a-very-long-name-indeed-{}", "模型-{}", "m\x1b[31m{}"]
)
def test_brief_of_any_run_fits_on_a_screen(width, name):
    cells = [
        cell(name.format(m), f"{flaw}_{n}", solved=m % 11)
        for m in range(40)
        for flaw in FLAWS
        for n in range(5)
    ]
    notes = [
        CaseNote(f"t.py::test[{n}]", "infra", "timeout", f"reason {n} " * 60) for n in range(20)
    ]
    statistics = msgspec.structs.replace(STATISTICS, n_planned=12_200)
    summary = msgspec.structs.replace(
        of_cells(*cells),
        statistics=statistics,
        notes=notes,
        kinds={f"infra/kind{n}": n for n in range(40)},
        bound_s=6.0,
        binding="p/k (qps)",
        efficiency=0.6,
    )
    lanes = [
        msgspec.structs.replace(lane(), lane=f"p/m{n}/k", outcomes={"timeout": 3})
        for n in range(300)
    ]
    told = brief(summary, lanes, width)
    assert len(told) <= MOST_LINES
    # The last line contains a path, which is never folded.
    assert max(map(n_cells, told[:-1])) <= min(width, MOST_WIDTH)
    assert any(line.startswith("+ ") and "more rows in report.md" in line for line in told)
    assert not any(line.endswith("...") for line in told)
    table = told[told.index("") + 1 :]
    rows = [line for line in table[: table.index("")] if line.rstrip().endswith("%")]
    assert len(rows) > 4, told
    assert not any("\x1b" in line for line in told)
    assert told[-1] == "results in out: read report.md, or run ultrapar report"


def test_shares_are_coloured_without_shifting_columns():
    def paint(text, share):
        return f"<{text}>"

    plain, painted = brief(), brief(paint=paint)
    assert [line.replace("<", "").replace(">", "") for line in painted] == plain
    assert any("<75%>" in line for line in painted)


def test_sentences_are_complete_if_they_fit():
    falls = [
        LimitAudit(limit=f"provider/key{n}", n=3, in_flight=2, workers=5, sends_1s=3, passed=())
        for n in range(9)
    ]
    told = brief(msgspec.structs.replace(SUMMARY, audit=tuple(falls), peak_in_flight=31))
    (line,) = [line for line in told if line.startswith("at most 31 requests in flight; no ")]
    at = told.index(line)
    whole = " ".join(each.strip() for each in told[at : at + 4])
    assert (
        "highest use of limits in this run's records: provider/key0 2 of 5 in flight, 3 in 1 s; "
        in whole
    )
    assert "5 more limits in summary.json" in whole


def test_servers_error_text_is_shown_once_and_completely():
    words = 'HTTP 404: {"error": {"message": "The model `gtp-4o` does not exist."}}'
    front = "no lane for the model 'm' is left: key p/k may not: removed for the rest of the run"
    reasons = [front, f"{front}; the last try: {words}", f"{front}; the last try: {words}", front]
    notes = [
        CaseNote(f"t.py::test[{n}]", "infra", "no_lane", reason) for n, reason in enumerate(reasons)
    ]
    told = " ".join(
        " ".join(brief(msgspec.structs.replace(SUMMARY, notes=notes), width=80)).split()
    )
    left = "no lane for the model 'm' is left"
    assert f"t.py::test[0] and 3 more: {left}; the last try: {words}" in told
    assert told.count("gtp-4o") == 1
    assert "may not" not in told


@pytest.mark.parametrize(("n", "more"), [(4, "1 more line"), (5, "2 more lines")])
def test_omitted_lines_are_counted(n, more):
    lanes = [
        msgspec.structs.replace(lane(), lane=f"p/m{one}/k", outcomes={"timeout": 3})
        for one in range(n)
    ]
    assert f"... and {more}" in brief(lanes=lanes)


def test_host_without_cases_does_not_report_100_percent_coverage():
    nothing = msgspec.structs.replace(STATISTICS, n_planned=0, n_graded=0, coverage=1.0)
    summary = msgspec.structs.replace(SUMMARY, statistics=nothing)
    told = brief(summary, part=HostPart("ci-3", "nightly", 560))
    assert "host ci-3 ran none of the 560 cases in run nightly" in told
    assert not any("coverage" in line for line in told)
    assert told[-1].startswith("results in out")


def test_host_of_a_cluster_run_names_itself_in_its_result():
    part = HostPart("ci-3", "nightly", 560)
    n = SUMMARY.statistics.n_planned
    assert any(line.startswith(f"{n:,} of 560 cases on host ci-3: ") for line in brief(part=part))


def test_long_sentence_loses_clauses_and_is_not_cut():
    falls = [
        LimitAudit(limit=f"provider/key{n}", n=3, in_flight=2, workers=5, sends_1s=3, passed=())
        for n in range(9)
    ]
    lanes = [lane(f"p/m{n}/k", outcomes={"timeout": 3, "ok": 90}) for n in range(9)]
    summary = msgspec.structs.replace(SUMMARY, audit=tuple(falls), peak_in_flight=31)
    cells = [cell(f"m{n:02d}", "a", solved=5) for n in range(13)]
    told = brief(msgspec.structs.replace(summary, cells=cells), lanes, width=80)
    (at,) = [n for n, line in enumerate(told) if line.startswith("at most 31 requests in flight")]
    assert told[at].endswith("; no request through llm exceeded a limit"), told
    assert not [line for line in told if line.endswith("(more in report.md)")]


def test_long_sentence_of_one_clause_points_to_the_full_report():
    notes = [CaseNote("t.py::test[0]", "infra", "timeout", "reason " * 60)]
    cells = [cell(f"m{n:02d}", "a", solved=5) for n in range(13)]
    told = brief(msgspec.structs.replace(SUMMARY, notes=notes, cells=cells), width=80)
    assert any(line.endswith("(more in report.md)") for line in told)


def test_omitted_columns_of_all_tables_are_counted():
    tests = [
        ResultsOfTest(
            name, ("model", "level"), [cell(m, f"level_{n}") for n in range(12) for m in "ab"]
        )
        for name in ("test_a", "test_b")
    ]
    summary = of_cells(cell("a"), cell("b"), by=("model",))
    told = brief(msgspec.structs.replace(summary, tests=tests, n_tests=2), width=80)
    assert any("report.md has intervals and 12 more columns" in line for line in told), told
