"""Read the parts of a run from their directories, without changing anything there."""

from __future__ import annotations

import statistics
from itertools import islice
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.merge.part_checks import INFRA, Part, standing
from pytest_ultrapar.records import EpisodeEnded, Grade
from pytest_ultrapar.store.journal import decode_record, scan_segment, segments
from pytest_ultrapar.store.journal_history import decode_head
from pytest_ultrapar.store.manifest import FILE_NAME as MANIFEST_NAME
from pytest_ultrapar.store.manifest import read_manifest
from pytest_ultrapar.store.run_directory import JOURNAL_NAME, resolve_run

if TYPE_CHECKING:
    from collections.abc import Collection, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.merge.part_checks import ResultRank

_SAMPLE = 200
"""How many episodes in a segment are read to find the segment's clock offset. The offsets found
from them differ by less than a millisecond."""


class Source(NamedTuple):
    """A part, and the directory from which it is read.

    Attributes:
        directory: The absolute path of the part's directory.
        part: The part's name and manifest.
    """

    directory: Path
    part: Part


def find_sources(names: Sequence[str]) -> list[Source]:
    """Find the runs with these names, and return them in the given order.

    If a suite has few cases, a shard may be empty. Empty shards are left out.

    Raises:
        ConfigError: A run does not exist, or a run that is not a shard has no cases.
        ResultsError: A manifest cannot be read, or was written by a newer version.
    """
    found, empty = [], []
    for name in names:
        directory = resolve_run(name).absolute()
        if (directory / MANIFEST_NAME).exists():
            found.append(Source(directory, Part(name, read_manifest(directory))))
        else:
            empty.append(directory)
    if empty and not (found and all(source.part.manifest.shard for source in found)):
        refuse(f"{empty[0]} ended before its first case: there is nothing to merge")
    return found


def clock_offsets(source: Source) -> dict[str, float]:
    """Return for each segment name the wall-clock time minus the monotonic time, in seconds.

    Segments without requests are not included.

    Raises:
        ResultsError: The journal cannot be listed.
    """
    found = {}
    for path in segments(source.directory / JOURNAL_NAME):
        known = [
            record.started_at_us / 1e6 - min(one.t_lease_s for one in record.attempts)
            for record in islice(_episodes(path), _SAMPLE)
        ]
        if known:
            found[path.name] = statistics.median(known)
    return found


def _episodes(path: Path) -> Iterator[EpisodeEnded]:
    for _, record in scan_segment(path, decode_record):
        if isinstance(record, EpisodeEnded) and record.attempts:
            yield record


def standings(
    sources: Sequence[Source], shared: Collection[str]
) -> tuple[dict[str, ResultRank], int]:
    """Find the result that counts for each case that several parts planned.

    Args:
        sources: The parts, in their order.
        shared: The ids of the cases that more than one part planned.

    Returns:
        The rank of that result by case id, for cases that were graded; and how many cases were
        graded in more than one part.
    """
    best: dict[str, ResultRank] = {}
    repeated: set[str] = set()
    for number, source in enumerate(sources if shared else ()):
        for case_id, own in _own_standings(source, shared, number).items():
            before = best.get(case_id)
            if before is not None:
                repeated.add(case_id)
            best[case_id] = own if before is None else min(before, own)
    return best, len(repeated)


def _own_standings(source: Source, shared: Collection[str], number: int) -> dict[str, ResultRank]:
    """Return the ranks of the results in one run, by case id.

    A case's last grade counts, but an `infra` that follows a different grade does not.
    """
    found: dict[str, ResultRank] = {}
    for path in segments(source.directory / JOURNAL_NAME):
        for _, head in scan_segment(path, decode_head):
            if not isinstance(head, Grade) or head.case_id not in shared:
                continue
            before, now = found.get(head.case_id), standing(head, number)
            if before is None or _last(before) <= _last(now):
                found[head.case_id] = now
    return found


def _last(one: ResultRank) -> tuple[bool, int]:
    return (one.rank != INFRA, one.at_us)
