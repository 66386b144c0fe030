"""What docs/architecture.md says that changes take: the files are there, and one line is enough."""

from __future__ import annotations

import re
from pathlib import Path

from pytest_ultrapar.apis import failure_classes
from pytest_ultrapar.apis.failure_classes import FailureClass
from pytest_ultrapar.coordinator import policies
from pytest_ultrapar.simulator.answer import Whole
from pytest_ultrapar.simulator.faults import kinds
from tests.simulated_pool import faults_of, simulated_pool
from tests.unit.test_lanes_health import health

ROOT = Path(__file__).parents[2]
PAGE = (ROOT / "docs" / "architecture.md").read_text(encoding="utf-8")
TABLE = PAGE.split("## What a change takes")[1].split("\n## ")[0]


def test_every_file_is_there():
    named = re.findall(r"`([a-z_]+(?:/[a-z_*]+)*(?:\.py|/))`", TABLE.partition("| --- ")[2])
    assert len(named) >= 12
    for name in named:
        base = ROOT if name.startswith("bench_suites") else ROOT / "pytest_ultrapar"
        assert list(base.glob(name)), name


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
        raise NotImplementedError

    monkeypatch.setitem(policies.POLICIES, "mine", mine)
    assert "mine" in policies.shipped("ultra")
    assert policies.find_policy("mine", "ultra") is mine
