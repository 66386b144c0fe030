"""Remove secrets from pytest's reports."""

from __future__ import annotations

from itertools import chain
from operator import is_
from typing import TYPE_CHECKING, Any

import pytest

if TYPE_CHECKING:
    from collections.abc import Callable

_ROWS = (list, tuple, set, frozenset)
_PLAIN = frozenset({str, int, float, bool, type(None)})
_DEEPEST = 20
"""Data that is nested more deeply than this may contain itself; it is treated as text."""


def redact(
    report: pytest.TestReport | pytest.CollectReport,
    config: pytest.Config,
    text: Callable[[str], str],
) -> None:
    """Pass all strings in a report through `text`, which removes secrets; change nothing else.

    Call it before the report is shown or stored.
    """
    if isinstance(report.longrepr, tuple):
        path, line, reason = report.longrepr
        report.longrepr = (path, line, text(reason))
    elif report.longrepr is not None:
        shown = report.longreprtext
        if text(shown) != shown:
            # pytest has no other way to reach all the texts in a traceback.
            data = config.hook.pytest_report_to_serializable(config=config, report=report)
            plain = config.hook.pytest_report_from_serializable(
                config=config, data=_redacted(data, text)
            )
            report.longrepr = plain.longrepr
    report.sections = [(title, text(content)) for title, content in report.sections]
    if isinstance(report, pytest.TestReport):
        if report.user_properties and not _stays(report.user_properties, text):
            report.user_properties = _redacted(report.user_properties, text)
        if hasattr(report, "wasxfail"):
            report.wasxfail = text(report.wasxfail)


def _stays(properties: list[tuple[str, object]], text: Callable[[str], str]) -> bool:
    """Whether properties are plain data without a secret, so that they can stay as they are.

    One check of the joined strings finds every secret, in a third of the time that a check of each
    string would take.
    """
    if not {*map(type, properties)} <= {tuple}:
        return False
    parts = [*chain.from_iterable(properties)]
    said = "\n".join([part for part in parts if type(part) is str])
    return {*map(type, parts)} <= _PLAIN and text(said) == said


def _redacted(part: Any, text: Callable[[str], str], depth: int = 0) -> Any:  # noqa: ANN401
    """Pass all strings in the data through `text`; return the same object if nothing changes.

    If the text of an object that is not plain data contains a secret, the masked text replaces the
    object: junit files and the terminal show only its text.
    """
    if part is None or isinstance(part, bool | int | float):
        return part
    if depth < _DEEPEST and isinstance(part, dict):
        pairs = [*part.items()]
        masked = _redacted(pairs, text, depth)
        return part if masked is pairs else dict(masked)
    if depth < _DEEPEST and isinstance(part, _ROWS):
        rows = [_redacted(one, text, depth + 1) for one in part]
        if all(map(is_, rows, part)):
            return part
        return next(kind for kind in _ROWS if isinstance(part, kind))(rows)
    try:
        shown = str(part)
        said = text(shown)
    except Exception:  # noqa: BLE001 - displaying the object fails in the same way
        return part
    return part if said == shown else said
