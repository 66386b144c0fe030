"""What the torture program says."""

from __future__ import annotations

from pathlib import Path

import pytest

from tests.torture.__main__ import main
from tests.torture.faults import Hit
from tests.torture.kinds import KINDS
from tests.torture.plan import draw_plan
from tests.torture.report import round_lines, summary
from tests.torture.rounds import Result


def result(seed: int, kind: str, *violations: str) -> Result:
    hits = (Hit(1.0, "SIGKILL to broker [17] at 'some asked'"),)
    plan = draw_plan(seed, KINDS[kind])
    return Result(plan, hits, 2, violations, Path("/evidence/17"), 3.0)


def test_failed_round_says_what_where_and_how_to_repeat_it():
    text = "\n".join(round_lines(3, 9, result(17, "running/broker", "limits_hold: key0 had 3")))
    assert text.startswith("[3/9] seed 17 running/broker: -n ")
    assert "SIGKILL to broker [17] at 'some asked'" in text
    assert "VIOLATION limits_hold: key0 had 3" in text
    assert "/evidence/17" in text
    assert "python -m tests.torture --rounds 1 --seed 17 --kind running/broker" in text


def test_round_that_passed_takes_one_line():
    assert len(list(round_lines(1, 1, result(17, "running/broker")))) == 1


def test_summary_adds_up_by_kind():
    rounds = [result(1, "running/broker"), result(2, "stop/all", "a", "b"), result(3, "stop/all")]
    n_cases = [one.plan.n_cases for one in rounds]
    rows = [line.split() for line in summary(rounds)]
    assert rows[1:] == [
        ["running/broker", "1", "1", str(n_cases[0]), "1", "0"],
        ["stop/all", "2", "2", str(n_cases[1] + n_cases[2]), "2", "2"],
        ["all", "3", "3", str(sum(n_cases)), "3", "2"],
    ]


@pytest.mark.parametrize(
    ("arguments", "said"),
    [
        (["--kind", "nothing"], "no kind is called 'nothing'; there are: startup/controller, "),
        (["--rounds", "0"], "must be at least 1 (got 0)"),
        (["--seed", "-1"], "must be at least 0 (got -1)"),
    ],
)
def test_wrong_arguments_are_refused_with_what_is_allowed(arguments, said, capsys):
    with pytest.raises(SystemExit) as stopped:
        main(arguments)
    assert stopped.value.code == 2
    assert said in capsys.readouterr().err


def test_help_names_every_kind(capsys):
    with pytest.raises(SystemExit):
        main(["--help"])
    told = capsys.readouterr().out
    assert [name for name in KINDS if name not in told] == []
