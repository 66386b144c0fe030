"""The tables of a pool file as written: fields and types, not yet checked any further."""

from __future__ import annotations

import msgspec

Number = int | float


class FileTable(msgspec.Struct, forbid_unknown_fields=True, kw_only=True):
    """Base of all tables: every field is by name, and no unknown field passes."""


class CountByMode(FileTable, kw_only=True):
    """One count for each rate mode."""

    fixed: int | None = None
    adaptive: int | None = None


class RateByMode(FileTable, kw_only=True):
    """One rate for each rate mode."""

    fixed: Number | None = None
    adaptive: Number | None = None


class LimitTable(FileTable, kw_only=True):
    """The bounds that every level may carry; absent is unlimited."""

    workers: int | CountByMode | None = None
    qps: Number | RateByMode | None = None
    rpm: Number | RateByMode | None = None
    tpm: Number | RateByMode | None = None


class LatencyTable(FileTable, kw_only=True):
    """How long the simulated provider takes for one answer."""

    kind: str
    median_s: Number
    sigma: Number | None = None
    knee: int | None = None


class KeyTable(LimitTable, kw_only=True):
    """A key, with bounds of its own in place of `per_key`'s."""

    name: str
    env: str | None = None


class InstanceTable(FileTable, kw_only=True):
    """An instance whose name in results, name at the API or address differ."""

    name: str
    api_name: str | None = None
    base_url: str | None = None
    metrics_url: str | None = None


class ModelTable(FileTable, kw_only=True):
    """`[[provider.model]]`."""

    name: str
    instances: list[str | InstanceTable] | None = None
    ports: list[int] | None = None
    ports_env: str | None = None
    api_name: str | None = None
    keys: list[str] | None = None
    family: str | None = None
    per_instance: LimitTable | None = None
    per_lane: LimitTable | None = None
    latency_hint_s: Number | None = None
    price_per_mtok_in: Number | None = None
    price_per_mtok_out: Number | None = None
    multiply_by_prompt_types: bool = False
    stream: bool | None = None
    parameters: dict[str, object] | None = None
    persona: str | None = None
    skill: Number | None = None
    latency: LatencyTable | None = None


class ProviderTable(LimitTable, kw_only=True):
    """`[[provider]]`."""

    name: str
    api: str
    base_url: str | None = None
    api_version: str | None = None
    timeout_s: Number | None = None
    rate_mode: str | None = None
    stream: bool | None = None
    parameters: dict[str, object] | None = None
    metrics_url: str | None = None
    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None
    proxy: str | None = None
    proxy_env: str | None = None
    trust_env: bool | None = None
    keys: list[KeyTable] = []
    per_key: LimitTable | None = None
    per_key_model: LimitTable | None = None
    latency: LatencyTable | None = None
    simulation_seed: int | None = None
    model: list[ModelTable] = []


class WholePoolTable(LimitTable, kw_only=True):
    """`[pool]`."""

    rate_mode: str | None = None
    repeats: int | None = None
    prompt_types: int | None = None


class PoolFile(FileTable, kw_only=True):
    """The whole file."""

    schema: int
    pool: WholePoolTable | None = None
    provider: list[ProviderTable] = []
