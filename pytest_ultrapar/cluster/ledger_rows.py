"""Turn the limits of a pool into rows of the ledger, with names that are the same on all hosts.

Limits on the pool and on providers apply to one run, so their rows belong to this run. All other
limits are enforced by the provider, for everyone who uses the same key or deployment. So two runs,
teams or programs that use the same one share its rows. The rows' names contain digests, which
reveal neither keys nor servers.
"""

from __future__ import annotations

import hashlib
import math
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.shares import BUDGET_ROW, Row, declared_row, rows_of
from pytest_ultrapar.broker.throttles import UNRATED_SEND_BY_S
from pytest_ultrapar.cluster.ledger import RowSpec
from pytest_ultrapar.cluster.spent_rows import CountedRow
from pytest_ultrapar.pool.model import LIMIT_KINDS
from pytest_ultrapar.pool.network import server_of
from pytest_ultrapar.records import by_key

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.model import Lane, LaneId, Limit, Pool

_WIDTH = ("pool", "provider", "key", "key_model", "instance", "lane")
"""The levels of limits, from the widest to the narrowest."""
MONEY = 1000
"""How many trillionths of the currency make up the ledger's unit of money, which is a billionth. A
token of the cheapest models costs about ten of these units. Nine million in the currency is still
below 2^53 units, the largest number that a script on the server represents exactly."""
BUDGET_UNITS = 10**12 // MONEY
"""How many of the ledger's units of money equal 1 in the currency."""
_DAY_MS, _CALENDAR_MS = 86_400_000 + 60_000, 26 * 3_600_000
"""`_DAY_MS` is a day plus a margin for clocks that drift. `_CALENDAR_MS` is the longest day in a
time zone plus a margin. `_spec` adds the delay of a request to both."""
_FOR_GOOD_MS = 3650 * 86_400_000
"""The window of a budget. The server forgets a run long before this time has passed, so the spent
part of a budget is never released."""


class SharedRows(msgspec.Struct, frozen=True):
    """All rows of a pool that hosts share.

    Attributes:
        specs: The rows of the ledger, from the widest to the narrowest.
        limits: The pool's row for each row of the ledger.
        lanes: For each distinct set of limits on a lane, the positions of their rows in `specs`.
        counted: The rules of each counted row; None for other rows.
    """

    specs: tuple[RowSpec, ...]
    limits: tuple[Row, ...]
    lanes: tuple[tuple[int, ...], ...]
    counted: tuple[CountedRow | None, ...]


def shared_rows(
    pool: Pool, lanes: Sequence[Lane], identities: Mapping[LaneId, str], run: str
) -> SharedRows:
    """Make the rows for the limits on these lanes.

    Args:
        pool: The pool.
        lanes: The lanes that the run may use.
        identities: The identity of each lane's key (`key_identities`). A lane without an identity
            belongs to a simulated provider that the run starts, so its rows belong to the run.
        run: The run's name.
    """
    urls = {
        (provider.name, instance.name): (instance.base_url, instance.api_name)
        for provider in pool.providers
        for model in provider.models
        for instance in model.instances
    }
    on = by_key((name, lane) for lane in lanes for name in lane.limits)
    specs: list[RowSpec] = []
    limits: list[Row] = []
    counted: list[CountedRow | None] = []
    taken: set[str] = set()
    for level in _WIDTH:
        for name, users in on.items():
            limit = pool.limits[name]
            if limit.level != level:
                continue
            scope, group = _scope(limit, users[0], identities, urls, run)
            if scope in taken:
                # If a pool file lists a limit twice, these are two limits, as they are on a single
                # host.
                scope = f"{scope}:{_digest(name)}"
            taken.add(scope)
            longest_s = max(lane.request_s for lane in users)
            for row in rows_of(pool, [name]):
                specs.append(_spec(f"{scope}:{row.word}", group, row, longest_s, pool))
                limits.append(row)
                counted.append(_counted(row, limit, UNRATED_SEND_BY_S + longest_s))
    place = by_key((name, position) for position, (name, _) in enumerate(limits))
    ways = [
        tuple(sorted(position for name in lane.limits for position in place.get(name, ())))
        for lane in lanes
    ]
    return SharedRows(tuple(specs), tuple(limits), tuple(dict.fromkeys(ways)), tuple(counted))


def _spec(name: str, group: str, row: Row, longest_s: float, pool: Pool) -> RowSpec:
    amount, window_s = declared_row(pool, row)
    kind = LIMIT_KINDS.get(row.word)
    if kind is not None and not kind.is_rate:
        return RowSpec(
            name=name, kind="seats", amount=amount, longest_ms=round(longest_s * 1000), group=group
        )
    if kind is not None and not kind.is_daily:
        window_ms = math.ceil(window_s * 1000)
        return RowSpec(name=name, kind="paced", amount=amount, window_ms=window_ms, group=group)
    late_ms = math.ceil((UNRATED_SEND_BY_S + longest_s) * 1000)
    window_ms = _FOR_GOOD_MS
    if kind is None:
        amount = max(1, amount // MONEY)
    else:
        window_ms = late_ms + (_CALENDAR_MS if pool.limits[row.limit].day else _DAY_MS)
    return RowSpec(name=name, kind="counted", amount=amount, window_ms=window_ms, group=group)


def _counted(row: Row, limit: Limit, late_s: float) -> CountedRow | None:
    if row.word == BUDGET_ROW:
        return CountedRow(size=MONEY)
    kind = LIMIT_KINDS[row.word]
    if not kind.is_daily:
        return None
    return CountedRow(reserves=kind.counts != "requests", zone=limit.day or "", late_s=late_s)


def _scope(
    limit: Limit,
    lane: Lane,
    identities: Mapping[LaneId, str],
    urls: Mapping[tuple[str, str], tuple[str, str]],
    run: str,
) -> tuple[str, str]:
    """Return the name under which hosts share a limit, and the group of its rows."""
    key = identities.get(lane.lane_id)
    if key is None or limit.level in {"pool", "provider"}:
        own = f"run:{run}:{limit.name}"
        return own, f"run:{run}:{lane.key_name}" if limit.level in {"key", "key_model"} else own
    if limit.level == "key":
        return f"key:{key}", key
    if limit.level == "key_model":
        return f"key:{key}:{_digest(limit.name.rpartition('/')[2])}", key
    url, deployment = urls[lane.provider, lane.instance]
    # The name contains no key, because requests with all keys count towards the limit of a
    # deployment.
    instance = _digest(f"{server_of(url)}\n{deployment}")
    if limit.level == "instance":
        return f"instance:{instance}", instance
    return f"lane:{instance}:{key}", key


def _digest(text: str) -> str:
    return hashlib.sha256(text.encode()).hexdigest()[:32]
