"""Read what a later run needs from a finished run: its graded cases, and data for estimates.

The coordinator reads the tables in another process, because reading them loads pyarrow.
"""

from __future__ import annotations

import statistics
import sys
from itertools import pairwise
from pathlib import Path
from typing import Any, TypeVar

import msgspec

from pytest_ultrapar.analysis.plan.expectations import EarlierEpisode, EarlierRun
from pytest_ultrapar.pool.roles import roles_of
from pytest_ultrapar.records import GRADED, by_key, function_of
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.table_rows import read_rows
from pytest_ultrapar.store.timing import NO_SERVICE, total_tokens
from pytest_ultrapar.system.child import run_child
from pytest_ultrapar.system.parent import answer_parent

T = TypeVar("T")
_RESULTS = ("case_id", "nodeid", "suite", "model", "outcome", "tokens_in", "tokens_out")
_ATTEMPTS = (
    *("case_id", "outcome", "t_ready_s", "t_lease_s", "t_send_s", "t_end_s"),
    *("provider", "instance", "tokens_in", "tokens_out"),
)
_ROLE = "role"
"""A column that the tables of earlier versions do not have."""


def earlier_in_subprocess(run_dir: Path) -> EarlierRun:
    """Read the graded episodes of a finished run.

    Raises:
        ResultsError: The run has no readable tables.
    """
    return _ask("earlier", run_dir, EarlierRun)


def graded_in_subprocess(run_dir: Path) -> frozenset[str]:
    """Read the ids of the graded cases of a finished run.

    Raises:
        ResultsError: The run has no readable table of results.
    """
    return _ask("graded", run_dir, frozenset[str])


def _ask(what: str, run_dir: Path, kind: type[T]) -> T:
    return msgspec.json.decode(run_child(__name__, what, str(run_dir.absolute())), type=kind)


def earlier(run_dir: Path) -> EarlierRun:
    """Read the graded episodes of a finished run from its tables.

    Raises:
        ResultsError: The tables are missing or cannot be read.
    """
    sent = read_rows(run_dir, "attempts", _ATTEMPTS, beginning=_ROLE)
    in_order = sorted(sent, key=lambda one: float(one["t_send_s"]))
    attempts = by_key((one["case_id"], one) for one in in_order)
    manifest = read_manifest(run_dir)
    model_of = {(one.provider, one.instance): one.model for one in manifest.pool_lanes}
    episodes = []
    for row in read_rows(run_dir, "results", _RESULTS):
        if row["outcome"] not in GRADED:
            continue
        by_role: dict[str, list[dict[str, Any]]] = {"": []}
        for one in attempts.get(row["case_id"], ()):
            if one["outcome"] not in NO_SERVICE:
                by_role.setdefault(one.get(_ROLE, ""), []).append(one)
        if not by_role[""]:
            continue
        for role, own in by_role.items():
            model, tokens = row["model"], (row["tokens_in"], row["tokens_out"])
            if role:
                model = model_of.get((own[0]["provider"], own[0]["instance"]), "")
                tokens = (
                    total_tokens(one["tokens_in"] for one in own),
                    total_tokens(one["tokens_out"] for one in own),
                )
            services_s = tuple(max(0.0, one["t_end_s"] - one["t_send_s"]) for one in own)
            test = function_of(row["nodeid"])
            episodes.append(
                EarlierEpisode(row["case_id"], row["suite"], model, services_s, *tokens, test, role)
            )
    gaps_s = [
        max(0.0, late["t_ready_s"] - early["t_end_s"])
        for own in attempts.values()
        for early, late in pairwise(own)
    ]
    return EarlierRun(
        tuple(episodes),
        statistics.median([max(0.0, one["t_send_s"] - one["t_lease_s"]) for one in sent] or [0.0]),
        statistics.median(gaps_s) if gaps_s else None,
        tuple(roles_of(manifest.effective)),
    )


def graded(run_dir: Path) -> list[str]:
    """Read the ids of the graded cases from a run's table of results.

    Raises:
        ResultsError: The table is missing or cannot be read.
    """
    rows = read_rows(run_dir, "results", ("case_id", "outcome"))
    return [row["case_id"] for row in rows if row["outcome"] in GRADED]


def _answer() -> bytes:
    what, run_dir = sys.argv[1:]
    return msgspec.json.encode({"earlier": earlier, "graded": graded}[what](Path(run_dir)))


if __name__ == "__main__":
    raise SystemExit(answer_parent(_answer))
