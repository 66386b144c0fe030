"""Read a round's folder: the data of the server, the journal, the tables and the suite."""

from __future__ import annotations

import stat
from typing import TYPE_CHECKING

import msgspec
import pyarrow.parquet as pq

from pytest_ultrapar.records import EpisodeEnded
from pytest_ultrapar.store.cases_file import read_cases
from pytest_ultrapar.store.journal_history import FINISHED_ENDINGS
from pytest_ultrapar.system.files import TEMPORARY_SUFFIX
from pytest_ultrapar.testing import read_server_log
from tests.journals import scan_journal
from tests.torture.evidence import Ask, Journaled, Row, Sent, Served
from tests.torture.project import WITNESS, Witness

if TYPE_CHECKING:
    from collections.abc import Iterator
    from pathlib import Path

    from pytest_ultrapar.records import Attempt

SERVER_LOG = "server.jsonl"
RUNS = ".ultrapar"
LATEST = f"{RUNS}/latest"
_NUMBER = "number"


def asked(folder: Path) -> tuple[Ask, ...]:
    """The requests that the suite was about to send."""
    lines = Witness(folder / WITNESS).new()
    return tuple(Ask(line.case, line.episode, line.t_s) for line in lines if line.event == "ask")


def episode_ended_s(folder: Path) -> dict[int, float]:
    """The times at which the suite's episodes returned."""
    lines = Witness(folder / WITNESS).new()
    return {line.episode: line.t_s for line in lines if line.event == "ended"}


def n_graded(folder: Path) -> int:
    """The number of cases that were graded at least once."""
    lines = Witness(folder / WITNESS).new()
    return len({line.case for line in lines if line.event == "graded"})


def journaled(folder: Path) -> tuple[Journaled, ...]:
    """The ends of all episodes, in the journals of all runs of the folder."""
    return tuple(one for run in _run_directories(folder) for one in _of_run(run))


def served(folder: Path) -> tuple[Served, ...]:
    """The requests that the servers saw: the round's own server and those started by its runs."""
    logs = [folder / SERVER_LOG]
    logs += [path for run in _run_directories(folder) for path in run.glob("simulator*.jsonl")]
    return tuple(
        Served(
            key=seen.key or "",
            t_arrival_s=seen.t_arrival_s,
            t_end_s=seen.t_end_s,
            status=seen.status,
            refused=not seen.admitted,
            left=seen.disconnected,
            server=log.name,
        )
        for log in logs
        if log.exists() and log.stat().st_size
        for seen in read_server_log(log).requests
    )


def rows(folder: Path) -> tuple[Row, ...]:
    """The results of the last run."""
    path = folder / LATEST / "results.parquet"
    if not path.exists():
        return ()
    found = pq.read_table(path).to_pylist()
    return tuple(
        Row(row[f"param.{_NUMBER}"], row["outcome"], _whole(row.get("score.episode")))
        for row in found
    )


def table(folder: Path) -> tuple[Sent, ...]:
    """The attempts of the last run that were sent."""
    path = folder / LATEST / "attempts.parquet"
    if not path.exists():
        return ()
    numbers = _numbers(folder / LATEST)
    return tuple(
        Sent(
            case=numbers[row["case_id"]],
            turn=row["turn"],
            attempt=row["attempt"],
            key=row["key"],
            t_send_s=row["t_send_s"],
            t_end_s=row["t_end_s"],
            status=row["status"],
        )
        for row in pq.read_table(path).to_pylist()
        if row["replayed"] is None
    )


def left_paths(folder: Path) -> tuple[str, ...]:
    """Private folders, sockets and the run's temporary files that still exist.

    A temporary file does not count if its run was killed before its first request and is never
    resumed: it is left like the rest of the directory.
    """
    run = (folder / LATEST).resolve()
    found = [
        path
        for path in folder.rglob("*")
        if path.name.startswith("broker-")
        or (path.name.endswith(TEMPORARY_SUFFIX) and path.is_relative_to(run))
        # pytest's own folder stays: pytest keeps the last three.
        or (path.parent == folder / "tmp" and not path.name.startswith("pytest-of-"))
        or stat.S_ISSOCK(path.lstat().st_mode)
    ]
    return tuple(sorted(str(path.relative_to(folder)) for path in found))


def _run_directories(folder: Path) -> list[Path]:
    runs = folder / RUNS
    if not runs.is_dir():
        return []
    return sorted(path for path in runs.iterdir() if path.is_dir() and not path.is_symlink())


def _numbers(run: Path) -> dict[str, int]:
    return {case.case_id: int(case.params[_NUMBER] or 0) for case in read_cases(run)}


def _of_run(run: Path) -> Iterator[Journaled]:
    if not (run / "cases.json").exists():
        return
    numbers = _numbers(run)
    for _, record in scan_journal(run / "journal"):
        if isinstance(record, EpisodeEnded):
            case = numbers[record.case_id]
            yield Journaled(
                case=case,
                finished=record.ending in FINISHED_ENDINGS,
                episode=_episode(record),
                sent=tuple(_sent(case, attempt) for attempt in record.sent),
            )


def _episode(record: EpisodeEnded) -> int | None:
    if not record.value:
        return None
    episode: int = msgspec.json.decode(record.value)["episode"]
    return episode


def _sent(case: int, attempt: Attempt) -> Sent:
    return Sent(
        case=case,
        turn=attempt.turn,
        attempt=attempt.attempt,
        key=attempt.key,
        t_send_s=attempt.t_send_s,
        t_end_s=attempt.t_end_s,
        status=attempt.status,
    )


def _whole(score: float | None) -> int | None:
    return None if score is None else int(score)
