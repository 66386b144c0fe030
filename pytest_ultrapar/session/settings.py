"""Read the settings of a run from pytest, and check them against each other."""

from __future__ import annotations

import os
from fnmatch import fnmatchcase
from functools import partial
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError, refuse, unusable
from pytest_ultrapar.pool.field_checks import Location
from pytest_ultrapar.pool.setting_values import Overrides, parse_shard, settle
from pytest_ultrapar.pool.settings import ONE_AT_A_TIME, PHASE, SETTINGS, Mode, Options, Repeats
from pytest_ultrapar.pool.vendors import is_address
from pytest_ultrapar.session.answer_source import PoolLanes, Regrade, Replay, Source, source_of

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence

    import pytest

    from pytest_ultrapar.pool.model import Pool

NO_POLICY = "none"
"""The policy in modes that run one case at a time, because there is nothing to choose."""
_POLICY = Options.policy


def read_overrides(config: pytest.Config) -> Overrides:
    """The settings that change the pool, from the command line and from suites.

    Raises:
        ConfigError: A value is not allowed.
    """
    said = settle(_given(config), {})
    count = partial(config.hook.pytest_ultrapar_prompt_types, config=config)
    return Overrides(said.max_workers, said.rate_mode, said.budget, count)


def read_options(config: pytest.Config, pool: Pool) -> Options:
    """Read and check all settings.

    Raises:
        ConfigError: A value is not allowed, or two of them contradict each other.
    """
    given = _given(config)
    repeats = None if pool.repeats is None else Repeats(pool.repeats)
    file = {"repeats": repeats, "record": pool.record}
    file_name = Path(pool.path).name
    options = settle(given, os.environ, file=file, file_name=file_name)
    answers = config.hook.pytest_ultrapar_policies(config=config, mode=options.mode)
    word = given["policy"]
    options.policy = settle_policy(
        None if word is None else str(word), mode=options.mode, offered=read_offered(answers)
    )
    _settle_shard(options)
    source = source_of(options)
    contradiction = next(_contradictions(options, source, given), None)
    if contradiction is not None:
        raise ConfigError(contradiction)
    if not isinstance(source, PoolLanes):
        _settle_earlier(options, source)
    return options


_FOR_SENDING = ("check", "faults", "simulator")
"""Options that have no effect in a run that sends no requests."""


def _contradictions(options: Options, source: Source, given: Mapping[str, object]) -> Iterator[str]:
    """The reasons why options cannot be used together, as one sentence each."""
    if options.resume and options.out:
        yield "--ultrapar-resume already names the run's directory; leave out --ultrapar-out"
    if options.baseline is not None:
        yield from _of_baseline(options, source)
    if options.shard is not None:
        yield from _of_shard(options)
    if not isinstance(source, PoolLanes):
        yield from _of_earlier_run(options, source)
    if options.keep_changed and not options.resume:
        yield "--ultrapar-keep-changed needs a run to resume: add --ultrapar-resume RUN"
    if options.only_of and not options.only:
        yield f"--ultrapar-only-of {options.only_of} needs --ultrapar-only, which selects cases"
    if given["replay_misses"] is not None and options.replay is None:
        yield (
            f"--ultrapar-replay-misses {options.replay_misses} needs a run to replay: add "
            "--ultrapar-replay RUN, or leave this option out"
        )
    if given["gate_undecided"] is not None and not (options.gate or options.gate_baseline):
        yield (
            f"--ultrapar-gate-undecided {options.gate_undecided} has no effect without rules: add "
            "--ultrapar-gate RULE, or --ultrapar-gate-baseline RUN for the default rules"
        )


def _of_baseline(options: Options, source: Source) -> Iterator[str]:
    given = f"--ultrapar-baseline {options.baseline}"
    if not isinstance(source, PoolLanes):
        yield (
            f"{given} measures speed, but {source.option} takes answers from an earlier run; leave "
            "one of them out"
        )
    if options.mode in ONE_AT_A_TIME:
        yield (
            f"{given} makes no sense in mode {options.mode} ({options.origin['mode']}), which runs "
            "all cases one at a time; leave it out, or choose mode ultra or phase"
        )
    if options.resume:
        yield (
            f"{given} cannot be used together with --ultrapar-resume: the run keeps the serial "
            "sample that it has; leave the option out"
        )


def _of_shard(options: Options) -> Iterator[str]:
    hint = f"cannot be used with shard {options.shard} ({options.origin['shard']})"
    if options.sample is not None:
        yield (
            f"--ultrapar-sample {options.sample} {hint}: a sample is drawn from all cases; "
            "leave one out"
        )
    why = f"{hint}: it measures one machine that has the full limits; leave one out"
    if options.baseline is not None:
        yield f"--ultrapar-baseline {options.baseline} {why}"
    if options.mode == "serial":
        yield f"mode serial ({options.origin['mode']}) {why}"
    if options.gate or options.gate_baseline is not None:
        given = "--ultrapar-gate" if options.gate else "--ultrapar-gate-baseline"
        yield (
            f"{given} {hint}: a gate checks a whole run; merge the shards (ultrapar merge) and run "
            "ultrapar gate on the merged run"
        )


def _of_earlier_run(options: Options, source: Regrade | Replay) -> Iterator[str]:
    others: tuple[str, ...] = ("resume", "reuse", "replay")
    if isinstance(source, Replay):
        others = ("reuse", "plan")
    why = "takes answers from one run"
    if not source.sends:
        others += _FOR_SENDING
        why = "sends no requests and takes all answers from one run"
    for name in others:
        if getattr(options, name):
            yield f"{source.option} {why}; leave out {getattr(Options, name).option}"


def _settle_earlier(options: Options, source: Regrade | Replay) -> None:
    """Use the seed and the repetitions of the earlier run, because they identify its cases."""
    given = source.option
    # Only runs that need these modules import them.
    from pytest_ultrapar.store.manifest import read_manifest  # noqa: PLC0415
    from pytest_ultrapar.store.run_directory import resolve_run  # noqa: PLC0415

    run = resolve_run(source.run)
    if options.out is not None and options.out.resolve() == run.resolve():
        refuse(
            f"{given} and --ultrapar-out name the same run, {run}; leave out --ultrapar-out, or "
            "choose a directory that does not exist yet"
        )
    with unusable(f"{given}: "):
        earlier = read_manifest(run)
    _settle_earlier_shard(options, given, run.name, earlier.shard)
    said = {value.name: value.value for value in earlier.effective}
    taken: dict[str, object] = {"seed": earlier.seed}
    taken["repeats"] = str(said.get("repeats", earlier.repeats))
    if earlier.drawn_from:
        taken["sample"] = said["sample"]
    then = settle(taken, {})
    for name in taken:
        value, own = getattr(then, name), getattr(options, name)
        if options.origin[name] == "default" or own == value:
            setattr(options, name, value)
            options.origin[name] = f"run {run.name}"
            continue
        refuse(
            f"{given}: {run} has {name} {value}, but {options.origin[name]} says {own}; "
            "leave this setting out"
        )


def _settle_earlier_shard(options: Options, given: str, run: str, earlier: str | None) -> None:
    """Use the shard of the earlier run, which has no cases of other shards.

    If the earlier run was not a shard, any shard is allowed.
    """
    if earlier is None:
        return
    if options.shard is None:
        options.shard = parse_shard(Location(run, "shard"), earlier)
        options.origin["shard"] = f"run {run}"
    elif str(options.shard) != earlier:
        refuse(
            f"{given}: run {run} is shard {earlier}, but {options.origin['shard']} says "
            f"{options.shard}; leave this setting out"
        )


def _given(config: pytest.Config) -> dict[str, object]:
    return {row.name: config.getoption(row.dest) for row in SETTINGS if row.option}


def _settle_shard(options: Options) -> None:
    """If the option is `auto`, read from the environment which shard this is.

    Raises:
        ConfigError: The environment does not name a shard.
    """
    if options.shard is None:
        return
    from pytest_ultrapar.pool.shard import settled_shard  # noqa: PLC0415 - few runs are shards

    origin = options.origin["shard"]
    options.shard, options.origin["shard"] = settled_shard(options.shard, os.environ, origin)


def settle_policy(given: str | None, *, mode: Mode, offered: Sequence[str]) -> str:
    """The policy in effect: the given one, or the mode's default.

    Args:
        given: The option's value; None if it was not given.
        mode: The settled mode.
        offered: All results of the hook `pytest_ultrapar_policies`, from this package, conftests
            and plugins. A policy with an argument is offered as `name:ARGUMENT`.

    Raises:
        ConfigError: The policy is unknown or has no effect in this mode, or mode `phase` has no
            policies.
    """
    if mode in ONE_AT_A_TIME:
        if given is None:
            return NO_POLICY
        refuse(
            f"{_POLICY.option} {given!r} has no effect in mode {mode}, which runs one case at a "
            "time; leave it out, or choose mode ultra or phase"
        )
    if mode == PHASE and not offered:
        refuse(
            "--ultrapar-mode phase: no conftest or plugin in this project defines phases (hook "
            "pytest_ultrapar_policies); allowed: serial, rotate, ultra"
        )
    if given is None:
        return offered[0] if mode == PHASE else str(_POLICY.default)
    allowed = list(dict.fromkeys(offered))
    if not any(is_called(given, name) for name in allowed):
        where = f" in mode {mode}" if mode == PHASE else ""
        refuse(f"{_POLICY.option} {given!r} is unknown{where}; allowed: {', '.join(allowed)}")
    return given


def is_called(word: str, name: str) -> bool:
    """Whether a word names a policy: `batch:3` and `batch:` both name `batch:N`."""
    head, colon, _ = name.partition(":")
    return word.startswith(head + colon) if colon else word == name


def read_offered(answers: Iterable[object]) -> list[str]:
    """The names in all results of the hook `pytest_ultrapar_policies`, in their order.

    Raises:
        ConfigError: A result is not a sequence of words.
    """
    names: list[str] = []
    for answer in answers:
        if isinstance(answer, str) or not hasattr(answer, "__iter__"):
            refuse(f"pytest_ultrapar_policies must return a sequence of names (got {answer!r})")
        for name in answer:
            if not isinstance(name, str) or not name or name.split() != [name]:
                refuse(f"pytest_ultrapar_policies: a policy's name must be one word (got {name!r})")
            names.append(name)
    return names


def selected_models(
    pool: Pool, patterns: Sequence[str], among: Sequence[str], *, option: str = "--ultrapar-model"
) -> tuple[str, ...]:
    """The models that match any pattern, in the order of `among`; all if there is no pattern.

    Args:
        pool: The pool.
        patterns: Shell patterns, such as `qwen*`.
        among: Names of models in the pool.
        option: The option that contains the patterns; used in messages.

    Raises:
        ConfigError: A pattern matches no model.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in among):
            # An address may contain a password.
            word = "URL" if "://" in pattern else repr(pattern)
            msg = f"{option} {word} matches no model {models_hint(pool, among)}"
            if is_address(pattern):
                msg += "; to name a model in this form, run without a pool (-o ultrapar_pool=)"
            raise ConfigError(msg)
    if not patterns:
        return tuple(among)
    return tuple(name for name in among if any(fnmatchcase(name, pattern) for pattern in patterns))


def models_hint(pool: Pool, among: Sequence[str]) -> str:
    """The end of a message about a name that is not among these models."""
    cases = " that gets cases" if len(among) < len(pool.models) else ""
    return f"in {pool.path}{cases}; allowed: {', '.join(among)}"
