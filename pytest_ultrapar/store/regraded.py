"""Copy the episodes of an earlier run to the directory of a new run, to grade them again.

The records of episodes are copied to the new journal line by line; grades are left out. So all
figures about requests and times come from the run that measured them, however often its episodes
are graded.
"""

from __future__ import annotations

import os
import shutil
from contextlib import closing
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE
from pytest_ultrapar.broker.health import PAUSES_FILE
from pytest_ultrapar.records import Grade
from pytest_ultrapar.store.journal import (
    Damage,
    Position,
    beginning_of,
    frame,
    run_of,
    scan_segment,
    segments,
)
from pytest_ultrapar.store.journal_history import JournalHistory, RecoveredIndex, decode_head
from pytest_ultrapar.store.run_directory import JOURNAL_NAME
from pytest_ultrapar.store.string_parts import PARTS_NAME
from pytest_ultrapar.system.files import cannot

if TYPE_CHECKING:
    from pathlib import Path

    from pytest_ultrapar.store.manifest import Manifest


def take_episodes(run: Path, directory: Path) -> tuple[dict[str, Position], list[Damage]]:
    """Copy a run's episodes, and index the episodes that are to be graded: one for each case.

    Args:
        run: The earlier run, locked with `run_directory.held`.
        directory: The directory of the new run, with an empty journal.

    Returns:
        The new positions of the indexed episodes, by case id, and the damage in the earlier run's
        journal.

    Raises:
        ResultsError: A journal cannot be read or written.
    """
    history = JournalHistory()
    moved: dict[Position, Position] = {}
    with cannot(f"copy the episodes of {run}"):
        for path in segments(run / JOURNAL_NAME):
            _copy_segment(path, directory / JOURNAL_NAME / path.name, history, moved)
        if (run / PARTS_NAME).is_dir():
            shutil.copytree(run / PARTS_NAME, directory / PARTS_NAME, dirs_exist_ok=True)
        for name in (LIMITS_FILE, PAUSES_FILE):
            if (run / name).exists():
                shutil.copy(run / name, directory / name)
    found: dict[str, Position] = {}
    for case_id, case in history.cases.items():
        kept = case.kept_episode()
        if kept is not None:
            found[case_id] = moved[kept.position]
    with closing(RecoveredIndex(directory)) as index:
        index.add(found)
    return found, history.damage


def _copy_segment(
    path: Path, target: Path, history: JournalHistory, moved: dict[Position, Position]
) -> None:
    flags = os.O_WRONLY | os.O_CREAT | os.O_EXCL | os.O_CLOEXEC
    with os.fdopen(os.open(target, flags, 0o600), "wb") as file:
        at = file.write(beginning_of(run_of(target.parent)))
        for position, line in scan_segment(path, lambda payload: (decode_head(payload), payload)):
            if isinstance(line, Damage):
                history.damage.append(line)
                continue
            head, payload = line
            history.add(position, head)
            if isinstance(head, Grade):
                continue
            whole = frame(payload)
            file.write(whole)
            moved[position] = Position(target.name, at, len(whole))
            at += len(whole)


def as_measured(manifest: Manifest, earlier: Manifest) -> Manifest:
    """Return `manifest` with the facts from `earlier` that describe how its episodes were run."""
    return msgspec.structs.replace(
        manifest, regraded=earlier.run_id, **{name: getattr(earlier, name) for name in _MEASURED}
    )


_MEASURED = (
    "mode",
    "rate_mode",
    "policy",
    "simulated",
    "answered_by",
    "record",
    "reused",
    "replayed",
    "measured_from",
    "restricted",
    "serial_sample",
    "pool_lanes",
    "pool_limits",
    "faults",
    "host",
    "merged",
)
