"""The settings of a run: one row defines each setting.

`Options` is both the table and the type: a row is an attribute with its type, option, variable,
range, default and help. `Options.seed` is the row, and `options.seed` is the value in force.
pytest's parser (`session/options.py`), the code that reads and checks values
(`pool/setting_values.py`) and the test for the documentation use `SETTINGS`. A new setting requires
one row here, and the code that reads `options.<name>`.

Every pytest run imports this module, with or without a pool, so it must not import anything heavy.
For the same reason `Options` is not a dataclass. Creating a dataclass with this many fields would
take 1.4 ms, half of the plugin's total cost.
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, get_args, overload

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.number_ranges import (
    COUNT,
    MONEY,
    PROCESS_NUM,
    REPEATS,
    SEED,
    WORKERS,
    Bounds,
)

if TYPE_CHECKING:
    from collections.abc import Mapping

T = TypeVar("T")
Mode = Literal["serial", "rotate", "phase", "ultra"]
RateMode = Literal["fixed", "adaptive"]
StorageFormat = Literal["parquet", "json"]
Recording = Literal["full", "text", "none"]
KeyLock = Literal["wait", "fail"]
Live = Literal["auto", "line", "off"]
ReportForm = Literal["html", "off"]
LaneCheck = Literal["fail", "warn"]
ReplayMisses = Literal["fail", "ask"]
"""How to handle requests for which a replay has no stored answer."""
Undecided = Literal["pass", "fail"]
MODES: tuple[Mode, ...] = get_args(Mode)
ONE_AT_A_TIME: tuple[Mode, ...] = ("serial", "rotate")
"""The modes that run one case at a time."""
PHASE: Mode = "phase"
"""The mode that follows a benchmark's rules. It accepts only policies offered for this mode."""
RATE_MODES: tuple[RateMode, ...] = get_args(RateMode)
EPISODE_TIMEOUT_S = 900.0
WAIT_FOR_SERVERS = Bounds(at_least=0, at_most=7 * 86_400)


class _Written:
    """A value that users write as `setting`.

    Two values of the same class are equal if users write them in the same way.
    """

    __slots__ = ()
    setting: Any

    def __eq__(self, other: object) -> bool:
        return isinstance(other, type(self)) and self.setting == other.setting

    def __hash__(self) -> int:
        return hash(self.setting)

    def __str__(self) -> str:
        return str(self.setting)


class Repeats(_Written):
    """Repetitions of each cell.

    Attributes:
        n: The number of repetitions, >= 1.
        n_first: How many values of a parameter, >= 1: only cells with one of its first `n_first`
            values are repeated. `repeats_over` in the suite's mark names the parameter. None means
            all values.
    """

    __slots__ = ("n", "n_first")

    def __init__(self, n: int, n_first: int | None = None) -> None:
        self.n = n
        self.n_first = n_first

    @property
    def setting(self) -> int | str:
        """The value as users write it: 20, or `20x3`."""
        return self.n if self.n_first is None else f"{self.n}x{self.n_first}"


class Shard(_Written):
    """One of the `n` parts into which the cases and limits of a run are divided.

    Attributes:
        k: The number of this part, counted from 1. While the shard `is_auto`, both numbers are 0.
        n: The number of parts.
    """

    __slots__ = ("k", "n")

    def __init__(self, k: int = 0, n: int = 0) -> None:
        self.k = k
        self.n = n

    @property
    def is_auto(self) -> bool:
        """Whether the shard must still be read from the environment."""
        return not self.n

    @property
    def setting(self) -> str:
        """The value as users write it: `2/4`, or `auto`."""
        return "auto" if self.is_auto else f"{self.k}/{self.n}"

    @property
    def host(self) -> str:
        """The host name in the shard's results. A merge tells shards apart by this name."""
        return f"shard-{self.k}-of-{self.n}"


class WhichLog(_Written):
    """Which workers write a debug log.

    Attributes:
        is_on: Whether any worker writes one.
        number: The number of the only worker that writes one. `gw0` is 1, `gw1` is 2; without
            xdist, `main` is 1. None means all workers. Counting starts at 1, so that
            `DEBUG_PROCESS_NUM=1` names a process in every run.
    """

    __slots__ = ("is_on", "number")

    def __init__(self, *, is_on: bool = False, number: int | None = None) -> None:
        self.is_on = is_on
        self.number = number

    @property
    def setting(self) -> int | str:
        """The value as users write it: `off`, `all`, or a number."""
        if not self.is_on:
            return "off"
        return "all" if self.number is None else self.number

    def includes(self, worker: str) -> bool:
        """Whether the worker with this name writes a debug log."""
        return self.is_on and self.number in {None, number_of(worker)}

    def check(self, n_workers: int, origin: str) -> None:
        """Check that the run has a worker with the selected number.

        Args:
            n_workers: The number of workers in the run.
            origin: The option or variable that selects the worker.

        Raises:
            ConfigError: The number is greater than the number of workers.
        """
        if self.number is not None and self.number > n_workers:
            refuse(
                f"{origin} must be between 1 and {n_workers}, the number of worker processes "
                f"(got {self.number})"
            )


class Ports(tuple[int, ...]):
    """Different ports on one host."""

    __slots__ = ()


def number_of(worker: str) -> int:
    """Return a worker's number, counted from 1: `gw0` and `main` are 1, `gw1` is 2."""
    digits = worker.removeprefix("gw")
    return int(digits) + 1 if digits.isdecimal() else 1


class Setting(Generic[T]):
    """A row in the table. `Options.seed` is a row, and `options.seed` is its value.

    Attributes:
        name: The name of the attribute in `Options`.
        spelling: The option with its metavar, as documented: `--ultrapar-check [WORD]`.
        option: `--ultrapar-...`; empty for a setting that only has a variable.
        metavar: The placeholder after the option; empty for a flag.
        help: The text for `pytest --help`, without default and variable.
        default: The value in force if no source sets one, or None.
        kind: The type that texts are converted to; by default the type of `default`, or `str` if
            `default` is None.
        by_default: The default in words, if the value alone would not be clear.
        variable: The environment variable, if any; `variables` adds `ULTRAPAR_<OPTION>`.
        by_truth: If the variable is a switch, the values that "true" and "false" stand for.
        file: The field in the pool file's table `[pool]`, if there is one.
        ini: The name in pytest's configuration, if the setting is read there, too.
        between: The range of a number, or of each number in a text such as `20x3`. Percentages have
            a range of their own.
        choices: The allowed words.
        bare: The value to use if the option is written without one; set only if that is allowed.
        is_recorded: Whether the manifest lists the value and its origin among the settings. Names
            of files and runs are not listed there, because the manifest has other fields for them.
    """

    name = ""

    def __init__(
        self,
        spelling: str = "",
        said: str = "",
        *,
        default: T = None,  # type: ignore[assignment]
        kind: type | None = None,
        by_default: str | None = None,
        variable: str = "",
        by_truth: tuple[str, str] | None = None,
        file: str = "",
        ini: str = "",
        between: Bounds | None = None,
        choices: tuple[str, ...] | None = None,
        bare: str | None = None,
        is_recorded: bool = False,
    ) -> None:
        """Make a row; `said` becomes `help`."""
        self.spelling = spelling
        self.option, _, metavar = spelling.partition(" ")
        self.metavar = metavar.strip("[]") if bare is not None else metavar
        self.help = said
        self.default = default
        self.kind: type = kind or (str if default is None else type(default))
        self.by_default = by_default
        self.variable = variable
        self.by_truth = by_truth
        self.file = file
        self.ini = ini
        self.between = between
        self.choices = choices
        self.bare = bare
        self.is_recorded = is_recorded

    def __set_name__(self, owner: type, name: str) -> None:
        self.name = name

    @overload
    def __get__(self, options: None, owner: type) -> Setting[T]: ...

    @overload
    def __get__(self, options: Options, owner: type) -> T: ...

    def __get__(self, options: Options | None, owner: type) -> Setting[T] | T:
        if options is None:
            return self
        return cast("T", vars(options)[self.name])

    def __set__(self, options: Options, value: T) -> None:
        vars(options)[self.name] = value

    @property
    def key(self) -> str:
        """The name in manifest and header: the option without its metavar (`episode_timeout`)."""
        return self.option.removeprefix("--ultrapar-").replace("-", "_") or self.name

    @property
    def dest(self) -> str:
        """The name for `config.getoption`."""
        return f"ultrapar_{self.key}"

    @property
    def variables(self) -> tuple[str, ...]:
        """The environment variables; the first takes precedence over the second.

        `ULTRAPAR_<OPTION>` accepts the same values as the option. If there is a second variable,
        other tools may use it, too.
        """
        own = f"ULTRAPAR_{self.key.upper()}" if self.option else self.variable
        return tuple(dict.fromkeys((own, self.variable))) if self.variable else ()

    @property
    def default_text(self) -> str:
        """The default as text for the help, or an empty string."""
        if self.by_default is not None:
            return self.by_default
        if isinstance(self.default, float):
            return f"{self.default:g}"
        has_none = self.default is None or self.default is False or self.default == ()
        return "" if has_none else str(self.default)

    @property
    def help_text(self) -> str:
        """The text in `pytest --help`, with default and variable."""
        more = [f"default: {self.default_text}"] if self.default_text else []
        if self.variable:
            more.append(f"environment: {' or '.join(self.variables)}")
        return f"{self.help} ({'; '.join(more)})." if more else f"{self.help}."


class Options:
    """The settings in force.

    The command line overrides the environment, which overrides the pool file, which overrides the
    default. For `max_workers`, `rate_mode` and `budget`, None means that the value in the pool
    applies.

    Attributes:
        origin: The origin of each value by name, such as `default` or
            `command line --ultrapar-seed`.
    """

    pool: Setting[str | None] = Setting(
        "--ultrapar-pool FILE",
        "Run with the providers, keys and limits in this pool file (ini: ultrapar_pool). Without "
        "a pool file and without --ultrapar-model, the plugin does nothing",
        ini="ultrapar_pool",
    )
    out: Setting[Path | None] = Setting(
        "--ultrapar-out DIR",
        "Directory for the run's results; .ultrapar/latest points to the newest run",
        kind=Path,
        by_default=".ultrapar/<time>-<id>",
    )
    models: Setting[tuple[str, ...]] = Setting(
        "--ultrapar-model PATTERN",
        "Run only the models in the pool with this name or pattern, such as 'qwen*'; may be "
        "repeated. Without a pool: VENDOR/NAME such as openai/gpt-5-mini, or a local server such "
        "as http://localhost:8000/v1",
        default=(),
        by_default="all models",
    )
    repeats: Setting[Repeats] = Setting(
        "--ultrapar-repeats N[xM]",
        "Number of repetitions of each cell (a test with its parameters and model). NxM: N "
        "repetitions, but only for the first M values of the parameter that the suite's mark "
        "ultrapar(repeats_over=...) names",
        default=Repeats(1),
        between=REPEATS,
        variable="NUM_INSTANCES",
        file="repeats",
        is_recorded=True,
    )
    seed: Setting[int] = Setting(
        "--ultrapar-seed N",
        "Seed of the run: the same suite, models and seed give the same cases and prompts",
        default=0,
        between=SEED,
        is_recorded=True,
    )
    sample: Setting[str | None] = Setting(
        "--ultrapar-sample N",
        "Run a sample of N cells (a cell is a test with its parameters and model), with all their "
        "repetitions. N may be a share such as '5%%'. The sample is drawn with the seed, evenly "
        "from all tests and models. To run the other cells, resume without this option",
        between=COUNT,
        is_recorded=True,
    )
    mode: Setting[Mode] = Setting(
        "--ultrapar-mode MODE",
        "How to assign cases to lanes (a lane is one key on one instance). Mode 'serial': one case "
        "at a time, one lane per model. Mode 'rotate': one case at a time, all lanes in turn. Mode "
        "'phase': as defined in a suite's conftest. Mode 'ultra': as many cases at a time as the "
        "pool allows. USE_CONCURRENT=false means rotate",
        default="ultra",
        choices=MODES,
        variable="USE_CONCURRENT",
        by_truth=("ultra", "rotate"),
        is_recorded=True,
    )
    baseline: Setting[int | None] = Setting(
        "--ultrapar-baseline N",
        "First run a random sample of N cases one at a time, as mode 'serial' does, and compare "
        "the speed of the other cases with the sample's; 30 are often enough. Results and scores "
        "include the sample; makespan and throughput do not. Without this option, the serial time "
        "is estimated from the run's own service times",
        kind=int,
        between=Bounds(at_least=1, at_most=10_000_000),
        is_recorded=True,
    )
    policy: Setting[str] = Setting(
        "--ultrapar-policy POLICY",
        "How to assign models to keys and instances: even, by-key, by-model, round-robin, "
        "exclusive, batch:N, serial, or a policy that a conftest offers. The error for an unknown "
        "policy lists them all. Mode 'phase' has its own policies",
        default="even",
        is_recorded=True,
    )
    rate_mode: Setting[RateMode | None] = Setting(
        "--ultrapar-rate-mode MODE",
        "'fixed': use the limits in the pool; 'adaptive': estimate limits during the run, up "
        "to the limits that the pool declares for this mode",
        by_default="as in the pool, otherwise fixed",
        choices=RATE_MODES,
        variable="RATE_MODE",
        file="rate_mode",
    )
    max_workers: Setting[int | None] = Setting(
        "--ultrapar-max-workers N",
        "Maximum number of requests in flight across the whole pool",
        kind=int,
        by_default="as in the pool",
        between=WORKERS,
        variable="MAX_WORKERS",
        file="workers",
    )
    budget: Setting[float | None] = Setting(
        "--ultrapar-budget AMOUNT",
        "Maximum cost of the run, including all sessions that resume it, in the pool's currency. "
        "The run reserves the cost before it sends a request, so every model needs a price. Cases "
        "that exceed the budget get the outcome 'infra' with kind 'budget'",
        kind=float,
        by_default="as in the pool",
        between=MONEY,
        file="budget",
    )
    max_attempts: Setting[int] = Setting(
        "--ultrapar-max-attempts N",
        "How many times to attempt a request before its case gets the outcome 'infra'. A request "
        "is retried at most once after a time-out or an unreadable answer; refusals with 429 or "
        "for a dead key do not count. With 1, the run retries no request, not even after a 429. "
        "The only exception: if the key may have caused a refusal, the run tries another key",
        default=3,
        between=Bounds(at_least=1, at_most=100),
        is_recorded=True,
    )
    episode_timeout_s: Setting[float] = Setting(
        "--ultrapar-episode-timeout SECONDS",
        "Maximum time for one episode, including all waiting",
        default=EPISODE_TIMEOUT_S,
        between=Bounds(at_least=0.001, at_most=7 * 86_400),
        is_recorded=True,
    )
    wait_for_servers_s: Setting[float] = Setting(
        "--ultrapar-wait-for-servers SECONDS",
        "How long to wait for a server that refuses connections or is loading its model, at the "
        "start or later. Requests that fail during this wait do not count as attempts. With 0, "
        "the run gives up after two seconds on a server that was never reachable",
        default=120.0,
        between=WAIT_FOR_SERVERS,
        is_recorded=True,
    )
    shard: Setting[Shard | None] = Setting(
        "--ultrapar-shard K/N",
        "Run only part K of N, with its part of every limit: N independent machines together stay "
        "within the limits. 'auto' reads K and N from GitLab, CircleCI or Slurm. With "
        "--ultrapar-cluster-run, all shards share the full limits. 'ultrapar merge' joins the "
        "results",
        kind=Shard,
        variable="ULTRAPAR_SHARD",
        is_recorded=True,
    )
    coverage: Setting[float] = Setting(
        "--ultrapar-coverage SHARE",
        "Minimum share of planned cases that must be graded; below it, the exit code is 1",
        default=0.98,
        between=Bounds(at_least=0, at_most=1),
        is_recorded=True,
    )
    gate: Setting[tuple[str, ...]] = Setting(
        "--ultrapar-gate RULE",
        "Rule that the run must meet, such as 'throughput>=-10%%' or "
        "'solved_rate[model=m]>=0.7'. If the run does not meet it, the exit code is 1. May be "
        "repeated ('ultrapar gate --help' explains the rules)",
        default=(),
    )
    gate_baseline: Setting[str | None] = Setting(
        "--ultrapar-gate-baseline RUN",
        "Earlier run with which the gate compares this run (its directory, its id, or 'latest'); "
        "without --ultrapar-gate, the default rules apply",
    )
    gate_undecided: Setting[Undecided] = Setting(
        "--ultrapar-gate-undecided WORD",
        "Whether a run passes or fails if a rule is undecided (too few cases, or the client was "
        "the bottleneck) and no rule fails",
        default="pass",
        choices=get_args(Undecided),
    )
    storage: Setting[StorageFormat] = Setting(
        "--ultrapar-storage FORMAT",
        "Format of the results",
        default="parquet",
        choices=get_args(StorageFormat),
        variable="STORAGE_FORMAT",
        is_recorded=True,
    )
    record: Setting[Recording] = Setting(
        "--ultrapar-record WHAT",
        "How much of each conversation to record. 'full': all requests and answers. 'text': "
        "message roles, contents and tool calls. 'none': only the episodes' return values. "
        "These values are enough to resume and grade",
        default="full",
        choices=get_args(Recording),
        file="record",
        is_recorded=True,
    )
    live: Setting[Live] = Setting(
        "--ultrapar-live WHAT",
        "Progress display of the run. 'auto': on a terminal, a view of lanes, models and "
        "failures (requires the 'live' extra); 'line': one line; 'off': nothing",
        default="auto",
        choices=get_args(Live),
    )
    report: Setting[ReportForm] = Setting(
        "--ultrapar-report FORM",
        "Whether to write an HTML report into the run's directory when the run ends: 'html' "
        "writes report.html, 'off' writes nothing",
        default="html",
        choices=get_args(ReportForm),
    )
    otel: Setting[bool] = Setting(
        "--ultrapar-otel",
        "Send OpenTelemetry spans and metrics for cases and requests, without their texts, as "
        "configured by OTEL_* in the environment (requires the 'otel' extra)",
        default=False,
    )
    resume: Setting[str | None] = Setting(
        "--ultrapar-resume RUN",
        "Finish an interrupted run (its directory, its id, or 'latest') with the same suite and "
        "pool. Finished episodes send no requests; cases that you have added also run",
    )
    only: Setting[str | None] = Setting(
        "--ultrapar-only WORDS",
        "Run only the cases that had one of these results in an earlier run, and no other tests: "
        "unsolved, partial, infra, error or failed (in pytest), separated by commas",
        is_recorded=True,
    )
    only_of: Setting[str | None] = Setting(
        "--ultrapar-only-of RUN",
        "Earlier run for --ultrapar-only: its directory, its id, or 'latest'",
        by_default="latest",
    )
    keep_changed: Setting[bool] = Setting(
        "--ultrapar-keep-changed",
        "With --ultrapar-resume: keep the answers of cases even if the cases' data has changed "
        "since they ran; without this option, a run with changed data is not resumed",
        default=False,
    )
    regrade: Setting[str | None] = Setting(
        "--ultrapar-regrade RUN",
        "Send nothing: grade the episodes of an earlier run (its directory, its id, or 'latest') "
        "again with the current tests, in a new run directory",
    )
    replay: Setting[str | None] = Setting(
        "--ultrapar-replay RUN",
        "Run the episodes with the answers of an earlier run (its directory, its id, or 'latest'), "
        "in a new run directory; needs no keys",
    )
    replay_misses: Setting[ReplayMisses] = Setting(
        "--ultrapar-replay-misses WHAT",
        "How to handle requests without a stored answer in the replayed run: 'fail' ends their "
        "case with the outcome 'error', 'ask' sends them",
        default="fail",
        choices=get_args(ReplayMisses),
    )
    reuse: Setting[str | None] = Setting(
        "--ultrapar-reuse RUN",
        "Reuse graded episodes from an earlier run (its directory, its id, or 'latest') for the "
        "cases that a suite takes from another suite",
    )
    plan: Setting[bool] = Setting(
        "--ultrapar-plan",
        "Show a plan and send nothing: requests, tokens, time, cost, the load on keys and limits, "
        "and a forecast for each mode. An inconsistent pool is an error. -n sets the number of "
        "workers",
        default=False,
    )
    plan_from: Setting[str | None] = Setting(
        "--ultrapar-plan-from RUN",
        "Earlier run from which the plan takes turns, tokens and times: its directory, its id, "
        "'latest', or 'none'",
        by_default="the newest run that covers about as many of the cases as any other run",
    )
    check: Setting[LaneCheck | None] = Setting(
        "--ultrapar-check [WORD]",
        "Before the first case, send one minimal request to each lane that the selected cases "
        "need. If lanes fail, the run names them. With 'fail' (or without a word), it then ends "
        "with exit code 4; with 'warn', it continues without them. "
        "'ultrapar check' sends the same requests without a run",
        choices=get_args(LaneCheck),
        bare="fail",
        is_recorded=True,
    )
    simulator: Setting[str | None] = Setting(
        "--ultrapar-simulator URL",
        "Use the simulated provider that 'ultrapar simulate' runs at URL, instead of starting one",
    )
    key_lock: Setting[KeyLock] = Setting(
        "--ultrapar-key-lock HOW",
        "How to react if another run on this machine uses one of the pool's keys: 'wait' until "
        "it has ended, or 'fail' with exit code 4",
        default="wait",
        choices=get_args(KeyLock),
        is_recorded=True,
    )
    cluster_run: Setting[str | None] = Setting(
        "--ultrapar-cluster-run NAME",
        "Run the cases together with all hosts that use this name. Each case runs once, within "
        "limits that the hosts share through a Redis or Valkey server. A host that joins later "
        "finishes the remaining cases (requires the 'cluster' extra)",
        is_recorded=True,
    )
    cluster: Setting[str | None] = Setting(
        "--ultrapar-cluster URL",
        "Redis or Valkey server for --ultrapar-cluster-run: redis://, rediss:// or unix://; put a "
        "URL with a password into the environment variable ULTRAPAR_CLUSTER",
        by_default="ULTRAPAR_CLUSTER",
    )
    cluster_host: Setting[str | None] = Setting(
        "--ultrapar-cluster-host NAME",
        "Name of this host in a run on several hosts; each host needs a different name",
        by_default="the machine's name",
    )
    cluster_patience_s: Setting[float] = Setting(
        "--ultrapar-cluster-patience SECONDS",
        "How long to wait if the server for --ultrapar-cluster-run does not answer, or keeps "
        "limits closed (as after a restart) so that nothing can be sent",
        default=600.0,
        between=Bounds(at_least=1, at_most=7 * 86_400),
        is_recorded=True,
    )
    faults: Setting[Path | None] = Setting(
        "--ultrapar-faults FILE",
        "Make the run's own simulated provider fail as this TOML file defines: errors, hangs, "
        "dropped connections, limits that change ('ultrapar simulate --help' shows an example)",
        kind=Path,
    )
    debug_log: Setting[WhichLog] = Setting(
        "--ultrapar-debug-log WHICH",
        "Write every lease, request, retry and episode to debug-<worker>.log in the run's "
        "directory: for 'all' workers, for one worker by its number (from 1), or 'off'",
        default=WhichLog(),
        between=PROCESS_NUM,
        variable="DEBUG_LOG",
        by_truth=("all", "off"),
        is_recorded=True,
    )
    debug_process_num: Setting[int | None] = Setting(
        kind=int, between=PROCESS_NUM, variable="DEBUG_PROCESS_NUM"
    )
    """The number of the only worker to which `DEBUG_LOG=true` applies. This setting has no effect
    on its own."""
    use_multi_vllm: Setting[bool | None] = Setting(kind=bool, variable="USE_MULTI_VLLM")
    """False means that only the first of several ports is used."""
    vllm_ports: Setting[Ports | None] = Setting(kind=Ports, variable="VLLM_PORTS")
    """Used only if a pool names this variable in `ports_env`. The value is always checked."""

    def __init__(self, values: Mapping[str, Any], origin: Mapping[str, str]) -> None:
        """Make the settings.

        Args:
            values: Values by name; all other settings have their default.
            origin: The origin of each value by name; all other settings have `default`.
        """
        for row in SETTINGS:
            setattr(self, row.name, values.get(row.name, row.default))
        self.origin = {row.name: origin.get(row.name, "default") for row in SETTINGS}

    @property
    def divided_by(self) -> Shard | None:
        """The shard whose part of the limits applies; None if the run uses the full limits."""
        return self.shard if self.cluster_run is None else None


SETTINGS: tuple[Setting[Any], ...] = tuple(
    row for row in vars(Options).values() if isinstance(row, Setting)
)
