"""The daily limits of a run, the files that store their counts, and their ledgers."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING

import msgspec

from pytest_ultrapar.broker.throttles import UNRATED_SEND_BY_S
from pytest_ultrapar.pool.model import LIMIT_KINDS

if TYPE_CHECKING:
    from collections.abc import Iterable, Mapping, Sequence

    from pytest_ultrapar.broker.day_file import DayMemory
    from pytest_ultrapar.broker.day_ledger import DayLedger
    from pytest_ultrapar.pool.model import Lane, LaneId, Limit, LimitKind, Pool
    from pytest_ultrapar.system.clock import DayClock

Days = tuple[tuple["LimitKind", "DayLedger"], ...]
"""The ledgers of one limit, each with the kind of daily quota (`rpd` or `tpd`) that it counts."""


class DailyLimit(msgspec.Struct, frozen=True):
    """One daily quota of a limit, and the file that stores its count.

    Attributes:
        limit: The name of the limit.
        word: The kind of quota: `rpd` or `tpd`.
        late_s: How many seconds after its grant a request may still be in progress at the provider.
        name: The name of the file; empty if the count is kept for this run only.
        directory: The directory that contains the file.
        amount: The units per day, if they differ from the limit's own number; otherwise 0. They
            differ for the count that all shards on a machine share, because that count uses the
            undivided limit.
    """

    limit: str
    word: str
    late_s: float
    name: str = ""
    directory: str = ""
    amount: int = 0

    @property
    def shown(self) -> str:
        """The kind of unit and the limit's name, for messages: `requests per day for lab/key0`."""
        return f"{LIMIT_KINDS[self.word].counts} per day for {self.limit}"

    @property
    def memory(self) -> DayMemory:
        """The file that stores the count. Use this only if `name` is not empty."""
        from pytest_ultrapar.broker.day_file import DayMemory  # noqa: PLC0415 - few pools count days

        return DayMemory(Path(self.directory), self.name, self.shown)

    def ledger(self, limit: Limit, clock: DayClock, now_s: float) -> DayLedger:
        """Create the ledger. It continues the count in the file, if there is one.

        Raises:
            ConfigError: The file cannot be read or trusted.
        """
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - as below

        from pytest_ultrapar.broker.day_ledger import DayLedger  # noqa: PLC0415 - few pools count days

        memory = self.memory if self.name else None
        zone = None if limit.day is None else ZoneInfo(limit.day)
        amount = self.amount or int(getattr(limit, self.word))
        return DayLedger(amount, clock, now_s, zone=zone, memory=memory, late_s=self.late_s)


def counted_days(
    pool: Pool,
    lanes: Sequence[Lane],
    identities: Mapping[LaneId, str],
    directory: Path,
    shard: str = "",
) -> tuple[DailyLimit, ...]:
    """Find the daily limits that apply to these lanes.

    If a key is used on several servers, it has a separate count for each server, in a file of its
    own. A send must have room in every one of these counts. A shard has two counts: one for its own
    part of the limit, and one for the whole limit. It shares the second count with earlier runs and
    with other shards on this machine. A cluster run also has two counts: one for the cluster and
    one for this machine.

    Args:
        pool: The pool with the limits.
        lanes: The lanes that the run may use.
        identities: The identity of each lane's key (`pool.keys.key_identity`). Lanes of a simulated
            provider that the run starts itself are left out, because their counts end with the run.
        directory: The directory that contains the files.
        shard: The part of the limits that this pool contains, such as `2/4`, or the name of a
            cluster; empty if the pool contains the undivided limits.
    """
    found: dict[DailyLimit, None] = {}
    for lane in lanes:
        for limit in (pool.limits[name] for name in lane.limits):
            on_it = [one for one in lanes if limit.name in one.limits]
            late_s = UNRATED_SEND_BY_S + max(one.request_s for one in on_it)
            lasts = any(one.lane_id in identities for one in on_it)
            for kind, _ in limit.rows:
                if kind.is_daily:
                    identity = identities.get(lane.lane_id, "")
                    name = _file_name(pool, kind, limit, lane, identity) if lasts else ""
                    counted = DailyLimit(limit.name, kind.word, late_s, name, str(directory))
                    if shard and name:
                        declared = pool.undivided.get(limit.name, limit)
                        whole = int(getattr(declared, kind.word))
                        found[msgspec.structs.replace(counted, amount=whole)] = None
                        own = f"{name}-{shard.replace('/', '-of-')}"
                        counted = msgspec.structs.replace(counted, name=own)
                    found[counted] = None
    return tuple(found)


def _file_name(pool: Pool, kind: LimitKind, limit: Limit, lane: Lane, identity: str) -> str:
    from pytest_ultrapar.broker.day_file import file_name  # noqa: PLC0415 - few pools count days

    names = {
        "pool": ", ".join(sorted(provider.name for provider in pool.providers)),
        "key": "",
        # The limit's name ends with the model family, however many names the key has.
        "key_model": limit.name.rpartition("/")[2],
        "lane": f"{lane.provider}/{lane.instance}",
    }
    key = identity if limit.level in {"key", "key_model", "lane"} else ""
    return file_name(kind.counts, limit.level, names.get(limit.level, limit.name), key)


def open_days(
    pool: Pool, counted: Iterable[DailyLimit], clock: DayClock, now_s: float
) -> dict[str, Days]:
    """Open the ledgers of these daily limits. Return them by the limit's name.

    Raises:
        ConfigError: A file cannot be read or trusted.
    """
    found: dict[str, Days] = {}
    for one in counted:
        ledger = one.ledger(pool.limits[one.limit], clock, now_s)
        found[one.limit] = (*found.get(one.limit, ()), (LIMIT_KINDS[one.word], ledger))
    return found
