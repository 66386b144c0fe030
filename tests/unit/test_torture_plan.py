"""Plans of the torture program: drawn from the seed alone, and never beside their kind."""

from __future__ import annotations

import pytest

from tests.torture.kinds import KINDS, MOMENTS, kinds_like
from tests.torture.plan import draw_plan

PHASES = {"startup", "collection", "running", "compaction", "signal", "stop"}


@pytest.mark.parametrize("name", KINDS)
def test_plan_is_drawn_from_seed_and_kind_alone(name):
    kind = KINDS[name]
    assert draw_plan(7, kind) == draw_plan(7, kind)
    assert len({draw_plan(seed, kind) for seed in range(20)}) == 20


@pytest.mark.parametrize("name", KINDS)
def test_victim_is_there_at_every_moment_that_is_drawn(name):
    kind = KINDS[name]
    for plan in (draw_plan(seed, kind) for seed in range(200)):
        assert plan.workers in kind.workers
        assert plan.workers or kind.victim not in {"worker", "workers", "broker"}
        for strike in plan.strikes:
            assert strike.moment in MOMENTS[kind.phase]
            assert plan.workers or "worker" not in strike.moment
            assert plan.workers or strike.moment != "broker process"


def test_kinds_cover_all_phases_processes_and_signals():
    assert {name.split("/")[0] for name in KINDS} == PHASES
    assert {kind.phase for kind in KINDS.values()} == set(MOMENTS)
    assert {kind.victim for kind in KINDS.values()} >= {
        "controller", "worker", "broker", "simulator", "compaction", "group", "all"
    }  # fmt: skip
    sent = {what.name for kind in KINDS.values() for what in kind.signals}
    assert sent == {"SIGKILL", "SIGINT", "SIGTERM", "SIGHUP", "SIGQUIT", "SIGSTOP"}


def test_signal_that_python_itself_answers_is_not_sent_before_pytest_is_there():
    plans = [draw_plan(seed, KINDS["startup/INT"]) for seed in range(200)]
    assert all(strike.moment != "process" for plan in plans for strike in plan.strikes)


def test_kinds_are_found_by_name_and_pattern():
    assert kinds_like([]) == list(KINDS.values())
    assert [kind.name for kind in kinds_like(["stop/worker"])] == ["stop/worker"]
    assert {kind.phase for kind in kinds_like(["compaction/*"])} == {"compaction"}
    with pytest.raises(ValueError, match="no kind is called 'nothing'; there are: startup/"):
        kinds_like(["nothing"])
