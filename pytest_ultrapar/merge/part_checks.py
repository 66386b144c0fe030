"""Check that runs are parts of one run, and make the manifest of the merged run, without I/O.

Parts are shards K/N with the same N, hosts of one cluster run, or runs between which the user
divided the cases by hand. Such runs have the same suite, seed and pool. Each shard has a part of
each limit, so the limits of shards are added together. The manifests of hosts, and of runs divided
by hand, contain the undivided limits.
"""

from __future__ import annotations

import re
from collections import Counter
from dataclasses import replace
from operator import attrgetter
from typing import TYPE_CHECKING, Any, NamedTuple

import msgspec

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.model import LIMIT_KINDS, addresses, answer_settings
from pytest_ultrapar.pool.roles import roles_of
from pytest_ultrapar.records import GRADED, by_key
from pytest_ultrapar.report.text import counted

if TYPE_CHECKING:
    from collections.abc import Callable, Collection, Iterable, Iterator, Mapping, Sequence

    from pytest_ultrapar.broker.protocol import LaneStatus
    from pytest_ultrapar.pool.model import Limit
    from pytest_ultrapar.records import Grade
    from pytest_ultrapar.store.manifest import Manifest, MergedPart

_SHARD = re.compile(r"(?P<k>[1-9]\d*)/(?P<n>[1-9]\d*)")
_MOST_NAMED = 8


class Part(NamedTuple):
    """A run to merge.

    Attributes:
        name: The directory or id with which the user specified the run, for messages.
        manifest: The run's manifest.
    """

    name: str
    manifest: Manifest

    @property
    def is_host(self) -> bool:
        """Whether the part comes from a host in a cluster run, or in one shard of a cluster run."""
        return self.manifest.cluster_run is not None


def covered_by_others(parts: Sequence[Part]) -> list[Part]:
    """Return the merged runs that add nothing because all their parts are also in `parts`."""
    alone = {part.manifest.run_id for part in parts if part.manifest.merged is None}
    return [
        part
        for part in parts
        if (whole := part.manifest.merged) and {one.run_id for one in whole.parts} <= alone
    ]


ALLOW = "--allow-differences"


def check(parts: Sequence[Part], *, allow: bool = False) -> tuple[str, ...]:
    """Refuse runs that are not parts of one run.

    The planned cases of the runs are not compared one by one.

    Args:
        parts: The runs.
        allow: Whether the pools may differ in settings that affect answers (see `asked_otherwise`).

    Returns:
        The differences that were found and allowed, each as a clause.

    Raises:
        ConfigError: The runs are not parts of one run. The message is one sentence with the reason.
    """
    if not parts:
        refuse("no run is given: pass the directories or ids of the runs to merge")
    known: dict[str, str] = {}
    for part in parts:
        run_id = part.manifest.run_id
        if run_id in known:
            where = known[run_id]
            twice = "twice" if where == part.name else f"as {where} and as {part.name}"
            refuse(f"the run {run_id} was passed {twice}; pass each run once")
        known[run_id] = part.name
        if part.manifest.merged is not None:
            its = _named([one.run_id for one in part.manifest.merged.parts])
            refuse(f"{part.name} is a merged run: pass the runs that it was merged from ({its})")
        if part.manifest.regraded is not None:
            refuse(
                f"{part.name} is a regrade of the run {part.manifest.regraded}: merge the original "
                "runs, then grade the merged run again (--ultrapar-regrade)"
            )
    _check_shards(parts)
    first = parts[0]
    allowed: list[str] = []
    for part in parts[1:]:
        found, settings = list(differences(first, part)), list(asked_otherwise(first, part))
        if allow:
            allowed += settings
        if found or (settings and not allow):
            said = "; ".join(found + settings)
            hint = "" if found else f"; to merge them anyway, add {ALLOW}"
            refuse(f"{first.name} and {part.name} are not parts of one run: {said}{hint}")
    return tuple(dict.fromkeys(allowed))


def _check_shards(parts: Sequence[Part]) -> None:
    of: dict[str, str] = {}
    counts: dict[str, str] = {}
    for part in parts:
        shard = part.manifest.shard
        if shard is None:
            counts.setdefault("", part.name)
            continue
        counts.setdefault(_shard(shard)[1], part.name)
        if shard in of and not part.is_host:
            refuse(f"{of[shard]} and {part.name} are both shard {shard}; pass only one of them")
        of[shard] = part.name
    if len(counts) > 1:
        said = [
            f"{name} is {f'one of {n} shards' if n else 'unsharded'}" for n, name in counts.items()
        ]
        refuse(f"the runs are not parts of one run: {', '.join(said)}")


def _shard(text: str) -> tuple[int, str]:
    found = _SHARD.fullmatch(text)
    if found is None or int(found["k"]) > int(found["n"]):
        refuse(f"a manifest names the shard {text!r}; a shard is K/N, with K from 1 to N")
    return int(found["k"]), found["n"]


def in_order(parts: Sequence[Part]) -> list[Part]:
    """Sort shards by number. Other parts stay in the order in which the user named them."""
    return sorted(parts, key=lambda part: _place(part.manifest.shard))


def _place(shard: str | None) -> int:
    return 0 if shard is None else _shard(shard)[0]


def missing_shards(parts: Iterable[MergedPart]) -> tuple[str, ...]:
    """Return the shards for which there is no run, sorted by number."""
    there = [_shard(one.shard) for one in parts if one.shard is not None]
    if not there:
        return ()
    known = {k for k, _ in there}
    n = there[0][1]
    return tuple(f"{k}/{n}" for k in range(1, int(n) + 1) if k not in known)


def n_missing(manifest: Manifest, parts: Sequence[MergedPart]) -> int | None:
    """Return how many cases the missing shards had before deselection; None if unknown."""
    if manifest.generated is None or not missing_shards(parts):
        return None
    # Count each shard once, because all hosts of a shard plan the same cases.
    known = {one.shard: one.n_cases for one in parts}
    return max(0, manifest.generated.n_cases - sum(known.values()))


def _said_generated(one: Manifest) -> str | None:
    found = one.generated
    return None if found is None else f"{counted(found.n_cases, 'case')} ({found.digest})"


_FACTS: tuple[tuple[str, Callable[[Manifest], object]], ...] = (
    ("version of pytest-ultrapar", lambda one: one.versions.get("pytest-ultrapar", "not known")),
    ("cluster run", lambda one: one.cluster_run or "none"),
    ("run seed", lambda one: one.seed),
    ("set of cases in all shards", _said_generated),
    ("mode", lambda one: one.mode),
    ("rate mode", lambda one: one.rate_mode),
    ("list of models", lambda one: ", ".join(sorted(one.models))),
    ("kind of answers", lambda one: "simulated" if one.simulated else "real"),
    ("currency of prices", lambda one: one.currency if one.prices else None),
    ("value of --ultrapar-record", lambda one: one.record),
    ("format of tables", lambda one: one.storage_format),
    ("replayed run", lambda one: one.replayed or "none"),
    ("reused run", lambda one: one.reused or "none"),
    ("source of the requests", lambda one: "a gateway" if one.asked_by_others else "a suite"),
    ("grouping of the summary", lambda one: ", ".join(one.summary_by)),
)
"""The facts that must be the same in all parts of a run. Each has a name for messages."""


def differences(one: Part, other: Part) -> Iterator[str]:
    """Yield a clause for each difference that prevents two runs from being parts of one run.

    Keys, instances, policy, workers and machines may differ, because no case depends on them. The
    limits of two shards may differ by one, because each shard has a part of the undivided limit.
    """
    left, right = one.manifest, other.manifest
    said = _says(one, other)
    for what, of in _FACTS:
        then, now = of(left), of(right)
        if then != now and None not in (then, now):
            yield said(what, then, now)
    for name in sorted({*left.data, *right.data}):
        then, now = left.data.get(name, "none"), right.data.get(name, "none")
        if then != now:
            yield said(name, then, now)
    if left.simulated == right.simulated:
        yield from _of_both("source of {}'s answers", left.answered_by, right.answered_by, said)
    roles, others = roles_of(left.effective), roles_of(right.effective)
    yield from _of_both("model for the role {}", roles, others, said)
    prices = {f"{price.provider}/{price.model}": _said_price(price) for price in left.prices}
    of_other = {f"{price.provider}/{price.model}": _said_price(price) for price in right.prices}
    yield from _of_both("price of {}", prices, of_other, said)
    if one.is_host and other.is_host:
        if left.suite_digest != right.suite_digest and left.shard == right.shard:
            then, now = (counted(each.n_planned, "case") for each in (left, right))
            yield f"{said('set of planned cases', then, now)}, and these sets differ"
        for limit in left.pool_limits:
            twin = next((each for each in right.pool_limits if each.name == limit.name), limit)
            if limit.rows != twin.rows:
                yield said(f"limit {limit.name}", _said_limit(limit), _said_limit(twin))


def asked_otherwise(one: Part, other: Part) -> Iterator[str]:
    """Yield a clause for each difference between pools that affects a shared model's answers."""
    left, right = one.manifest, other.manifest
    for facts in (answer_settings, addresses):
        then, now = (facts(each.effective, each.pool_lanes) for each in (left, right))
        yield from _of_both("{}", then, now, _says(one, other))


def _says(one: Part, other: Part) -> Callable[[str, object, object], str]:
    """Return a function that makes the text for a difference between two runs."""
    return lambda what, then, now: f"the {what} is {then} in {one.name} and {now} in {other.name}"


def _of_both(
    what: str,
    left: Mapping[str, str],
    right: Mapping[str, str],
    said: Callable[[str, object, object], str],
) -> Iterator[str]:
    for name in left:
        if right.get(name, left[name]) != left[name]:
            yield said(what.format(name), left[name], right[name])


def _said_price(price: Any) -> str:  # noqa: ANN401 - a struct of the pool
    named = {**msgspec.structs.asdict(price), "provider": None, "model": None, "origin": None}
    return ", ".join(f"{name} {amount}" for name, amount in named.items() if amount)


def _said_limit(limit: Limit) -> str:
    return ", ".join(f"{row.kind.word} = {row.amount:g}" for row in limit.rows) or "unlimited"


def _named(names: Collection[str]) -> str:
    shown = sorted(names)[:_MOST_NAMED]
    return ", ".join(shown) + (", ..." if len(names) > len(shown) else "")


# -- one row per case ------------------------------------------------------------------------------


MEASURED, FINAL, INFRA = 0, 1, 2


class ResultRank(NamedTuple):
    """The rank of a case's result in one part. The result with the smallest rank counts.

    Attributes:
        rank: `MEASURED`, `FINAL` for another final outcome, or `INFRA`.
        at_us: When the case was graded, by the wall clock of its host, in microseconds since the
            epoch.
        part: The number of the part, from 0.
    """

    rank: int
    at_us: int
    part: int


def standing(grade: Grade, part: int) -> ResultRank:
    """Rank a case's grade by its kind (measurements first, `infra` last), and then by its time."""
    rank = MEASURED if grade.outcome in GRADED else INFRA if grade.outcome == "infra" else FINAL
    return ResultRank(rank, grade.at_us, part)


# -- the whole -------------------------------------------------------------------------------------


def joined_manifest(manifests: Sequence[Manifest]) -> Manifest:
    """Make the manifest of the merged run, with all facts that follow from the parts' manifests.

    The measured time extends from the first request in any part to the end of the part that ended
    last. It also includes requests before a resume, because all times are on the same clock.
    """
    faults = {one.faults for one in manifests}
    divided = any(one.shard for one in manifests) and manifests[0].cluster_run is None
    ends = [one.ended_at for one in manifests if one.ended_at is not None]
    return msgspec.structs.replace(
        manifests[0],
        started_at=min(one.started_at for one in manifests),
        ended_at=max(ends) if len(ends) == len(manifests) else None,
        repeats=max(one.repeats for one in manifests),
        resumed=False,
        measured_from=None,
        restricted=any(one.restricted for one in manifests),
        serial_sample=tuple(dict.fromkeys(i for one in manifests for i in one.serial_sample)),
        collected_s=None,
        pool_lanes=tuple(same[0] for same in _alike(manifests, "pool_lanes", "lane_id")),
        pool_limits=_joined_limits(manifests, divided=divided),
        prices=tuple(same[0] for same in _alike(manifests, "prices", "provider", "model")),
        faults=faults.pop() if len(faults) == 1 else None,
        bound=None,
        lanes=[_joined_lane(lanes) for lanes in _alike(manifests, "lanes", "lane")],
        host=None,
        shard=None,
    )


def _alike(manifests: Iterable[Manifest], field: str, *names: str) -> Iterable[list[Any]]:
    """Collect the elements of a field from all manifests, grouped by the given attributes."""
    every = (each for one in manifests for each in getattr(one, field))
    return by_key((attrgetter(*names)(each), each) for each in every).values()


def _joined_limits(manifests: Sequence[Manifest], *, divided: bool) -> tuple[Limit, ...]:
    """Return the merged run's limits: the sums if limits were divided, otherwise the maximums."""
    join = sum if divided else max
    found = []
    for limits in _alike(manifests, "pool_limits", "name"):
        amounts = {
            word: [getattr(limit, word) for limit in limits] for word in (*LIMIT_KINDS, "budget")
        }
        joined: dict[str, Any] = {
            word: None if None in values else join(values) for word, values in amounts.items()
        }
        found.append(replace(limits[0], **joined))
    return tuple(found)


_SUMS = ("in_flight", "granted", "n_ok", "n_rate_limited", "n_failed", "orphans", "n_opened")
_MORE_SUMS = ("n_moved", "busy_s")
_COUNTS = ("waited_s", "outcomes", "pauses", "paused_s")


def _joined_lane(lanes: Sequence[LaneStatus]) -> LaneStatus:
    """Add up a lane's status over all parts. The lane is removed only if all parts removed it."""
    # If one host removed the lane, other hosts may have continued to use it.
    worst = [lane for lane in lanes if lane.is_removed]
    best = [lane for lane in lanes if not lane.is_removed]
    shown = next((lane for lane in best or worst if lane.reason), (best or worst)[0])
    estimates = [lane.estimated for lane in lanes if lane.estimated is not None]
    sums = {name: sum(getattr(lane, name) for lane in lanes) for name in (*_SUMS, *_MORE_SUMS)}
    counts: dict[str, Counter[str]] = {name: Counter() for name in _COUNTS}
    for lane in lanes:
        for name, total in counts.items():
            total.update(getattr(lane, name))
    return msgspec.structs.replace(
        shown,
        peak_in_flight=max(lane.peak_in_flight for lane in lanes),
        estimated=max(estimates, key=lambda one: one.n_cuts, default=None),
        widened=tuple(dict.fromkeys(name for lane in lanes for name in lane.widened)),
        left_out=tuple(dict.fromkeys(name for lane in lanes for name in lane.left_out)),
        **sums,
        **{name: dict(total) for name, total in counts.items()},
    )
