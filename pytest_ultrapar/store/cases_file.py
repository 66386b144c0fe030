"""The files that list a run's cases, and the cases for which its suites take or reuse answers."""

from __future__ import annotations

import hashlib
import os
from contextlib import contextmanager, suppress
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.errors import ConfigError, ResultsError
from pytest_ultrapar.records import Case
from pytest_ultrapar.store.journal import frame, unframe, without_surrogates
from pytest_ultrapar.system.files import (
    NOT_THAT_JSON,
    cannot,
    digest_of,
    open_file,
    publish,
    read_file,
    read_whole,
    sync_path,
    write_whole,
)

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence
    from pathlib import Path


MANIFEST_NAME = "manifest.json"
CASES_NAME = "cases.json"
NEXT_NAME = "cases.next.json"
"""The plan of a session that resumes a run. It replaces `cases.json` once the manifest contains its
digest."""
COMING_NAME = "cases.jsonl"
"""A file with one case per line, used instead of a plan if the cases are not known in advance."""
CLAIMED_NAME = "claimed.txt"
"""A file with the ids of the cases that this host claimed, one per line, if several hosts share a
run. If a line begins with `GIVEN_UP`, this host has returned the case to the other hosts."""
PLAN_NAMES = (CASES_NAME, NEXT_NAME, COMING_NAME, CLAIMED_NAME)
"""All files that contain planned cases."""
GIVEN_UP = "-"
_LONGEST = 120
_WRONG = "does not contain the planned cases of a run"


def write_cases(directory: Path, cases: Sequence[Case], *, resumes: bool = False) -> list[Case]:
    """Write the planned cases to a run directory, completely or not at all; the first writer wins.

    Args:
        directory: The run directory.
        cases: The cases that this process collected.
        resumes: Whether an earlier session may have written a plan. If so, both plans are stored
            until `settle_cases` keeps one of them.

    Returns:
        The cases that another process of this session collected, if they differ from `cases`;
        otherwise an empty list.

    Raises:
        ConfigError: A parameter contains an unpaired surrogate, which UTF-8 files cannot contain.
        ResultsError: The directory cannot be written.
    """
    content = _encode(cases)
    path = directory / (NEXT_NAME if resumes else CASES_NAME)
    temporary = directory / f".{CASES_NAME}.{os.getpid()}.tmp"
    with cannot(f"write {path}"):
        try:
            flags = os.O_WRONLY | os.O_CREAT | os.O_TRUNC | os.O_CLOEXEC
            with os.fdopen(os.open(temporary, flags, 0o600), "wb") as file:
                file.write(content)
            # A link fails if another worker has written the file; a rename would replace it.
            os.link(temporary, path)
            if resumes:
                # The manifest names this file later.
                sync_path(path)
        except FileExistsError:
            return [] if read_file(path) == content else read_collected(directory)
        finally:
            temporary.unlink(missing_ok=True)
    return []


def settle_cases(directory: Path) -> None:
    """Replace the earlier plan with the plan of the resuming session, if that plan was accepted.

    It was accepted if the manifest contains its digest. If the session is refused or killed before
    the manifest contains the digest, the earlier plan stays. If the session is killed after that,
    the next session replaces the earlier plan.

    Raises:
        ResultsError: The plan cannot be read or moved.
    """
    coming = directory / NEXT_NAME
    with cannot(f"write {directory / CASES_NAME}"):
        if _plan_path(directory) == coming:
            publish(coming, directory / CASES_NAME)
        else:
            coming.unlink(missing_ok=True)


def _plan_path(directory: Path) -> Path:
    """The plan of a resuming session if its digest is in the manifest; otherwise `cases.json`."""
    coming = directory / NEXT_NAME
    is_named = coming.exists() and digest_of(coming) == _named_digest(directory)
    return coming if is_named else directory / CASES_NAME


def read_collected(directory: Path) -> list[Case]:
    """The plan that this session wrote to resume a run; without one, the result of `read_plan`.

    Raises:
        ResultsError: The file does not exist, or its content is not valid.
    """
    return read_whole(directory / NEXT_NAME, list[Case], None, _WRONG) or read_plan(directory)


def changed_parameter(then: Case, now: Case) -> str | None:
    """The first parameter with different content in two plans of the same case, or None."""
    for name in {**then.params, **now.params}:
        # Treat a missing parameter as an empty list, which differs from every text and number.
        # Plans of earlier versions do not contain the content.
        before, after = (
            case.content.get(name) or msgspec.json.encode(case.params.get(name, []))
            for case in (then, now)
        )
        if before != after and (name in then.content or name not in now.content):
            return name
    return None


def changed_message(then: Iterable[Case], now: Iterable[Case]) -> str | None:
    """A clause about cases whose data differs between the two plans; None if no data differs."""
    before = {case.case_id: case for case in then}
    found = [(case, changed_parameter(before.get(case.case_id, case), case)) for case in now]
    changed = [(case, name) for case, name in found if name is not None]
    if not changed:
        return None
    which = f" (the first of {len(changed):,} changed cases)" if len(changed) > 1 else ""
    case, name = changed[0]
    code = ""
    pythons = [one.content.get(name, "").rpartition(":")[0] for one in (before[case.case_id], case)]
    if all(pythons) and pythons[0] != pythons[1]:
        code = f" contains code, which {' and '.join(pythons)} represent differently"
    return f"the data of {_shortened(case.nodeid)}{which} have changed: parameter {name!r}{code}"


def missing_message(then: Sequence[Case], now: Sequence[Case]) -> str | None:
    """A sentence about cases in the earlier plan that are not in the new plan, or None."""
    known = {(case.case_id, case.nodeid) for case in now}
    if all((case.case_id, case.nodeid) in known for case in then):
        return None
    before, after = ({case.nodeid: None for case in each} for each in (then, now))
    said = ""
    for when, own, other in (("missing", before, after), ("new", after, before)):
        alone = [name for name in own if name not in other]
        if alone:
            more = f" and {len(alone) - 1:,} more" if len(alone) > 1 else ""
            said += f"; {when}: {_shortened(alone[0])}{more}"
    if not said:
        return (
            "the planned cases differ, although their names are the same: the run seed "
            "(--ultrapar-seed) or the suite's folder has changed"
        )
    return (
        f"the planned cases are not the same ({len(then)} then, {len(now)} now{said}): use the "
        "same suite, selection (-k, -m, --ultrapar-model, --ultrapar-sample) and repetitions, from "
        "the same directory or --rootdir"
    )


def _shortened(name: str) -> str:
    return name if len(name) <= _LONGEST else f"{name[: _LONGEST - 3]}..."


def _encode(cases: Sequence[Case]) -> bytes:
    try:
        return msgspec.json.encode(cases)
    except UnicodeEncodeError as error:
        unfit = error.object
        name = next(c.nodeid for c in cases if unfit in {c.nodeid, c.skipped, *c.facts.values()})
        raise ConfigError(
            f"{without_surrogates(name)}: the name, a parameter or the skip reason of this test "
            "contains half a surrogate pair, which result files cannot contain; use whole "
            "characters"
        ) from error


class ComingCases:
    """The cases of a run without a plan. Each case is written before the records about it.

    Args:
        directory: The run directory.

    Raises:
        ResultsError: The file for the cases cannot be created there.
    """

    def __init__(self, directory: Path) -> None:
        self._directory = directory
        self._path = directory / COMING_NAME
        self._new: list[Case] = []
        self._is_synced = True
        flags = os.O_APPEND | os.O_CREAT | os.O_EXCL | os.O_WRONLY | os.O_CLOEXEC
        with cannot(f"write {self._path}"):
            self._fd = os.open(self._path, flags, 0o600)

    def add(self, case: Case) -> None:
        """Queue a case for the next `write`. Call `write` before the case's first record."""
        self._new.append(case)

    def write(self) -> None:
        """Write the queued cases. They then survive the end of this process, but not a power loss.

        Raises:
            ResultsError: Not all of the queued cases could be written.
        """
        new, self._new = self._new, []
        if not new:
            return
        self._is_synced = False
        text = b"".join(frame(msgspec.json.encode(case)) for case in new)
        with cannot(f"write {self._path}"):
            n_written = os.write(self._fd, text)
        if n_written != len(text):
            raise ResultsError(f"cannot write {self._path}: is the disk full?")

    def sync(self) -> None:
        """Wait until all written cases are on disk; do nothing after `close`.

        Raises:
            ResultsError: The disk reports an error.
        """
        if self._is_synced or self._fd < 0:
            return
        # Set this before the sync: the sync may or may not include a case that is written
        # meanwhile.
        self._is_synced = True
        with cannot(f"write {self._path}"):
            os.fdatasync(self._fd)

    def finish(self) -> list[Case]:
        """Write all cases to one file in the form of a plan, and return them.

        Raises:
            ResultsError: The cases cannot be written.
        """
        self.write()
        cases = read_plan(self._directory)
        write_whole(self._directory / CASES_NAME, msgspec.json.encode(cases))
        self._path.unlink(missing_ok=True)
        return cases

    def close(self) -> None:
        """Close the file. Idempotent."""
        if self._fd >= 0:
            os.close(self._fd)
            self._fd = -1


def read_cases(directory: Path) -> list[Case]:
    """The cases of a run, in the order in which pytest collected them or in which they arrived.

    If several hosts share the run, these are only the cases that this host claimed.

    Raises:
        ResultsError: The file does not exist, or its content is not valid.
    """
    return [*iter_claimed(directory)]


def claimed_of(directory: Path, cases: Iterable[Case]) -> Iterator[Case]:
    """The given cases that this host claimed; all of them unless several hosts share the run.

    Raises:
        ResultsError: The claimed cases cannot be read.
    """
    claimed = _claimed(directory)
    return (case for case in cases if claimed is None or case.case_id in claimed)


def iter_claimed(directory: Path) -> Iterator[Case]:
    """Like `read_cases`, but with only a few cases in memory at a time.

    Raises:
        ResultsError: The file does not exist, or its content is not valid.
    """
    return claimed_of(directory, iter_plan(directory))


def _claimed(directory: Path) -> frozenset[str] | None:
    """The ids of the cases that this host claimed; None unless several hosts share the run."""
    path = directory / CLAIMED_NAME
    with cannot(f"read {path}"):
        if not path.exists():
            return None
        words = read_file(path).decode("ascii", "replace").split()
    found: set[str] = set()
    for word in words:
        if word.startswith(GIVEN_UP):
            found.discard(word.removeprefix(GIVEN_UP))
        else:
            found.add(word)
    return frozenset(found)


def read_plan(directory: Path) -> list[Case]:
    """All cases of a run, even if this host did not claim them, in the order of `read_cases`.

    Raises:
        ResultsError: The file does not exist, or its content is not valid.
    """
    return [*iter_plan(directory)]


@contextmanager
def _planned_cases(path: Path) -> Iterator[None]:
    """Turn any error while the file of planned cases is read into a `ResultsError` of one sentence.

    Raises:
        ResultsError: The file cannot be read, or its content is not valid.
    """
    try:
        with cannot(f"read the planned cases in {path}"):
            yield
    except NOT_THAT_JSON as error:
        raise ResultsError(f"{path} {_WRONG}: {error}") from error


def _come(path: Path, lines: bytes) -> list[Case]:
    """The cases in these lines, each case once; lines from earlier versions have no checksums.

    Raises:
        ResultsError: A line is damaged.
        msgspec.DecodeError: A line is not a case.
    """
    decode = msgspec.json.Decoder(Case).decode
    found: dict[str, Case] = {}
    for number, line in enumerate(lines.splitlines(keepends=True), 1):
        payload = line if line.startswith(b"{") else unframe(line)
        if payload is None:
            raise ResultsError(f"{path} is damaged in line {number}: restore the file")
        case = decode(payload)
        found[case.case_id] = case
    return [*found.values()]


def cases_digest(directory: Path) -> str:
    """SHA-256 (hex) of this session's file of planned cases; empty if there is no such file.

    Raises:
        ResultsError: The file cannot be read.
    """
    path = directory / NEXT_NAME
    with cannot(f"read the planned cases in {path}"):
        path = path if path.exists() else directory / CASES_NAME
        return digest_of(path) if path.exists() else ""


class _Named(msgspec.Struct):
    """The field in the manifest for the digest of the plan; earlier versions did not write it."""

    cases_digest: str = ""


def _named_digest(directory: Path) -> str:
    """The digest of the plan in the manifest; empty if it is missing or cannot be read."""
    # Ignore errors here: code that needs the manifest reports them.
    with suppress(ResultsError):
        return read_whole(directory / MANIFEST_NAME, _Named, _Named(), "").cases_digest
    return ""


_BLOCK = 1 << 20
_BETWEEN = b'},{"index":'
"""Text that occurs only between two cases, because a quote in a JSON string follows a backslash."""


def iter_plan(directory: Path) -> Iterator[Case]:
    """Like `read_plan`, but with only a few cases in memory at a time.

    Raises:
        ResultsError: The file does not exist, or its content is not valid.
    """
    with cannot(f"read the planned cases in {directory}"):
        path = _plan_path(directory)
    coming = directory / COMING_NAME
    if not path.exists() and coming.exists():
        with _planned_cases(coming):
            # An incomplete last line is from a process that died before the first record of that
            # case.
            whole, feed, _ = read_file(coming).rpartition(b"\n")
            yield from _come(coming, whole + feed)
        return
    decode = msgspec.json.Decoder(list[Case]).decode
    digest = hashlib.sha256()
    with _planned_cases(path), open_file(path) as file:
        left = b""
        while block := file.read(_BLOCK):
            digest.update(block)
            whole, between, rest = (left + block).rpartition(_BETWEEN)
            if between:
                yield from decode(whole + b"}]")
                left = b'[{"index":' + rest
            else:
                left = rest
        last = decode(left)
    named = _named_digest(directory)
    if named and named != digest.hexdigest():
        raise ResultsError(
            f"{directory / CASES_NAME} does not match the digest in {MANIFEST_NAME}: the file was "
            "changed, or one of the two files is from another run; restore the right file"
        )
    yield from last


def suite_digest(cases: Iterable[Case]) -> str:
    """SHA-256 (hex) of the sorted case ids. It identifies the set of cases, in any order."""
    return digest_of_ids(case.case_id for case in cases)


def digest_of_ids(case_ids: Iterable[str]) -> str:
    """Compute `suite_digest` from case ids."""
    return hashlib.sha256("\n".join(sorted(case_ids)).encode()).hexdigest()


GENERATED_NAME = "generated.json"


class Generated(msgspec.Struct, frozen=True):
    """All the cases from which a shard or a sample was selected.

    Attributes:
        n_cases: The number of all these cases.
        digest: Sum of their ids modulo 2**64 (hex). It does not depend on the order or the shard,
            but on the suite, its models and the seed. Empty for a sample.
    """

    n_cases: int
    digest: str = ""


def write_generated(directory: Path, generated: Generated | None) -> None:
    """Write `generated` to the run directory, completely or not at all.

    All workers write the same content. None removes the file.

    Raises:
        ResultsError: The directory cannot be written.
    """
    # With None, remove the file of an earlier session, which may have been a sample.
    text = None if generated is None else msgspec.json.encode(generated)
    write_whole(directory / GENERATED_NAME, text)


def read_generated(directory: Path) -> Generated | None:
    """Facts about the cases from which the run's cases were selected; None if all of them were.

    Raises:
        ResultsError: The file cannot be read, or its content is not valid.
    """
    path = directory / GENERATED_NAME
    return read_whole(path, Generated, None, "does not contain the cases of all shards")


SHARED_NAME = "taken.json"


class Shared(msgspec.Struct, frozen=True):
    """The cases whose answers one suite took or reused instead of sending requests.

    Attributes:
        suite: The suite that took or reused the answers.
        here: Ids of the cases whose answers it took from another suite in the same run, without
            duplicates.
        reused: Ids of the cases whose answers it reused from the run in --ultrapar-reuse, without
            duplicates.
    """

    suite: str
    here: tuple[str, ...] = ()
    reused: tuple[str, ...] = ()


def write_shared(directory: Path, taken: Sequence[Shared]) -> None:
    """Write `taken` to the run directory, completely or not at all.

    All workers write the same content. If the suites took and reused nothing, there is no file.

    Raises:
        ResultsError: The directory cannot be written.
    """
    # A session that stopped before its first episode may have left such a file.
    write_whole(directory / SHARED_NAME, msgspec.json.encode(taken) if taken else None)


def read_shared(directory: Path) -> list[Shared]:
    """The taken and reused cases of each suite in a run; empty if there are no such cases.

    Raises:
        ResultsError: The file cannot be read, or its content is not valid.
    """
    return read_whole(
        directory / SHARED_NAME, list[Shared], [], "is not a list of taken and reused cases"
    )


TABLES_FILE = "tables.json"


def write_tables(directory: Path, tables: Mapping[str, tuple[str, ...]]) -> None:
    """Write the tests' settings for the layout of the summary. All workers write the same settings.

    Raises:
        ResultsError: The settings cannot be written.
    """
    path = directory / TABLES_FILE
    if not path.exists():
        write_whole(path, msgspec.json.encode(tables))


def read_tables(directory: Path) -> dict[str, tuple[str, ...]]:
    """For each test (in earlier versions, each suite), the names by which its summary is grouped.

    Raises:
        ResultsError: The file cannot be read, or its content is not valid.
    """
    wrong = "does not contain the settings for the tables of a summary"
    return read_whole(directory / TABLES_FILE, dict[str, tuple[str, ...]], {}, wrong)
