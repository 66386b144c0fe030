"""The manifest of a run in progress, and whether an earlier one may be finished by it."""

from __future__ import annotations

from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar import process
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.answered_by import answered_by
from pytest_ultrapar.results.cases_file import suite_digest
from pytest_ultrapar.results.journal import largest_sizes
from pytest_ultrapar.results.manifest import (
    FILE_NAME,
    Manifest,
    describe_machine,
    describe_python,
    describe_versions,
    read_manifest,
    resume_differences,
)
from pytest_ultrapar.results.recovered import RecoveredIndex
from pytest_ultrapar.results.rundir import RunDirectory, resolve_run
from pytest_ultrapar.runtime import read_tables

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Sequence
    from datetime import datetime
    from pathlib import Path

    import pytest

    from pytest_ultrapar.records import Case

_DEFAULT_SUMMARY = ("model",)
_SEVERAL_SUITES = ("suite", "model")


def make_manifest(
    config: pytest.Config,
    directory: RunDirectory,
    started_at: datetime,
    cases: Sequence[Case],
    *,
    restricted: bool,
    redact: Callable[[str], str],
    serial_sample: tuple[str, ...],
    faults: str | None,
) -> Manifest:
    """The manifest as it stands before the first request.

    Args:
        config: pytest's, for settings and pool.
        directory: The run's own.
        started_at: When the session began.
        cases: All that are going to run.
        restricted: Whether rules of mode or policy may keep episodes from free lanes.
        redact: Takes secrets out of a text.
        serial_sample: Ids of the cases that ran or will run one at a time first.
        faults: Digest of the faults file that is in force, if one is.

    Raises:
        ConfigError: The run is to finish another one that ran something else.
    """
    options, pool = process.settings(config)
    lanes = process.lanes(config)
    on_path = {name for lane in lanes for name in lane.limits}
    resumed = options.resume is not None
    manifest = Manifest(
        run_id=directory.run_id,
        started_at=started_at,
        pool_path=pool.path,
        pool_digest=pool.digest,
        models=pool.models,
        answered_by=answered_by(pool),
        simulated=pool.is_simulated,
        rate_mode=pool.rate_mode,
        mode=options.mode,
        policy=options.policy,
        seed=options.seed,
        repeats=options.repeats,
        n_planned=len(cases),
        suite_digest=suite_digest(cases),
        arguments=tuple(map(redact, map(str, config.invocation_params.args))),
        effective=(*pool.effective, *options.effective),
        versions=describe_versions(),
        python=describe_python(),
        machine=describe_machine(),
        storage_format=options.storage,
        data=process.data(config),
        reused=resolve_run(options.reuse).name if options.reuse else None,
        summary_by=_summary_by(read_tables(directory.path).values()),
        resumed=resumed,
        measured_from=started_at if resumed else None,
        restricted=restricted,
        serial_sample=serial_sample,
        faults=faults,
        pool_lanes=lanes,
        pool_limits=tuple(limit for name, limit in pool.limits.items() if name in on_path),
    )
    if not resumed or not (directory.path / FILE_NAME).exists():
        return manifest
    earlier = read_manifest(directory.path)
    differences = resume_differences(earlier, manifest)
    if differences:
        msg = f"--ultrapar-resume: {directory.path} cannot be finished by this run: " + "; ".join(
            differences
        )
        raise ConfigError(msg)
    # It stands until this session has measured something, if it is about the same limits.
    same = (earlier.pool_limits, earlier.pool_lanes, earlier.rate_mode) == (
        manifest.pool_limits,
        lanes,
        manifest.rate_mode,
    )
    return msgspec.structs.replace(
        manifest,
        bound=earlier.bound if same else None,
        segments=largest_sizes(directory.journal, earlier.segments),
    )


def finished_sample(directory: Path) -> tuple[str, ...]:
    """The cases of an interrupted run's serial sample whose episodes are kept when it is finished.

    What was not finished then runs among all others, and is no sample any more.

    Args:
        directory: The run's, whose finished episodes were just written down.
    """
    if not (directory / FILE_NAME).exists():
        return ()
    recovered = RecoveredIndex(directory)
    try:
        return tuple(
            case_id
            for case_id in read_manifest(directory).serial_sample
            if recovered.lookup(case_id) is not None
        )
    finally:
        recovered.close()


def _summary_by(tables: Collection[tuple[str, ...]]) -> tuple[str, ...]:
    """The layout that all suites ask for; where they differ none of them fits the others."""
    distinct = set(tables)
    if len(distinct) > 1:
        return _SEVERAL_SUITES
    return next(iter(distinct), _DEFAULT_SUMMARY)
