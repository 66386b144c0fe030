"""Every setting of a run: one row says all there is to say of it.

`Options` is the table and the type at once: a row is an attribute with its type, option, variable,
range, default and help. `Options.seed` is the row, `options.seed` the value in force. pytest's
parser (`session/options.py`), the reading with its precedence and checks (`pool/setting_values.py`)
and the test of the documentation go through `SETTINGS`, so a new setting is one row here and
whoever reads `options.<name>`.

Every pytest run imports this module, with a pool or without: it must stay free of anything heavy,
which is why `Options` is no dataclass (1.4 ms for this many fields, half of what the plugin costs).
"""

from __future__ import annotations

from pathlib import Path
from typing import TYPE_CHECKING, Any, Generic, Literal, TypeVar, cast, get_args, overload

from pytest_ultrapar.errors import refuse
from pytest_ultrapar.pool.bounds import COUNT, MONEY, PROCESS_NUM, REPEATS, SEED, WORKERS, Bounds

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
"""What becomes of requests that a replay has no answer to."""
Undecided = Literal["pass", "fail"]
MODES: tuple[Mode, ...] = get_args(Mode)
ONE_AT_A_TIME: tuple[Mode, ...] = ("serial", "rotate")
"""The modes that run one case at a time."""
PHASE: Mode = "phase"
"""The mode whose rules are a benchmark's own: only policies offered for it can be used in it."""
RATE_MODES: tuple[RateMode, ...] = get_args(RateMode)
EPISODE_TIMEOUT_S = 900.0
WAIT_FOR_SERVERS = Bounds(at_least=0, at_most=7 * 86_400)


class _Written:
    """What a user writes in some form, its `setting`: two are equal that are written alike."""

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
        n: Repetitions, >= 1.
        n_first: Only cells with one of so many first values of the parameter that the suite's mark
            names (`repeats_over`), >= 1; None takes all.
    """

    __slots__ = ("n", "n_first")

    def __init__(self, n: int, n_first: int | None = None) -> None:
        self.n = n
        self.n_first = n_first

    @property
    def setting(self) -> int | str:
        """As the user writes it: 20, or `20x3`."""
        return self.n if self.n_first is None else f"{self.n}x{self.n_first}"


class Shard(_Written):
    """One part of `n` that the cases and limits of a run are cut into.

    Attributes:
        k: Which, from 1; 0 stands for `auto`, until somebody has asked the environment.
        n: Of how many.
    """

    __slots__ = ("k", "n")

    def __init__(self, k: int = 0, n: int = 0) -> None:
        self.k = k
        self.n = n

    @property
    def is_auto(self) -> bool:
        """Whether the environment says which it is."""
        return not self.n

    @property
    def setting(self) -> str:
        """As the user writes it: `2/4`."""
        return "auto" if self.is_auto else f"{self.k}/{self.n}"

    @property
    def host(self) -> str:
        """What tells its results from those of the others when they are merged."""
        return f"shard-{self.k}-of-{self.n}"


class WhichLog(_Written):
    """Which workers write a debug log.

    Attributes:
        is_on: Whether any does.
        number: Only this one, from 1: `gw0` is 1, `gw1` is 2; without xdist `main` is 1. None takes
            all. Counting from 1 makes `DEBUG_PROCESS_NUM=1` a process that every run has.
    """

    __slots__ = ("is_on", "number")

    def __init__(self, *, is_on: bool = False, number: int | None = None) -> None:
        self.is_on = is_on
        self.number = number

    @property
    def setting(self) -> int | str:
        """As the user writes it: `off`, `all`, or a number."""
        if not self.is_on:
            return "off"
        return "all" if self.number is None else self.number

    def includes(self, worker: str) -> bool:
        """Whether the worker of that name writes one."""
        return self.is_on and self.number in {None, number_of(worker)}

    def check(self, n_workers: int, origin: str) -> None:
        """Make sure that the one worker is among those that the run starts.

        Args:
            n_workers: How many those are.
            origin: Where this was said.

        Raises:
            ConfigError: There are fewer.
        """
        if self.number is not None and self.number > n_workers:
            refuse(
                f"{origin} must be between 1 and {n_workers}, the number of worker processes "
                f"(got {self.number})"
            )


class Ports(tuple[int, ...]):
    """Ports of one host, all different."""

    __slots__ = ()


def number_of(worker: str) -> int:
    """A worker's number from 1: `gw0` and `main` are 1, `gw1` is 2."""
    digits = worker.removeprefix("gw")
    return int(digits) + 1 if digits.isdecimal() else 1


class Setting(Generic[T]):
    """One row of the table: the attribute of `Options` itself in the class, its value in an object.

    Attributes:
        name: The attribute of `Options`.
        spelling: The option with its metavar, as it is documented: `--ultrapar-check [WORD]`.
        option: `--ultrapar-...`; empty for a setting that has a variable only.
        metavar: What follows the option; empty for a flag.
        help: For `pytest --help`, without default and variable.
        default: In force when nobody says anything; None where nothing is then.
        kind: Of what type it is, by which texts are parsed; where `default` does not tell, text.
        by_default: The default in words, where the value alone does not tell.
        variable: Of the environment, if there is one; `variables` has our own name for it, too.
        by_truth: The words that "true" and "false" in the variable stand for, where it is a switch.
        file: The field of the pool file's `[pool]`, if there is one.
        ini: Its name in pytest's own configuration, if it is read there, too.
        between: What a number may be, or each number in a text; a text is one, or a share (`5%`).
        choices: The words allowed.
        bare: The word that the option alone stands for, where it may stand alone.
        is_recorded: Whether its value and origin go to the manifest. Names of files and runs do
            not: the manifest has fields for those that matter.
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
        """Make a row; `said` is the help."""
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
        """Its name in manifest and header: the option's, `episode_timeout` for one in seconds."""
        return self.option.removeprefix("--ultrapar-").replace("-", "_") or self.name

    @property
    def dest(self) -> str:
        """Its name for `config.getoption`."""
        return f"ultrapar_{self.key}"

    @property
    def variables(self) -> tuple[str, ...]:
        """Of the environment, the first of them goes before the second.

        `ULTRAPAR_<OPTION>` takes what the option takes; a plain name may be meant for others.
        """
        own = f"ULTRAPAR_{self.key.upper()}" if self.option else self.variable
        return tuple(dict.fromkeys((own, self.variable))) if self.variable else ()

    @property
    def default_text(self) -> str:
        """What is in force when nobody says anything, in words; empty where there is nothing."""
        if self.by_default is not None:
            return self.by_default
        if isinstance(self.default, float):
            return f"{self.default:g}"
        has_none = self.default is None or self.default is False or self.default == ()
        return "" if has_none else str(self.default)

    @property
    def help_text(self) -> str:
        """What `pytest --help` says, with default and variable."""
        more = [f"default: {self.default_text}"] if self.default_text else []
        if self.variable:
            more.append(f"environment: {' or '.join(self.variables)}")
        return f"{self.help} ({'; '.join(more)})." if more else f"{self.help}."


class Options:
    """The settings in force: command line over environment over pool file over default.

    `max_workers`, `rate_mode` and `budget` are settled by the pool, which knows its file: None here
    means as the pool says.

    Attributes:
        origin: By name, whence a value is: `default`, `command line --ultrapar-seed`, ...
    """

    pool: Setting[str | None] = Setting(
        "--ultrapar-pool FILE",
        "Pool of providers, keys and limits to run on (ini: ultrapar_pool). Without it and without "
        "--ultrapar-model the plugin does nothing",
        ini="ultrapar_pool",
    )
    out: Setting[Path | None] = Setting(
        "--ultrapar-out DIR",
        "Directory of the run; .ultrapar/latest points at the newest one",
        kind=Path,
        by_default=".ultrapar/<time>-<id>",
    )
    models: Setting[tuple[str, ...]] = Setting(
        "--ultrapar-model PATTERN",
        "Only models of the pool whose name matches; may be repeated, patterns such as 'qwen*' "
        "work. Without a pool: VENDOR/NAME such as openai/gpt-5-mini, or a server of this machine "
        "such as http://localhost:8000/v1",
        default=(),
        by_default="all models",
    )
    repeats: Setting[Repeats] = Setting(
        "--ultrapar-repeats N[xM]",
        "Repetitions of each cell; NxM: N repetitions, using only the first M values of the "
        "parameter that the suite's mark names with repeats_over",
        default=Repeats(1),
        between=REPEATS,
        variable="NUM_INSTANCES",
        file="repeats",
        is_recorded=True,
    )
    seed: Setting[int] = Setting(
        "--ultrapar-seed N",
        "Seed of the run: same suite, pool of models and seed give the same cases and prompts",
        default=0,
        between=SEED,
        is_recorded=True,
    )
    sample: Setting[str | None] = Setting(
        "--ultrapar-sample N",
        "Ask a sample: N cells, or a share such as '5%%', each with all its repetitions; drawn by "
        "the seed, evenly from every test and model. Resumed without it, all others are asked",
        between=COUNT,
        is_recorded=True,
    )
    mode: Setting[Mode] = Setting(
        "--ultrapar-mode MODE",
        "How cases meet lanes: 'serial' one at a time, one lane per model; 'rotate' one at a time, "
        "all lanes in turn; 'phase' as a suite's conftest defines its phases; 'ultra' all that the "
        "pool allows; USE_CONCURRENT=false means rotate",
        default="ultra",
        choices=MODES,
        variable="USE_CONCURRENT",
        by_truth=("ultra", "rotate"),
        is_recorded=True,
    )
    baseline: Setting[int | None] = Setting(
        "--ultrapar-baseline N",
        "Run a random sample of N cases one at a time first, as mode 'serial' does, and measure "
        "the speed-up of the others against it; 30 are often enough. The sample counts in results "
        "and scores, not in makespan and throughput. Without it the serial time is estimated from "
        "the run's own service times",
        kind=int,
        between=Bounds(at_least=1, at_most=10_000_000),
        is_recorded=True,
    )
    policy: Setting[str] = Setting(
        "--ultrapar-policy POLICY",
        "How models meet keys and instances: even, by-key, by-model, round-robin, exclusive, "
        "batch:N, serial, or a policy that a conftest offers; an unknown word lists those, too. "
        "Mode phase has its own",
        default="even",
        is_recorded=True,
    )
    rate_mode: Setting[RateMode | None] = Setting(
        "--ultrapar-rate-mode MODE",
        "fixed: limits are as the pool declares them; adaptive: they are estimated, below what is "
        "declared for adaptive",
        by_default="as the pool says, else fixed",
        choices=RATE_MODES,
        variable="RATE_MODE",
        file="rate_mode",
    )
    max_workers: Setting[int | None] = Setting(
        "--ultrapar-max-workers N",
        "Requests in flight over the whole pool at most",
        kind=int,
        by_default="as the pool says",
        between=WORKERS,
        variable="MAX_WORKERS",
        file="workers",
    )
    budget: Setting[float | None] = Setting(
        "--ultrapar-budget AMOUNT",
        "Money that the run may spend, in the pool's currency, all its resumed parts together: "
        "reserved before a request is sent, so every model needs a price. What does not fit is "
        "'infra' of kind 'budget'",
        kind=float,
        by_default="as the pool says",
        between=MONEY,
        file="budget",
    )
    max_attempts: Setting[int] = Setting(
        "--ultrapar-max-attempts N",
        "Tries of one request before its case is 'infra'; time-outs and unreadable answers are "
        "retried at most once, 429 and dead keys do not count. With 1 nothing is sent again, not "
        "even after 429; only a refusal that may be the fault of one key still goes to another one",
        default=3,
        between=Bounds(at_least=1, at_most=100),
        is_recorded=True,
    )
    episode_timeout_s: Setting[float] = Setting(
        "--ultrapar-episode-timeout SECONDS",
        "Deadline of one episode, all its waiting included",
        default=EPISODE_TIMEOUT_S,
        between=Bounds(at_least=0.001, at_most=7 * 86_400),
        is_recorded=True,
    )
    wait_for_servers_s: Setting[float] = Setting(
        "--ultrapar-wait-for-servers SECONDS",
        "How long to wait for a server that takes no connection or is loading its model, at the "
        "start and whenever it is away; its requests cost no tries meanwhile. With 0 one that was "
        "never there is given up after two seconds",
        default=120.0,
        between=WAIT_FOR_SERVERS,
        is_recorded=True,
    )
    shard: Setting[Shard | None] = Setting(
        "--ultrapar-shard K/N",
        "Run part K of N only, with its part of every limit, so that N machines that know nothing "
        "of each other keep the limits together; 'auto' takes K and N from GitLab, CircleCI or "
        "Slurm. Beside --ultrapar-cluster-run all shards share the whole limits. 'ultrapar merge' "
        "joins the results",
        kind=Shard,
        variable="ULTRAPAR_SHARD",
        is_recorded=True,
    )
    coverage: Setting[float] = Setting(
        "--ultrapar-coverage SHARE",
        "Least share of planned cases that must be graded, else exit code 1",
        default=0.98,
        between=Bounds(at_least=0, at_most=1),
        is_recorded=True,
    )
    gate: Setting[tuple[str, ...]] = Setting(
        "--ultrapar-gate RULE",
        "A rule that the run must keep, else exit code 1, such as 'throughput>=-10%%' or "
        "'solved_rate[model=m]>=0.7'; may be repeated ('ultrapar gate --help' explains them)",
        default=(),
    )
    gate_baseline: Setting[str | None] = Setting(
        "--ultrapar-gate-baseline RUN",
        "The earlier run that the rules of --ultrapar-gate compare with (its directory, its id, or "
        "'latest'); without a rule the default ones hold",
    )
    gate_undecided: Setting[Undecided] = Setting(
        "--ultrapar-gate-undecided WORD",
        "Whether a run passes or fails where a rule is undecided (too few cases, or the client "
        "itself was the limit) and none fails",
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
        "What of conversations is kept: 'full' all that was sent and that came, 'text' roles, "
        "contents and tool calls, 'none' only what episodes return, which is enough to resume and "
        "to grade",
        default="full",
        choices=get_args(Recording),
        file="record",
        is_recorded=True,
    )
    live: Setting[Live] = Setting(
        "--ultrapar-live WHAT",
        "What is shown while the run goes on: 'auto', on a terminal a view of lanes, models and "
        "failures (needs the extra 'live'); 'line', one line; 'off', nothing",
        default="auto",
        choices=get_args(Live),
    )
    report: Setting[ReportForm] = Setting(
        "--ultrapar-report FORM",
        "Whether a page that shows the run is written into its directory at its end: 'html', which "
        "is report.html, or 'off'",
        default="html",
        choices=get_args(ReportForm),
    )
    otel: Setting[bool] = Setting(
        "--ultrapar-otel",
        "Send OpenTelemetry spans and metrics of cases and requests, without what was said, as "
        "OTEL_* in the environment say (needs the extra 'otel')",
        default=False,
    )
    resume: Setting[str | None] = Setting(
        "--ultrapar-resume RUN",
        "Finish an interrupted run: its directory, or 'latest'. Give the same suite and pool "
        "again; finished episodes cost no request, and what was added is asked",
    )
    only: Setting[str | None] = Setting(
        "--ultrapar-only WORDS",
        "Run only the cases that ended so in an earlier run, and no other test: some of unsolved, "
        "partial, infra, error, and failed (by pytest), with commas between them",
        is_recorded=True,
    )
    only_of: Setting[str | None] = Setting(
        "--ultrapar-only-of RUN",
        "The earlier run of --ultrapar-only: its directory, its id, or 'latest'",
        by_default="latest",
    )
    keep_changed: Setting[bool] = Setting(
        "--ultrapar-keep-changed",
        "With --ultrapar-resume: keep the answers of cases whose data changed since they were "
        "asked; without it the run is refused",
        default=False,
    )
    regrade: Setting[str | None] = Setting(
        "--ultrapar-regrade RUN",
        "Send nothing: grade the episodes of an earlier run (its directory, its id, or 'latest') "
        "anew, as the tests are now, in a new run directory",
    )
    replay: Setting[str | None] = Setting(
        "--ultrapar-replay RUN",
        "Run the episodes on the answers of an earlier run (its directory, its id, or 'latest'), "
        "in a new run directory; needs no keys",
    )
    replay_misses: Setting[ReplayMisses] = Setting(
        "--ultrapar-replay-misses WHAT",
        "What becomes of requests that the replayed run has no answer to: 'fail' makes their case "
        "an error, 'ask' sends them",
        default="fail",
        choices=get_args(ReplayMisses),
    )
    reuse: Setting[str | None] = Setting(
        "--ultrapar-reuse RUN",
        "Take over graded answers of an earlier run (its directory, its id, or 'latest') where a "
        "suite says that it takes cases from another one",
    )
    plan: Setting[bool] = Setting(
        "--ultrapar-plan",
        "Send nothing: show calls, tokens, time, cost, the load of keys and limits, and a forecast "
        "for each mode; refuse an inconsistent pool. -n says for how many workers",
        default=False,
    )
    plan_from: Setting[str | None] = Setting(
        "--ultrapar-plan-from RUN",
        "The earlier run that the plan's turns, tokens and times come from: its directory, its "
        "id, 'latest', or 'none'",
        by_default="the newest that covers most of the cases",
    )
    check: Setting[LaneCheck | None] = Setting(
        "--ultrapar-check [WORD]",
        "Before the first case, send one minimal request to each lane that the selected cases "
        "need: if one fails, 'fail' ends the run with exit code 4 and names it, 'warn' says so "
        "and goes on without it; no word means fail. 'ultrapar check' does so without a run",
        choices=get_args(LaneCheck),
        bare="fail",
        is_recorded=True,
    )
    simulator: Setting[str | None] = Setting(
        "--ultrapar-simulator URL",
        "Use a simulated provider that 'ultrapar simulate' already runs, instead of starting one",
    )
    key_lock: Setting[KeyLock] = Setting(
        "--ultrapar-key-lock HOW",
        "What to do while another run of this host sends with one of the pool's keys: 'wait' "
        "until it has ended, or 'fail' with exit code 4",
        default="wait",
        choices=get_args(KeyLock),
        is_recorded=True,
    )
    cluster_run: Setting[str | None] = Setting(
        "--ultrapar-cluster-run NAME",
        "Run the cases together with all hosts that give this name, each case once, within limits "
        "that they share on a Redis or Valkey server; joining it later finishes what is left "
        "(needs the extra 'cluster')",
        is_recorded=True,
    )
    cluster: Setting[str | None] = Setting(
        "--ultrapar-cluster URL",
        "The Redis or Valkey server of --ultrapar-cluster-run: redis://, rediss:// or unix://; one "
        "with a password comes from the environment variable ULTRAPAR_CLUSTER",
        by_default="ULTRAPAR_CLUSTER",
    )
    cluster_host: Setting[str | None] = Setting(
        "--ultrapar-cluster-host NAME",
        "Name of this host in a run of several; each must have its own",
        by_default="the machine's",
    )
    cluster_patience_s: Setting[float] = Setting(
        "--ultrapar-cluster-patience SECONDS",
        "How long to wait for the server of --ultrapar-cluster-run when it does not answer, or for "
        "limits that it keeps closed; nothing is sent meanwhile",
        default=600.0,
        between=Bounds(at_least=1, at_most=7 * 86_400),
        is_recorded=True,
    )
    faults: Setting[Path | None] = Setting(
        "--ultrapar-faults FILE",
        "Have the run's own simulated provider fail as this TOML file says: errors, hangs, dropped "
        "connections, limits that change ('ultrapar simulate --help' shows an example)",
        kind=Path,
    )
    debug_log: Setting[WhichLog] = Setting(
        "--ultrapar-debug-log WHICH",
        "Write every lease, request, retry and episode to debug-<worker>.log in the run's "
        "directory: 'all' workers, 'off', or one by its number, from 1",
        default=WhichLog(),
        between=PROCESS_NUM,
        variable="DEBUG_LOG",
        by_truth=("all", "off"),
        is_recorded=True,
    )
    debug_process_num: Setting[int | None] = Setting(
        kind=int, between=PROCESS_NUM, variable="DEBUG_PROCESS_NUM"
    )
    """The one worker that `DEBUG_LOG=true` is for; alone it asks for nothing."""
    use_multi_vllm: Setting[bool | None] = Setting(kind=bool, variable="USE_MULTI_VLLM")
    """False takes the first of several ports only."""
    vllm_ports: Setting[Ports | None] = Setting(kind=Ports, variable="VLLM_PORTS")
    """Read where a pool names it in `ports_env`, and checked in any case."""

    def __init__(self, values: Mapping[str, Any], origin: Mapping[str, str]) -> None:
        """Settle.

        Args:
            values: By name; the others have their default.
            origin: By name, whence; the others are `default`.
        """
        for row in SETTINGS:
            setattr(self, row.name, values.get(row.name, row.default))
        self.origin = {row.name: origin.get(row.name, "default") for row in SETTINGS}

    @property
    def divided_by(self) -> Shard | None:
        """The shard whose part of the limits the run has; None where it has, or shares, all."""
        return self.shard if self.cluster_run is None else None


SETTINGS: tuple[Setting[Any], ...] = tuple(
    row for row in vars(Options).values() if isinstance(row, Setting)
)
