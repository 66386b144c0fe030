"""What docs/architecture.md says that changes take: the files are there, and one line is enough."""

from __future__ import annotations

import re
from dataclasses import replace
from pathlib import Path
from runpy import run_path

import pytest_ultrapar
from bench_suites.workflow import TASKS, flaws_logic
from pytest_ultrapar import plugin
from pytest_ultrapar.apis import failure_classes
from pytest_ultrapar.apis.failure_classes import FailureClass
from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.coordinator import policies
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.faults import kinds
from tests.simulated_pool import faults_of, simulated_pool
from tests.unit import policy_play
from tests.unit.test_lanes_health import health

ROOT = Path(__file__).parents[2]
PACKAGE = Path(pytest_ultrapar.__file__).parent
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## What a change takes")[1].split("\n## ")[0]


def test_every_file_is_there():
    named = re.findall(r"`([a-z_]+(?:/[a-z_*]+)*(?:\.py|/))`", TABLE.partition("| --- ")[2])
    assert len(named) >= 12
    for name in named:
        base = ROOT if name.startswith("bench_suites") else PACKAGE
        assert list(base.glob(name)), name


SHOWN = {
    "API": "plugin/test_new_api.py",
    "column of `attempts`": "unit/test_columns.py",
    "setting with option and variable": "unit/test_settings_table.py",
    "kind of limit": "unit/test_limit_kinds.py",
    # Each generator that is there, and what the terminal shows of them all.
    "line of the final summary": "unit/test_report_*.py",
    # Of two transports on one host, the one without a process.
    "transport of the broker": "unit/test_lanes_local.py",
}
HERE = {"failure class", "policy", "fault of the simulator", "flaw of the benchmark"}


def test_every_change_is_shown_by_a_test():
    changes = re.findall(r"^\| ([^|]+?) \|", TABLE.partition("| --- ")[2], re.MULTILINE)
    assert {*changes} - {"---"} == {*SHOWN} | HERE
    assert [one for one in SHOWN.values() if not [*(ROOT / "tests").glob(one)]] == []


def test_failure_class_is_a_row(monkeypatch):
    row = FailureClass("451", "free", removes="instance", why="{instance} is banned here (451)")
    monkeypatch.setitem(failure_classes.CLASSES, "legal", row)
    said = health().decide("legal", None, 0.0, 0.5)
    assert said.scope == "instance"
    assert said.reason == "instance p/dep-1 is banned here (451): removed for the rest of the run"
    assert failure_classes.table_rows()[-1][2] == "its instance is removed"


class Teapot(kinds.Effect, frozen=True, tag="teapot"):
    """Answers that it is a teapot."""

    fields = ()

    @classmethod
    def read(cls, location, table):
        return cls()

    def of_answer(self, answer, latency_s):
        return Whole(b"teapot", 418), latency_s


def test_fault_of_the_simulator_is_a_class(tmp_path, monkeypatch):
    monkeypatch.setitem(kinds.KINDS, "teapot", Teapot)
    (fault,) = faults_of(simulated_pool(), tmp_path, '[[fault]]\nkind = "teapot"').faults
    answer, _ = fault.effect.of_answer(Whole(b"{}"), 1.0)
    assert (fault.label, answer.status) == ("teapot 1", 418)


def test_policy_is_a_function_and_a_line(monkeypatch):
    def mine(pool, workers, lanes, cases):
        homes = zip(workers, lanes, strict=False)
        return Assignment(home={worker: (lane.lane_id,) for worker, lane in homes})

    monkeypatch.setitem(policies.POLICIES, "mine", mine)
    assert "mine" in plugin.pytest_ultrapar_policies("ultra")
    pool = policy_play.pool()
    own = plugin.pytest_ultrapar_assign(["gw0"], pool.lanes, [], pool, "mine", "ultra")
    assert own.home == {"gw0": (pool.lanes[0].lane_id,)}


def test_flaw_of_the_benchmark_is_a_function_and_a_line(monkeypatch):
    def halve(plan, _severity, _draw):
        return replace(plan, steps=plan.steps[: len(plan.steps) // 2])

    monkeypatch.setitem(flaws_logic.CHANGES, "halved", halve)
    anew = run_path(str(ROOT / "bench_suites" / "workflow" / "flaw.py"))
    task = next(task for task in TASKS.by_id.values() if len(task.required) == 4)
    assert len(anew["flaw"]("flawed_halved").apply(task.plan).steps) == 2
    assert anew["flaw_set"]("all")[-1] == "halved"
    assert anew["draw_flawed"](anew["flaw"]("halved"), task.task_type, 0, 0).plan.steps
