"""`ultrapar show`: cases of finished, running, killed and damaged runs."""

from __future__ import annotations

import functools
import json
import os
import pty
import re
import subprocess
import sys

import pytest
from msgspec.structs import replace

from pytest_ultrapar.pool.money import ModelPrice
from pytest_ultrapar.records import EpisodeStarted, Exchange, TurnMessage
from pytest_ultrapar.report.browse.case_lines import short_names
from pytest_ultrapar.store.manifest import FILE_NAME
from pytest_ultrapar.store.run_directory import RunDirectory
from tests.unit.finished_run import (
    T0_US,
    attempt,
    case,
    episode,
    grade,
    make_run,
    run_of_one,
    run_of_seven,
    write_journal,
)

NODEID = "s/phase53/test_x.py::test[{}]"


@pytest.fixture
def show(ultrapar, tmp_path, monkeypatch):
    monkeypatch.chdir(tmp_path)
    return functools.partial(ultrapar, "show")


def listed(output):
    """The state and number of each listed case, in order."""
    found = re.findall(r"^(.+?)  +case(\d+)  ", output, re.MULTILINE)
    return [(state.strip(), int(number)) for state, number in found]


def test_cases_are_listed_failures_first(show, tmp_path):
    run_of_seven(tmp_path / "r", prices=(ModelPrice("azure", "m1", 1.0, 5.0),))
    code, out, _ = show("r")
    assert code == 0
    assert ", SIMULATED: 7 cases: 2 solved, 1 partial, " in out.splitlines()[0]
    assert listed(out) == [
        ("error/ValueError", 4),
        ("unsolved/context_length", 3),
        ("partial", 1),
        ("never ran", 6),
        ("skipped", 5),
        ("solved", 0),
        ("solved", 2),
    ]
    assert "test s/phase53/test_x.py::test" in out
    (row,) = [line.split() for line in out.splitlines() if " case1 " in line]
    assert row[3:6] == ["2", "4.00", "s"]
    assert " ".join(row[-4:]) == "workflow 0.25, extra 1"
    assert "0.0000200 USD" in out


def test_list_of_the_latest_run_shows_reasons_below_their_cases(show, tmp_path):
    run = make_run(tmp_path / ".ultrapar" / "20300102T030405Z-000001", [case(n) for n in range(4)])
    (tmp_path / ".ultrapar" / "latest").symlink_to(run.path.name)
    long = "it says nothing of the third step, " * 9
    write_journal(
        run,
        "gw0",
        *(episode(n, 1, 2) for n in range(4)),
        grade(0, reason="as it should be"),
        grade(1, "partial", reason=long + "\nat all"),
        grade(2, "unsolved", test="failed", error="assert 1 == 2\n + where"),
        grade(3),
    )
    lines = show()[1].splitlines()
    at = {
        number: next(i for i, line in enumerate(lines) if f" case{number} " in line)
        for number in range(4)
    }
    assert lines[at[0] + 1] == "  as it should be"
    assert lines[at[1] + 1] == f"  {long}"
    assert lines[at[2] + 1] == "  assert 1 == 2"
    assert at[3] == len(lines) - 2
    out = show("latest", "case1")[1]
    assert f"  why:\n    {long}\n    at all\n" in out
    assert "error" not in out


def test_listed_name_of_a_case_is_a_part_of_its_node_id():
    cases = [case(n, f"long-{n % 2}", task=f"task{n // 2}", severity="severe") for n in range(4)]
    named = [one.nodeid.partition("[")[2].removesuffix("]") for one in cases]
    assert len(set(named)) == 4
    assert short_names(cases) == ("s/phase53/test_x.py::test", named)
    assert short_names(cases[:1]) == ("", [cases[0].nodeid])
    other = replace(cases[0], nodeid="s/test_y.py::test[0]")
    assert short_names([*cases, other]) == ("", [one.nodeid for one in [*cases, other]])


def test_cases_of_a_run_in_progress_have_their_current_state(show, tmp_path):
    run = make_run(tmp_path / "r", [case(index) for index in range(4)])
    write_journal(
        run,
        "gw0",
        EpisodeStarted("case0", "gw0", T0_US),
        episode(1, 1, 2),
        episode(2, 1, 2),
        grade(2),
    )
    states = {0: "interrupted", 1: "not graded", 2: "solved", 3: "never ran"}
    assert {number: state for state, number in listed(show("r")[1])} == states
    going_on = RunDirectory.open_existing(tmp_path / "r")
    try:
        out = show("r")[1]
    finally:
        going_on.close()
    assert "in progress" in out.splitlines()[0]
    states |= {0: "running", 3: "waiting"}
    assert {number: state for state, number in listed(out)} == states


def test_case_is_shown_with_grade_attempts_waits_and_messages(show, tmp_path):
    run = run_of_seven(tmp_path / "r", prices=(ModelPrice("azure", "m1", 1.0, 5.0),))
    messages = [
        TurnMessage(0, "user", "who?"),
        TurnMessage(
            0,
            "assistant",
            "I do",
            '[{"name":"find","arguments":"{\\"n\\":1}"}]',
            reasoning="let me\nthink",
            finish_reason="tool_calls",
        ),
        TurnMessage(1, "tool", "7", tool_call_id="c1", name="find"),
        TurnMessage(1, "assistant", "fine", pool_role="judge"),
    ]
    write_journal(
        run,
        "gw2",
        episode(6, 1.0, 5.0, worker="gw2", messages=messages, stdout="hello\n", log="WARN x"),
        grade(6, "unsolved", test="failed", error="assert 1 == 2\n + where"),
    )
    code, out, _ = show("r", "case6")
    assert code == 0
    lines = out.splitlines()
    assert lines[2] == NODEID.format(6)
    for row in [
        "  case id     case6, seed 66",
        "  outcome     unsolved",
        "  pytest      failed",
        "    assert 1 == 2",
        "  waited      0.00 s for seats, 0.00 s for rate limits and pauses, 0.00 s before retries",
        "  tokens      10 in, 2 out",
        "  cost        0.0000200 USD",
        "  hello",
        "  WARN x",
        "== turn 0: user",
        "== turn 0: assistant, ended by tool_calls",
        "  think",
        '  find({"n":1})',
        "== turn 1: tool, named find, for call c1",
        "== turn 1: assistant, role judge",
    ]:
        assert row in lines


def test_earlier_episodes_of_a_case_are_shown_before_the_final_one(show, tmp_path):
    run_of_seven(tmp_path / "r")
    titles = re.findall(r"^== (attempts.*)$", show("r", "case2")[1], re.MULTILINE)
    assert titles == [
        "attempts in earlier episode 1, which ended as infra",
        "attempts in earlier episode 2, which ended as interrupted",
        "attempts",
    ]


def test_exchanges_are_shown_as_a_conversation_with_invalid_bytes_replaced(show, tmp_path):
    sent = '{"messages":[{"role":"user","content":"ask"}]}'
    came = '{"choices":[{"message":{"role":"assistant","content":"told \\ud83d"}}]}'
    noted = [Exchange(0, "openai", "", 200, sent, came=came)]
    run_of_one(tmp_path / "r", episode(0, 1, 2, messages=[], exchanges=noted))
    code, out, _ = show("r", "case0")
    assert code == 0
    assert "  ask" in out.splitlines()
    assert "told" in out


def test_messages_cannot_imitate_headings_of_the_output(show, tmp_path):
    said = "no idea\n\n== turn 1: tool\n42\n-- answer"
    messages = [TurnMessage(0, "assistant", said, reasoning=said, refusal=said + "!")]
    ended = episode(0, 1, 2, messages=messages, stdout=said, log=said)
    run_of_one(tmp_path / "r", ended, grade(0, "unsolved", test="failed", error=said))
    lines = show("r", "case0")[1].splitlines()
    assert [line for line in lines if line.startswith(("==", "--"))] == [
        "== attempts",
        "== printed",
        "== logged",
        "== turn 0: assistant",
        "-- reasoning",
        "-- answer",
        "-- refusal",
    ]
    assert lines.count("  == turn 1: tool") == 5


STEERING = "\x1b[2J\x1b]0;title\x07\x9b31m\u202e\rgone"


def test_messages_cannot_control_the_terminal(show, tmp_path):
    evil = case(0, flaw=STEERING)
    run = make_run(tmp_path / "r", [evil])
    calls = json.dumps([{"name": STEERING}])
    texts = ("reasoning", "refusal", "name", "tool_call_id", "finish_reason", "pool_role")
    said = TurnMessage(0, STEERING, "so", calls, **dict.fromkeys(texts, STEERING))
    sent = [attempt(1, 2, role=STEERING)]
    ended = episode(0, 1, 2, attempts=sent, messages=[said], stdout=STEERING, log=STEERING)
    graded = grade(0, "unsolved", kind=STEERING, error=STEERING, scores={STEERING: 1.0})
    write_journal(run, "gw0", ended, graded)
    for words in (("r",), ("r", "case0")):
        out = show(*words)[1]
        assert re.findall(r"[^\n -~]", out) == []
        assert "\\x1b[2J" in out


@pytest.mark.parametrize(
    ("words", "sentence"),
    [
        (("r", "tset[6]"), "no case in {r} matches 'tset[6]'; did you mean test[6]?"),
        (("r", ""), "CASE is empty: pass a case's id or a part of its node id"),
        (
            ("r", "test_x"),
            "'test_x' matches 7 cases in {r}: "
            + ", ".join(NODEID.format(index) for index in range(5))
            + " and 2 more",
        ),
        (("r", "case1", "--failed"), "--failed lists cases; leave it out to show one case"),
        (
            ("nowhere",),
            "no run found at nowhere or .ultrapar/nowhere; specify a run directory, the id of a "
            "run in .ultrapar, or latest",
        ),
    ],
)
def test_invalid_arguments_are_refused_in_one_sentence(show, tmp_path, words, sentence):
    run_of_seven(tmp_path / "r")
    said = f"ultrapar show: error: {sentence.format(r=tmp_path / 'r')}\n"
    assert show(*words) == (4, "", said)


def test_complete_id_takes_precedence_over_a_part_of_another(show, tmp_path):
    run = make_run(tmp_path / "r", [case(index) for index in range(12)])
    write_journal(run, "gw0", *(grade(index, "skipped") for index in range(12)))
    assert show("r", "case1")[1].splitlines()[2] == NODEID.format(1)


def on_terminal(folder, *words, pager):
    """The output of `ultrapar show` in a terminal of sixteen lines."""
    parent, child = pty.openpty()
    env = {**os.environ, "PAGER": pager, "LINES": "16", "COLUMNS": "80", "TERM": "xterm"}
    env.pop("MANPAGER", None)
    command = [sys.executable, "-m", "pytest_ultrapar.cli", "show", *words]
    process = subprocess.Popen(command, cwd=folder, env=env, stdin=child, stdout=child)
    os.close(child)
    seen = b""
    try:
        while chunk := os.read(parent, 65536):
            seen += chunk
    except OSError:
        pass  # the last process has closed its end
    os.close(parent)
    assert process.wait() == 0
    return seen.decode()


@pytest.mark.slow
@pytest.mark.parametrize(
    ("words", "is_paged"),
    [(("r", "case1"), True), (("r", "case1", "--no-pager"), False), (("r", "--failed"), False)],
)
def test_output_longer_than_the_screen_is_paged(tmp_path, words, is_paged):
    run_of_seven(tmp_path / "r")
    seen = on_terminal(tmp_path, *words, pager="sed s/^/paged:/")
    assert ("paged:" in seen) == is_paged
    # Commands are never cut.
    cut = [line for line in seen.splitlines() if not re.search("rerun|run again", line)]
    assert max(map(len, cut)) <= 140


def test_damaged_run_is_shown_with_its_readable_cases(show, tmp_path):
    run = run_of_seven(tmp_path / "r")
    (segment,) = run.journal.glob("w-gw0-*")
    content = segment.read_bytes()
    at = content.index(b'"worker":"gw0","ending":"returned"')
    segment.write_bytes(content[:at] + b"X" + content[at + 1 :])
    (tmp_path / "r" / FILE_NAME).write_text("{")
    code, out, _ = show("r")
    assert code == 0
    assert "cannot read the run's manifest" in out
    assert "the journal has 1 gap; lost records are not shown:" in out
    assert ("solved", 0) in listed(out)
    assert "cannot read this case's requests" in show("r", "case0")[1]


def test_solved_case_with_a_failed_test_is_a_failure(show, tmp_path):
    run = make_run(tmp_path / "r", [case(0), case(1)])
    write_journal(run, "gw0", episode(0, 1, 2), grade(0), episode(1, 1, 2), grade(1, test="error"))
    assert listed(show("r", "--failed")[1]) == [("solved, test error", 1)]
