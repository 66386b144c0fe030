"""The options of the plugin, as pytest's parser sees them."""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    import pytest


MODES = ("serial", "rotate", "phase", "ultra")
POLICIES = ("even", "by-key", "by-model", "round-robin", "exclusive", "batch:N", "serial")
KEY_LOCKS = ("wait", "fail")
LANE_CHECKS = ("fail", "warn")
DEFAULT_COVERAGE = 0.98
DEFAULT_EPISODE_TIMEOUT_S = 900.0
DEFAULT_MAX_ATTEMPTS = 3


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

    option(
        "pool",
        "Pool of providers, keys and limits to run on (ini: ultrapar_pool). Without it nothing of "
        "this plugin acts.",
        metavar="FILE",
    )
    option(
        "out",
        "The run's own directory (default: .ultrapar/<time>-<id>, with .ultrapar/latest pointing "
        "at it).",
        metavar="DIR",
    )
    option(
        "model",
        "Only models whose name matches; may be repeated, patterns such as 'qwen*' work (default: "
        "all of the pool).",
        metavar="PATTERN",
        action="append",
    )
    option(
        "repeats",
        "Repetitions of each cell; NxM takes N of the first M values of the parameter that the "
        "suite's mark names with repeats_over (default: 1; environment: NUM_INSTANCES).",
        metavar="N[xM]",
    )
    option(
        "seed",
        "Seed of the run: same suite, pool of models and seed give the same cases and prompts "
        "(default: 0).",
        metavar="N",
        type=int,
    )
    option(
        "mode",
        "How cases meet lanes: 'serial' one at a time on one lane, 'rotate' one at a time over all "
        "lanes in turn, 'phase' as the suites' own documents say, 'ultra' all that the pool allows "
        "(default: ultra; USE_CONCURRENT=false means rotate).",
        choices=MODES,
    )
    option(
        "baseline",
        "Run a random sample of N cases one at a time first, as mode 'serial' does, and measure "
        "the speed-up of the others against it; 30 often tell enough. The sample counts in results "
        "and scores, not in makespan and throughput (default: none; the serial time is then "
        "estimated from the run's own service times).",
        metavar="N",
        type=int,
    )
    option(
        "policy",
        f"How models meet keys and instances: {', '.join(POLICIES)}, or a word that a conftest "
        "offers; an unknown word lists them (default: even; in mode phase its own).",
        metavar="POLICY",
    )
    option(
        "rate-mode",
        "fixed: limits are as the pool declares them; adaptive: each lane finds its own, below "
        "what is declared for adaptive (default: as the pool says, else fixed; environment: "
        "RATE_MODE).",
        choices=("fixed", "adaptive"),
    )
    option(
        "max-workers",
        "Requests in flight over the whole pool at most (default: as the pool says; environment: "
        "MAX_WORKERS).",
        metavar="N",
        type=int,
    )
    option(
        "max-attempts",
        "Tries of one request before its case is 'infra'; time-outs and unreadable answers are "
        "tried once more at most, 429 and dead keys do not count. With 1 nothing is ever sent "
        "again, not after 429 either (default: "
        f"{DEFAULT_MAX_ATTEMPTS}).",
        metavar="N",
        type=int,
    )
    option(
        "episode-timeout",
        f"Deadline of one episode, all waiting included (default: {DEFAULT_EPISODE_TIMEOUT_S:g}).",
        metavar="SECONDS",
        type=float,
    )
    option(
        "coverage",
        "Least share of planned cases that must be graded, else exit code 1 (default: "
        f"{DEFAULT_COVERAGE}).",
        metavar="SHARE",
        type=float,
    )
    option(
        "gate",
        "A rule that the run must keep, else exit code 1, such as 'throughput>=-10%%' or "
        "'solved_rate[model=m]>=0.7'; may be repeated ('ultrapar gate --help' explains them).",
        metavar="RULE",
        action="append",
    )
    option(
        "gate-baseline",
        "The earlier run that the rules of --ultrapar-gate compare with (its directory, its id, or "
        "'latest'); without a rule the default ones hold.",
        metavar="RUN",
    )
    option(
        "gate-undecided",
        "What becomes of a run with a rule that nothing decides (too few cases, or a client that "
        "was the limit itself) and none that fails (default: pass).",
        choices=("pass", "fail"),
    )
    option(
        "storage",
        "Format of the results (default: parquet; environment: STORAGE_FORMAT).",
        choices=("parquet", "json"),
    )
    option(
        "resume",
        "Finish an interrupted run: its directory, or 'latest'. Name the same suite and pool "
        "again; finished episodes cost no request.",
        metavar="RUN",
    )
    option(
        "reuse",
        "Take over graded answers of an earlier run (its directory, its id, or 'latest') where a "
        "suite says that it takes cases from another one.",
        metavar="RUN",
    )
    option(
        "plan",
        "Send nothing: show calls, tokens, time, cost, the load of keys and limits, and a forecast "
        "for each mode; refuse an inconsistent pool. -n says for how many workers.",
        action="store_true",
        default=False,
    )
    option(
        "plan-from",
        "The earlier run that the plan's turns, tokens and times come from: its directory, its "
        "id, 'latest', or 'none' (default: the newest that covers most of the cases).",
        metavar="RUN",
    )
    option(
        "check",
        "Before the first case, send one smallest request to each lane that the selected cases "
        "need: where one failed, 'fail' ends the run with exit code 4 and names it, 'warn' says so "
        "and goes on without it; without a word: fail (default: none). 'ultrapar check' does so "
        "without a run.",
        metavar="WORD",
        nargs="?",
        const=LANE_CHECKS[0],
    )
    option(
        "simulator",
        "Use a simulated provider that 'ultrapar simulate' already runs, instead of starting one.",
        metavar="URL",
    )
    option(
        "key-lock",
        "What to do while another run of this host sends with one of the pool's keys: 'wait' for "
        "its end, saying whom for, or 'fail' with exit code 4 (default: wait).",
        choices=KEY_LOCKS,
    )
    option(
        "faults",
        "Have the run's own simulated provider fail as this TOML file says: errors, hangs, dropped "
        "connections, limits that change ('ultrapar simulate --help' shows an example).",
        metavar="FILE",
    )
    option(
        "debug-log",
        "Write every lease, request, retry and episode to debug-<worker>.log in the run's "
        "directory: 'all' workers, 'off', or one by its number, from 1 (default: off; "
        "environment: DEBUG_LOG).",
        metavar="WHICH",
    )
    parser.addini("ultrapar_pool", "Pool file, as --ultrapar-pool.", default="")


def only_looks(config: pytest.Config) -> bool:
    """Whether pytest is asked to show tests or fixtures, not to run anything."""
    option = config.option
    return bool(
        option.collectonly
        or option.setupplan
        or option.showfixtures
        or option.show_fixtures_per_test
    )


def plans(config: pytest.Config) -> bool:
    """Whether pytest is asked for a plan, not for a run."""
    return bool(config.getoption("ultrapar_plan"))


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


INPUT = "ultrapar"
"""Key of our part of `workerinput`; plain values only, never a secret."""
