"""The settings of a run: command line, environment, configuration file and pool, checked."""

from __future__ import annotations

import os
from dataclasses import dataclass, field
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.options import (
    DEFAULT_COVERAGE,
    DEFAULT_EPISODE_TIMEOUT_S,
    DEFAULT_MAX_ATTEMPTS,
    LANE_CHECKS,
)
from pytest_ultrapar.policy_names import ONE_AT_A_TIME, read_offered, settle_policy
from pytest_ultrapar.pool.environment import (
    Environment,
    Overrides,
    Repeats,
    option_of,
    parse_repeats,
    read_environment,
    resolve,
)
from pytest_ultrapar.pool.fields import PROCESS_NUM, Location, shown
from pytest_ultrapar.pool.model import EffectiveValue, Pool

if TYPE_CHECKING:
    from collections.abc import Sequence

    import pytest


_DIGITS = 18
_WORDS = ("off", "all")


@dataclass(frozen=True, slots=True)
class WhichLog:
    """Which workers write a debug log.

    Attributes:
        is_on: Whether any does.
        number: Only this one, from 1: `gw0` is 1, `gw1` is 2; without xdist `main` is 1. None takes
            all. The documents count their shards so, and their `DEBUG_PROCESS_NUM=1` then means a
            process that there is in every run.
        place: Where `number` stands, for the message when there is no such worker.
    """

    is_on: bool = False
    number: int | None = None
    location: Location | None = None

    @property
    def setting(self) -> int | str:
        """As the user writes it: `off`, `all`, or a number."""
        if not self.is_on:
            return "off"
        return "all" if self.number is None else self.number

    def includes(self, worker: str) -> bool:
        """Whether the worker of that name writes one."""
        return self.is_on and self.number in {None, number_of(worker)}

    def check(self, n_workers: int) -> None:
        """Make sure that the one worker is among those that the run starts.

        Raises:
            ConfigError: There are fewer.
        """
        if self.location is not None and self.number is not None and self.number > n_workers:
            self.location.refuse(
                f"must be between 1 and {n_workers}, the number of worker processes "
                f"(got {self.number})"
            )


def number_of(worker: str) -> int:
    """A worker's number from 1: `gw0` and `main` are 1, `gw1` is 2."""
    digits = worker.removeprefix("gw")
    return int(digits) + 1 if digits.isdecimal() else 1


def parse_which(location: Location, text: str) -> WhichLog:
    """The workers that `all`, `off` or a number from 1 mean.

    Raises:
        ConfigError: It is none of them.
    """
    if text in _WORDS:
        return WhichLog(text == "all")
    if not (text.isascii() and text.isdecimal() and 0 < len(text) <= _DIGITS):
        location.refuse(
            'must be "all", "off" or the number of one worker process, from 1 for the first '
            f"(got {shown(text)})"
        )
    return WhichLog(is_on=True, number=PROCESS_NUM.check(location, int(text)), location=location)


def in_environment(environment: Environment) -> tuple[WhichLog, str]:
    """What `DEBUG_LOG` and `DEBUG_PROCESS_NUM` ask for, and its origin.

    `DEBUG_PROCESS_NUM` alone asks for nothing: it says whose log, not that there is one.
    """
    if environment.debug_log is None:
        return WhichLog(), "default"
    if not environment.debug_log or environment.debug_process_num is None:
        return WhichLog(environment.debug_log), "environment DEBUG_LOG"
    location = Location("environment", "DEBUG_PROCESS_NUM")
    which = WhichLog(is_on=True, number=environment.debug_process_num, location=location)
    return which, "environment DEBUG_LOG and DEBUG_PROCESS_NUM"


Mode = Literal["serial", "rotate", "phase", "ultra"]
KeyLock = Literal["wait", "fail"]
LaneCheck = Literal["fail", "warn"]


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, settled: command line over environment over pool file over default.

    Attributes:
        out: The run's own directory, or None for a new one below `.ultrapar`.
        models: Patterns of model names; empty selects all.
        repeats: Repetitions of each cell, >= 1.
        repeats_first: Only cells with one of so many first values of the parameter that the
            suite's mark names (`repeats_over`), >= 1; None takes all.
        coverage: Least share of planned cases that must be graded, 0 to 1.
        baseline: Cases that run one at a time first, >= 1; None for none.
        gate: Rules that the run must keep, as they were given.
        gate_baseline: The earlier run that they compare with, or `latest`; with it and no rule the
            default ones hold.
        gate_undecided: Whether a run passes or fails with rules that nothing decides.
        resume: An interrupted run to finish, or `latest`.
        reuse: A finished run whose answers are taken over, or `latest`.
        key_lock: What to do while another run of the host has one of the keys.
        check: What to do where a lane does not answer before the first case; None: it is not asked.
        simulator: URL of a simulated provider that already runs.
        debug_log: Which workers write a debug log.
        faults: What goes wrong at the run's own simulated provider.
        effective: Every setting here with its origin.
    """

    out: Path | None
    models: tuple[str, ...]
    repeats: int
    seed: int
    mode: Mode
    policy: str
    storage: Literal["parquet", "json"]
    coverage: float
    episode_timeout_s: float
    max_attempts: int
    resume: str | None
    reuse: str | None
    simulator: str | None
    effective: tuple[EffectiveValue, ...]
    repeats_first: int | None = None
    baseline: int | None = None
    debug_log: WhichLog = field(default_factory=WhichLog)
    gate: tuple[str, ...] = ()
    gate_baseline: str | None = None
    gate_undecided: Literal["pass", "fail"] = "pass"
    key_lock: KeyLock = "wait"
    check: LaneCheck | None = None
    faults: Path | None = None


def read_overrides(config: pytest.Config) -> Overrides:
    """What the command line says about the pool.

    Raises:
        ConfigError: A value is not allowed.
    """
    max_workers = config.getoption("ultrapar_max_workers")
    if max_workers is not None:
        _within("max-workers", max_workers, 1, 100_000)
    return Overrides(max_workers=max_workers, rate_mode=config.getoption("ultrapar_rate_mode"))


def read_options(config: pytest.Config, pool: Pool) -> Options:
    """All settings, checked.

    Raises:
        ConfigError: A value is not allowed, or two of them contradict each other.
    """
    environment = read_environment(os.environ)

    def given(name: str) -> Any:  # noqa: ANN401 - argparse knows the types
        return config.getoption(f"ultrapar_{name}")

    repeats, repeats_origin = _repeats(given("repeats"), environment, pool)
    debug_log, debug_log_origin = _debug_log(given("debug_log"), environment)
    storage = resolve(
        "storage",
        command_line=given("storage"),
        environment=environment.storage_format,
        file=None,
        default="parquet",
    )
    mode = resolve(
        "mode",
        command_line=given("mode"),
        environment=_mode_of(environment),
        file=None,
        default="ultra",
    )
    plain: dict[str, str | float] = {
        "seed": 0,
        "key_lock": "wait",
        "policy": _policy(config, given("policy"), cast("Mode", mode.value)),
        "max_attempts": DEFAULT_MAX_ATTEMPTS,
        "episode_timeout": DEFAULT_EPISODE_TIMEOUT_S,
        "coverage": DEFAULT_COVERAGE,
    }
    settled = {
        name: resolve(name, command_line=given(name), environment=None, file=None, default=default)
        for name, default in plain.items()
    }
    values: dict[str, Any] = {name: effective.value for name, effective in settled.items()}
    options = Options(
        out=Path(given("out")) if given("out") else None,
        models=tuple(given("model") or ()),
        repeats=repeats.n,
        repeats_first=repeats.n_first,
        seed=values["seed"],
        mode=cast("Mode", mode.value),
        policy=values["policy"],
        storage=cast("Any", storage.value),
        coverage=values["coverage"],
        episode_timeout_s=values["episode_timeout"],
        max_attempts=values["max_attempts"],
        resume=given("resume"),
        reuse=given("reuse"),
        simulator=given("simulator"),
        baseline=given("baseline"),
        debug_log=debug_log,
        key_lock=values["key_lock"],
        check=_lane_check(given("check")),
        gate=tuple(given("gate") or ()),
        gate_baseline=given("gate_baseline"),
        gate_undecided=_gate_undecided(config),
        faults=Path(given("faults")) if given("faults") else None,
        effective=(
            mode,
            repeats_origin,
            storage,
            *settled.values(),
            *_only_if_given("baseline", given("baseline")),
            *_only_if_given("check", given("check")),
            debug_log_origin,
        ),
    )
    _check(options)
    _check_baseline(options, mode)
    return options


def selected_models(
    pool: Pool, patterns: Sequence[str], *, option: str = "--ultrapar-model"
) -> tuple[str, ...]:
    """The pool's models that match a pattern, in the pool's order; all without a pattern.

    Args:
        pool: The pool.
        patterns: As a shell has them.
        option: Which option gave them, for messages.

    Raises:
        ConfigError: A pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in pool.models):
            msg = (
                f"{option} {pattern!r} matches no model of {pool.path}; "
                f"it has {', '.join(pool.models)}"
            )
            raise ConfigError(msg)
    if not patterns:
        return pool.models
    return tuple(
        name for name in pool.models if any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _policy(config: pytest.Config, word: str | None, mode: Mode) -> str:
    answers = config.hook.pytest_ultrapar_policies(config=config, mode=mode)
    return settle_policy(word, mode=mode, offered=read_offered(answers))


def _mode_of(environment: Environment) -> str | None:
    if environment.use_concurrent is None:
        return None
    return "ultra" if environment.use_concurrent else "rotate"


def _repeats(given: object, environment: Environment, pool: Pool) -> tuple[Repeats, EffectiveValue]:
    location = Location("command line", option_of("repeats"))
    command_line = None if given is None else parse_repeats(location, str(given).strip())
    in_force = command_line or environment.num_instances or Repeats(pool.repeats or 1)
    return in_force, resolve(
        "repeats",
        command_line=command_line.setting if command_line else None,
        environment=environment.num_instances.setting if environment.num_instances else None,
        file=pool.repeats,
        default=1,
        file_name=Path(pool.path).name,
    )


def _debug_log(given: object, environment: Environment) -> tuple[WhichLog, EffectiveValue]:
    if given is not None:
        which = parse_which(Location("command line", option_of("debug_log")), str(given).strip())
        return which, EffectiveValue(
            "debug_log", which.setting, f"command line {option_of('debug_log')}"
        )
    which, origin = in_environment(environment)
    return which, EffectiveValue("debug_log", which.setting, origin)


def _gate_undecided(config: pytest.Config) -> Literal["pass", "fail"]:
    given: Literal["pass", "fail"] | None = config.getoption("ultrapar_gate_undecided")
    is_judged = config.getoption("ultrapar_gate") or config.getoption("ultrapar_gate_baseline")
    if given is not None and not is_judged:
        msg = (
            f"{option_of('gate_undecided')} {given} has nothing to judge: give "
            "--ultrapar-gate RULE, or --ultrapar-gate-baseline RUN for the default rules"
        )
        raise ConfigError(msg)
    return given or "pass"


def _check(options: Options) -> None:
    _within("seed", options.seed, 0, 2**63 - 1)
    _within("max-attempts", options.max_attempts, 1, 100)
    _within("episode-timeout", options.episode_timeout_s, 0.001, 7 * 86_400)
    _within("coverage", options.coverage, 0, 1)
    if options.resume and options.out:
        msg = "--ultrapar-resume names the run's directory already; leave --ultrapar-out away"
        raise ConfigError(msg)


def _only_if_given(name: str, given: int | str | None) -> tuple[EffectiveValue, ...]:
    if given is None:
        return ()
    return (EffectiveValue(name, given, f"command line {option_of(name)}"),)


def _lane_check(given: str | None) -> LaneCheck | None:
    if given is not None and given not in LANE_CHECKS:
        # pytest's parser takes whatever follows the option for its word.
        msg = (
            f"{option_of('check')} takes {' or '.join(LANE_CHECKS)} (got {given!r}); before the "
            f"path of a suite write {option_of('check')}={LANE_CHECKS[0]}"
        )
        raise ConfigError(msg)
    return cast("LaneCheck | None", given)


def _check_baseline(options: Options, mode: EffectiveValue) -> None:
    given = f"{option_of('baseline')} {options.baseline}"
    if options.baseline is None:
        return
    if options.baseline < 1:
        msg = f"{given}: a sample has at least one case; leave the option out to have none"
        raise ConfigError(msg)
    if options.mode in ONE_AT_A_TIME:
        msg = (
            f"{given} has no sense in mode {mode.value} ({mode.origin}), which runs all cases one "
            "at a time; leave it out, or choose mode ultra or phase"
        )
        raise ConfigError(msg)
    if options.resume:
        msg = (
            f"{given} cannot be used together with --ultrapar-resume: what a run has measured "
            "serially stays as it is; leave the option out"
        )
        raise ConfigError(msg)


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        msg = f"--ultrapar-{name} must be between {least:g} and {most:g} (got {value})"
        raise ConfigError(msg)
