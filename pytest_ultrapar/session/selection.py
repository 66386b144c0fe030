"""Which tests become cases of which models, and which of the cases a run asks.

In the order in which pytest gets there: marks are checked and tests parametrised while they are
generated; items that the run does not ask are deselected when all are collected, first by models
and repetitions, then those that no sample draws, then those whose answers another suite or an
earlier run has.
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
from pytest_ultrapar.session.awaited import stage_of
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
from pytest_ultrapar.session.settings import whose
from pytest_ultrapar.session.tests_of_workers import refuse_other_tests
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
"""Of the mark `ultrapar`: the parameter that M of `--ultrapar-repeats NxM` counts."""
TAKEN_FROM = "taken_from"
"""Of the same: the suite whose answers are shared instead of asking again."""
_ARGUMENTS = (CLUSTER, "expect", "meta", "models", REPEATS_OVER, "summary", TAKEN_FROM)
_EXPECT = ("turns", "tokens_in", "tokens_out")
_PATTERN_SIGNS = set("*?[")


# -- while tests are generated ---------------------------------------------------------------------


def parametrize_models(metafunc: pytest.Metafunc) -> bool:
    """Give a test for which something runs ahead its models; returns whether it is one.

    What is wrong with its mark is noted: raised while tests are generated it would be a traceback
    and exit code 2.
    """
    if not internals.prefetched_for(metafunc):
        return False
    for mark in metafunc.definition.iter_markers("ultrapar"):
        for fault in mark_faults(mark):
            _note_fault(metafunc, fault)
    if internals.takes_our_model(metafunc) and not _by_hand(metafunc):
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
    # None of what is neither, which its mark's fault says.
    listed = [patterns] if isinstance(patterns, str) else patterns if are_names(patterns) else []
    _, pool = run_config.settings(metafunc.config)
    for pattern in listed:
        # A name that is not there is a slip of the pen; a family without a member in this pool is
        # a suite that has nothing to do here.
        is_name = not _PATTERN_SIGNS.intersection(pattern)
        if is_name and pattern not in pool.subjects:
            _note_fault(
                metafunc,
                f"mark ultrapar(...) names {pattern!r}, which matches no model "
                f"{whose(pool, pool.subjects)}",
            )
    return [name for name in selected if any(fnmatchcase(name, one) for one in listed)]


def _note_fault(metafunc: pytest.Metafunc, what: str) -> None:
    faults = metafunc.config.stash.setdefault(mark_faults_key, [])
    faults.append(f"{metafunc.definition.nodeid}: {what}")


def parametrize_repeats(metafunc: pytest.Metafunc) -> None:
    """Give a case its repetitions.

    They are always a parameter, also when there is one: the first repetition of a case then has the
    same id in a run of one and in a run of twenty.
    """
    options, _ = run_config.settings(metafunc.config)
    if REPEAT not in metafunc.fixturenames:
        # pytest refuses to parametrise over what a test does not use
        # (`Metafunc._validate_if_using_arg_names`).
        metafunc.fixturenames.append(REPEAT)
    numbers = range(options.repeats.n)
    metafunc.parametrize(REPEAT, numbers, ids=[f"r{number}" for number in numbers])


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


def _value_fault(name: str, value: object) -> str | None:
    if name == "models" and not isinstance(value, str) and not are_names(value):
        return f" must be a pattern such as 'qwen*', or a list of patterns (got {value!r})"
    if name == "summary" and not (are_names(value) and value and len({*value}) == len(value)):
        return f" must be a tuple of names such as ('model', 'repeat'), each once (got {value!r})"
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
"""By test file and parameter, the first distinct values in the order of collection."""
first_key = pytest.StashKey[FirstValues]()
"""Those of all shards: the items of one do not tell."""
generated_key = pytest.StashKey[Generated]()
"""What all shards together are of, or a sample is; for these only."""


def first_values(config: pytest.Config, items: Sequence[pytest.Item]) -> FirstValues:
    """The first M values of the parameter that each suite counts; empty without `NxM`.

    Asked before any plugin selects or sorts items, so that `-k` picks from what runs without it.
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
    """Leave out the cases that this run does not ask for; note what is wrong with marks.

    Left out are cases of models that `--ultrapar-model` does not select, cases whose counted
    parameter has none of its first values, what did not end as `--ultrapar-only` says, and the one
    item, which it would skip, that pytest makes
    of a test when one of its parameters has no value at all.
    """
    options, pool = run_config.settings(config)
    others = frozenset(pool.models).difference(run_config.models(config))
    wanted = again(config)
    # By test: whether it is a case, and what its mark names as counted.
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
    # By identity: a parameter's value may be anything, also what cannot be compared or hashed.
    if any(value is internals.NO_VALUE for value in internals.parameters(item).values()):
        return True
    model = parameter(item, "model")
    return isinstance(model, str) and model in others


def _repeats_fault(item: pytest.Item, counted: object, options: Options) -> str | None:
    where = item.nodeid.split("[")[0]
    own = list(params_of(item))
    allowed = f"its parameters are {', '.join(own)}" if own else "it has no parameters"
    if counted is not None and counted not in own:
        return f"{where}: mark ultrapar({REPEATS_OVER}={counted!r}) names no parameter; {allowed}"
    repeats = options.repeats
    if counted is None and repeats.n_first is not None:
        return (
            f"{where}: {repeats} ({options.origin['repeats']}) takes the first {repeats.n_first} "
            f"values of a parameter, but the suite does not say of which; mark it with "
            f'pytest.mark.ultrapar({REPEATS_OVER}="..."), where {allowed}, or ask for '
            f"{repeats.n}"
        )
    return None


class Again(NamedTuple):
    """What `--ultrapar-only` selects: cases of an earlier run, by ids that are made of its seed."""

    run_id: str
    seed: int
    ids: frozenset[str]


again_key = pytest.StashKey[Again]()


def again(config: pytest.Config) -> Again | None:
    """What `--ultrapar-only` selects; None where it is not given."""
    given = getattr(config, "workerinput", {}).get(INPUT)
    if given is None:
        return config.stash.get(again_key, None)
    return given["again"] and Again(*given["again"])


# -- then: a sample --------------------------------------------------------------------------------


def draw_sample(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cells that are not of the sample, with all repetitions of each.

    A larger sample holds all of a smaller one. Models and tests that have the same parameters get
    the same of them, so that they can be compared; where one waits for the other, the other first.
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
    # The first of each group, then the second of each, ...
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
"""What tells whether two cases ask the same: suite, model, repetition, parameters with what they
hold."""
reused_key = pytest.StashKey[dict[Question, str]]()
"""Questions that an earlier run answered, and the ids of the cases that did; workers read them from
the run directory instead."""
_shared_key = pytest.StashKey[list[Shared]]()
REUSED_FILE = "reused.json"


def deselect_shared(config: pytest.Config, items: list[pytest.Item]) -> None:
    """Deselect the cases whose suite shares the answers of another one, as `-k` leaves out tests.

    Called after `-k`, `-m` and --ultrapar-model have left out theirs: what they left out of the
    other suite is not shared. What this session asks itself goes before what an earlier run has.

    Args:
        config: pytest's.
        items: What is selected; changed in place.
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
    # Dictionaries for their keys, each once and in order.
    ids: dict[str, tuple[dict[str, None], dict[str, None]]] = {}
    for item in items:
        source = sources[internals.test_identity(item)]
        # An earlier version that answered it kept no digests.
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
    """The question that an item asks, as if it were one of `suite`."""
    return _question(
        suite, str(parameter(item, "model")), repetition(item, repeats), params_of(item) | content
    )


def question_of_case(case: Case) -> Question:
    """The question of a case of this or an earlier run."""
    return _question(case.suite, case.model, case.repeat, case.params | case.content)


def _question(suite: str, model: str, repeat: int, params: Mapping[str, Scalar]) -> Question:
    # By `repr`: 0.8 is 0.8 in JSON and in Python, and 1, 1.0 and True are three values.
    return suite, model, repeat, tuple(sorted((name, repr(own)) for name, own in params.items()))


def shared(config: pytest.Config) -> list[Shared]:
    """What suites share instead of asking it; known when pytest has collected."""
    return config.stash.get(_shared_key, [])


def reused(config: pytest.Config) -> dict[Question, str]:
    """The questions that the run named by --ultrapar-reuse answered, and the cases that did."""
    given = getattr(config, "workerinput", {}).get(INPUT)
    if given is not None:
        return read_reused(Path(given["directory"]))
    return config.stash.get(reused_key, {})


def write_reused(directory: Path, reused: Mapping[Question, str]) -> None:
    """Leave what an earlier run answered where workers find it. Called before they start.

    Raises:
        ResultsError: It cannot be written.
    """
    # Left by a session that never got as far as its first episode, it would be believed.
    text = msgspec.json.encode(sorted(reused.items())) if reused else None
    write_whole(directory / REUSED_FILE, text)


def read_reused(directory: Path) -> dict[Question, str]:
    """What an earlier run answered, and the case that did; empty when none is reused.

    Raises:
        ResultsError: It cannot be read, or is something else.
    """
    wrong = "does not hold what an earlier run answered"
    return dict(read_whole(directory / REUSED_FILE, list[tuple[Question, str]], (), wrong))


# -- at last: the cases of a run -------------------------------------------------------------------


def collect_run(config: pytest.Config, items: Sequence[pytest.Item], directory: Path) -> Collected:
    """The cases of a run, left where other processes and readers find them; all write the same.

    Raises:
        ConfigError: The suite cannot be used.
        ResultsError: The run's files cannot be read or written.
    """
    collected = collect(config, items, directory)
    if collected.case_ids:
        resumes = run_config.settings(config)[0].resume is not None
        if others := write_cases(directory, collected.cases, resumes=resumes):
            refuse_other_tests(others, collected.cases)
        write_tables(directory, collected.tables)
        write_shared(directory, shared(config))
        write_generated(directory, config.stash.get(generated_key, None))
    return collected
