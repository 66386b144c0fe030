"""From pytest's items to cases: which there are, which run ahead, which are left out."""

from __future__ import annotations

import hashlib
import inspect
import json
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from functools import cache
from pathlib import Path
from typing import TYPE_CHECKING, Any

import msgspec
import pytest

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.options import INPUT
from pytest_ultrapar.records import Case, Scalar
from pytest_ultrapar.session import internals, process
from pytest_ultrapar.session.prefetch import ATTRIBUTE, Prefetched
from pytest_ultrapar.store.cases_file import Taken
from pytest_ultrapar.store.publish import write_whole

if TYPE_CHECKING:
    from collections.abc import Callable, Container, Iterator, Mapping, Sequence

    from pytest_ultrapar.pool.settings import Options
    from pytest_ultrapar.session.prefetch import CaseInfo


Question = tuple[str, str, int, tuple[tuple[str, str], ...]]
"""What tells whether two cases ask the same: suite, model, repetition, parameters."""
mark_faults_key = pytest.StashKey[list[str]]()
"""What is wrong with marks, noted while tests are generated."""
reused_key = pytest.StashKey[dict[Question, str]]()
"""Questions that an earlier run answered, and the ids of the cases that did; in the process that
leads, workers read them."""
taken_key = pytest.StashKey[list[Taken]]()
"""What suites took instead of asking it, noted when cases are deselected."""
_SHOWN = 5


CLUSTER = "cluster"
"""Of the mark `ultrapar`: the parameters whose common values make cases of a repetition depend."""


def cluster_names(item: pytest.Item) -> tuple[str, ...] | None:
    """The parameters that an item's closest mark with `cluster` names; None where none does."""
    given = (mark.kwargs.get(CLUSTER) for mark in item.iter_markers("ultrapar"))
    names = next((each for each in given if each is not None), None)
    if not isinstance(names, tuple | list) or not all(isinstance(name, str) for name in names):
        return None  # `mark_faults` says so where it is wrong
    return tuple(names)


def cluster_fault(case: Case, names: tuple[str, ...]) -> str | None:
    """What is wrong with a mark's names; None if each is a parameter of the case."""
    for name in names:
        if name not in case.params:
            own = ", ".join(case.params)
            allowed = f"its parameters are {own}" if own else "it has no parameters"
            return f"{case.test}: mark ultrapar({CLUSTER}=...) names {name!r}; {allowed}"
    return None


def cluster_of(case: Case, names: tuple[str, ...]) -> str:
    """The cluster of a case that has all these parameters; the same in every test of a run."""
    shared = {name: case.params[name] for name in sorted(names)}
    return json.dumps({**shared, "repeat": case.repeat}, ensure_ascii=False)


REPEAT = "ultrapar_repeat"
_STEP = "__pytest_repeat_step_number"
"""pytest-repeat's parameter, from 0 (`pytest_repeat.py:63`, 0.9.4)."""
_CONFIG_FILES = (
    "pytest.toml",
    ".pytest.toml",
    "pytest.ini",
    ".pytest.ini",
    "pyproject.toml",
    "tox.ini",
    "setup.cfg",
)
_ALLOWED = (
    "allowed are parametrised values, llm, model, case, and session-scoped, unparametrised, "
    "synchronous fixtures"
)
_ENOUGH_FAULTS = 20


@dataclass(slots=True)
class Collected:
    """The cases among pytest's items.

    Attributes:
        case_ids: By position in pytest's collection; items that are no cases are missing.
        cases: What the run directory's list of cases holds; emptied once that is written, since
            twenty thousand of them would weigh 10 MB in every worker.
        prefetched: The prefetched function of each case, by position.
        not_run: Why marks keep a case from running, by position.
        faults: What makes the suite unusable, one sentence each.
        tables: For each suite the two parameters by which its summary is laid out.
    """

    case_ids: dict[int, str] = field(default_factory=dict)
    cases: list[Case] = field(default_factory=list)
    not_run: dict[int, str] = field(default_factory=dict)
    prefetched: dict[int, Prefetched] = field(default_factory=dict)
    faults: list[str] = field(default_factory=list)
    tables: dict[str, tuple[str, ...]] = field(default_factory=dict)

    def will_not_run(self, index: int) -> bool:
        """Whether a mark keeps the case at this position from running."""
        return index in self.not_run


def prefetched_of(item: pytest.Item) -> list[Prefetched]:
    """The prefetched functions that an item depends on, directly or through other fixtures."""
    found: list[Prefetched] = []
    for name in internals.fixture_names(item):
        definition = internals.fixture_definition(item, name)
        prefetched = getattr(definition.func, ATTRIBUTE, None) if definition else None
        if prefetched is not None:
            found.append(prefetched)
    return found


def collect_cases(
    items: Sequence[pytest.Item], *, run_seed: int, models: Sequence[str], repeats: int
) -> Collected:
    """Find the cases among collected items, in their order.

    Args:
        items: What pytest is going to run.
        run_seed: Seed of the run; part of every case id.
        models: Names of the pool's models.
        repeats: What --ultrapar-repeats says, >= 1.
    """
    collected = Collected()
    seen: dict[str, pytest.Item] = {}
    # Items of one test share what pytest knows of its fixtures; 20,000 need not be searched one by
    # one.
    by_test: dict[int, list[Prefetched]] = {}
    clustered: dict[int, tuple[str, ...] | None] = {}
    for index, item in enumerate(items):
        test = internals.test_identity(item)
        found = by_test.get(test)
        if found is None:
            found = by_test[test] = prefetched_of(item)
            faults = _faults(item, found) if found else []
            if faults:
                collected.faults += faults
                found = by_test[test] = []
        if not found:
            continue
        model = parameter(item, "model")
        if not isinstance(model, str) or model not in models:
            collected.faults.append(
                f"{item.nodeid}: the case has no model of the pool (model is {model!r}); a "
                "prefetched function or its test must use `llm` or `model`, and the pool has "
                f"{', '.join(models)}"
            )
            continue
        case = _case(index, item, model, run_seed, repeats)
        if test not in clustered:
            clustered[test] = names = cluster_names(item)
            fault = cluster_fault(case, names) if names is not None else None
            if fault is not None:
                collected.faults.append(fault)
                clustered[test] = None
        if (names := clustered[test]) is not None:
            case = msgspec.structs.replace(case, cluster=cluster_of(case, names))
        if case.case_id in seen:
            collected.faults.append(_same_id(seen[case.case_id], item))
            continue
        seen[case.case_id] = item
        collected.cases.append(case)
        collected.case_ids[index] = case.case_id
        if case.skipped is not None:
            collected.not_run[index] = case.skipped
        collected.prefetched[index] = found[0]
        _note_table(collected, item, case)
        if len(collected.faults) > _ENOUGH_FAULTS:
            break
    return collected


def parameter(item: pytest.Item, name: str) -> object:
    """The value of a parametrised argument of an item, or None."""
    callspec = getattr(item, "callspec", None)
    return callspec.params.get(name) if callspec is not None else None


def params_of(item: pytest.Item) -> dict[str, Scalar]:
    """A case's own parameters as its record holds them: all but model and repetition."""
    callspec = getattr(item, "callspec", None)
    return {
        name: _scalar(value)
        for name, value in (callspec.params if callspec else {}).items()
        if name not in {"model", REPEAT, _STEP}
    }


def repetition(item: pytest.Item, repeats: int) -> int:
    """Which repetition of its cell an item is, from 0; pytest-repeat's count multiplies ours.

    Args:
        item: Of a case.
        repeats: What --ultrapar-repeats says, >= 1.
    """
    step, own = (
        value if isinstance(value := parameter(item, name), int) else 0 for name in (_STEP, REPEAT)
    )
    return step * repeats + own


def suite_of(item: pytest.Item) -> str:
    """The suite that an item belongs to: its folder's name."""
    return item.path.parent.name or item.path.stem


def arguments_for(item: pytest.Item, prefetched: Prefetched, case: CaseInfo) -> dict[str, Any]:
    """What a prefetched function is called with, `llm` apart. Called on the main thread.

    Session-scoped fixtures are set up here, at their first use.
    """
    arguments: dict[str, Any] = {}
    for name in prefetched.arguments:
        if name == "llm":
            continue
        if name == "case":
            arguments[name] = case
            continue
        definition = internals.fixture_definition(item, name)
        if definition is None or internals.is_direct_parameter(definition):
            arguments[name] = parameter(item, name)
        else:
            arguments[name] = internals.session_fixture(item, name)
    return arguments


def case_id_of(item: pytest.Item, run_seed: int) -> str:
    """The id of an item's case: nothing of lanes, keys, workers or order is in it."""
    inner = item.nodeid.split("::", 1)[1] if "::" in item.nodeid else item.name
    identity = json.dumps([_below_project(item.path), inner, run_seed], ensure_ascii=False)
    return hashlib.blake2b(identity.encode("utf-8", "surrogatepass"), digest_size=8).hexdigest()


def case_seed(case_id: str, run_seed: int) -> int:
    """The case's own seed, 0 <= seed < 2**63."""
    digest = hashlib.blake2b(f"{run_seed}/{case_id}".encode(), digest_size=8).digest()
    return int.from_bytes(digest, "big") >> 1


def _case(index: int, item: pytest.Item, model: str, run_seed: int, repeats: int) -> Case:
    case_id = case_id_of(item, run_seed)
    return Case(
        index=index,
        case_id=case_id,
        nodeid=item.nodeid,
        suite=suite_of(item),
        model=model,
        repeat=repetition(item, repeats),
        params=params_of(item),
        seed=case_seed(case_id, run_seed),
        skipped=internals.will_not_run(item),
    )


def _scalar(value: object) -> Scalar:
    """A parameter's value as a column can hold it: plain values as they are, others by name."""
    if value is None or isinstance(value, str | int | float | bool):
        return value
    name = getattr(value, "name", None) or getattr(value, "__name__", None)
    return name if isinstance(name, str) else str(value)


@cache
def _project(folder: Path) -> Path:
    for place in (folder, *folder.parents):
        if any((place / name).is_file() for name in _CONFIG_FILES):
            return place
    return folder


@cache
def _below_project(path: Path) -> str:
    # Not pytest's rootdir: the value of an option that names a file elsewhere moves it (pytest
    # 9.2).
    return path.relative_to(_project(path.parent)).as_posix()


def _same_id(one: pytest.Item, other: pytest.Item) -> str:
    if one.path == other.path:
        return (
            f"{other.nodeid}: two items have the same case id (the other is {one.nodeid}); give "
            "their parameters different ids"
        )
    return (
        f"{other.nodeid}: {one.path} and {other.path} have the same path below their projects "
        f"({_project(one.path.parent)} and {_project(other.path.parent)}), by which cases are told "
        "apart; rename one of the two files, or run them apart"
    )


def _note_table(collected: Collected, item: pytest.Item, case: Case) -> None:
    if case.suite in collected.tables:
        return
    mark = item.get_closest_marker("ultrapar")
    summary = mark.kwargs.get("summary") if mark else None
    if not isinstance(summary, tuple | list) or not all(isinstance(name, str) for name in summary):
        return
    known = ("model", "suite", "repeat", *case.params)
    for name in summary:
        if name not in known:
            collected.faults.append(
                f"{item.nodeid.split('[')[0]}: mark ultrapar(summary=...) names {name!r}; "
                f"allowed are {', '.join(known)}"
            )
            return
    collected.tables[case.suite] = tuple(summary)


def _faults(item: pytest.Item, found: list[Prefetched]) -> list[str]:
    faults = [fault for prefetched in found if (fault := prefetched.fault())]
    if len(found) > 1:
        faults.append(
            f"{item.nodeid.split('[')[0]}: one item may have one prefetched fixture, this has "
            f"{len(found)}: {', '.join(p.name for p in found)} ({found[1].place})"
        )
    if not faults:
        for name in found[0].arguments:
            reason = _argument_fault(item, name)
            if reason:
                faults.append(
                    f"{found[0].place}: argument {name!r} of prefetched {found[0].name!r} is not "
                    f"allowed: {reason}; {_ALLOWED}"
                )
    return faults


def _argument_fault(item: pytest.Item, name: str) -> str | None:
    if name in {"llm", "case"}:
        return None
    callspec = getattr(item, "callspec", None)
    definition = internals.fixture_definition(item, name)
    if definition is None:
        return (
            None
            if callspec and name in callspec.params
            else "no fixture or parameter has this name"
        )
    if internals.is_direct_parameter(definition) or hasattr(definition.func, "__ultrapar__"):
        return None
    if definition.params is not None:
        return "it is a parametrised fixture"
    if callspec and name in callspec.params:
        return "it is parametrised through a fixture (indirect)"
    if getattr(definition.func, ATTRIBUTE, None) is not None:
        return "it is a prefetched fixture itself"
    if definition.scope != "session":
        return f"it is a {definition.scope}-scoped fixture"
    if inspect.iscoroutinefunction(definition.func) or inspect.isasyncgenfunction(definition.func):
        return "it is an asynchronous fixture"
    several = _parametrised_below(item, definition)
    return f"it depends on the parametrised fixture {several!r}" if several else None


def _parametrised_below(item: pytest.Item, definition: pytest.FixtureDef[Any]) -> str | None:
    """A parametrised fixture that this one needs: pytest would make it anew in mid-episode."""
    callspec = getattr(item, "callspec", None)
    seen: set[str] = set()
    names = list(definition.argnames)
    while callspec is not None and names:
        name = names.pop()
        if name in callspec.params:
            return name
        needed = internals.fixture_definition(item, name)
        if needed is not None and name not in seen:
            seen.add(name)
            names += needed.argnames
    return None


ARGUMENT = "repeats_over"
"""Of the mark `ultrapar`: the parameter that M of `--ultrapar-repeats NxM` counts."""
FirstValues = dict[tuple["Path", str], set["Scalar"]]
"""By test file and parameter, the first distinct values in the order of collection."""


def first_values(config: pytest.Config, items: Sequence[pytest.Item]) -> FirstValues:
    """The first M values of the parameter that each suite counts; empty without `NxM`.

    Asked before any plugin selects or sorts items, so that `-k` picks from what runs without it.
    """
    options, _ = process.settings(config)
    found: FirstValues = {}
    if options.repeats.n_first is None:
        return found
    named: dict[int, object] = {}
    for item in items:
        name = _looked_up(named, item)
        if not isinstance(name, str):
            continue
        if _parameters(item).get(name, internals.NO_VALUE) is not internals.NO_VALUE:
            values = found.setdefault((item.path, name), set())
            if len(values) < options.repeats.n_first:
                values.add(params_of(item).get(name))
    return found


def deselect(config: pytest.Config, items: list[pytest.Item], first: FirstValues) -> None:
    """Leave out the cases that this run does not ask for; note what is wrong with marks.

    Left out are cases of models that `--ultrapar-model` does not select, cases whose counted
    parameter has none of its first values, and the one item, which it would skip, that pytest makes
    of a test when one of its parameters has no value at all.
    """
    options, pool = process.settings(config)
    others = frozenset(pool.models).difference(process.models(config))
    named: dict[int, object] = {}
    is_case: dict[int, bool] = {}
    kept: list[pytest.Item] = []
    left_out: list[pytest.Item] = []
    for item in items:
        test = internals.test_identity(item)
        if test not in is_case:
            is_case[test] = bool(prefetched_of(item))
            fault = _fault(item, _looked_up(named, item), options) if is_case[test] else None
            if fault is not None:
                config.stash.setdefault(mark_faults_key, []).append(fault)
        unwanted = is_case[test] and _is_unwanted(item, others, _looked_up(named, item), first)
        (left_out if unwanted else kept).append(item)
    if left_out:
        config.hook.pytest_deselected(items=left_out)
        items[:] = kept


def _is_unwanted(
    item: pytest.Item, others: Container[object], counted: object, first: FirstValues
) -> bool:
    parameters = _parameters(item)
    # By identity: a parameter's value may be anything, also what cannot be compared or hashed.
    if any(value is internals.NO_VALUE for value in parameters.values()):
        return True
    model = parameters.get("model")
    if isinstance(model, str) and model in others:
        return True
    values = first.get((item.path, counted)) if isinstance(counted, str) else None
    return values is not None and params_of(item).get(str(counted)) not in values


def _parameters(item: pytest.Item) -> Mapping[Any, Any]:
    callspec = getattr(item, "callspec", None)
    return callspec.params if callspec is not None else {}


def _looked_up(named: dict[int, object], item: pytest.Item) -> object:
    """What the mark names as counted, None if nothing; looked up once per test."""
    test = internals.test_identity(item)
    if test not in named:
        given = (mark.kwargs.get(ARGUMENT) for mark in item.iter_markers("ultrapar"))
        named[test] = next((name for name in given if name is not None), None)
    return named[test]


def _fault(item: pytest.Item, counted: object, options: Options) -> str | None:
    where = item.nodeid.split("[")[0]
    own = list(params_of(item))
    allowed = f"its parameters are {', '.join(own)}" if own else "it has no parameters"
    if counted is not None and counted not in own:
        return f"{where}: mark ultrapar({ARGUMENT}={counted!r}) names no parameter; {allowed}"
    repeats = options.repeats
    if counted is None and repeats.n_first is not None:
        return (
            f"{where}: {repeats} ({options.origin['repeats']}) takes the first {repeats.n_first} "
            f"values of a parameter, but the suite does not say of which; mark it with "
            f'pytest.mark.ultrapar({ARGUMENT}="..."), where {allowed}, or ask for '
            f"{repeats.n}"
        )
    return None


TAKEN_FROM = "taken_from"
REUSED_FILE = "reused.json"


def question_of_case(case: Case) -> Question:
    """The question of a case of this or an earlier run."""
    return _question(case.suite, case.model, case.repeat, case.params)


def write_reused(directory: Path, reused: Mapping[Question, str]) -> None:
    """Leave what an earlier run answered where workers find it. Called before they start.

    Raises:
        ResultsError: It cannot be written.
    """
    path = directory / REUSED_FILE
    if reused:
        write_whole(path, msgspec.json.encode(sorted(reused.items())))
    else:
        # Left by a session that never got as far as its first episode, it would be believed.
        try:
            path.unlink(missing_ok=True)
        except OSError as error:
            msg = f"cannot remove {path}: {error.strerror}"
            raise ResultsError(msg) from error


def read_reused(directory: Path) -> dict[Question, str]:
    """What an earlier run answered, and the case that did; empty when none is reused.

    Raises:
        ResultsError: It cannot be read, or is something else.
    """
    path = directory / REUSED_FILE
    try:
        return dict(msgspec.json.decode(path.read_bytes(), type=list[tuple[Question, str]]))
    except FileNotFoundError:
        return {}
    except OSError as error:
        msg = f"cannot read {path}: {error.strerror}"
        raise ResultsError(msg) from error
    except msgspec.DecodeError as error:
        msg = f"{path} does not hold what an earlier run answered: {error}"
        raise ResultsError(msg) from error


def deselect_shared(
    config: pytest.Config,
    items: list[pytest.Item],
    reused: Callable[[], Mapping[Question, str]],
    *,
    run_seed: int,
    repeats: int,
) -> list[Taken]:
    """Deselect the cases that their suite takes from another one, as `-k` leaves out tests.

    Called after `-k`, `-m` and --ultrapar-model have left out theirs: what they left out of the
    other suite is not taken from it.

    Args:
        config: pytest's.
        items: What is selected; changed in place.
        reused: Questions that were answered in an earlier run, and the ids of the cases that did;
            called only if a suite takes any. What this session asks itself is taken from here.
        run_seed: Seed of the run; part of every case id.
        repeats: What --ultrapar-repeats says, >= 1.

    Returns:
        The cases taken, by the suites that took them; suites that took none are missing.
    """
    sources: dict[int, str | None] = {}
    for item in items:
        test = internals.test_identity(item)
        if test not in sources:
            sources[test] = _source_of(item)
    wanted = {source for source in sources.values() if source is not None}
    if not wanted:
        return []
    answered = reused()
    asked: dict[Question, pytest.Item] = {}
    for item in items:
        if (suite := suite_of(item)) in wanted and internals.will_not_run(item) is None:
            asked.setdefault(_question_of(item, suite, repeats), item)
    kept: list[pytest.Item] = []
    taken: list[pytest.Item] = []
    # Dictionaries for their keys, each once and in order.
    ids: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for item in items:
        source = sources[internals.test_identity(item)]
        question = _question_of(item, source, repeats) if source is not None else None
        if question is None or (question not in asked and question not in answered):
            kept.append(item)
            continue
        taken.append(item)
        here, earlier = ids.setdefault(suite_of(item), ({}, {}))
        if question in asked:
            here[case_id_of(asked[question], run_seed)] = None
        else:
            earlier[answered[question]] = None
    if taken:
        config.hook.pytest_deselected(items=taken)
        items[:] = kept
    return [Taken(suite, tuple(here), tuple(earlier)) for suite, (here, earlier) in ids.items()]


def _source_of(item: pytest.Item) -> str | None:
    mark = item.get_closest_marker("ultrapar")
    source = mark.kwargs.get(TAKEN_FROM) if mark is not None else None
    return source if isinstance(source, str) and source != suite_of(item) else None


def _question_of(item: pytest.Item, suite: str, repeats: int) -> Question:
    """The question that an item asks, as if it were one of `suite`."""
    return _question(
        suite,
        str(parameter(item, "model")),
        repetition(item, repeats),
        params_of(item),
    )


def _question(suite: str, model: str, repeat: int, params: Mapping[str, Scalar]) -> Question:
    # By `repr`: 0.8 is 0.8 in JSON and in Python, and 1, 1.0 and True are three values.
    return suite, model, repeat, tuple(sorted((name, repr(own)) for name, own in params.items()))


_ARGUMENTS = (CLUSTER, "expect", "models", ARGUMENT, "summary", TAKEN_FROM)
_EXPECT = ("turns", "tokens_in", "tokens_out")


def mark_faults(mark: pytest.Mark) -> Iterator[str]:
    """Faults of a mark that can be seen without its test's parameters and the pool's models.

    Each begins with the mark and says what was found and what is allowed.
    """
    strange = [*map(repr, mark.args), *sorted(mark.kwargs.keys() - set(_ARGUMENTS))]
    if strange:
        takes = " and ".join(f"{name}=..." for name in _ARGUMENTS)
        yield f"mark ultrapar(...) got {strange[0]}; it takes {takes} by name"
    for name, value in mark.kwargs.items():
        fault = _value_fault(name, value) if value is not None else None
        if fault is not None:
            yield f"mark ultrapar({name}=...){fault}"


def patterns_of(models: object) -> list[str]:
    """The patterns in a mark's `models`: one, or several in a list; none if it is neither."""
    if isinstance(models, str):
        return [models]
    return list(models) if isinstance(models, tuple | list) and _are_names(models) else []


def _value_fault(name: str, value: object) -> str | None:
    if name == "models" and not isinstance(value, str) and not _are_names(value):
        return f" must be a pattern such as 'qwen*', or a list of patterns (got {value!r})"
    if name == "summary" and not _are_names(value):
        return f" must be a list of names such as ['model', 'repeat'] (got {value!r})"
    if name == CLUSTER and not _are_names(value):
        return f" must be a list of parameters such as ['task'] (got {value!r})"
    if name == TAKEN_FROM and not isinstance(value, str):
        return f" must be the name of a suite's folder (got {value!r})"
    return _expect_fault(value) if name == "expect" else None


def _expect_fault(said: object) -> str | None:
    if not isinstance(said, dict) or not set(said) <= set(_EXPECT):
        return f" must be a dict with some of {', '.join(_EXPECT)} (got {said!r})"
    for name, value in said.items():
        least = 1 if name == "turns" else 0
        if isinstance(value, bool) or not isinstance(value, int | float) or not value >= least:
            return f": {name} must be a number >= {least} (got {value!r})"
    return None


def _are_names(value: object) -> bool:
    return isinstance(value, tuple | list) and all(isinstance(one, str) for one in value)


_PATTERN_SIGNS = set("*?[")


def parametrize_models(metafunc: pytest.Metafunc) -> bool:
    """Give a test that has a prefetched fixture its models; returns whether it has one.

    What is wrong with its mark is noted: raised while tests are generated it would be a traceback
    and exit code 2.
    """
    names = list(metafunc.fixturenames)
    functions = [internals.fixture_function(metafunc, name) for name in names]
    if not any(hasattr(function, ATTRIBUTE) for function in functions):
        return False
    for mark in metafunc.definition.iter_markers("ultrapar"):
        for fault in mark_faults(mark):
            _note_fault(metafunc, fault)
    ours = internals.fixture_function(metafunc, "model")
    is_ours = "model" in names and getattr(ours, "__ultrapar__", None) == "model"
    if is_ours and not _by_hand(metafunc):
        metafunc.parametrize("model", _models(metafunc))
    return True


def parametrize_repeats(metafunc: pytest.Metafunc) -> None:
    """Give a case its repetitions.

    They are always a parameter, also when there is one: the first repetition of a case then has the
    same id in a run of one and in a run of twenty.
    """
    options, _ = process.settings(metafunc.config)
    if REPEAT not in metafunc.fixturenames:
        metafunc.fixturenames.append(REPEAT)
    numbers = range(options.repeats.n)
    metafunc.parametrize(REPEAT, numbers, ids=[f"r{number}" for number in numbers])


def _by_hand(metafunc: pytest.Metafunc) -> bool:
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        listed = names.split(",") if isinstance(names, str) else names
        if "model" in [name.strip() for name in listed]:
            return True
    return False


def _models(metafunc: pytest.Metafunc) -> list[str]:
    selected = process.models(metafunc.config)
    mark = metafunc.definition.get_closest_marker("ultrapar")
    patterns = mark.kwargs.get("models") if mark is not None else None
    if patterns is None:
        return list(selected)
    listed = patterns_of(patterns)
    _, pool = process.settings(metafunc.config)
    for pattern in listed:
        # A name that is not there is a slip of the pen; a family without a member in this pool is
        # a suite that has nothing to do here.
        is_name = not _PATTERN_SIGNS.intersection(pattern)
        if is_name and pattern not in pool.models:
            names = ", ".join(pool.models)
            _note_fault(
                metafunc,
                f"mark ultrapar(...) names {pattern!r}, which matches no model of {pool.path}; "
                f"it has {names}",
            )
    return [name for name in selected if any(fnmatchcase(name, one) for one in listed)]


def _note_fault(metafunc: pytest.Metafunc, what: str) -> None:
    faults = metafunc.config.stash.setdefault(mark_faults_key, [])
    faults.append(f"{metafunc.definition.nodeid}: {what}")


def reused(config: pytest.Config) -> dict[Question, str]:
    """The questions that the run named by --ultrapar-reuse answered, and the cases that did."""
    given = getattr(config, "workerinput", {}).get(INPUT)
    if given is not None:
        return read_reused(Path(given["directory"]))
    return config.stash.get(reused_key, {})


def taken(config: pytest.Config) -> list[Taken]:
    """What suites took from others instead of asking it; known when pytest has collected."""
    return config.stash.get(taken_key, [])


def collect(config: pytest.Config, items: Sequence[pytest.Item]) -> Collected:
    """The cases among pytest's items, and all that is wrong with the suite."""
    options, pool = process.settings(config)
    collected = collect_cases(
        items, run_seed=options.seed, models=process.models(config), repeats=options.repeats.n
    )
    collected.faults[:0] = config.stash.get(mark_faults_key, None) or ()
    collected.cases[:] = _without_secrets(collected.cases, process.redactor(pool).text)
    return collected


def _without_secrets(cases: Sequence[Case], plain: Callable[[str], str]) -> Iterator[Case]:
    """What is written down of cases; their episodes get their parameters as they are."""
    for case in cases:
        params = {
            name: plain(value) if isinstance(value, str) else value
            for name, value in case.params.items()
        }
        skipped = None if case.skipped is None else plain(case.skipped)
        if params == case.params and skipped == case.skipped:
            yield case
        else:
            yield msgspec.structs.replace(case, params=params, skipped=skipped)


def faults_message(faults: Sequence[str]) -> str:
    """The faults of a suite as one message."""
    distinct = list(dict.fromkeys(faults))
    n_more = len(distinct) - _SHOWN
    more = f"\n(and {n_more} more)" if n_more > 0 else ""
    return "\n".join(distinct[:_SHOWN]) + more


class CollectOnly:
    """The plugin of `--collect-only` with a pool: faults are found, nothing is started."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config

    @pytest.hookimpl(tryfirst=True)
    def pytest_collection_finish(self, session: pytest.Session) -> None:
        """Check the suite."""
        found = collect(session.config, session.items)
        if found.faults:
            raise pytest.UsageError(faults_message(found.faults))
