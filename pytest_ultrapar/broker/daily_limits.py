"""Which files remember the limits per day of a run, and the ledgers made of them."""

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
"""What counts one limit's days."""


class DailyLimit(msgspec.Struct, frozen=True):
    """One row of a limit that counts days, and where its count is kept.

    Attributes:
        limit: Name of the limit.
        word: Of its kind: `rpd` or `tpd`.
        late_s: How long after its grant a request may be at the provider, seconds.
        name: Of the file; empty: the count is kept for this run only.
        directory: Of the file.
        amount: Units per day, where they are not the limit's own: shards of one host count together
            against the undivided limit.
    """

    limit: str
    word: str
    late_s: float
    name: str = ""
    directory: str = ""
    amount: int = 0

    @property
    def shown(self) -> str:
        """What is counted, for people: `requests per day of lab/key0`."""
        return f"{LIMIT_KINDS[self.word].counts} per day of {self.limit}"

    @property
    def memory(self) -> DayMemory:
        """The file, if it has a name."""
        from pytest_ultrapar.broker.day_file import DayMemory  # noqa: PLC0415 - few pools count days

        return DayMemory(Path(self.directory), self.name, self.shown)

    def ledger(self, limit: Limit, clock: DayClock, now_s: float) -> DayLedger:
        """The count, as the file has it now.

        Raises:
            ConfigError: The file cannot be read or trusted.
        """
        from zoneinfo import ZoneInfo  # noqa: PLC0415 - as the next

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
    """What counts days on the paths of these lanes.

    A key that is used on several servers has a file for each of them: all must allow a send. A
    shard has two counts, its own against its part and that of the host against the whole: earlier
    runs may have used up a part of that, and other shards of this host do. So has a run of a
    cluster: what the ledger of its server knows, and the host's.

    Args:
        pool: For its limits.
        lanes: Those that the run may use.
        identities: Of their keys (`pool.keys.key_identity`); lanes of a simulated provider that the
            run starts itself have none, since nobody counts before or after that.
        directory: Of the files.
        shard: Which part of the limits the pool has: `2/4`; or what names a cluster; empty: all.
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
        # The family ends the limit's name, however many names the key has.
        "key_model": limit.name.rpartition("/")[2],
        "lane": f"{lane.provider}/{lane.instance}",
    }
    key = identity if limit.level in {"key", "key_model", "lane"} else ""
    return file_name(kind.counts, limit.level, names.get(limit.level, limit.name), key)


def open_days(
    pool: Pool, counted: Iterable[DailyLimit], clock: DayClock, now_s: float
) -> dict[str, Days]:
    """The ledgers by limit.

    Raises:
        ConfigError: A file cannot be read or trusted.
    """
    found: dict[str, Days] = {}
    for one in counted:
        ledger = one.ledger(pool.limits[one.limit], clock, now_s)
        found[one.limit] = (*found.get(one.limit, ()), (LIMIT_KINDS[one.word], ledger))
    return found
