"""Find the cases that are done according to the server but have no result in the merged run."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.assignment import Assignment
from pytest_ultrapar.cluster.run_identity import NumberedCases, RunIdentity
from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.setting_values import parse_shard
from pytest_ultrapar.pool.shard import is_in
from pytest_ultrapar.store.cases_file import read_plan
from pytest_ultrapar.store.journal_history import read_history
from pytest_ultrapar.store.run_directory import JOURNAL_NAME, resolve_run
from pytest_ultrapar.system.files import NOT_THAT_JSON, read_whole

if TYPE_CHECKING:
    from pytest_ultrapar.cluster.server import RunState

_ASSIGNMENT = "assignment.json"
"""A file that each host in the run writes. The numbers of the cases depend on the groups in this
file."""


def cases_without_result(state: RunState, run: str) -> list[int]:
    """Return the numbers of the cases that have no grade in a merged run.

    Args:
        state: The state of the run on the server.
        run: The merged run.

    Raises:
        ConfigError: The merged run does not have the same cases as the run on the server.
        ResultsError: The merged run cannot be read.
    """
    directory = resolve_run(run)
    try:
        identity = msgspec.json.decode(state.identity, type=RunIdentity)
    except NOT_THAT_JSON:
        refuse(
            f"the server's data for run {state.name} is from another version of pytest-ultrapar, "
            "or from another program"
        )
    assignment = read_whole(
        directory / _ASSIGNMENT, Assignment, Assignment(), "is not an assignment"
    )
    cases = read_plan(directory)
    if identity.shard:
        shard = parse_shard(Location(f"run {state.name}", "shard"), identity.shard)
        cases = [case for case in cases if is_in(shard, case.case_id)]
    numbered = NumberedCases(cases, identity.models, assignment.groups)
    if numbered.numbers != identity.numbers:
        refuse(
            f"{directory} does not contain the cases of run {state.name}, or its {_ASSIGNMENT} "
            "does not contain the run's groups: pass the directory that ultrapar merge made from "
            "the hosts' directories"
        )
    history = read_history(directory / JOURNAL_NAME)
    return [
        number
        for number, case in enumerate(numbered.cases)
        if case.skipped is None
        and ((found := history.cases.get(case.case_id)) is None or found.grade is None)
    ]
