"""All uses of pytest's internals.

xdist's internals are not used here, but in the modules of the controller and of the workers.

`required_internals` lists the names of all these internals. A run checks that they exist before it
imports this module. The names in this module are those in pytest 9.2.
"""

from __future__ import annotations

import logging
import os
import sys
from contextlib import ExitStack, contextmanager, nullcontext, suppress
from functools import cache
from itertools import islice, product
from math import prod
from pathlib import Path
from traceback import walk_tb
from typing import TYPE_CHECKING, Any

import pytest
from _pytest import assertion, runner
from _pytest import warnings as marked_warnings
from _pytest.assertion import rewrite
from _pytest.capture import CaptureFixture
from _pytest.compat import NOTSET
from _pytest.fixtures import SubRequest
from _pytest.python import get_direct_param_fixture_func, pytest_pyfunc_call
from _pytest.scope import Scope
from _pytest.skipping import evaluate_skip_marks, evaluate_xfail_marks

from pytest_ultrapar.engine.captured_output import (
    EpisodeLogHandler,
    RoutedStream,
    is_outside_episodes,
)
from pytest_ultrapar.session.prefetch import is_ours, prefetched_in

if TYPE_CHECKING:
    from collections.abc import Callable, Generator, Iterator, Mapping, Sequence
    from contextlib import AbstractContextManager

    from _pytest._io import TerminalWriter

    from pytest_ultrapar.session.prefetch import Prefetched


_PYTESTS_OWN = str(Path(pytest_pyfunc_call.__code__.co_filename).parent)
"""The directory of pytest's own code."""
_MOST_COMPARED = 1500
"""The maximum number of characters to compare: comparing two texts of this length takes 30 ms."""
_BEFORE = 40
NO_VALUE: object = NOTSET
"""The value that pytest gives to a parameter whose list of values is empty
(`ParameterSet._for_parametrize`)."""


def fixture_definition(item: pytest.Item, name: str) -> pytest.FixtureDef[Any] | None:
    """The fixture to which `name` refers in an item (`FuncFixtureInfo`)."""
    definitions = item._fixtureinfo.name2fixturedefs.get(name)  # type: ignore[attr-defined]
    return definitions[-1] if definitions else None


def fixture_names(item: pytest.Item) -> list[str]:
    """All fixtures that an item needs, directly or through others (`FuncFixtureInfo`)."""
    info = getattr(item, "_fixtureinfo", None)
    return list(info.name2fixturedefs) if info is not None else []


def parameters(item: pytest.Item) -> Mapping[str, Any]:
    """The values of all parametrised arguments of an item, by name."""
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec is not None else {}


def test_identity(item: pytest.Item) -> int:
    """A number that is the same for all items of a test function (`PyCollector._genfunctions`)."""
    return id(getattr(item, "_fixtureinfo", item))


def prefetched_for(metafunc: pytest.Metafunc) -> list[Prefetched]:
    """The prefetched functions of a test whose items are being generated (`Metafunc`)."""
    return prefetched_in(metafunc.function, metafunc._arg2fixturedefs)


def uses_model_fixture(metafunc: pytest.Metafunc) -> bool:
    """Whether a test whose items are being generated depends on this plugin's fixture `model`."""
    found = metafunc._arg2fixturedefs.get("model")
    return found is not None and is_ours(found[-1], "model")


# A test's `_calls` are the product of its calls of `parametrize` (`Metafunc.parametrize`, 9.1.0 and
# 9.2.0: each call combines the earlier ones with its own values). `PyCollector._genfunctions` makes
# an item from each element. If only a few elements become items, the product is computed late and
# one element at a time, because a million `CallSpec`s take a gigabyte.


class _Product:
    """Replaces `_calls`, and still lets other plugins read the product that pytest would make."""

    def __init__(self, factors: list[list[Any]]) -> None:
        self.factors = factors

    def __len__(self) -> int:
        return prod(map(len, self.factors))

    def __iter__(self) -> Iterator[Any]:
        return map(_joined_call, product(*self.factors))

    def __getitem__(self, index: int) -> Any:  # noqa: ANN401 - a `CallSpec`
        return next(islice(self, range(len(self))[index], None))


class _Kept(list[Any]):
    """A list for `_calls` that is true even if it is empty.

    Otherwise pytest would make an item without parameters.
    """

    def __bool__(self) -> bool:
        return True


def parametrize_lazily(metafunc: pytest.Metafunc) -> None:
    """Delay the product of parameters until `select_calls`.

    Called before any parameters are known.
    """
    parametrize = metafunc.parametrize

    def parametrize_late(argnames: Any, *args: Any, **how: Any) -> None:  # noqa: ANN401
        before: Any = metafunc._calls
        named = argnames.split(",") if isinstance(argnames, str) else argnames
        has = {name for factor in _factors(before) for name in factor[0].params}
        if has.intersection(name.strip() for name in named):
            parametrize(argnames, *args, **how)  # pytest reports the error
            return
        metafunc._calls = []
        try:
            parametrize(argnames, *args, **how)
        except BaseException:
            metafunc._calls = before
            raise
        own = metafunc._calls
        metafunc._calls = _Product([*_factors(before), own]) if before else own  # type: ignore[assignment]

    metafunc.parametrize = parametrize_late  # type: ignore[method-assign]


def values_of(metafunc: pytest.Metafunc, name: str) -> Iterator[object]:
    """Yield the values of a parameter, if it exists, in the order in which items first get them.

    A value may come more than once.
    """
    for factor in _factors(metafunc._calls):
        for call in factor:
            if name in call.params:
                yield call.params[name]


def select_calls(metafunc: pytest.Metafunc, is_kept: Callable[[str], bool]) -> int:
    """Keep only some of the items that pytest would make for a test.

    Args:
        metafunc: The `Metafunc` of the test, when all parameters are known.
        is_kept: Called for each item with the end of its name, such as `[m-1-r0]`. This is empty if
            the item has no parameters.

    Returns:
        The number of items left.
    """
    factors = _factors(metafunc._calls)
    if not factors:
        if is_kept(""):
            return 1
        metafunc._calls = _Kept()
        return 0
    ids = [["-".join(call._idlist) if call._idlist else None for call in each] for each in factors]
    kept = _Kept()
    for calls, parts in zip(product(*factors), product(*ids), strict=True):
        shown = [part for part in parts if part is not None]
        if is_kept(f"[{'-'.join(shown)}]" if shown else ""):
            kept.append(_joined_call(calls))
    metafunc._calls = kept
    return len(kept)


def _factors(calls: Any) -> list[list[Any]]:  # noqa: ANN401 - `_calls`, or a `_Product`
    if isinstance(calls, _Product):
        return calls.factors
    return [calls] if calls else []


def _joined_call(calls: tuple[Any, ...]) -> Any:  # noqa: ANN401 - a `CallSpec`; 9.1: `CallSpec2`
    """Join several `CallSpec`s into one, as repeated calls of `CallSpec.setmulti` would."""
    params: dict[str, object] = {}
    indices: dict[str, int] = {}
    scopes: dict[str, Scope] = {}
    ids: list[str] = []
    marks: list[Any] = []
    for call in calls:
        params |= call.params
        indices |= call.indices
        scopes |= call._arg2scope
        ids += call._idlist
        marks += call.marks
    return type(calls[0])(
        params=params, indices=indices, _arg2scope=scopes, _idlist=ids, marks=marks
    )


def is_direct_parameter(definition: pytest.FixtureDef[Any] | None) -> bool:
    """Whether a fixture only passes on the value of a directly parametrised argument."""
    return definition is not None and definition.func is get_direct_param_fixture_func


def will_not_run(item: pytest.Item) -> str | None:
    """The reason why a mark keeps an item from running; None if no mark does.

    Such marks are skip, skipif, and xfail with run=False. Source:
    `_pytest.skipping.pytest_runtest_setup`, which calls the same two functions.
    """
    if not _has_mark(item, _KEEPS_FROM_RUNNING):
        return None
    skipped = evaluate_skip_marks(item)
    if skipped:
        return skipped.reason or "skipped"
    xfail = evaluate_xfail_marks(item)
    if xfail and not xfail.run and not item.config.option.runxfail:
        return f"[NOTRUN] {xfail.reason}"
    return None


_KEEPS_FROM_RUNNING = frozenset({"skip", "skipif", "xfail"})


def _has_mark(item: pytest.Item, names: frozenset[str]) -> bool:
    """Whether an item or a node above it has one of these marks.

    With 12,000 items, most of them without marks, three calls of `Node.iter_markers` per item took
    a sixth of the time that this plugin adds to collection.
    """
    return any(mark.name in names for node in item.iter_parents() for mark in node.own_markers)


def could_not_run(error: BaseException) -> bool:
    """Whether pytest itself failed a test that it cannot run, such as an `async def`.

    Source: `_pytest.python.pytest_pyfunc_call`, which in this case raises the same exception as
    `pytest.fail` in a test's body.
    """
    codes = [frame.f_code for frame, _ in walk_tb(error.__traceback__)]
    if pytest_pyfunc_call.__code__ not in codes:
        return False
    below = codes[codes.index(pytest_pyfunc_call.__code__) + 1 :]
    return all(code.co_filename.startswith(_PYTESTS_OWN) for code in below)


def drop_frames_without_line(excinfo: pytest.ExceptionInfo[BaseException]) -> None:
    """Remove entries without a line number from a traceback.

    If Ctrl-C comes before a function's first line runs, the function's entry has no line number.
    This makes pytest fail (`TracebackEntry.lineno`, 9.2.0): the session ends with a traceback and
    exit code 1.
    """
    excinfo.traceback = excinfo.traceback.filter(
        lambda entry: entry._rawentry.tb_lineno is not None
    )


def session_fixture(item: pytest.Item, name: str) -> object:
    """The value of a session-scoped fixture, set up now, before any item runs.

    First, the session is put onto pytest's stack of set-up nodes (`SetupState.setup`). The first
    item would do that anyway. The fixture is torn down when pytest tears down the session. The
    session, not the item, requests the fixture, because the item is not on the stack yet. If the
    item requested it, `FixtureRequest._get_active_fixturedef` would warn, and pytest 10.1 would
    refuse.
    """
    definition = fixture_definition(item, name)
    assert definition is not None
    state = item.session._setupstate
    if item.session not in state.stack:
        state.setup(item.session)  # type: ignore[arg-type]
    of_item = item._request  # type: ignore[attr-defined]
    request = SubRequest(of_item, Scope.Session, NOTSET, 0, definition, _ispytest=True)
    manager = item.config.pluginmanager.getplugin("capturemanager")
    with ExitStack() as stack:
        if manager is not None:
            # Capture is suspended between items, so resume it: the fixture's output is shown with
            # the next item.
            manager.resume_global_capture()
            stack.callback(manager.suspend_global_capture)
        return definition.execute(request)


def set_up_session(item: pytest.Item) -> None:
    """Set up the session fixtures that an item needs but does not name, before its body runs.

    Parametrised fixtures are left to pytest, which sets them up again when their parameter changes.
    """
    for name in item.fixturenames:  # type: ignore[attr-defined]  # of a `Function`
        definition = fixture_definition(item, name)
        if definition is None or definition.scope != "session" or definition.params is not None:
            continue
        if definition.cached_result is None:
            session_fixture(item, name)


def cache_session_lookups(session: pytest.Session) -> None:
    """Make pytest look up only once which hooks apply to a file, not again for each of its items.

    Called after collection, because no conftest is loaded from then on.
    """
    # For each item, pytest determines fourteen times which conftests apply to its file
    # (`Node.ihook`), which takes 5 % of an item's time.
    session.gethookproxy = cache(session.gethookproxy)  # type: ignore[method-assign,assignment]


def shows_fixtures(config: pytest.Config) -> bool:
    """Whether plugins, or options such as `--setup-show`, observe fixtures' set-up and teardown.

    Called when all plugins are registered. The hooks of anyio do not count, because they concern
    only async fixtures.
    """
    hook = config.hook
    looking = [hook.pytest_fixture_setup, hook.pytest_fixture_post_finalizer]
    implementations = [one for each in looking for one in each.get_hookimpls()]
    return bool(config.getoption("setupshow", False)) or not all(
        one.function.__module__.startswith(("_pytest.", "anyio.")) for one in implementations
    )


def hand_over(item: pytest.Item, values: dict[str, object]) -> None:
    """Before an item is set up, give it its parametrised values and the given values of fixtures.

    For each of these values, about five per item, pytest would make a request and three finalizers
    and call two hooks, which takes 30 us. If a wider-scoped fixture may depend on a value, the
    value is left to pytest, which knows when to set up that fixture again.
    """
    if not isinstance(item, pytest.Function):
        return
    callspec: Any = getattr(item, "callspec", None)
    parameters = {} if callspec is None else callspec.params
    for name, value in (parameters | values).items():
        definition = fixture_definition(item, name)
        if name not in values and not (
            is_direct_parameter(definition) and callspec._arg2scope[name] is Scope.Function
        ):
            continue
        assert definition is not None
        # No item has this cache key, so if pytest itself sets up the fixture, it makes a new value.
        definition.cached_result = (value, NO_VALUE, None)
        definition._finalizers.clear()
        item._request._fixture_defs[name] = definition
    if "request" in item.fixturenames:
        # Do the same as `RequestFixtureDef`, but without reading a signature each time, which takes
        # 4 % of an item's time.
        item.funcargs["request"] = item._request


def locate(item: pytest.Item, known: dict[int, tuple[str, int | None]]) -> None:
    """Give an item the location of its test, if another item of that test has already provided it.

    For each item, pytest would compute `Item.location` from the function's code, which takes 5 % of
    an item's time.

    Args:
        item: The item that runs next.
        known: The locations of tests, by `test_identity`. A new test's location is added.
    """
    if type(item) is not pytest.Function:
        return
    place = known.get(test_identity(item))
    if place is None:
        known[test_identity(item)] = item.location[:2]
    else:
        # As in `PyobjMixin.reportinfo`, and in `Item.location`, which is a cached property.
        item.__dict__["location"] = (*place, item.getmodpath())


def rename(item: pytest.Item, name: str, nodeid: str) -> None:
    """Rename an item that has just been collected.

    pytest 9.2 keeps the id in parts (`Node._id`), 9.1 as text (`_nodeid`).
    """
    words = item.keywords._markers  # type: ignore[attr-defined]  # `NodeKeywords`
    words[name] = words.pop(item.name, True)
    item.name = name
    if hasattr(item, "_id"):
        item._id = type(item._id).parse(nodeid)
    else:
        item._nodeid = nodeid  # type: ignore[attr-defined]


def log_handlers(config: pytest.Config) -> tuple[logging.Handler, logging.Handler] | None:
    """The handlers for live log records (`log_cli`) and for log files (`--log-file`).

    Source: `LoggingPlugin.__init__`. With `-p no:logging`, there are no handlers.
    """
    plugin = config.pluginmanager.getplugin("logging-plugin")
    return None if plugin is None else (plugin.log_cli_handler, plugin.log_file_handler)


def mask_terminal(config: pytest.Config, change: Callable[[str], str]) -> None:
    """Apply `change` to every text that pytest and its plugins write to the terminal.

    No hook sees all of these texts: they include reasons given to `pytest.exit`, tracebacks from
    hooks, and sections that other plugins write. Without a terminal reporter, nothing changes. In a
    worker, the output is discarded anyway, so the terminal reporter is removed from two hooks to
    save time.
    """
    reporter = config.pluginmanager.getplugin("terminalreporter")
    if reporter is None:
        return
    if hasattr(config, "workerinput"):
        # The reporter writes to /dev/null (`execnet.gateway_base.init_popen_io`), which takes 4 %
        # of an item's time.
        for hook in (config.hook.pytest_runtest_logstart, config.hook.pytest_runtest_logreport):
            with suppress(AttributeError, ValueError):
                hook._remove_plugin(reporter)
        return
    writer = config.get_terminal_writer()
    write = writer.write

    def masked(msg: str, **how: Any) -> None:  # noqa: ANN401 - flush, and any markup
        write(change(msg), **how)

    writer.write = masked  # type: ignore[method-assign]


def mask_traceback(shown: object, change: Callable[[str], str]) -> None:
    """Apply `change` to the lines of an internal error's traceback before they are shown."""
    for traceback, *_ in getattr(shown, "chain", []):
        for entry in traceback.reprentries:
            entry.lines[:] = map(change, entry.lines)


def mask_sections(item: pytest.Item, change: Callable[[str], str]) -> None:
    """Apply `change` to the output and logs that an item's report sections hold so far (`Item`)."""
    sections = item._report_sections
    sections[:] = [(when, title, change(content)) for when, title, content in sections]


def higher_scopes(item: pytest.Item) -> tuple[object, ...]:
    """A key for an item: items with the same key share their parent and higher-scoped parameters.

    Source: the way in which pytest itself sorts items (`_pytest.fixtures.reorder_items`).
    """
    callspec = getattr(item, "callspec", None)
    shared: list[object] = [item.parent]
    if callspec is not None:
        shared += [
            (name, callspec.indices[name])
            for name, scope in callspec._arg2scope.items()
            if scope.value != "function"
        ]
    return tuple(shared)


class EpisodeSurroundings:
    """From `enter` to `leave`, protects episodes from changes that pytest makes for each test.

    The output and logs of an episode go to the episode's own record, not to pytest's capture.
    Whenever pytest resumes its capture, it sets `sys.stdout` to the capture's file. Whenever it
    suspends the capture, it restores the earlier stream (`SysCaptureBase.resume`, `suspend`).
    Episodes run in both states, so both streams are wrapped.
    """

    def __init__(self, item: pytest.Item) -> None:
        self._config = item.config
        self._asserts = assertion.pytest_runtest_protocol(item)
        self._handler = EpisodeLogHandler()
        self._filtered: list[Any] = []
        self._patch = pytest.MonkeyPatch()

    def enter(self) -> None:
        """Apply all changes. Called on the main thread before the first episode."""
        _wrap(_stream_places(self._global_capture()))
        self._take_logs()
        _wrap_capture_fixtures(self._patch)
        _keep_current_test(self._patch)
        _keep_marks_from_warnings(self._patch)
        self._explain_asserts()

    def _global_capture(self) -> object:
        manager = self._config.pluginmanager.getplugin("capturemanager")
        return getattr(manager, "_global_capturing", None)

    def _take_logs(self) -> None:
        root = logging.getLogger()
        plugin = self._config.pluginmanager.getplugin("logging-plugin")
        if plugin is not None:
            self._handler.setFormatter(plugin.formatter)
            self._handler.setLevel(plugin.log_level or logging.NOTSET)
            # These are the handlers that fill "Captured log" sections and `caplog`.
            for handler in (plugin.caplog_handler, plugin.report_handler):
                handler.addFilter(is_outside_episodes)
                self._filtered.append(handler)
        root.addHandler(self._handler)

    def _explain_asserts(self) -> None:
        """Make failed asserts in async tests show the compared values, even between two items.

        pytest can do this only while an item runs, and forgets the configuration after that item.
        The hook wrapper `_pytest.assertion.pytest_runtest_protocol` enables this, so it is entered
        here for the whole run.
        """
        next(self._asserts)
        largest, config = rewrite._get_maxsize_for_saferepr, self._config
        self._patch.setattr(rewrite, "_get_maxsize_for_saferepr", lambda _: largest(config))
        compare = rewrite._call_reprcompare

        def compare_cut(
            ops: Sequence[str],
            results: Sequence[bool],
            explanations: Sequence[str],
            values: Sequence[object],
        ) -> str:
            cut = values if is_outside_episodes() else _where_they_differ(ops, values)
            return compare(ops, results, explanations, cut)

        self._patch.setattr(rewrite, "_call_reprcompare", compare_cut)
        _bound_differences(self._patch)

    def leave(self) -> None:
        """Undo all changes. Called on the main thread when the engine has ended."""
        self._asserts.close()
        self._patch.undo()
        for owner, name in _stream_places(self._global_capture()):
            stream = getattr(owner, name)
            if type(stream) is RoutedStream:
                setattr(owner, name, stream.wrapped)
        logging.getLogger().removeHandler(self._handler)
        for handler in self._filtered:
            handler.removeFilter(is_outside_episodes)
        self._filtered.clear()


def _where_they_differ(ops: Sequence[str], values: Sequence[object]) -> Sequence[object]:
    """Shorten two strings that should be equal, so that pytest compares only where they differ.

    pytest uses `difflib.ndiff`, which blocks the event loop of all episodes: two strings of 80
    lines take 0.5 s.
    """
    texts = [value for value in values if isinstance(value, str)]
    if set(ops) != {"=="} or len(texts) < len(values) or max(map(len, texts)) <= _MOST_COMPARED:
        return values
    start = max(0, len(os.path.commonprefix(texts)) - _BEFORE)  # noqa: RUF071 - no paths
    return [text[start : start + _MOST_COMPARED] for text in texts]


def _bound_differences(patch: pytest.MonkeyPatch) -> None:
    """Leave out the full diff of large lists and dicts: making it would block the event loop.

    The first difference is still shown. The function that makes the diff (`_compare_eq_iterable`)
    is in another module in pytest 9.2 than in 9.1.
    """
    older = sys.modules.get("_pytest.assertion.util")
    place = sys.modules.get("_pytest.assertion._compare_any", older)
    if not (compare := getattr(place, "_compare_eq_iterable", None)):
        return

    def compare_small(left: object, right: object, *how: Any, **more: Any) -> Any:  # noqa: ANN401
        if is_outside_episodes() or max(map(len, map(repr, (left, right)))) <= _MOST_COMPARED:
            return compare(left, right, *how, **more)
        return ["", "The full diff is left out: computing it would delay all other episodes"]

    patch.setattr(place, "_compare_eq_iterable", compare_small)


def _stream_places(capturing: object) -> list[tuple[Any, str]]:
    """The attributes of pytest's `MultiCapture` and of `sys` that hold the output streams."""
    places: list[tuple[Any, str]] = []
    for stdio, captured in (("stdout", "out"), ("stderr", "err")):
        capture = getattr(capturing, captured, None)
        capture = getattr(capture, "syscapture", capture)
        places += [(capture, name) for name in ("tmpfile", "_old") if hasattr(capture, name)]
        places.append((sys, stdio))
    return places


def _wrap(places: list[tuple[Any, str]]) -> None:
    wrapped: dict[int, RoutedStream] = {}
    for owner, name in places:
        stream = getattr(owner, name)
        if type(stream) is not RoutedStream:
            routed = wrapped.setdefault(id(stream), RoutedStream(stream))
            setattr(owner, name, routed)


def _wrap_capture_fixtures(patch: pytest.MonkeyPatch) -> None:
    """Also wrap the streams of `capsys`, `capfd` and subtests.

    These set `sys.stdout` to their own streams (`CaptureFixture._start`), which must not receive
    the output of episodes that run at the same time.
    """
    start = CaptureFixture._start

    def start_wrapped(fixture: CaptureFixture[Any]) -> None:
        start(fixture)
        _wrap(_stream_places(fixture._capture))

    patch.setattr(CaptureFixture, "_start", start_wrapped)


def _keep_current_test(patch: pytest.MonkeyPatch) -> None:
    """Keep `PYTEST_CURRENT_TEST` set at all times, with an empty value between two tests.

    pytest deletes the variable after each test (`_update_current_test_var`). An iteration over
    `os.environ` first lists all names and then looks up each of them. So it raises a `KeyError` if
    a name is deleted in between. In an episode, each new HTTP client iterates over `os.environ`.
    """
    update = runner._update_current_test_var
    name = "PYTEST_CURRENT_TEST"

    def update_kept(item: pytest.Item, when: Any) -> None:  # noqa: ANN401 - a phase, or None
        if when is None:
            os.environ[name] = ""
        else:
            update(item, when)

    patch.setattr(runner, "_update_current_test_var", update_kept)
    patch.setenv(name, "")


def recorded_warnings(config: pytest.Config) -> AbstractContextManager[None]:
    """A context in which pytest shows warnings even between tests (`catch_warnings_for_item`)."""
    if not config.pluginmanager.hasplugin("warnings"):
        return nullcontext()
    return marked_warnings.catch_warnings_for_item(
        config=config, ihook=config.hook, when="runtest", item=None
    )


def _keep_marks_from_warnings(patch: pytest.MonkeyPatch) -> None:
    """Keep a test's `filterwarnings` marks from affecting episodes that run at the same time.

    With the filter `error`, a warning would raise an exception in the episode. The function that is
    replaced here parses only marks (in `catch_warnings_for_item`), so the run's own filters still
    apply to episodes.
    """
    parse: Callable[..., Any] = vars(marked_warnings)["parse_warning_filter"]

    @cache
    def parse_mark(text: str, *, escape: bool) -> Any:  # noqa: ANN401 - as pytest's function
        action, message, category, module, line = parse(text, escape=escape)
        outside = _OutsideEpisodes(category.__name__, (Warning,), {"meant": category})
        return action, message, outside, module, line

    patch.setattr(marked_warnings, "parse_warning_filter", parse_mark)


class _OutsideEpisodes(type):
    """The type of warning categories that match what `meant` matches, but nothing in episodes."""

    meant: type[Warning]

    def __subclasscheck__(cls, category: type) -> bool:
        return is_outside_episodes() and issubclass(category, cls.meant)


def around_open_terminal(
    config: pytest.Config, around: Callable[[], AbstractContextManager[None]]
) -> Callable[[], None]:
    """Make pytest enter the context `around` whenever a test may write directly to the terminal.

    That is the case within `capsys.disabled()` and similar contexts, which use
    `CaptureManager.global_and_fixture_disabled`. Returns a function that undoes this change.
    """
    manager = config.pluginmanager.getplugin("capturemanager")
    disabled = getattr(manager, "global_and_fixture_disabled", None)
    if manager is None or disabled is None:
        return lambda: None

    @contextmanager
    def disabled_within() -> Generator[None]:
        with around(), disabled():
            yield

    manager.global_and_fixture_disabled = disabled_within

    def undo() -> None:
        # Leave it if another plugin has replaced it with its own wrapper around this one.
        if vars(manager).get("global_and_fixture_disabled") is disabled_within:
            del manager.global_and_fixture_disabled

    return undo


def file_of(writer: TerminalWriter) -> Any:  # noqa: ANN401 - an object with `write`
    """The file that a terminal writer writes to (`TerminalWriter._file`)."""
    return writer._file


def set_file(writer: TerminalWriter, file: Any) -> None:  # noqa: ANN401 - an object with `write`
    """Make a terminal writer write to another file (`TerminalWriter._file`)."""
    writer._file = file


def mark_line_ended(writer: TerminalWriter) -> None:
    """Tell a terminal writer that its line has ended (`TerminalWriter._current_line`)."""
    writer._current_line = ""
