"""Any run, with any results of its cases, can be reported, listed and compared."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from tempfile import TemporaryDirectory

import msgspec
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitChange, LimitRecord
from pytest_ultrapar.broker.health import PAUSES_FILE, LanePause, PauseRecord
from pytest_ultrapar.broker.limit_history import HistoryFile
from pytest_ultrapar.broker.protocol import EstimatedLimit, LaneStatus
from pytest_ultrapar.cli import main
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.pool.money import ModelPrice
from pytest_ultrapar.records import EngineSpent
from pytest_ultrapar.report.terminal_summary import brief_lines
from pytest_ultrapar.store.manifest import read_manifest
from tests.examples import examples
from tests.unit.finished_run import (
    LANE,
    NOW,
    attempt,
    case,
    episode,
    grade,
    make_run,
    write_journal,
)

TIMES_S = st.sampled_from([0.0, 1e-7, 1.0, 3.5])
TOKENS = st.sampled_from([None, 0, 1000])
GRADED = ("solved", "partial", "unsolved")
ENDED = (*GRADED, "infra", "error", "skipped")
UNFINISHED = ("never", "interrupted", "ungraded")
FATES = st.sampled_from([("infra",), ("unsolved",), GRADED, ENDED, (*ENDED, *UNFINISHED)])
"""The possible results of the cases of a run."""
STATUS = LaneStatus(
    LANE.lane_id, "out", "lane azure/dep0/key0 is dead", 0, 1, 1, 0, 1, 1, {"azure (workers)": 1.0},
    outcomes={"transport": 1, "lost": 1}, pauses={"rate": 1}, paused_s={"rate": 0.0}, n_opened=1,
    removed_after_s=0.0, estimated=EstimatedLimit("azure", None, None, 1),
)  # fmt: skip
POOLS = st.fixed_dictionaries(
    {
        "prices": st.sampled_from(
            [(), *((ModelPrice("azure", "m1", at, at),) for at in (0.0, 2.0))]
        ),
        "pool_lanes": st.sampled_from([(), (replace(LANE, limits=("azure",)),)]),
        "pool_limits": st.sampled_from([(), (Limit("azure", "provider", workers=2, tpm=9.0),)]),
        "lanes": st.sampled_from([(), (STATUS,)]),
    }
)
WAYS = st.fixed_dictionaries(
    {
        "rate_mode": st.sampled_from(["fixed", "adaptive"]),
        "mode": st.sampled_from(["ultra", "serial"]),
        "summary_by": st.sampled_from([("model",), ("flaw", "model")]),
        "serial_sample": st.sampled_from([(), (), ("case0",)]),
        "replayed": st.sampled_from([None, None, "r"]),
        "regraded": st.sampled_from([None, None, "r"]),
        "asked_by_others": st.sampled_from([False, False, True]),
        "resumed": st.booleans(),
        "measured_from": st.sampled_from([None, NOW]),
    }
)
HISTORIES = {
    LIMITS_FILE: (LimitRecord, LimitChange("azure", 0.5, 3, None, 1, "grew")),
    PAUSES_FILE: (PauseRecord, LanePause("azure", "dep0", "key0", "rate", 0.5, 0.5)),
}


@st.composite
def requests(draw):
    begin_s = draw(TIMES_S)
    return attempt(
        begin_s,
        begin_s + draw(TIMES_S),
        outcome=draw(st.sampled_from(["ok", "ok", "rate", "timeout"])),
        tokens_in=draw(TOKENS),
        tokens_out=draw(TOKENS),
        t_first_token_s=draw(st.sampled_from([None, begin_s])),
        role=draw(st.sampled_from(["", "", "judge"])),
        replayed=draw(st.sampled_from([None, None, "match"])),
    )


@st.composite
def records(draw, index, fates):
    """The journal's records of a case."""
    fate = draw(st.sampled_from(fates))
    if fate == "never":
        return []
    scores = draw(st.sampled_from([{}, {"steps": 0.0}, {"steps": 3.0}]))
    kind = draw(st.sampled_from([None, "timeout"]))
    judged = [] if fate in UNFINISHED else [grade(index, fate, kind=kind, scores=scores)]
    if fate == "skipped":
        return judged
    ending = fate if fate in {"interrupted", "infra", "error"} else "returned"
    begin_s = draw(TIMES_S)
    sent = draw(st.lists(requests(), max_size=2))
    ended = episode(index, begin_s, begin_s + draw(TIMES_S), ending, attempts=sent)
    return [ended, *judged]


@st.composite
def histories(draw, cases):
    """The fields of a manifest, the records of the journal, and the limits and pauses."""
    fates = draw(FATES)
    journals = [draw(records(one.index, fates)) for one in cases]
    if draw(st.booleans()):
        journals.append([EngineSpent("gw0", 0.0, 0.0, 0, 0.0, 0.0)])
    return draw(POOLS) | draw(WAYS), journals, draw(st.sets(st.sampled_from(sorted(HISTORIES))))


CELLS = st.tuples(st.sampled_from(["m1", "m2"]), st.sampled_from("ab"), st.integers(0, 1))
"""The model, parameter and repetition of a case."""


@st.composite
def two_runs(draw):
    cells = draw(st.lists(CELLS, max_size=4))
    cases = [
        msgspec.structs.replace(case(at, model, flaw=flaw), repeat=repeat)
        for at, (model, flaw, repeat) in enumerate(cells)
    ]
    return cases, draw(histories(cases)), draw(histories(cases))


def write(path, cases, fields, journals, named):
    run = make_run(path, cases, ended_at=NOW, **fields)
    for number, own in enumerate(journals):
        write_journal(run, f"gw{number}", *own)
    for name in named:
        kind, record = HISTORIES[name]
        file = HistoryFile(run.path / name, kind)
        file.append([record])
        file.close()
    return compact(run.path)


@examples(20)
@given(two_runs())
def test_any_run_can_be_shown(drawn):
    cases, *both = drawn
    with TemporaryDirectory() as folder:
        paths = [Path(folder) / name for name in "ab"]
        for path, history in zip(paths, both, strict=True):
            summary = write(path, cases, *history)
            assert brief_lines(summary, read_manifest(path).lanes, directory="d", width=80)
            assert main(["report", str(path)]) == 0
            assert main(["report", str(path), "--markdown"]) == 0
            assert main(["show", str(path), "--no-pager"]) == 0
        base, new = map(str, paths)
        codes = {
            main(["compare", base, new, *options])
            for options in ([], ["--full"], ["--html", f"{folder}/page.html"])
        }
        # 4: one of them is not finished, or has no graded case.
        assert codes in ({0}, {4})
        assert main(["gate", new, "--baseline", base]) in {0, 1, *codes}
