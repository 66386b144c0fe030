"""The options of the plugin: declared once, read once, each with the origin of its value."""

from __future__ import annotations

import os
from collections.abc import Sequence
from dataclasses import dataclass
from fnmatch import fnmatchcase
from pathlib import Path
from typing import TYPE_CHECKING, Any, Literal, cast

import pytest

from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from pytest_ultrapar.pool.environment import Environment, Overrides
    from pytest_ultrapar.pool.model import EffectiveValue, Pool

Mode = Literal["serial", "rotate", "ultra"]
MODES: tuple[Mode, ...] = ("serial", "rotate", "ultra")
POLICIES = ("even", "by-key", "by-model", "round-robin")
DEFAULT_COVERAGE = 0.98
DEFAULT_EPISODE_TIMEOUT_S = 900.0
DEFAULT_MAX_ATTEMPTS = 3


@dataclass(frozen=True, slots=True)
class Options:
    """What the user asked for, settled: command line over environment over pool file over default.

    Attributes:
        pool: Path of the pool file, as given.
        out: The run's own directory, or None for a new one below `.ultrapar`.
        models: Patterns of model names; empty selects all.
        repeats: Repetitions of each cell, >= 1.
        coverage: Least share of planned cases that must be graded, 0 to 1.
        resume: An interrupted run to finish, or `latest`.
        simulator: URL of a simulated provider that already runs.
        effective: Every setting here with its origin.
    """

    pool: Path
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
    simulator: str | None
    overrides: Overrides
    effective: tuple[EffectiveValue, ...]


def add_options(parser: pytest.Parser) -> None:
    """Declare the options and their ini twins. Called once by pytest at start-up."""
    group = parser.getgroup("ultrapar", "LLM evaluations on a pool of API keys (pytest-ultrapar)")

    def option(name: str, help_text: str, **settings: Any) -> None:  # noqa: ANN401
        group.addoption(
            f"--ultrapar-{name}",
            dest="ultrapar_" + name.replace("-", "_"),
            default=settings.pop("default", None),
            help=help_text,
            **settings,
        )

    option("pool", "Pool of providers, keys and limits to run on (ini: ultrapar_pool). Without it nothing of this plugin acts.", metavar="FILE")
    option("out", "The run's own directory (default: .ultrapar/<time>-<id>, with .ultrapar/latest pointing at it).", metavar="DIR")
    option("model", "Only models whose name matches; may be repeated, patterns such as 'qwen*' work (default: all of the pool).", metavar="PATTERN", action="append")
    option("repeats", "Repetitions of each cell (default: 1; environment: NUM_INSTANCES).", metavar="N", type=int)
    option("seed", "Seed of the run: same suite, pool of models and seed give the same cases and prompts (default: 0).", metavar="N", type=int)
    option("mode", "How cases meet lanes: 'serial' one at a time on one lane, 'rotate' one at a time over all lanes in turn, 'ultra' all that the pool allows (default: ultra; USE_CONCURRENT=false means rotate).", choices=MODES)
    option("policy", "Which workers call which keys and instances home (default: even).", choices=POLICIES)
    option("rate-mode", "Which of a limit's values hold (default: fixed; environment: RATE_MODE).", choices=("fixed", "adaptive"))
    option("max-workers", "Requests in flight over the whole pool at most (default: as the pool says; environment: MAX_WORKERS).", metavar="N", type=int)
    option("max-attempts", f"Tries of one request before its case is 'infra'; 1 never tries again (default: {DEFAULT_MAX_ATTEMPTS}).", metavar="N", type=int)
    option("episode-timeout", f"Deadline of one episode, all waiting included (default: {DEFAULT_EPISODE_TIMEOUT_S:g}).", metavar="SECONDS", type=float)
    option("coverage", f"Least share of planned cases that must be graded, else exit code 1 (default: {DEFAULT_COVERAGE}).", metavar="SHARE", type=float)
    option("storage", "Format of the results (default: parquet; environment: STORAGE_FORMAT).", choices=("parquet", "json"))
    option("resume", "Finish an interrupted run: its directory, or 'latest'. Name the same suite and pool again; finished episodes cost no request.", metavar="RUN")
    option("simulator", "Use a simulated provider that 'ultrapar simulate' already runs, instead of starting one.", metavar="URL")
    parser.addini("ultrapar_pool", "Pool file, as --ultrapar-pool.", default="")


def pool_path(config: pytest.Config) -> Path | None:
    """The pool file that was asked for, or None when this plugin has nothing to do."""
    given = config.getoption("ultrapar_pool")
    if given:
        return Path(given)
    ini = config.getini("ultrapar_pool")
    if not ini:
        return None
    path = Path(ini)
    return path if path.is_absolute() or config.inipath is None else config.inipath.parent / path


def read_options(config: pytest.Config) -> Options:
    """All settings, checked.

    Raises:
        ConfigError: A value is not allowed, or two of them contradict each other.
    """
    # Every pytest run imports this module to declare options; only runs with a pool come here.
    from pytest_ultrapar.pool.environment import (  # noqa: PLC0415
        Overrides,
        read_environment,
        resolve,
    )

    path = pool_path(config)
    assert path is not None
    environment = read_environment(os.environ)

    def given(name: str) -> Any:  # noqa: ANN401 - argparse knows the types
        return config.getoption(f"ultrapar_{name}")

    repeats = resolve("repeats", command_line=given("repeats"), environment=environment.num_instances, file=None, default=1)
    storage = resolve("storage", command_line=given("storage"), environment=environment.storage_format, file=None, default="parquet")
    mode = resolve("mode", command_line=given("mode"), environment=_mode_of(environment), file=None, default="ultra")
    plain = {
        "seed": 0,
        "policy": "even",
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
        pool=path,
        out=Path(given("out")) if given("out") else None,
        models=tuple(given("model") or ()),
        repeats=cast("int", repeats.value),
        seed=values["seed"],
        mode=cast("Mode", mode.value),
        policy=values["policy"],
        storage=cast("Any", storage.value),
        coverage=values["coverage"],
        episode_timeout_s=values["episode_timeout"],
        max_attempts=values["max_attempts"],
        resume=given("resume"),
        simulator=given("simulator"),
        overrides=Overrides(max_workers=given("max_workers"), rate_mode=given("rate_mode")),
        effective=(mode, repeats, storage, *settled.values()),
    )
    _check(options)
    return options


def selected_models(pool: Pool, patterns: Sequence[str]) -> tuple[str, ...]:
    """The pool's models that match a pattern, in the pool's order.

    Raises:
        ConfigError: A pattern matches none.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in pool.models):
            msg = f"--ultrapar-model {pattern!r} matches no model of {pool.path}; it has {', '.join(pool.models)}"
            raise ConfigError(msg)
    if not patterns:
        return pool.models
    return tuple(
        name for name in pool.models if any(fnmatchcase(name, pattern) for pattern in patterns)
    )


def _mode_of(environment: Environment) -> str | None:
    if environment.use_concurrent is None:
        return None
    return "ultra" if environment.use_concurrent else "rotate"


def _check(options: Options) -> None:
    _within("repeats", options.repeats, 1, 100_000)
    _within("seed", options.seed, 0, 2**63 - 1)
    _within("max-attempts", options.max_attempts, 1, 100)
    _within("episode-timeout", options.episode_timeout_s, 0.001, 7 * 86_400)
    _within("coverage", options.coverage, 0, 1)
    if options.overrides.max_workers is not None:
        _within("max-workers", options.overrides.max_workers, 1, 100_000)
    if options.resume and options.out:
        msg = "--ultrapar-resume names the run's directory already; leave --ultrapar-out away"
        raise ConfigError(msg)


def _within(name: str, value: float, least: float, most: float) -> None:
    if not least <= value <= most:
        msg = f"--ultrapar-{name} must be between {least:g} and {most:g} (got {value})"
        raise ConfigError(msg)
