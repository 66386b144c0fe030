"""The tables of a faults file as written: fields and types, not yet checked any further."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.pool.schema import FileTable, Number


class PlaceTable(FileTable, kw_only=True):
    """Where and when: what all entries have in common."""

    name: str | None = None
    provider: str | None = None
    instance: str | None = None
    key: str | None = None
    model: str | None = None
    from_s: Number | None = None
    for_s: Number | None = None


class FaultTable(PlaceTable, kw_only=True):
    """`[[fault]]`."""

    kind: str
    after_requests: int | None = None
    for_requests: int | None = None
    after_tokens: int | None = None
    share: Number | None = None
    error: str | None = None
    status: int | None = None
    message: str | None = None
    body: str | None = None
    headers: dict[str, str | list[str]] | None = None
    after_s: Number | None = None
    at: str | None = None
    extra_s: Number | None = None
    factor: Number | None = None
    form: str | None = None
    finish_reason: str | None = None


class CapacityTable(PlaceTable, kw_only=True):
    """`[[capacity]]`."""

    limit: str | None = None
    workers: int | None = None
    qps: Number | None = None
    rpm: Number | None = None
    tpm: Number | None = None
    factor: Number | None = None
    burst: int | None = None
    burst_tokens: int | None = None


class RateHeadersTable(PlaceTable, kw_only=True):
    """`[[rate_headers]]`."""

    values: dict[str, str] | None = None


class FaultsFile(FileTable, kw_only=True):
    """The whole file."""

    schema: int = 1
    since: str | None = None
    seed: int | None = None
    fault: list[FaultTable] = msgspec.field(default_factory=list)
    capacity: list[CapacityTable] = msgspec.field(default_factory=list)
    rate_headers: list[RateHeadersTable] = msgspec.field(default_factory=list)
