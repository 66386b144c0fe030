"""Call the server of a cluster. Each call is idempotent, so it can be repeated.

A call may have been executed even if no answer arrived. Therefore each call has a number. If a call
is sent again with the same number, it changes nothing more and gets the same answer. Callers repeat
a call until they get an answer.
"""

from __future__ import annotations

import math
import re
from contextlib import contextmanager
from dataclasses import dataclass
from functools import partial
from time import sleep
from typing import TYPE_CHECKING, Annotated, Any, TypeVar

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pytest_ultrapar.cluster import claim_protocol, ledger_view
from pytest_ultrapar.cluster.address import ServerFacts, server_facts
from pytest_ultrapar.cluster.ledger_script import answer_of, arguments_of, keys_of, script_text
from pytest_ultrapar.cluster.run_identity import RunIdentity
from pytest_ultrapar.errors import ConfigError, UltraparError
from pytest_ultrapar.system.clock import boot_s
from pytest_ultrapar.system.files import NOT_THAT_JSON

if TYPE_CHECKING:
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_ultrapar.cluster.address import ClusterAddress
    from pytest_ultrapar.cluster.ledger import Answer as LedgerAnswer
    from pytest_ultrapar.cluster.ledger import Renewal

T = TypeVar("T")
NOT_THAT_SERVER = (ValueError, LookupError, TypeError, AttributeError, RecursionError)
"""The errors of redis-py and this module if the program that answers is not Redis or Valkey."""
ANSWER_S = 2.0
"""A call that takes longer than this (in seconds) is repeated. The slowest script takes a few
milliseconds."""
ROW_NAMES = "names"
"""The suffix of the Redis key under which a run stores its names for the limits that hosts share.
No script uses this key."""
_FINISHER = b"finisher:"
"""In a run's Redis hash, the prefix of the fields that name hosts that finished a case."""
_AT_ONCE = 200
"""The maximum number of Redis keys to read in one call."""
_TAKES_NO_CALLS = re.compile(
    r"\b(OOM|MISCONF|READONLY|MASTERDOWN|NOREPLICAS|LOADING|CLUSTERDOWN)\b|^(BUSY|UNKILLABLE)\b|"
    r"maxmemory|read only replica|Link with MASTER is down|enough good replicas|"
    r"is loading the dataset|The cluster is down|slot not served"
)
"""The errors of a server that accepts no calls at present, including errors from commands in
scripts.

The texts come from Redis 6.2 to Valkey 9, without the words that redis-py removes."""
RULES = (
    "+@hash +@sortedset +@bitmap +del +pexpire +scan +multi +exec +evalsha +script|load +info "
    "+time +ping +select +client|setname"
)
"""The permissions that the plugin's user on the server needs (`ACL SETUSER`), in addition to access
to the Redis keys.

`+@write` and `+@connection` would also allow `FLUSHALL`, `SWAPDB` and `CLIENT KILL`, which are not
restricted to the Redis keys that the user may access.
"""


class NoAnswerError(UltraparError):
    """The server cannot be reached, or accepts no calls at present; try again."""


def ask_patiently(ask: Callable[[], T], patience_s: float, waits: Callable[[str], object]) -> T:
    """Call `ask` until there is an answer.

    Args:
        ask: Makes the call once.
        patience_s: How long to wait for an answer.
        waits: Called before each new attempt, with the reason why the last one failed.

    Raises:
        ConfigError: There was no answer within `patience_s`, or `ask` raised this error.
    """
    until_s = boot_s() + patience_s
    while True:
        try:
            return ask()
        except NoAnswerError as error:
            if boot_s() > until_s:
                raise ConfigError(str(error)) from None
            waits(str(error))
            sleep(0.5)


class ClusterServer:
    """One thread's connection to the server of a cluster.

    Attributes:
        facts: The result of the last `read_facts`; None before the first.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        # Do not retry here: callers repeat calls and report the reason.
        self._client = redis.Redis(
            **address.connection(ANSWER_S),
            retry=Retry(NoBackoff(), 0),
            redis_connect_func=self._connect,  # type: ignore[arg-type]  # It passes one argument.
        )
        self._n_connected = self._n_seen = 0
        self._claims = self._client.register_script(script_text("claims.lua"))
        self._ledger = self._client.register_script(script_text("division.lua"))
        self.facts: ServerFacts | None = None

    def read_facts(self) -> ServerFacts:
        """Read the server's name, version and run id, and check its settings.

        Raises:
            NoAnswerError: The server does not answer.
            ConfigError: The server refuses the connection, is too old, or does not have the
                required settings.
        """
        self.facts = self._ask(
            lambda: server_facts(
                *(self._client.info(section) for section in ("server", "persistence", "memory"))
            )
        )
        return self.facts

    def _connect(self, connection: redis.Connection) -> None:
        """Count a connection. redis-py calls this for each new connection, including reconnects."""
        self._n_connected += 1
        connection.on_connect()  # type: ignore[no-untyped-call]

    def was_reconnected(self) -> bool:
        """Whether the client has reconnected since this method was last called.

        It may now be connected to a different server.
        """
        before, self._n_seen = self._n_seen, self._n_connected
        return self._n_connected > max(before, 1)

    def is_another(self) -> bool:
        """Read the facts again, and return whether the server has restarted since the last read.

        Raises:
            NoAnswerError, ConfigError: As for `read_facts`.
        """
        before = self.facts
        return before is None or self.read_facts().run_id != before.run_id

    def claim(self, run: str, call: claim_protocol.Call) -> claim_protocol.ClaimAnswer | None:
        """Make a call about the cases of a run (see `claim_protocol`).

        Raises:
            NoAnswerError: There was no answer; the same call may be made again.
            ConfigError: The server refuses the call.
        """
        prefix = run_prefix(self.address, run)
        keys = [prefix + name for name in claim_protocol.KEY_NAMES]
        said = self._ask(lambda: self._claims(keys=keys, args=[msgspec.json.encode(call)]))
        with self._ours():
            return claim_protocol.read_answer(said)

    def renew(self, call: Renewal) -> LedgerAnswer:
        """Make a call about limits (see `ledger`).

        Raises:
            NoAnswerError: There was no answer.
            ConfigError: The server refuses the call.
        """
        keys, arguments = keys_of(self.address.prefix, call), arguments_of(call)
        return answer_of(self._ask(lambda: self._ledger(keys=keys, args=arguments)))

    def claimable(self, run: str) -> list[int]:
        """Return how many cases in each line can be claimed now; empty before a host has joined.

        Raises:
            NoAnswerError, ConfigError: As for `claim`.
        """
        key = run_prefix(self.address, run) + "run"
        text = self._ask(lambda: self._client.hget(key, "claimable"))
        with self._ours():
            return msgspec.json.decode(text or b"[]", type=list[int])

    def name_rows(self, run: str, names: Mapping[str, tuple[str, str]]) -> None:
        """Store a run's names for the rows that it shares: the limit and the kind of each row.

        Raises:
            NoAnswerError, ConfigError: As for `claim`.
        """
        key = run_prefix(self.address, run) + ROW_NAMES

        def add(pipeline: redis.client.Pipeline) -> None:
            pipeline.delete(key)
            if names:
                texts = {row: msgspec.json.encode(name) for row, name in names.items()}
                pipeline.hset(key, mapping=texts)  # type: ignore[arg-type]
                pipeline.pexpire(key, claim_protocol.KEEP_MS)

        self._many(add)

    def agree(self, run: str, identity: str) -> str:
        """Store the facts that a run's shards agree on, and return them.

        If facts are already stored, change nothing, and return the stored facts.

        Raises:
            NoAnswerError, ConfigError: As for `claim`.
        """
        key = run_prefix(self.address, run) + "run"

        seconds, micros = self._ask(self._client.time)
        began_ms = seconds * 1000 + micros // 1000
        fresh: dict[str, str | int] = {"identity": identity, "lines": "[]", "began_ms": began_ms}
        fresh |= {"n_done": 0, "n_open": 0}

        def add(pipeline: redis.client.Pipeline) -> None:
            for field, value in fresh.items():
                pipeline.hsetnx(key, field, value)
            pipeline.pexpire(key, claim_protocol.KEEP_MS)
            pipeline.hget(key, "identity")

        found: bytes = self._many(add)[-1]
        return found.decode(errors="replace")

    def reopen(self, run: str, cases: list[int]) -> int:
        """Make finished cases of a run claimable again, and return how many were reopened.

        Raises:
            NoAnswerError, ConfigError: As for `claim`.
        """
        answer = self.claim(run, claim_protocol.ReopenCall(cases=cases))
        assert isinstance(answer, claim_protocol.Reopened)
        return answer.n

    def runs(self) -> list[str]:
        """Return the names of all runs on the server.

        Raises:
            NoAnswerError, ConfigError: As for `read_facts`.
        """
        before, after = f"{self.address.key_prefix}run:", ":run"
        pattern = f"{before}*{after}"
        found = self._ask(lambda: list(self._client.scan_iter(match=pattern, count=1000)))
        names = (key.decode(errors="replace") for key in found)
        return sorted(name.removeprefix(before).removesuffix(after) for name in names)

    def run(self, name: str) -> RunState | None:
        """Return the state of a run; None if there is no run with that name.

        Raises:
            NoAnswerError, ConfigError: As for `read_facts`.
        """
        prefix = run_prefix(self.address, name)

        found = self._many(
            lambda pipeline: (
                *(pipeline.hgetall(prefix + key) for key in ("run", "hosts", "open")),
                pipeline.zrange(prefix + "seen", 0, -1, withscores=True),
                pipeline.zcard(prefix + "failed"),
                pipeline.time(),
            )
        )
        if not found[0]:
            return None
        with self._ours():
            return _run_state(name, found)

    def ledger(self) -> ledger_view.LedgerView:
        """Return the limits that hosts share, and the notices, of all runs together.

        Raises:
            NoAnswerError, ConfigError: As for `read_facts`.
        """
        prefix = self.address.key_prefix
        ledger, seen, rows, news, time = self._many(
            lambda pipeline: (
                pipeline.hgetall(f"{prefix}ledger"),
                pipeline.zrange(f"{prefix}seen", 0, -1, withscores=True),
                pipeline.hgetall(f"{prefix}rows"),
                pipeline.hgetall(f"{prefix}news"),
                pipeline.time(),
            )
        )
        names = self._ask_of_each(
            self.runs(),
            lambda pipeline, run: pipeline.hgetall(run_prefix(self.address, run) + ROW_NAMES),
        )
        shares = self._ask_of_each(
            list(rows), lambda pipeline, row: pipeline.hgetall(f"{prefix}row:".encode() + row)
        )
        incarnations = {one for one, _ in seen} | {one for own in shares for one in own}
        hosts = self._ask_of_each(
            sorted(incarnations),
            lambda pipeline, one: pipeline.hmget(f"{prefix}host:".encode() + one, "host", "run"),
        )
        with self._ours():
            return ledger_view.view_of(
                ledger_view.LedgerKeys(
                    ledger=ledger,
                    seen=dict(seen),
                    rows=rows,
                    shares=dict(zip(rows, shares, strict=True)),
                    hosts={
                        one: (host.decode(errors="replace"), run.decode(errors="replace"))
                        for one, (host, run) in zip(sorted(incarnations), hosts, strict=True)
                        if host is not None and run is not None
                    },
                    names=ledger_view.names_of(names),
                    news=news,
                    server_ms=time[0] * 1000 + time[1] // 1000,
                )
            )

    def drain(self, run: str, host: str) -> None:
        """Tell a host to start no more cases.

        Raises:
            NoAnswerError, ConfigError: As for `read_facts`.
        """
        key = run_prefix(self.address, run) + "run"
        self._ask(lambda: self._client.hset(key, f"drain:{host}", 1))

    def forget(self, run: str) -> None:
        """Remove all data of a run.

        Raises:
            NoAnswerError, ConfigError: As for `read_facts`.
        """
        prefix = run_prefix(self.address, run)
        names = (*claim_protocol.KEY_NAMES, ROW_NAMES)
        self._ask(lambda: self._client.delete(*(prefix + name for name in names)))
        # Remove the record of its spent budget, too.
        of_ledger = self.address.key_prefix
        names_of_rows: Any = self._ask(lambda: self._client.hkeys(f"{of_ledger}rows"))
        rows = [one for one in names_of_rows if one.startswith(f"run:{run}:".encode())]
        if rows:

            def remove(pipeline: redis.client.Pipeline) -> None:
                pipeline.hdel(f"{of_ledger}rows", *rows)
                # Otherwise the ledger would treat these rows as lost.
                pipeline.hincrby(f"{of_ledger}ledger", "kept", -len(rows))
                pipeline.delete(*(f"{of_ledger}row:".encode() + row for row in rows))

            self._many(remove)

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._client.close()

    def _ask(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except redis.RedisError as error:
            raise meaning_of(self.address, error) from None
        except NOT_THAT_SERVER as error:
            raise ConfigError(
                f"{self.address.shown} does not answer like Redis or Valkey "
                f"({type(error).__name__}: {self.address.quoted(error, 100)})"
            ) from error

    def _many(
        self, add: Callable[[redis.client.Pipeline], object], *, at_once: bool = True
    ) -> list[Any]:
        """Send several commands together. If `at_once` is set, they form one transaction."""

        def ask() -> list[Any]:
            pipeline = self._client.pipeline(transaction=at_once)
            add(pipeline)
            return list(pipeline.execute())

        return self._ask(ask)

    def _ask_of_each(
        self, names: Sequence[T], add: Callable[[redis.client.Pipeline, T], object]
    ) -> list[Any]:
        """Send the same commands for each name, in batches that block the server only briefly."""

        def add_some(some: Sequence[T], pipeline: redis.client.Pipeline) -> None:
            for one in some:
                add(pipeline, one)

        found: list[Any] = []
        for first in range(0, len(names), _AT_ONCE):
            some = names[first : first + _AT_ONCE]
            found += self._many(partial(add_some, some), at_once=False)
        return found

    @contextmanager
    def _ours(self) -> Iterator[None]:
        """Raise a `ConfigError` if data turns out not to be from this version's scripts."""
        try:
            yield
        except ledger_view.NOT_THAT_LEDGER as error:
            raise self.unexpected_answer(error) from None

    def unexpected_answer(self, error: object) -> ConfigError:
        """Create the error for data that another program wrote. `error` says what was found."""
        return ConfigError(
            f"{self.address.shown} contains data that pytest-ultrapar did not write: {error}; "
            "to use other Redis keys, add ?prefix=NAME to the URL"
        )


@dataclass(frozen=True, slots=True)
class HostState:
    """The state of a host in a run, as known to the server.

    Attributes:
        seen_s: Seconds since its last call.
        joined_s: Seconds since it joined.
        n_done: The number of cases that it finished.
        n_open: The number of its cases in progress.
        per_min: How many cases per minute it has finished since it joined.
        drained: Whether an operator told it to start no more cases.
        said: The host's own human-readable text about its state.
    """

    name: str
    seen_s: float
    joined_s: float
    n_done: int
    n_open: int
    per_min: float
    drained: bool
    said: str

    @property
    def is_alive(self) -> bool:
        """Whether the host is alive, that is, not yet treated as dead."""
        return self.seen_s * 1000 < claim_protocol.SILENT_MS


@dataclass(frozen=True, slots=True)
class RunState:
    """The state of a run, as known to the server.

    Attributes:
        identity: The identity that its hosts agreed on, as JSON text.
        began_s: Seconds since its first host joined.
        n_done: The number of finished cases.
        n_failed: The number of finished cases that got no answer (`infra`).
        n_open: The number of cases in progress, on all hosts.
        n_unclaimed: The number of cases that no host has claimed.
        hosts: The hosts that are in the run at present.
        finishers: The names of all hosts that ever finished a case.
    """

    name: str
    identity: str
    began_s: float
    n_cases: int
    n_done: int
    n_failed: int
    n_open: int
    n_unclaimed: int
    hosts: tuple[HostState, ...]
    finishers: tuple[str, ...]

    @property
    def version(self) -> str:
        """The hosts' version of pytest-ultrapar; empty if the identity cannot be read."""
        try:
            return msgspec.json.decode(self.identity, type=RunIdentity).version
        except NOT_THAT_JSON:
            return ""

    @property
    def per_min(self) -> float:
        """How many cases per minute the present hosts together have finished since they joined."""
        return sum(host.per_min for host in self.hosts)

    @property
    def left_s(self) -> float | None:
        """Seconds until all cases are finished at the present rate; None if unknown or finished."""
        if not self.per_min or self.n_done >= self.n_cases:
            return None
        return (self.n_cases - self.n_done) * 60 / self.per_min


_Count = Annotated[int, msgspec.Meta(ge=0, le=2**53)]
"""A number of cases or a time in milliseconds, in the range that scripts represent exactly."""


class _Told(msgspec.Struct):
    name: str
    joined_ms: Annotated[float, msgspec.Meta(ge=0, le=2**53)]
    said: str = ""
    n_done: _Count = 0


class _Counts(msgspec.Struct):
    began_ms: _Count
    n_done: _Count
    n_open: _Count


def _run_state(name: str, found: Sequence[Any]) -> RunState:
    """Make the state of a run from the answers to the commands in `ClusterServer.run`.

    Raises:
        NOT_THAT_LEDGER: Another program wrote the data.
    """
    run, hosts, is_open, heard, n_failed, (seconds, micros) = found
    seen, now_ms = dict(heard), seconds * 1000 + micros // 1000
    told_of = {name: run[name.encode()].decode() for name in _Counts.__struct_fields__}
    counts = msgspec.convert(told_of, _Counts, strict=False)
    ranges = msgspec.json.decode(run[b"lines"], type=list[tuple[_Count, _Count]])
    unclaimed = msgspec.json.decode(run.get(b"unclaimed", b"[]"), type=list[_Count])
    if not all(math.isfinite(at_ms) for at_ms in seen.values()):
        raise ValueError("a time that is not finite")
    there = []
    for number, text in hosts.items():
        told = msgspec.json.decode(text, type=_Told)
        joined_s = max(0.0, now_ms - told.joined_ms) / 1000
        there.append(
            HostState(
                told.name,
                max(0.0, now_ms - seen.get(number, now_ms)) / 1000,
                joined_s,
                told.n_done,
                msgspec.convert(is_open.get(number, b"0").decode(), _Count, strict=False),
                told.n_done * 60 / max(joined_s, 1.0),
                f"drain:{told.name}".encode() in run,
                told.said,
            )
        )
    return RunState(
        name,
        run[b"identity"].decode(errors="replace"),
        (now_ms - counts.began_ms) / 1000,
        max((last for _, last in ranges), default=0),
        counts.n_done,
        n_failed,
        counts.n_open,
        sum(unclaimed),
        tuple(sorted(there, key=lambda host: host.name)),
        tuple(
            field.removeprefix(_FINISHER).decode(errors="replace")
            for field in sorted(run)
            if field.startswith(_FINISHER)
        ),
    )


def run_prefix(address: ClusterAddress, run: str) -> str:
    """The prefix of all Redis keys of a run."""
    return f"{address.key_prefix}run:{run}:"


def meaning_of(address: ClusterAddress, error: redis.RedisError) -> NoAnswerError | ConfigError:
    """Convert a redis-py error. `NoAnswerError` means that the same call may work later."""
    where, said = address.shown, address.quoted(error)
    if isinstance(error, redis.AuthenticationError):
        return ConfigError(f"{where} rejected the user name or password: {said}")
    # If the error occurs in a script, it has no class of its own.
    if isinstance(error, redis.exceptions.NoPermissionError) or "ACL failure" in str(error):
        return ConfigError(
            f"{where} denies a required permission ({said}); give this user the ACL "
            f"rules ~{address.key_prefix}* {RULES}"
        )
    if _TAKES_NO_CALLS.search(str(error)):
        return NoAnswerError(f"{where} does not accept commands at present: {said}")
    passing = redis.ConnectionError | redis.TimeoutError | redis.exceptions.TryAgainError
    # Before redis-py 6.0, errors of cluster nodes have no classes of their own.
    if isinstance(error, passing) or said.startswith("TRYAGAIN"):
        # With a wrong certificate, every connection fails.
        if why := _wrong_certificate(said.lower()):
            return ConfigError(f"{where}: {why} ({said})")
        hint = "; for a server without TLS, begin the URL with redis://" if address.tls else ""
        return NoAnswerError(f"{where} does not answer: {said}{hint}")
    if isinstance(error, redis.exceptions.AskError) or said.startswith(("MOVED ", "ASK ")):
        return ConfigError(
            f"{where} is a Redis Cluster node that does not serve the keys {address.key_prefix}*: "
            f"use the URL of the node that does ({said})"
        )
    return ConfigError(f"{where} rejected a command: {said}")


def _wrong_certificate(said: str) -> str:
    if "[x509" in said:
        return "the ca_file in the URL is not a certificate in PEM format"
    if "certificate verify failed" not in said:
        return ""
    if "mismatch" in said:
        return "its certificate is for another name: in the URL, use the name in the certificate"
    return (
        "its certificate is not trusted: add ?ca_file=PATH to the URL, with the path of the "
        "certificate authority's PEM file"
    )
