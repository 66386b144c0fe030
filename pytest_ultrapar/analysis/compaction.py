"""Make the tables, the benchmark JSON and the summary of a run from its journal.

Everything that this module writes comes from the journal, the manifest or the planned cases. The
exceptions are a suite's own figures and, if a resumed run had nothing left to do, its speed. So all
these files can be made again at any time, even after a crash or by another version of the plugin.
"""

from __future__ import annotations

import fcntl
import os
import time
from concurrent.futures import ThreadPoolExecutor
from contextlib import closing, contextmanager, suppress
from datetime import UTC, datetime
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.analysis.benchmark_json import benchmark_json, note_tables_s
from pytest_ultrapar.analysis.journal_scan import JournalScan
from pytest_ultrapar.analysis.measures import Measures
from pytest_ultrapar.analysis.performance import Performance, performance
from pytest_ultrapar.analysis.repetitions import n_repetitions
from pytest_ultrapar.analysis.run_speeds import FILE_NAME as BENCHMARK_FILE
from pytest_ultrapar.analysis.run_summary import (
    Ends,
    RunSummary,
    make_cell_figures,
    make_cells,
    read_summary,
    results_of_tests,
    write_summary,
)
from pytest_ultrapar.analysis.statistics import (
    PACE,
    keep_serial_times,
    run_statistics,
    whole_span,
    without_pace,
)
from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.store.journal import cut_off
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from pytest_ultrapar.store.run_directory import COMPACT_LOCK_NAME, SUMMARY_FILE
from pytest_ultrapar.store.table_set import TableFiles, write_histories
from pytest_ultrapar.store.tables import TABLES, grade_columns
from pytest_ultrapar.system.files import (
    TEMPORARY_SUFFIX,
    cannot,
    digest_of,
    sweep_temporaries,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator
    from concurrent.futures import Future
    from pathlib import Path

    from pytest_ultrapar.analysis.requests import RequestLog


MOST_AT_ONCE = 50_000
"""The maximum number of cases that are compacted at once. Each of them takes 5 KB of memory. Larger
runs are compacted in slices."""
SLICE = 10_000
"""The number of cases in a slice. The memory of a slice is freed after use, but most of it is not
returned to the operating system."""


def compact(
    run_dir: Path,
    written: Callable[[int, int], None] = lambda _done, _total: None,
    begun: JournalScan | None = None,
) -> RunSummary:
    """Write the tables, the benchmark JSON and the summary of a run, and return the summary.

    The journal is not changed. Each file is replaced as a whole or not at all. So you can stop a
    compaction at any time and repeat it, and you get the same rows.

    Args:
        run_dir: The directory of a finished or an interrupted run, with a manifest and planned
            cases.
        written: Called with the number of cases written to the tables so far, and the total number
            of cases.
        begun: The records that were already read during the run, if any.

    Raises:
        ResultsError: A file cannot be read, or the rows read back from a table differ from the rows
            that were written.
    """
    with _alone(run_dir):
        return _compact(run_dir, written, begun)


def _compact(
    run_dir: Path, written: Callable[[int, int], None], begun: JournalScan | None
) -> RunSummary:
    began_s = time.monotonic()
    with closing(_taken_up(run_dir, begun)) as taken, ThreadPoolExecutor(1) as beside:
        manifest = read_manifest(run_dir)
        history, tables, n_cases = taken.history, taken.tables, taken.n_cases
        history.damage.extend(cut_off(run_dir / "journal", manifest.segments))
        files = TableFiles(run_dir, manifest, tables.params, grade_columns(taken.said()))
        try:
            measures, log, ends, writing = _go_through(taken, files, beside, written)
            keep_serial_times(measures)
            span = whole_span(measures)
            made, bound = performance(log, manifest, span, history.engines)
            # For a million cases, this frees 100 MB that the following steps do not need.
            del log
            statistics = run_statistics(
                measures, n_planned=n_cases, mode=manifest.mode, alone=made.alone
            )
            benchmark = None
            if manifest.asked_by_others:
                statistics = without_pace(statistics)
            else:
                benchmark = benchmark_json(
                    measures,
                    manifest,
                    n_planned=taken.n_planned,
                    statistics=statistics,
                    performance=made,
                    now=datetime.now(UTC),
                )
            writing.result()
            paths = files.publish()
            written(n_cases, n_cases)
        finally:
            # A file must not be closed while it is being written.
            beside.shutdown()
            files.discard()
        history.damage.extend(taken.unreadable)
        histories = write_histories(run_dir, manifest)
        if bound is not None:
            manifest = msgspec.structs.replace(manifest, bound=bound)
            write_manifest(run_dir, manifest)
        if made.start_s is not None:
            made = msgspec.structs.replace(made, tables_s=time.monotonic() - began_s)
        path = run_dir / BENCHMARK_FILE
        if benchmark is not None:
            note_tables_s(benchmark, made.tables_s)
            write_whole(path, msgspec.json.encode(benchmark))
        elif not manifest.resumed:
            # Keep the file of a resumed run that had nothing left to do: it is from an earlier
            # session.
            path.unlink(missing_ok=True)
        names = [one.name for one in (*paths, *histories)]
        if path.exists():
            names.append(path.name)
    tests, n_tests = results_of_tests(measures, taken.layouts)
    summary = RunSummary(
        run_id=manifest.run_id,
        mode=manifest.mode,
        rate_mode=manifest.rate_mode,
        simulated=manifest.simulated,
        asked_by_others=manifest.asked_by_others,
        drawn_from=manifest.drawn_from,
        statistics=statistics,
        summary_by=manifest.summary_by,
        cells=make_cells(measures),
        n_repetitions=n_repetitions(measures.cells()) or 1,
        repetitions=make_cell_figures(measures),
        resumed=manifest.resumed,
        regraded=manifest.regraded,
        replayed=manifest.replayed,
        n_replayed=tables.replayed["match"] + tables.replayed["ambiguous"],
        n_ambiguous=tables.replayed["ambiguous"],
        n_resumed=tables.n_resumed,
        n_strayed=tables.n_strayed,
        n_requests=tables.n_requests,
        n_maybe_billed=tables.n_maybe_billed,
        n_without_request=measures.n_silent if manifest.replayed is None else 0,
        kinds=dict(ends.kinds.most_common()),
        notes=ends.notes,
        never_ran=ends.never_ran,
        n_ungraded=ends.n_ungraded,
        n_interrupted=ends.n_interrupted,
        cost=tables.prices.cost(),
        roles=tables.roles.found(),
        merged=manifest.merged,
        damage=history.damage,
        files=[*names, SUMMARY_FILE],
        digests={one.name: digest_of(one) for one in (*paths, *histories)},
        tests=tests,
        n_tests=n_tests,
        **msgspec.structs.asdict(made),
    )
    with suppress(ResultsError):
        earlier = read_summary(run_dir)
        if earlier is not None and benchmark is None and manifest.resumed:
            # The earlier session's measurement is still valid.
            summary = _keep_speed(summary, earlier)
        if earlier is not None and earlier.digests == summary.digests:
            # Keep these figures, because only the suite can compute them, and the rows are the
            # same.
            summary = msgspec.structs.replace(summary, figures=earlier.figures)
    write_summary(run_dir, summary)
    return summary


def _taken_up(run_dir: Path, begun: JournalScan | None) -> JournalScan:
    """Return all records in the journal; if possible, reuse those that were already read."""
    if begun is not None:
        begun.read_new()
        if begun.fits(read_manifest(run_dir)):
            begun.leave_out_others()
            return begun
        begun.close()
    if read_manifest(run_dir).n_planned > MOST_AT_ONCE:
        # `Slices` needs numpy, which the compacting process has loaded anyway.
        from pytest_ultrapar.analysis.slices import Slices  # noqa: PLC0415

        return JournalScan(run_dir, Slices(run_dir, SLICE))
    taken = JournalScan(run_dir)
    taken.read_new()
    taken.leave_out_others()
    return taken


def _go_through(
    taken: JournalScan,
    files: TableFiles,
    beside: ThreadPoolExecutor,
    written: Callable[[int, int], None],
) -> tuple[Measures, RequestLog, Ends, Future[None]]:
    """Write the rows of each slice, and compute its figures at the same time.

    Returns:
        The measures, the requests, and the counts of how cases ended, each for all slices together.
        The last item is a future, which is done when the last slice is written.
    """
    measures, log, ends, n_done = Measures(), taken.new_log(), Ends(), 0
    for cases in taken.slices():

        def saying(n: int, n_before: int = n_done) -> None:
            written(min(n_before + n, taken.n_cases), taken.n_cases)

        ended = taken.ended()
        # Compressing, reading back and syncing release the GIL, so the figures can be computed at
        # the same time. Both threads use these rows.
        spent = taken.tables.spent(ended)
        writing = beside.submit(files.write, taken.tables, ended, taken.read, saying)
        requests = taken.figures(ended, spent, measures)
        log.extend(requests)
        ends.add(cases, taken.history.cases)
        n_done += len(cases)
        if taken.is_sliced:
            writing.result()
            # Free this memory before the next slice is loaded.
            del ended, spent, requests
    return measures, log, ends, writing


_SPEED = (*PACE, "n_timed", "basis", "sample", "latency")


def _keep_speed(summary: RunSummary, earlier: RunSummary) -> RunSummary:
    """Return the new summary with the speed and performance figures from the earlier one. Pure."""
    speed = {name: getattr(earlier.statistics, name) for name in _SPEED}
    return msgspec.structs.replace(
        summary,
        statistics=msgspec.structs.replace(summary.statistics, **speed),
        measured_earlier=True,
        **{name: getattr(earlier, name) for name in Performance.__struct_fields__},
    )


@contextmanager
def _alone(run_dir: Path) -> Iterator[None]:
    """Allow only one compaction of a run at a time, and clean up after any that was killed.

    Raises:
        ResultsError: The directory cannot be written to.
    """
    with cannot(f"compact {run_dir}"):
        fd = os.open(run_dir / COMPACT_LOCK_NAME, os.O_RDWR | os.O_CREAT | os.O_CLOEXEC, 0o600)
        try:
            fcntl.flock(fd, fcntl.LOCK_EX)
            # Only compactions write these files, and this one holds the lock. So all of them are
            # left over, even if a running process now has the process id in a name.
            for name in (*TABLES, BENCHMARK_FILE, SUMMARY_FILE):
                for left_over in run_dir.glob(f".{name}.*{TEMPORARY_SUFFIX}"):
                    left_over.unlink(missing_ok=True)
            # Keep the temporary files of live sessions, because a session may be about to publish a
            # manifest.
            sweep_temporaries(run_dir)
            yield
        finally:
            os.close(fd)
