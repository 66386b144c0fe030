"""Every reliance on pytest's private parts, each with the release and place it was read in.

Read in pytest 9.2.0. `check` says clearly what is missing when a later release differs.
"""

from __future__ import annotations

import sys
from collections.abc import Iterator
from typing import Any

import pytest
from _pytest.python import DirectParamFixtureDef
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from pytest_ultrapar.engine.output import EpisodeLogHandler, RoutedStream, is_outside_episodes


def fixture_definition(item: pytest.Item, name: str) -> pytest.FixtureDef[Any] | None:
    """The fixture that `name` stands for in an item (`fixtures.py:325`, `FuncFixtureInfo`)."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name)  # type: ignore[attr-defined]
    return definitions[-1] if definitions else None


def fixture_names(item: pytest.Item) -> list[str]:
    """All fixtures that an item needs, itself or through others (`fixtures.py:325`)."""
    info = getattr(item, "_fixtureinfo", None)
    return list(info.name2fixturedefs) if info is not None else []


def test_identity(item: pytest.Item) -> int:
    """The same number for all items of one test function, whatever their parameters (`python.py:1700`)."""
    return id(getattr(item, "_fixtureinfo", item))


def fixture_function(metafunc: pytest.Metafunc, name: str) -> Any:  # noqa: ANN401
    """The function behind a fixture name while tests are generated (`python.py:1268`), or None."""
    definitions = metafunc._arg2fixturedefs.get(name)
    return definitions[-1].func if definitions else None


def is_direct_parameter(definition: pytest.FixtureDef[Any]) -> bool:
    """Whether a fixture only hands over a directly parametrised value (`python.py:1238`)."""
    return isinstance(definition, DirectParamFixtureDef)


def will_not_run(item: pytest.Item) -> str | None:
    """Why marks keep an item from running (skip, skipif, xfail with run=False), or None.

    Source: `skipping.py:169` and `:214`, the same functions that pytest asks at set-up.
    """
    skipped = evaluate_skip_marks(item)
    if skipped:
        return skipped.reason or "skipped"
    xfail = evaluate_xfail_marks(item)
    if xfail and not xfail.run and not item.config.option.runxfail:
        return f"[NOTRUN] {xfail.reason}"
    return None


def session_fixture(item: pytest.Item, name: str) -> object:
    """The value of a session-scoped fixture, set up now, before any item runs.

    The session itself is put onto pytest's stack of set-up nodes first (`runner.py:501`), where every item
    would put it anyway; the fixture is torn down when pytest tears the session down.
    """
    state = item.session._setupstate
    if item.session not in state.stack:
        state.setup(item.session)  # type: ignore[arg-type]
    return item._request.getfixturevalue(name)  # type: ignore[attr-defined]


def higher_scopes(item: pytest.Item) -> tuple[object, ...]:
    """What must be equal for two items to share their module and its parametrised fixtures (`python.py:1170`)."""
    callspec = getattr(item, "callspec", None)
    shared: list[object] = [item.parent]
    if callspec is not None:
        shared += [
            (name, callspec.indices[name])
            for name, scope in callspec._arg2scope.items()
            if scope.value != "function"
        ]
    return tuple(shared)


class EpisodeStreams:
    """While entered, episodes' prints and log records go to their own record instead of pytest's capture.

    pytest sets `sys.stdout` to its capture's file again at every resume (`capture.py:385`), so the file itself
    is wrapped; without capture the real stream is.
    """

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._undo: list[tuple[Any, str, Any]] = []
        self._handler = EpisodeLogHandler()
        self._filtered: list[Any] = []

    def enter(self) -> None:
        """Wrap the streams; called on the main thread before the first episode."""
        for owner, name in self._stream_places():
            stream = getattr(owner, name)
            routed = RoutedStream(stream)
            setattr(owner, name, routed)
            self._undo.append((owner, name, stream))
            if owner is not sys:
                for stdio in ("stdout", "stderr"):
                    if getattr(sys, stdio) is stream:
                        setattr(sys, stdio, routed)
                        self._undo.append((sys, stdio, stream))
        self._take_logs()

    def _stream_places(self) -> Iterator[tuple[Any, str]]:
        manager = self._config.pluginmanager.getplugin("capturemanager")
        capturing = getattr(manager, "_global_capturing", None)
        for stdio, captured in (("stdout", "out"), ("stderr", "err")):
            capture = getattr(capturing, captured, None)
            inner = getattr(capture, "syscapture", capture)
            if hasattr(inner, "tmpfile"):
                yield inner, "tmpfile"
            else:
                yield sys, stdio

    def _take_logs(self) -> None:
        import logging  # noqa: PLC0415

        root = logging.getLogger()
        plugin = self._config.pluginmanager.getplugin("logging-plugin")
        if plugin is not None:
            self._handler.setFormatter(plugin.formatter)
            self._handler.setLevel(plugin.log_level or logging.NOTSET)
            # `logging.py:660`: the handlers that fill "Captured log" sections and `caplog`.
            for handler in (plugin.caplog_handler, plugin.report_handler):
                handler.addFilter(is_outside_episodes)
                self._filtered.append(handler)
        root.addHandler(self._handler)

    def leave(self) -> None:
        """Put everything back; called on the main thread when the engine has ended."""
        import logging  # noqa: PLC0415

        for owner, name, stream in reversed(self._undo):
            if isinstance(getattr(owner, name), RoutedStream):
                setattr(owner, name, stream)
        self._undo.clear()
        logging.getLogger().removeHandler(self._handler)
        for handler in self._filtered:
            handler.removeFilter(is_outside_episodes)
        self._filtered.clear()


def check() -> None:
    """Fail early and clearly where a later pytest lacks what this module relies on.

    Raises:
        pytest.UsageError: Naming what is missing and the releases that are known to work.
    """
    for owner, name in ((pytest.Item, "listchain"), (DirectParamFixtureDef, "execute")):
        if not hasattr(owner, name):
            msg = (
                f"pytest {pytest.__version__} has no {owner.__name__}.{name}, which pytest-ultrapar relies "
                "on; known to work: pytest 9.2"
            )
            raise pytest.UsageError(msg)
