"""Turn pytest's items into cases: find the cases, give them ids, and find errors in a suite."""

from __future__ import annotations

import hashlib
from dataclasses import dataclass, field
from functools import cache
from typing import TYPE_CHECKING, Any, TypeGuard

import msgspec
import pytest

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.records import CASE_NAMES, LABEL, META, Case, Scalar
from pytest_ultrapar.session import internals, run_config
from pytest_ultrapar.session.case_dependencies import find_peers, stage_of
from pytest_ultrapar.session.compatibility import signature_of
from pytest_ultrapar.session.graders import GraderFunction, graders_of
from pytest_ultrapar.session.mocks import active_faults
from pytest_ultrapar.session.options import usage_errors
from pytest_ultrapar.session.other_processes import mark_faults, marks_elsewhere
from pytest_ultrapar.session.parameter_text import ContentDigests, as_json, is_plain, scalar
from pytest_ultrapar.session.prefetch import ANSWERS, Prefetched, is_ours, prefetched_of
from pytest_ultrapar.session.suite_faults import no_regrade, suite_faults
from pytest_ultrapar.store.replayed import Origin, Origins, ReplayedRun, read_replayed

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Sequence
    from pathlib import Path

    from pytest_ultrapar.session.grading import Grader
    from pytest_ultrapar.session.prefetch import CaseInfo


REPEAT = "ultrapar_repeat"
_STEP = "__pytest_repeat_step_number"
"""pytest-repeat's parameter, from 0 (`pytest_repeat.pytest_generate_tests`)."""
CLUSTER = "cluster"
"""The argument of the mark `ultrapar` that lists names of parameters. Cases in the same repetition
with equal values for these parameters depend on each other."""
_NO_TAGS = frozenset({"parametrize", "ultrapar", "usefixtures", "filterwarnings"})
"""Marks that control how a test runs, but do not describe the test."""
_NO_PARAMETERS = frozenset({"model", REPEAT, _STEP})
mark_faults_key = pytest.StashKey[list[str]]()
"""Errors in marks, collected while tests are generated and selected. If they were raised at that
time, pytest would end with a traceback and exit code 2."""
_CONFIG_FILES = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
_ENOUGH_FAULTS = 20
_SHOWN_FAULTS = 5


@dataclass(slots=True)
class Collected:
    """The cases among pytest's items.

    Attributes:
        case_ids: The id of each case, by position in pytest's collection.
        cases: The cases for the run directory. Emptied after they are written, because 20,000 cases
            take 10 MB in every worker.
        prefetched: The prefetched function of each case, by position.
        graders: The graders of each case that has graders, by position.
        not_run: Positions of the cases that do not run because of a mark.
        faults: Errors that make the suite unusable, one sentence each.
        tables: For each test, the names that its mark lists in `summary=`; empty without such a
            mark. They determine the rows and columns of the test's tables.
        replayed: The run whose answers the cases get, if any.
        origins: For each case in a replay, by case id: the origin of its answers and seed, or the
            reason why it has no answers.
        peers: For each case that waits for others, by position: those other cases
            (`case_dependencies.find_peers`).
    """

    case_ids: dict[int, str] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    not_run: set[int] = field(default_factory=set)
    prefetched: dict[int, Prefetched] = field(default_factory=dict)
    graders: dict[int, list[GraderFunction]] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)
    replayed: ReplayedRun | None = None
    origins: dict[str, Origin | str] = field(default_factory=dict)
    peers: dict[int, dict[Any, str]] = field(default_factory=dict)

    def seed_of(self, case_id: str, own: int) -> int:
        """A case's seed; if a replay takes its answers from a stored case, the seed of that one."""
        origin = self.origins.get(case_id)
        return origin.case.seed if isinstance(origin, Origin) else own


def collect(
    config: pytest.Config, items: Sequence[pytest.Item], directory: Path | None = None
) -> Collected:
    """The cases among pytest's items.

    Args:
        config: pytest's configuration.
        items: All selected items.
        directory: The run's directory, if there is one.

    Raises:
        ConfigError: The suite cannot be used; the message lists the first of its errors.
        ResultsError: The replayed run cannot be read.
    """
    options, pool = run_config.settings(config)
    collected = collect_cases(
        items, run_seed=options.seed, models=run_config.models(config), repeats=options.repeats.n
    )
    chosen_by = " or ".join(
        f"--ultrapar-{one}" for one in ("only", "sample") if getattr(options, one)
    )
    collected.peers, faults = find_peers(collected.cases, collected.prefetched, chosen_by)
    collected.faults += faults
    plain = run_config.redactor(pool).text
    if collected.peers and (options.shard is not None or options.cluster_run is not None):
        collected.faults.append(
            f"{items[min(collected.peers)].nodeid} waits for answers from cases that may run on "
            "another host: leave out --ultrapar-shard and --ultrapar-cluster-run"
        )
    faults = [*config.stash.get(mark_faults_key, ()), *collected.faults]
    faults += active_faults() if collected.cases else ()
    if faults:
        distinct = list(dict.fromkeys(faults))
        n_more = len(distinct) - _SHOWN_FAULTS
        more = f"\n(and {n_more} more)" if n_more > 0 else ""
        # A message may quote a secret from the suite.
        raise ConfigError(plain("\n".join(distinct[:_SHOWN_FAULTS]) + more))
    if not run_config.source(config).runs_episodes:
        for prefetched in collected.prefetched.values():
            if prefetched.is_test:
                raise ConfigError(plain(no_regrade(prefetched)))
    collected.cases[:] = _without_secrets(collected.cases, plain)
    collected.replayed = None if directory is None else read_replayed(directory)
    if collected.replayed is not None:
        origins = Origins(collected.replayed.origins)
        collected.origins = {case.case_id: origins.find(case) for case in collected.cases}
        collected.cases[:] = [
            msgspec.structs.replace(case, seed=collected.seed_of(case.case_id, case.seed))
            for case in collected.cases
        ]
    return collected


def _without_secrets(cases: Sequence[Case], plain: Callable[[str], str]) -> Iterator[Case]:
    """Mask secrets in the cases for the run directory; episodes get the unmasked parameters."""
    plain = cache(plain)  # thousands of cases share a few parameter values
    for case in cases:
        params, said = (
            {plain(name): plain(one) if isinstance(one, str) else one for name, one in it.items()}
            for it in (case.params, case.said)
        )
        skipped = None if case.skipped is None else plain(case.skipped)
        yield msgspec.structs.replace(case, params=params, said=said, skipped=skipped)


class CollectOnly:
    """The plugin for `--collect-only` with a pool. It checks the suite and starts nothing."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check the suite."""
        with usage_errors():
            collect(session.config, session.items)


def collect_cases(
    items: Sequence[pytest.Item], *, run_seed: int, models: Sequence[str], repeats: int
) -> Collected:
    """Find the cases among the collected items, in the order of the items.

    Args:
        items: All selected items.
        run_seed: Seed of the run; every case id depends on it.
        models: Names of the pool's models.
        repeats: The value of --ultrapar-repeats, >= 1.
    """
    collected = Collected()
    seen: dict[str, pytest.Item] = {}
    # Items of one test have the same fixtures, so search once per test, not for 20,000 items.
    by_test: dict[int, tuple[Prefetched | None, list[GraderFunction]]] = {}
    clustered: dict[int, tuple[str, ...] | None] = {}
    digests = ContentDigests()
    marks: dict[tuple[object, ...], str] = {}
    elsewhere = marks_elsewhere(items[0].config) if items else []
    for index, item in enumerate(items):
        test = internals.test_identity(item)
        if test not in by_test:
            by_test[test] = _ahead_of(collected, item)
        prefetched, graders = by_test[test]
        if prefetched is None:
            continue
        model = parameter(item, "model")
        if not isinstance(model, str) or model not in models:
            collected.faults.append(
                f"{item.nodeid}: the case has no model from the pool (model is {model!r}); the "
                "prefetched function or its test must use `llm` or `model`; the pool's models are "
                f"{', '.join(models)}"
            )
            continue
        collected.faults += mark_faults(item, elsewhere)
        case = _case(index, item, model, run_seed, repeats)
        # Items of one test differ only in the marks that `pytest.param` adds.
        own = test, *[mark.name for mark in item.own_markers]
        if own not in marks:
            marks[own] = ",".join(sorted({mark.name for mark in item.iter_markers()} - _NO_TAGS))
        content = content_of(item, digests)
        said, stage = _meta(collected, item, case), stage_of(prefetched)
        case = msgspec.structs.replace(
            case, content=content, marks=marks[own], said=said, stage=stage
        )
        if test not in clustered:
            clustered[test] = _cluster_names(collected, item, case)
            collected.tables.setdefault(case.test, _layout(collected, item, case))
        if (names := clustered[test]) is not None:
            case = msgspec.structs.replace(case, cluster=_cluster_of(case, names))
        if case.case_id in seen:
            collected.faults.append(_same_id(seen[case.case_id], item))
            continue
        seen[case.case_id] = item
        collected.cases.append(case)
        collected.case_ids[index] = case.case_id
        if case.skipped is not None:
            collected.not_run.add(index)
        collected.prefetched[index] = prefetched
        if graders:
            collected.graders[index] = graders
        if len(collected.faults) > _ENOUGH_FAULTS:
            break
    return collected


def _ahead_of(
    collected: Collected, item: pytest.Item
) -> tuple[Prefetched | None, list[GraderFunction]]:
    """Find the item's prefetched function and its graders; errors are added to `collected`."""
    found, graders = prefetched_of(item), graders_of(item)
    faults = suite_faults(item, found)
    faults += filter(None, (one.fault(item, found) for one in graders if found))
    collected.faults += faults
    return (None, []) if faults or not found else (found[0], graders)


def keep(items: list[pytest.Item], kept: list[pytest.Item]) -> None:
    """Deselect all items except `kept`, in the same way as `-k`, and change `items` in place."""
    these = set(map(id, kept))
    if left_out := [item for item in items if id(item) not in these]:
        left_out[0].config.hook.pytest_deselected(items=left_out)
        items[:] = kept


# -- the identity of a case ------------------------------------------------------------------------


def _case(index: int, item: pytest.Item, model: str, run_seed: int, repeats: int) -> Case:
    case_id = case_id_of(item, run_seed)
    return Case(
        index=index,
        case_id=case_id,
        nodeid=item.nodeid,
        suite=suite_at(item.path),
        model=model,
        repeat=repetition(item, repeats),
        params=params_of(item),
        seed=case_seed(case_id, run_seed),
        skipped=internals.will_not_run(item),
    )


@cache
def suite_at(path: Path) -> str:
    """The suite to which the items of a test file belong: the name of the file's folder."""
    return path.parent.name or path.stem


def parameter(item: pytest.Item, name: str) -> object:
    """The value of a parametrised argument of an item; None if it has no such argument."""
    return internals.parameters(item).get(name)


def params_of(item: pytest.Item) -> dict[str, Scalar]:
    """A case's parameters for its record: all except model and repetition."""
    return {
        # Check for `str` first, without a call: 12,000 cases have 100,000 values.
        name: value if type(value) is str else scalar(value)
        for name, value in internals.parameters(item).items()
        if name not in _NO_PARAMETERS
    }


def content_of(item: pytest.Item, digests: ContentDigests) -> dict[str, str]:
    """The digests of a case's parameters, by name; a parameter with a plain value has no digest."""
    return {
        name: digests.of(value)
        for name, value in internals.parameters(item).items()
        if type(value) is not str and not is_plain(value) and name not in _NO_PARAMETERS
    }


def repetition(item: pytest.Item, repeats: int) -> int:
    """The number of an item's repetition in its cell, from 0.

    If pytest-repeat also repeats the items, each of its steps contains all `repeats` repetitions.

    Args:
        item: The item of a case.
        repeats: The value of --ultrapar-repeats, >= 1.
    """
    step, own = internals.parameters(item).get(_STEP, 0), internals.parameters(item).get(REPEAT, 0)
    return (step if isinstance(step, int) else 0) * repeats + (own if isinstance(own, int) else 0)


def case_id_of(item: pytest.Item, run_seed: int) -> str:
    """The id of an item's case. It does not depend on lanes, keys, workers or the items' order."""
    inner = item.nodeid.split("::", 1)[1] if "::" in item.nodeid else item.name
    return case_id_at(item.config, item.path, inner, run_seed)


def case_id_at(config: pytest.Config, path: Path, inner: str, run_seed: int) -> str:
    """The id of a case in the test file `path`; `inner` is its node id without the file."""
    identity = as_json([_below_project(path, config.invocation_params.dir), inner, run_seed])
    return hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


@cache
def _below_project(path: Path, start: Path) -> str:
    # Do not use pytest's rootdir: an option whose value is a path to another place can change it
    # (pytest 9.2).
    return path.relative_to(_project(path.parent, start)).as_posix()


@cache
def _project(folder: Path, start: Path) -> Path:
    """The nearest folder with a configuration file, from the tests' folder upwards.

    If no folder has one: `start`, or the tests' folder if it is not inside `start`.
    """
    for place in (folder, *folder.parents):
        if any((place / name).is_file() for name in _CONFIG_FILES):
            return place
    return start if folder.is_relative_to(start) else folder


def case_seed(case_id: str, run_seed: int) -> int:
    """The case's own seed, 0 <= seed < 2**63."""
    digest = hashlib.blake2b(f"{run_seed}/{case_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _same_id(one: pytest.Item, other: pytest.Item) -> str:
    if one.path == other.path:
        return (
            f"{other.nodeid} has the same case id as {one.nodeid}; give their parameters "
            "different ids"
        )
    return (
        f"{other.nodeid}: {one.path} and {other.path} get the same case ids, because their "
        "paths relative to their configuration files are the same. Put one pytest.ini into a "
        "parent folder of both files, rename a file, or run the files separately"
    )


# -- arguments of prefetched functions -------------------------------------------------------------


def arguments_for(
    item: pytest.Item, prefetched: Prefetched, case: CaseInfo, grade: Grader
) -> dict[str, Any]:
    """The arguments of a prefetched function, except `llm`. Called on the main thread.

    Session-scoped fixtures are set up here when they are first used. For an async test, this
    includes fixtures that the test needs but does not name. A method gets a new instance of its
    class.
    """
    arguments: dict[str, Any] = {}
    if prefetched.is_test:
        internals.set_up_session(item)
    for name in prefetched.arguments:
        if name in {"llm", ANSWERS}:
            continue
        definition = internals.fixture_definition(item, name)
        if name == "case":
            arguments[name] = case
        elif name == "self":
            arguments[name] = item.cls()  # type: ignore[attr-defined]  # of a `Function`
        elif prefetched.is_test and is_ours(definition, "grade"):
            arguments[name] = grade
        elif definition is None or internals.is_direct_parameter(definition):
            arguments[name] = parameter(item, name)
        else:
            arguments[name] = internals.session_fixture(item, name)
    return arguments


# -- marks -----------------------------------------------------------------------------------------


def marked(item: pytest.Item, argument: str) -> Any:  # noqa: ANN401 - as the suite has it
    """An argument's value in the closest mark `ultrapar` that sets it; None if no mark does."""
    given = (mark.kwargs.get(argument) for mark in item.iter_markers("ultrapar"))
    return next((value for value in given if value is not None), None)


def are_names(value: object) -> TypeGuard[Sequence[str]]:
    """Whether a value is a list or tuple of strings."""
    return isinstance(value, tuple | list) and all(isinstance(one, str) for one in value)


def _cluster_names(collected: Collected, item: pytest.Item, case: Case) -> tuple[str, ...] | None:
    """The parameters that an item's mark names in `cluster=`; None if there is no valid mark."""
    names = marked(item, CLUSTER)
    if not are_names(names):
        return None  # `mark_faults` reports an invalid value
    strange = [name for name in names if name not in case.params]
    if strange:
        own = ", ".join(case.params)
        allowed = f"the test's parameters are {own}" if own else "the test has no parameters"
        collected.faults.append(
            f"{case.test}: mark ultrapar({CLUSTER}=...) names {strange[0]!r}; {allowed}"
        )
        return None
    return tuple(names)


def _cluster_of(case: Case, names: tuple[str, ...]) -> str:
    """The case cluster of a case: its values of the parameters `names`, and its repetition.

    Cases of different tests can be in the same case cluster.
    """
    shared = {name: case.params[name] for name in sorted(names)}
    return as_json({**shared, "repeat": case.repeat})


def _meta(collected: Collected, item: pytest.Item, case: Case) -> dict[str, Scalar]:
    """The metadata from an item's marks; if several marks set the same name, the closest one wins.

    If `meta=` is a function, it is called with the case's parameters that its signature names.
    """
    own, found, why = internals.parameters(item), dict[str, Scalar](), ""
    for given in _given_meta(item):
        try:
            names = signature_of(given).parameters if callable(given) else ()
            told = given(**{name: own[name] for name in names}) if callable(given) else given
            found |= {name: scalar(value) for name, value in told.items()}
        except Exception as error:  # noqa: BLE001 - the suite's own code
            why = f"must be a dict, or a function of parameters that returns one ({error!r})"
    for name in found:
        if not isinstance(name, str) or name in {*CASE_NAMES, *case.params}:
            why = f"sets {name!r}; use a string that is not the name of a column or parameter"
    if why and not any(one.endswith(why) for one in collected.faults):
        collected.faults.append(f"{case.nodeid}: mark ultrapar(meta=...) {why}")
    return {f"{META}{name}": value for name, value in found.items()}


def _given_meta(item: pytest.Item) -> Iterator[Any]:
    # This is cheaper than `iter_markers` for 12,000 items. The marks of `pytest.param` come last.
    for node in item.listchain():
        for mark in node.own_markers:
            if mark.name == "ultrapar" and "meta" in mark.kwargs:
                yield mark.kwargs["meta"]


def _layout(collected: Collected, item: pytest.Item, case: Case) -> tuple[str, ...]:
    """The names that an item's mark lists in `summary=`; empty if there is no valid mark."""
    summary = marked(item, "summary")
    if not are_names(summary):
        return ()
    known = dict.fromkeys((*CASE_NAMES, *case.params, f"{META}NAME", f"{LABEL}NAME"))
    for name in summary:
        # Metadata of another case of the test, or a label of a grade, may have this name.
        if name not in known and not name.startswith((META, LABEL)):
            collected.faults.append(
                f"{item.nodeid.split('[')[0]}: mark ultrapar(summary=...) names {name!r}; "
                f"allowed: {', '.join(known)}"
            )
            return ()
    return tuple(summary)
