"""The concrete values of a task: paths, addresses, formats, thresholds."""

from __future__ import annotations

import random
from dataclasses import dataclass
from typing import TYPE_CHECKING, TypeVar

from bench_suites.workflow.tool import Value, load_tools

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence

_T = TypeVar("_T")
_OPTIONAL_SHARE = 0.35

THEMES = [
    "orders",
    "invoices",
    "shipments",
    "sensors",
    "tickets",
    "payroll",
    "visits",
    "energy",
    "bookings",
    "claims",
    "stock",
    "traffic",
    "weather",
    "surveys",
    "loans",
    "returns",
    "harvest",
    "flights",
    "parcels",
    "meters",
    "donations",
    "repairs",
]
_COLUMNS = [
    "region",
    "amount",
    "status",
    "month",
    "branch",
    "carrier",
    "grade",
    "weight",
    "priority",
    "country",
]
_NUMBERS = ["amount", "weight", "duration", "price", "score"]
_FORMATS = ["csv", "json", "xml", "yaml", "log"]
_TARGETS = ["csv", "json", "xml", "yaml", "parquet"]


class Draw:
    """Random draws from `Random.random()`, the only method that Python promises never to change."""

    def __init__(self, seed: int) -> None:
        self._rng = random.Random(seed)

    def one_of(self, choices: Sequence[_T]) -> _T:
        """One of the choices, with equal chances."""
        return choices[int(self._rng.random() * len(choices))]

    def between(self, low: int, high: int) -> int:
        """A whole number, low <= n <= high."""
        return low + int(self._rng.random() * (high - low + 1))

    def chance(self, probability: float) -> bool:
        """Return True with this probability."""
        return self._rng.random() < probability


@dataclass(frozen=True, slots=True)
class Setting:
    """The setting that all values of a task share.

    Attributes:
        period: A month such as `2024-03`, part of file names.
        format: Format of the raw data.
        target_format: A different format.
        from_url: Whether the raw data is fetched from a URL instead of read from a file.
    """

    theme: str
    period: str
    format: str
    target_format: str
    from_url: bool

    @property
    def url(self) -> str:
        """The URL of the raw data."""
        return f"https://{self.theme}.example/export/{self.period}.{self.format}"

    @property
    def source(self) -> str:
        """The path or URL of the raw data."""
        stored = f"data/{self.theme}/{self.period}.{self.format}"
        return self.url if self.from_url else stored


def draw_setting(tools: Sequence[str], draw: Draw) -> Setting:
    """Draw the setting of a task with these tools."""
    raw = draw.one_of(_FORMATS)
    files = {"file_operations_reader", "file_operations_converter", "file_operations_compressor"}
    return Setting(
        theme=draw.one_of(THEMES),
        period=f"{draw.between(2019, 2025)}-{draw.between(1, 12):02}",
        format=raw,
        target_format=draw.one_of([target for target in _TARGETS if target != raw]),
        from_url="network_fetcher" in tools and not files & set(tools),
    )


def draw_inputs(tools: Sequence[str], setting: Setting, draw: Draw) -> dict[str, Value]:
    """Draw a value for every required parameter of the tools and for some optional ones."""
    inputs: dict[str, Value] = {}
    for name in tools:
        for parameter in load_tools()[name].parameters:
            if parameter.name in inputs:
                continue
            if parameter.required or draw.chance(_OPTIONAL_SHARE):
                inputs[parameter.name] = _VALUES[parameter.name](setting, draw)
    return inputs


def _columns(_setting: Setting, draw: Draw) -> Value:
    first = draw.between(0, len(_COLUMNS) - 3)
    return tuple(_COLUMNS[first : first + draw.between(1, 3)])


def _condition(_setting: Setting, draw: Draw) -> Value:
    return f"{draw.one_of(_NUMBERS)} {draw.one_of(['>', '>=', '<', '<='])} {draw.between(2, 900)}"


def _choice(text: str) -> Callable[[Setting, Draw], Value]:
    choices = text.split()
    return lambda _setting, draw: draw.one_of(choices)


def _number(low: int, high: int, *, per: int = 1) -> Callable[[Setting, Draw], Value]:
    def value(_setting: Setting, draw: Draw) -> Value:
        n = draw.between(low, high)
        return n if per == 1 else n / per

    return value


_VALUES: dict[str, Callable[[Setting, Draw], Value]] = {
    "source": lambda s, _: s.source,
    "encoding": _choice("utf-8 latin-1 utf-16"),
    "directory": lambda s, _: f"data/{s.theme}",
    "name_pattern": lambda s, _: f"*.{s.format}",
    "target_format": lambda s, _: s.target_format,
    "archive": _choice("zip gzip zstd"),
    "level": _number(1, 9),
    "destination": lambda s, _: f"results/{s.theme}/{s.period}.{s.target_format}",
    "overwrite": lambda _, draw: draw.chance(0.5),
    "format": lambda s, _: s.format,
    "transform": _choice("normalize flatten pivot deduplicate anonymize"),
    "columns": _columns,
    "schema": lambda s, _: f"schemas/{s.theme}.json",
    "strict": lambda _, draw: draw.chance(0.5),
    "condition": _condition,
    "keep_nulls": lambda _, draw: draw.chance(0.5),
    "group_by": lambda _, draw: draw.one_of(_COLUMNS),
    "measure": _choice("sum mean min max count"),
    "url": lambda s, _: s.url,
    "timeout_s": _number(5, 120),
    "endpoint": lambda s, draw: f"https://{s.theme}.example/v{draw.between(1, 3)}/intake",
    "check": _choice("status certificate shape"),
    "method": _choice("POST PUT PATCH"),
    "interval_s": _number(5, 600),
    "route": _choice("eu-west eu-north us-east us-west ap-south"),
    "fallback_route": _choice("default standby"),
    "expression": lambda _, d: f"sum({d.one_of(_NUMBERS)}) / count({d.one_of(_COLUMNS)})",
    "precision": _number(0, 6),
    "horizon_days": _number(7, 180),
    "confidence": _number(80, 99, per=100),
    "metric": _choice("mean median variance trend correlation"),
    "threshold": _number(5, 95, per=100),
    "runs": _number(100, 20000),
    "random_seed": _number(1, 999),
    "objective": _choice("cost latency throughput accuracy"),
    "max_steps": _number(20, 2000),
    "account": lambda s, _: f"svc-{s.theme}",
    "scope": _choice("read write admin"),
    "field_map": lambda s, _: f"maps/{s.theme}.json",
    "on_conflict": _choice("keep replace fail"),
    "queue_name": lambda s, draw: f"{s.theme}-{draw.one_of(['work', 'retry', 'night'])}",
    "priority": _number(0, 9),
    "cron": lambda _, draw: f"{draw.between(0, 59)} {draw.between(0, 23)} * * {draw.between(0, 6)}",
    "timezone": _choice("UTC Europe/Berlin Asia/Tokyo America/Lima"),
    "system": _choice("postgres mysql mongodb s3 kafka"),
    "pool_size": _number(1, 64),
    "message": lambda s, _: f"{s.theme} {s.period} processed",
    "log_level": _choice("debug info warning error"),
    "cache_key": lambda s, _: f"{s.theme}:{s.period.replace('-', '_')}",
    "ttl_s": _number(60, 86400),
    "run_label": lambda s, _: f"{s.theme}-run",
    "detail": _choice("low high"),
    "workspace": lambda s, _: f"ws-{s.theme}",
    "wipe": lambda _, draw: draw.chance(0.5),
    "channel": _choice("email slack sms webhook"),
    "recipient": lambda s, _: f"team-{s.theme}",
}
