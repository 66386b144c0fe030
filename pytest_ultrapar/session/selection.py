"""Decide which tests become cases, for which models, and which of these cases a run selects.

The functions are in the order in which pytest calls them. Marks are checked and tests parametrised
while pytest generates tests. When all items are collected, some are deselected: first by model and
repetition, then by the sample. Finally, the cases whose answers come from another suite or an
earlier run are deselected.
"""

from __future__ import annotations

import math
from fnmatch import fnmatchcase
from hashlib import blake2b
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

import msgspec
import pytest

from pytest_ultrapar.session import internals, run_config
from pytest_ultrapar.session.case_dependencies import stage_of
from pytest_ultrapar.session.collection import (
    CLUSTER,
    REPEAT,
    Collected,
    are_names,
    case_id_of,
    collect,
    content_of,
    keep,
    mark_faults_key,
    marked,
    parameter,
    params_of,
    repetition,
    suite_at,
)
from pytest_ultrapar.session.options import INPUT
from pytest_ultrapar.session.parameter_text import ContentDigests
from pytest_ultrapar.session.prefetch import prefetched_of
from pytest_ultrapar.session.settings import models_hint
from pytest_ultrapar.session.worker_test_lists import check_same_tests
from pytest_ultrapar.store.cases_file import (
    Generated,
    Shared,
    write_cases,
    write_generated,
    write_shared,
    write_tables,
)
from pytest_ultrapar.system.files import read_whole, write_whole

if TYPE_CHECKING:
    from collections.abc import Container, Iterator, Mapping, Sequence

    from pytest_ultrapar.pool.settings import Options
    from pytest_ultrapar.records import Case, Scalar


REPEATS_OVER = "repeats_over"
"""Argument of the mark `ultrapar`: the parameter whose first M values `--ultrapar-repeats NxM`
selects."""
TAKEN_FROM = "taken_from"
"""Argument of the mark `ultrapar`: the suite from which this suite takes answers."""
_ARGUMENTS = (CLUSTER, "expect", "meta", "models", REPEATS_OVER, "summary", TAKEN_FROM)
_EXPECT = ("turns", "tokens_in", "tokens_out")
_PATTERN_SIGNS = set("*?[")


# -- while tests are generated ---------------------------------------------------------------------


def parametrize_models(metafunc: pytest.Metafunc) -> bool:
    """If a test has an episode, parametrize it over its models. Return whether it has an episode.

    Errors in the test's mark are collected and reported later. An exception that is raised while
    pytest generates tests would end pytest with a traceback and exit code 2.
    """
    if not internals.prefetched_for(metafunc):
        return False
    for mark in metafunc.definition.iter_markers("ultrapar"):
        for fault in mark_faults(mark):
            _note_fault(metafunc, fault)
    if internals.uses_model_fixture(metafunc) and not _by_hand(metafunc):
        metafunc.parametrize("model", _models(metafunc))
    return True


def _by_hand(metafunc: pytest.Metafunc) -> bool:
    # pytest refuses a second parametrisation of the same argument (`CallSpec.setmulti`).
    for mark in metafunc.definition.iter_markers("parametrize"):
        names = mark.args[0] if mark.args else mark.kwargs.get("argnames", ())
        listed = names.split(",") if isinstance(names, str) else names
        if "model" in [name.strip() for name in listed]:
            return True
    return False


def _models(metafunc: pytest.Metafunc) -> list[str]:
    selected = run_config.models(metafunc.config)
    patterns = marked(metafunc.definition, "models")
    if patterns is None:
        return list(selected)
    # A value of the wrong type selects no model here, and `mark_faults` reports it.
    listed = [patterns] if isinstance(patterns, str) else patterns if are_names(patterns) else []
    _, pool = run_config.settings(metafunc.config)
    for pattern in listed:
        # An unknown name must be a typo. A pattern without a match is allowed: in that case, the
        # suite has no cases on this pool.
        is_name = not _PATTERN_SIGNS.intersection(pattern)
        if is_name and pattern not in pool.subjects:
            _note_fault(
                metafunc,
                f"mark ultrapar(...) names {pattern!r}, which matches no model "
                f"{models_hint(pool, pool.subjects)}",
            )
    return [name for name in selected if any(fnmatchcase(name, one) for one in listed)]


def _note_fault(metafunc: pytest.Metafunc, what: str) -> None:
    faults = metafunc.config.stash.setdefault(mark_faults_key, [])
    faults.append(f"{metafunc.definition.nodeid}: {what}")


def parametrize_repeats(metafunc: pytest.Metafunc) -> None:
    """Parametrize a test over the repetitions of its cases.

    The repetition is a parameter even if there is only one. So the first repetition of a case has
    the same id in a run with one repetition as in a run with twenty.
    """
    options, _ = run_config.settings(metafunc.config)
    if REPEAT not in metafunc.fixturenames:
        # pytest refuses to parametrise over a name that a test does not use
        # (`Metafunc._validate_if_using_arg_names`).
        metafunc.fixturenames.append(REPEAT)
    numbers = range(options.repeats.n)
    metafunc.parametrize(REPEAT, numbers, ids=[f"r{number}" for number in numbers])


def mark_faults(mark: pytest.Mark) -> Iterator[str]:
    """Yield errors in a mark, except those that depend on the test's parameters or the models.

    Each message begins with the mark and says which value was found and which are allowed.
    """
    strange = [*map(repr, mark.args), *sorted(mark.kwargs.keys() - set(_ARGUMENTS))]
    if strange:
        takes = ", ".join(f"{name}=..." for name in _ARGUMENTS)
        yield f"mark ultrapar(...) got {strange[0]}; it takes only the keywords {takes}"
    for name, value in mark.kwargs.items():
        fault = _value_fault(name, value) if value is not None else None
        if fault is not None:
            yield f"mark ultrapar({name}=...){fault}"


def _value_fault(name: str, value: object) -> str | None:
    if name == "models" and not isinstance(value, str) and not are_names(value):
        return f" must be a pattern such as 'qwen*', or a list of patterns (got {value!r})"
    if name == "summary" and not (are_names(value) and value and len({*value}) == len(value)):
        return f" must be a tuple of different names such as ('model', 'repeat') (got {value!r})"
    if name == CLUSTER and not are_names(value):
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


# -- when all are collected: models and repetitions ------------------------------------------------

FirstValues = dict[tuple["Path", str], set["Scalar"]]
"""For each test file and parameter, the first distinct values in the order of collection."""
first_key = pytest.StashKey[FirstValues]()
"""The first values across all shards; the items of a single shard may lack some of them."""
generated_key = pytest.StashKey[Generated]()
"""Facts about the cases from which a shard or a sample was selected; set only in such runs."""


def first_values(config: pytest.Config, items: Sequence[pytest.Item]) -> FirstValues:
    """The first M values of the parameter that each suite's mark names.

    The result is empty unless `--ultrapar-repeats` has the form `NxM`.

    Called before any plugin selects or sorts items, so `-k` selects from the cases that a run
    without `-k` would have.
    """
    options, _ = run_config.settings(config)
    found: FirstValues = {}
    digests = ContentDigests()
    if options.repeats.n_first is None:
        return found
    if options.shard is not None:
        return config.stash.get(first_key, found)
    named: dict[int, object] = {}
    for item in items:
        test = internals.test_identity(item)
        if test not in named:
            named[test] = marked(item, REPEATS_OVER)
        name = named[test]
        if not isinstance(name, str):
            continue
        value = internals.parameters(item).get(name, internals.NO_VALUE)
        if value is not internals.NO_VALUE:
            values = found.setdefault((item.path, name), set())
            if len(values) < options.repeats.n_first:
                values.add(digests.key(value))
    return found


def deselect(config: pytest.Config, items: list[pytest.Item], first: FirstValues) -> None:
    """Deselect the cases that the options do not select, and collect errors in marks.

    This function deselects:

    - cases of models that `--ultrapar-model` does not select
    - cases whose value for the parameter in `repeats_over` is not among the first M
    - cases whose earlier result `--ultrapar-only` does not select
    - the skipped item that pytest makes for a test if one of its parameters has no values
    """
    options, pool = run_config.settings(config)
    others = frozenset(pool.models).difference(run_config.models(config))
    wanted = again(config)
    # For each test: whether its items are cases, and the parameter that its mark names.
    tests: dict[int, tuple[bool, object]] = {}
    digests = ContentDigests()
    kept: list[pytest.Item] = []
    for item in items:
        test = internals.test_identity(item)
        if test not in tests:
            tests[test] = is_case, counted = bool(prefetched_of(item)), marked(item, REPEATS_OVER)
            fault = _repeats_fault(item, counted, options) if is_case else None
            if fault is not None:
                config.stash.setdefault(mark_faults_key, []).append(fault)
        is_case, counted = tests[test]
        unwanted = is_case and _is_unwanted(item, others)
        values = first.get((item.path, counted)) if isinstance(counted, str) else None
        if is_case and values is not None and not unwanted:
            unwanted = digests.key(parameter(item, str(counted))) not in values
        if wanted is not None and not unwanted:
            unwanted = not is_case or case_id_of(item, wanted.seed) not in wanted.ids
        if not unwanted:
            kept.append(item)
    keep(items, kept)


def _is_unwanted(item: pytest.Item, others: Container[object]) -> bool:
    # Compare by identity, because a parameter's value may be of a type that cannot be compared or
    # hashed.
    if any(value is internals.NO_VALUE for value in internals.parameters(item).values()):
        return True
    model = parameter(item, "model")
    return isinstance(model, str) and model in others


def _repeats_fault(item: pytest.Item, counted: object, options: Options) -> str | None:
    where = item.nodeid.split("[")[0]
    own = list(params_of(item))
    allowed = f"the parameters are {', '.join(own)}" if own else "the test has no parameters"
    if counted is not None and counted not in own:
        return f"{where}: mark ultrapar({REPEATS_OVER}={counted!r}) names no parameter: {allowed}"
    repeats = options.repeats
    if counted is None and repeats.n_first is not None:
        return (
            f"{where}: {repeats} ({options.origin['repeats']}) uses the first {repeats.n_first} "
            f"values of a parameter, but the suite names none; name one in pytest.mark."
            f'ultrapar({REPEATS_OVER}="...") ({allowed}), or repeat all values {repeats.n} times'
        )
    return None


class SelectedCases(NamedTuple):
    """The selection of `--ultrapar-only`: case ids of an earlier run, made with that run's seed."""

    run_id: str
    seed: int
    ids: frozenset[str]


again_key = pytest.StashKey[SelectedCases]()


def again(config: pytest.Config) -> SelectedCases | None:
    """The selection of `--ultrapar-only`; None without the option."""
    given = getattr(config, "workerinput", {}).get(INPUT)
    if given is None:
        return config.stash.get(again_key, None)
    return given["again"] and SelectedCases(*given["again"])


# -- then: a sample --------------------------------------------------------------------------------


def draw_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect all repetitions of the cells that are not in the sample.

    A larger sample contains each smaller sample. All models, and all tests with the same
    parameters, get the same cells, so that they can be compared. A cell is drawn before the cells
    that wait for it.
    """
    options, _ = run_config.settings(config)
    seed, sample = options.seed, options.sample
    if sample is None:
        return
    percent = float(sample[:-1]) if sample.endswith("%") else None
    stages: dict[int, list[int]] = {}
    groups: dict[tuple[int, str, str], dict[str, bytes]] = {}
    cells: dict[int, tuple[tuple[int, str, str], str]] = {}
    for item in items:
        test = internals.test_identity(item)
        if test not in stages:
            stages[test] = [*map(stage_of, prefetched_of(item))]
        if stages[test]:
            name, _, cell = item.name.partition("[")
            cell = cell.removesuffix(f"r{parameter(item, REPEAT)}]")
            model = str(parameter(item, "model"))
            group = stages[test][0], item.nodeid.removesuffix(item.name) + name, model
            cells[id(item)] = group, cell
            lot = f"{seed}/{cell.replace(model, '', 1)}".encode("utf-8", "surrogatepass")
            groups.setdefault(group, {})[cell] = blake2b(lot).digest()
    # Draw the first cell of each group, then the second cell of each group, and so on.
    drawn = sorted(
        (place, group, cell)
        for group, lots in groups.items()
        for place, cell in enumerate(sorted(lots, key=lots.__getitem__))
        if percent is None or place < math.ceil(round(len(lots) * percent / 100, 6))
    )
    asked = {None, *((group, cell) for _, group, cell in drawn[: None if percent else int(sample)])}
    kept = [item for item in items if cells.get(id(item)) in asked]
    if len(kept) < len(items):
        config.stash[generated_key] = Generated(len(cells))
    keep(items, kept)


# -- then: answers that suites share ---------------------------------------------------------------

Question = tuple[str, str, int, tuple[tuple[str, str], ...]]
"""The identity of a case's requests: the suite, model, repetition, parameters, and digests of
parameter values. Cases with the same question send the same requests."""
reused_key = pytest.StashKey[dict[Question, str]]()
"""The questions that an earlier run answered, and the ids of their cases. Workers do not read them
from here, but from the run directory."""
_shared_key = pytest.StashKey[list[Shared]]()
REUSED_FILE = "reused.json"


def deselect_shared(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases of suites that take their answers from another suite.

    Called after `-k`, `-m` and `--ultrapar-model` have deselected cases, because a deselected case
    of the other suite provides no answer. If a case of this session and a case of an earlier run
    both provide an answer, the case of this session is used.

    Args:
        config: pytest's configuration.
        items: The selected items; changed in place.
    """
    options, _ = run_config.settings(config)
    repeats = options.repeats.n
    sources: dict[int, str | None] = {}
    for item in items:
        test = internals.test_identity(item)
        if test not in sources:
            source = marked(item, TAKEN_FROM)
            is_other = isinstance(source, str) and source != suite_at(item.path)
            sources[test] = source if is_other else None
    wanted = {source for source in sources.values() if source is not None}
    if not wanted:
        return
    answered = reused(config)
    digests = ContentDigests()
    asked: dict[Question, pytest.Item] = {}
    for item in items:
        if (suite := suite_at(item.path)) in wanted and internals.will_not_run(item) is None:
            asked.setdefault(_question_of(item, suite, repeats, content_of(item, digests)), item)
    kept: list[pytest.Item] = []
    # These dictionaries serve as ordered sets.
    ids: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for item in items:
        source = sources[internals.test_identity(item)]
        # The answer may come from an earlier version of this plugin that stored no digests.
        contents = () if source is None else (content_of(item, digests), {})
        questions = (_question_of(item, str(source), repeats, each) for each in contents)
        question = next((one for one in questions if one in asked or one in answered), None)
        if question is None:
            kept.append(item)
            continue
        here, earlier = ids.setdefault(suite_at(item.path), ({}, {}))
        if question in asked:
            here[case_id_of(asked[question], options.seed)] = None
        else:
            earlier[answered[question]] = None
    keep(items, kept)
    config.stash[_shared_key] = [
        Shared(suite, tuple(here), tuple(earlier)) for suite, (here, earlier) in ids.items()
    ]


def _question_of(item: pytest.Item, suite: str, repeats: int, content: dict[str, str]) -> Question:
    """The question that an item would have if it were in `suite`."""
    return _question(
        suite, str(parameter(item, "model")), repetition(item, repeats), params_of(item) | content
    )


def question_of_case(case: Case) -> Question:
    """The question of a case of this or an earlier run."""
    return _question(case.suite, case.model, case.repeat, case.params | case.content)


def _question(suite: str, model: str, repeat: int, params: Mapping[str, Scalar]) -> Question:
    # Compare by `repr`: 0.8 reads the same in JSON and in Python, while 1, 1.0 and True are three
    # different values.
    return suite, model, repeat, tuple(sorted((name, repr(own)) for name, own in params.items()))


def shared(config: pytest.Config) -> list[Shared]:
    """The answers that suites take from other suites. They are known after collection."""
    return config.stash.get(_shared_key, [])


def reused(config: pytest.Config) -> dict[Question, str]:
    """The questions that the run in --ultrapar-reuse answered, and the ids of their cases."""
    given = getattr(config, "workerinput", {}).get(INPUT)
    if given is not None:
        return read_reused(Path(given["directory"]))
    return config.stash.get(reused_key, {})


def write_reused(directory: Path, reused: Mapping[Question, str]) -> None:
    """Write the questions that an earlier run answered, for workers that start later.

    Raises:
        ResultsError: The file cannot be written.
    """
    # If no answers are reused, remove a file that was left by a session that ended before its first
    # episode.
    text = msgspec.json.encode(sorted(reused.items())) if reused else None
    write_whole(directory / REUSED_FILE, text)


def read_reused(directory: Path) -> dict[Question, str]:
    """Read the questions that an earlier run answered, and the ids of their cases; may be empty.

    Raises:
        ResultsError: The file cannot be read or does not contain such questions.
    """
    wrong = "does not contain the answered questions of an earlier run"
    return dict(read_whole(directory / REUSED_FILE, list[tuple[Question, str]], (), wrong))


# -- finally: the cases of a run -------------------------------------------------------------------


def collect_run(config: pytest.Config, items: Sequence[pytest.Item], directory: Path) -> Collected:
    """Collect a run's cases and write them to its directory; all processes write the same content.

    Raises:
        ConfigError: The suite cannot be used.
        ResultsError: The run's files cannot be read or written.
    """
    collected = collect(config, items, directory)
    if collected.case_ids:
        resumes = run_config.settings(config)[0].resume is not None
        if others := write_cases(directory, collected.cases, resumes=resumes):
            check_same_tests(others, collected.cases)
        write_tables(directory, collected.tables)
        write_shared(directory, shared(config))
        write_generated(directory, config.stash.get(generated_key, None))
    return collected
