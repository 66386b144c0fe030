"""Make one run directory from several: build it in a staging folder, and move it into place.

Records are copied one by one, so a journal need not fit in memory. Each record gets the name of its
host, and its times are converted to a common clock. If several parts ran a case, only one result
counts. The other parts' requests for this case stay in the journal as requests that were sent and
paid for.
"""

from __future__ import annotations

import os
import re
import shutil
from collections import defaultdict
from collections.abc import Mapping
from contextlib import ExitStack, contextmanager, suppress
from dataclasses import dataclass
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple, TypeVar

import msgspec

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.analysis.requests import RequestLog, audit
from pytest_ultrapar.broker.adaptive.observation import LIMITS_FILE, LimitRecord
from pytest_ultrapar.broker.health import PAUSES_FILE, PauseRecord
from pytest_ultrapar.broker.limit_history import read_history
from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.merge import part_checks
from pytest_ultrapar.merge.clocks import ServerClock, clocks_of
from pytest_ultrapar.merge.part_files import Source, clock_offsets, find_sources, standings
from pytest_ultrapar.merge.suite_figures import add_suite_figures
from pytest_ultrapar.records import Attempt, EpisodeEnded, EpisodeProgressHead, Grade
from pytest_ultrapar.report.sections import markdown_lines
from pytest_ultrapar.report.summary import summary_sections
from pytest_ultrapar.store import cases_file, journal_history
from pytest_ultrapar.store.clock_stamps import read_stamps
from pytest_ultrapar.store.journal import (
    SEGMENT_PATTERN,
    Damage,
    beginning_of,
    cut_off,
    decode_record,
    frame,
    scan_segment,
    segments,
)
from pytest_ultrapar.store.manifest import Merged, MergedPart, read_manifest, write_manifest
from pytest_ultrapar.store.run_directory import JOURNAL_NAME, held, new_run_id
from pytest_ultrapar.store.run_lock import mark_as_run
from pytest_ultrapar.store.string_parts import PARTS_NAME
from pytest_ultrapar.system.files import cannot, open_file

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterator, Sequence
    from datetime import datetime

    from pytest_ultrapar.analysis.run_summary import RunSummary
    from pytest_ultrapar.records import JournalRecord
    from pytest_ultrapar.store.clock_stamps import Stamp
    from pytest_ultrapar.store.journal import Position
    from pytest_ultrapar.store.manifest import Manifest

OPTION = "ultrapar merge"
STAGE = ".merging"
"""The name of the staging folder in the merged run's directory. The folder does not count as a run,
so a merge that is killed leaves no run behind."""
REPEATED = "repeated"
"""The kind of an episode that does not count, because another part has the result that counts for
its case."""
_BLOCK = 1 << 20
_REPORT = "report.md"
_ASSIGNMENT_FILE = "assignment.json"


class MergedRun(NamedTuple):
    """The result of a merge.

    Attributes:
        directory: The absolute path of the run's directory.
        manifest: The manifest of the merged run.
        summary: The summary of the merged run's tables.
        left_out: The names of merged runs that were left out because all their parts were also
            named. For example, the last host to finish a cluster run puts such a run in the same
            folder as its own.
        faults: Sentences that say why some of the suite's figures are missing.
    """

    directory: Path
    manifest: Manifest
    summary: RunSummary
    left_out: tuple[str, ...] = ()
    faults: tuple[str, ...] = ()


def merge(
    names: Sequence[str], out: Path, now: datetime, *, allow_differences: bool = False
) -> MergedRun:
    """Make one run from several, without changing them. After an error, nothing is left in `out`.

    Args:
        names: The directories or ids of the runs.
        out: The directory for the merged run. It must not exist, or must be empty.
        now: The current time, with a time zone, from which the id of the run is made.
        allow_differences: Whether the parts' pools may differ in settings that affect answers.

    Raises:
        ConfigError: The runs are not parts of one run, one of them is still running, or `out`
            cannot be used.
        ResultsError: A part cannot be read, or the merged run cannot be written.
    """
    out = out.absolute()
    sources = find_sources(names)
    covered = part_checks.covered_by_others([source.part for source in sources])
    sources = [source for source in sources if source.part not in covered]
    otherwise = part_checks.check([source.part for source in sources], allow=allow_differences)
    order = part_checks.in_order([source.part for source in sources])
    sources.sort(key=lambda source: order.index(source.part))
    with ExitStack() as stack:
        for source in sources:
            stack.enter_context(held(source.directory, OPTION))
            if out.resolve().is_relative_to(source.directory.resolve()):
                refuse(
                    f"--out: {out} is one of the runs to merge, or is inside one, and these runs "
                    "must not change; choose a new or empty directory elsewhere"
                )
        stage = stack.enter_context(_staged(out))
        run_id = new_run_id(now)
        with cannot(f"write the merged run in {out}"):
            manifest, summary, faults = _make(sources, stage, run_id, otherwise, shown=out)
            _move(stage, out, run_id)
    return MergedRun(out, manifest, summary, tuple(part.name for part in covered), faults)


@contextmanager
def _staged(out: Path) -> Iterator[Path]:
    """Make a staging folder in `out`; after an error, restore `out`."""
    was_there = out.is_dir()
    stage = out / STAGE
    with cannot(f"use {out} as a directory", option="--out", error=ConfigError):
        out.mkdir(mode=0o700, parents=True, exist_ok=True)
        if any(entry.name != STAGE for entry in out.iterdir()):
            refuse(f"--out: {out} is not empty; choose a new or empty directory")
        shutil.rmtree(stage, ignore_errors=True)  # left over from a merge that was killed
        stage.mkdir(mode=0o700)
    try:
        yield stage
    except BaseException:
        # Remove everything: the directory was empty, so this merge made all that is in it.
        with suppress(OSError):
            for path in out.iterdir():
                if path.is_dir():
                    shutil.rmtree(path, ignore_errors=True)
                else:
                    path.unlink(missing_ok=True)
            if not was_there:
                out.rmdir()
        raise


def _move(stage: Path, out: Path, run_id: str) -> None:
    """Move the files into place. The lock file, which makes the directory a run, comes last."""
    for path in stage.iterdir():
        path.rename(out / path.name)
    stage.rmdir()
    mark_as_run(out, run_id)


def _make(
    sources: Sequence[Source], stage: Path, run_id: str, otherwise: Sequence[str], *, shown: Path
) -> tuple[Manifest, RunSummary, tuple[str, ...]]:
    planned = _join_cases(sources, stage)
    best, n_repeated = standings(sources, planned.shared)
    clocks = _Clocks(sources)
    sizes: dict[str, int] = {}
    parts: list[MergedPart] = []
    (stage / JOURNAL_NAME).mkdir(mode=0o700)
    for number, source in enumerate(sources):
        writer = _PartWriter(source, stage, number, clocks, best)
        sizes |= writer.copy(beginning_of(run_id))
        parts.append(writer.part())
    _join_histories(sources, stage, clocks)
    _join_small_files(sources, stage)
    manifests = [source.part.manifest for source in sources]
    manifest = msgspec.structs.replace(
        part_checks.joined_manifest(manifests),
        run_id=run_id,
        n_planned=planned.n,
        suite_digest=planned.digest,
        cases_digest=cases_file.cases_digest(stage),
        segments=sizes,
        merged=Merged(
            parts=tuple(parts),
            missing=part_checks.missing_shards(parts),
            n_missing=part_checks.n_missing(manifests[0], parts),
            n_repeated=n_repeated,
            n_clocks=clocks.n,
            clock_error_s=clocks.error_s,
            not_compared=clocks.not_compared,
            asked_otherwise=tuple(otherwise),
        ),
    )
    write_manifest(stage, manifest)
    del best
    summary, faults = add_suite_figures(sources, stage, compact(stage))
    manifest = read_manifest(stage)
    sections = summary_sections(summary, manifest.lanes, directory=str(shown))
    (stage / _REPORT).write_text("\n".join(markdown_lines(sections)) + "\n", encoding="utf-8")
    return manifest, summary, faults


# -- cases -----------------------------------------------------------------------------------------


class _Planned(NamedTuple):
    """The cases of all parts.

    Attributes:
        n: How many different cases there are.
        digest: The `suite_digest` of these cases.
        shared: The ids of the cases that more than one part planned.
    """

    n: int
    digest: str
    shared: Collection[str]


def _join_cases(sources: Sequence[Source], stage: Path) -> _Planned:
    """Write the cases of all parts, in the order of the parts.

    The hosts of one cluster run have the same cases. These cases keep their numbers, so that the
    merged run can be resumed. The cases of other parts get new numbers, because the numbers in each
    part begin at 0.
    """
    known: set[str] = set()
    shared: set[str] = set()
    parts = [source.part for source in sources]
    alike = len(parts) == 1 or (
        all(part.is_host for part in parts) and len({part.manifest.shard for part in parts}) == 1
    )
    encode = msgspec.json.Encoder().encode
    with (stage / cases_file.CASES_NAME).open("xb") as file:
        file.write(b"[")
        for source in sources:
            for case in cases_file.iter_plan(source.directory):
                if case.case_id in known:
                    shared.add(case.case_id)
                    continue
                at = case.index if alike else len(known)
                file.write(b"," if known else b"")
                file.write(encode(msgspec.structs.replace(case, index=at)))
                known.add(case.case_id)
        file.write(b"]")
    return _Planned(len(known), cases_file.digest_of_ids(known), shared)


# -- journals --------------------------------------------------------------------------------------


class _Clocks:
    """Converts the times of all parts to the clock of the first part.

    The monotonic clocks of different machines are unrelated. So they are compared by means of the
    wall-clock times at which episodes began. If all parts come from hosts in one cluster run, and
    every host recorded the time of their common server, the server's clock is used instead.

    Attributes:
        n: How many clocks there are: one for each part, and more if a part was resumed after a
            reboot.
        error_s: See `Merged`.
        not_compared: See `Merged`.
    """

    def __init__(self, sources: Sequence[Source]) -> None:
        self._anchors = [clocks_of(clock_offsets(source)) for source in sources]
        known = [min(found.values()) for found in self._anchors if found]
        self._common_s = known[0] if known else 0.0
        self.n = sum(len(set(found.values())) for found in self._anchors)
        self._server: ServerClock | None = None
        self.error_s: float | None = None
        self.not_compared = ""
        parts = [source.part for source in sources]
        if len(parts) > 1 and all(part.is_host for part in parts):
            # For the hosts of one run, use the server's clock if all hosts recorded its time.
            pairs = zip(map(_stamps, sources), self._anchors, strict=True)
            server = ServerClock([stamps if own else None for stamps, own in pairs])
            self.not_compared = server.lacks
            if not server.lacks:
                self._server, self.error_s = server, server.error_s

    def shift_of_segment(self, number: int, segment: str) -> Callable[[float], float]:
        """Return a function that computes how many seconds to add to a time in one segment."""
        anchor_s = self._anchors[number].get(segment)
        return (lambda _: 0.0) if anchor_s is None else partial(self.shift, number, anchor_s)

    def shift(self, number: int, anchor_s: float, at_s: float) -> float:
        """Return how many seconds to add to a time from a part.

        Args:
            number: The number of the part.
            anchor_s: The wall-clock time minus the monotonic time, in seconds.
            at_s: The time to convert, on the part's monotonic clock, in seconds.
        """
        if self._server is not None and self._anchors[number]:
            return self._server.shift(number, at_s)
        clocks = self._anchors[number].values()
        own_s = min(clocks, key=lambda one: abs(one - anchor_s), default=anchor_s)
        return own_s - self._common_s


def _stamps(source: Source) -> list[Stamp]:
    """Return a part's clock stamps; empty if it was resumed, because of a possible reboot."""
    return [] if source.part.manifest.resumed else read_stamps(source.directory)


@dataclass(eq=False, repr=False)
class _PartWriter:
    """Copies the journal of one part.

    Attributes:
        source: The part to copy.
        stage: The directory of the merged run.
        number: The number of the part, from 0.
        clocks: The clocks of all parts.
        best: For each case that several parts planned, the rank of the result that counts.
    """

    source: Source
    stage: Path
    number: int
    clocks: _Clocks
    best: Mapping[str, part_checks.ResultRank]

    def __post_init__(self) -> None:
        self.log = RequestLog(self.source.part.manifest.pool_lanes)
        self._alone: set[str] = set()
        self._open: dict[Position, EpisodeEnded] = {}
        if self.source.part.manifest.ended_at is None:
            journal = self.source.directory / JOURNAL_NAME
            self._open = journal_history.cut_off_episodes(
                journal, journal_history.read_history(journal)
            )

    def copy(self, beginning: bytes) -> dict[str, int]:
        """Copy all segments.

        Each copy begins with `beginning`, the first line of every segment in the merged run.

        Returns:
            The size of each segment in bytes, by its new name. If the end of a segment was lost,
            the size includes the lost bytes.
        """
        manifest = self.source.part.manifest
        journal = self.source.directory / JOURNAL_NAME
        lost = {one.segment: one for one in cut_off(journal, manifest.segments)}
        sizes = {}
        for path in segments(journal):
            new = self._named(path.name)
            sizes[new] = self._copy_segment(path, self.stage / JOURNAL_NAME / new, beginning)
        for name, damage in lost.items():
            new = self._named(name)
            sizes[new] = sizes.get(new, 0) + damage.length
        self._copy_parts()
        return sizes

    def part(self) -> MergedPart:
        """Return the part's entry for the merged run's manifest. Call this after `copy`."""
        manifest = self.source.part.manifest
        audits = audit(self.log, manifest.pool_limits)
        exceeded = [f"{one.limit} ({', '.join(one.passed)})" for one in audits if one.passed]
        n_best = sum(one.part == self.number for one in self.best.values())
        return MergedPart(
            run_id=manifest.run_id,
            host=manifest.host,
            shard=manifest.shard,
            n_cases=manifest.n_planned,
            n_results=len(self._alone) + n_best,
            started_at=manifest.started_at,
            ended_at=manifest.ended_at,
            resumed=manifest.resumed,
            exceeded=tuple(exceeded),
        )

    def _named(self, segment: str) -> str:
        found = SEGMENT_PATTERN.fullmatch(segment)
        worker, rest = (found["worker"], f"{found['pid']}-{found['n']}") if found else ("x", "0-0")
        return f"w-p{self.number + 1}_{worker}-{rest}.jsonl"

    def _copy_segment(self, path: Path, target: Path, beginning: bytes) -> int:
        shift = self.clocks.shift_of_segment(self.number, path.name)
        encode = msgspec.json.Encoder().encode
        with open_file(path) as original, target.open("xb", _BLOCK) as file:
            n_bytes = file.write(beginning)
            for position, found in scan_segment(path, decode_record):
                record = self._open.get(position, found)
                if isinstance(record, Damage):
                    # Copy the damage unchanged, so that a reader of the merged run finds it, too.
                    original.seek(position.offset)
                    line = original.read(position.length)
                    line += b"" if line.endswith(b"\n") else b"\n"
                else:
                    changed = self._changed(record, shift)
                    if changed is None:
                        continue
                    line = frame(encode(changed))
                n_bytes += file.write(line)
        return n_bytes

    def _changed(
        self, record: JournalRecord, shift: Callable[[float], float]
    ) -> JournalRecord | None:
        """Return the record as the merged run needs it; None if the merged run does not need it."""
        host = self.source.part.manifest.host
        if isinstance(record, Grade):
            if self._counts_elsewhere(record.case_id):
                return None
            if record.case_id not in self.best:
                self._alone.add(record.case_id)
            return _on_host(record, host)
        if isinstance(record, EpisodeProgressHead):
            return None
        if not isinstance(record, EpisodeEnded):
            return record
        if self.source.part.manifest.rate_mode == "fixed":
            self.log.add(record, measured=False)
        record = _on_host(record, host)
        if self._counts_elsewhere(record.case_id) and record.ending != "interrupted":
            record = msgspec.structs.replace(record, ending="interrupted", kind=REPEATED)
        shifts_s = [shift(one.t_send_s) for one in record.attempts]
        if any(shifts_s):
            attempts = list(map(moved, record.attempts, shifts_s))
            record = msgspec.structs.replace(record, attempts=attempts)
        return record

    def _counts_elsewhere(self, case_id: str) -> bool:
        best = self.best.get(case_id)
        return best is not None and best.part != self.number

    def _copy_parts(self) -> None:
        folder = self.source.directory / PARTS_NAME
        if not folder.is_dir():
            return
        target = self.stage / PARTS_NAME
        target.mkdir(mode=0o700, exist_ok=True)
        for path in folder.iterdir():
            new = target / path.name
            if path.name.startswith(".") or not path.is_file() or new.exists():
                continue
            try:
                # A hard link is safe: the name of the file is the digest of its content, so the
                # file never changes.
                os.link(path, new)
            except OSError:
                shutil.copyfile(path, new)


R = TypeVar("R", Grade, EpisodeEnded)


def _on_host(record: R, host: str | None) -> R:
    return record if host is None else msgspec.structs.replace(record, host=host)


_TIMES = tuple(name for name in Attempt.__struct_fields__ if re.fullmatch(r"t_\w+_s", name))
"""The names of an attempt's fields that are times on the monotonic clock."""


def moved(attempt: Attempt, shift_s: float) -> Attempt:
    """Return the attempt, with `shift_s` seconds added to all its times."""
    times = {name: getattr(attempt, name) for name in _TIMES}
    later = {name: time_s + shift_s for name, time_s in times.items() if time_s is not None}
    return msgspec.structs.replace(attempt, **later)


# -- other files of a run --------------------------------------------------------------------------


def _join_histories(sources: Sequence[Source], stage: Path, clocks: _Clocks) -> None:
    """Write all changes to limits and all pauses of lanes, with times on the common clock."""
    changes: list[LimitRecord] = []
    pauses: list[PauseRecord] = []
    replace = msgspec.structs.replace
    for number, source in enumerate(sources):
        host = source.part.manifest.host
        for one in read_history(source.directory / LIMITS_FILE, LimitRecord):
            own = one.change
            shift_s = clocks.shift(number, one.at_us / 1e6 - own.t_s, own.t_s)
            own = replace(own, t_s=own.t_s + shift_s)
            changes.append(replace(one, change=own, host=host))
        for other in read_history(source.directory / PAUSES_FILE, PauseRecord):
            pause = other.pause
            shift_s = clocks.shift(number, other.at_us / 1e6 - pause.t_s, pause.t_s)
            pause = replace(pause, t_s=pause.t_s + shift_s, t_end_s=pause.t_end_s + shift_s)
            pauses.append(replace(other, pause=pause, host=host))
    for name, found in ((LIMITS_FILE, changes), (PAUSES_FILE, pauses)):
        if found:
            found.sort(key=lambda each: each.at_us)
            (stage / name).write_bytes(msgspec.json.Encoder().encode_lines(found))


def _join_small_files(sources: Sequence[Source], stage: Path) -> None:
    """Write which answers suites took from each other, and how the suites' tables are laid out."""
    here: dict[str, set[str]] = defaultdict(set)
    reused: dict[str, set[str]] = defaultdict(set)
    for source in sources:
        for one in cases_file.read_shared(source.directory):
            here[one.suite].update(one.here)
            reused[one.suite].update(one.reused)
    cases_file.write_shared(
        stage,
        [
            cases_file.Shared(suite, tuple(sorted(own)), tuple(sorted(reused[suite])))
            for suite, own in here.items()
        ],
    )
    tables: dict[str, tuple[str, ...]] = {}
    for source in sources:
        tables = cases_file.read_tables(source.directory) | tables
    if tables:
        cases_file.write_tables(stage, tables)
    first = sources[0]
    if first.part.manifest.cluster_run is not None:
        # Copy the groups from the first host: all hosts have the same groups, which determine the
        # numbers by which the server knows the cases.
        with suppress(FileNotFoundError):
            shutil.copyfile(first.directory / _ASSIGNMENT_FILE, stage / _ASSIGNMENT_FILE)
