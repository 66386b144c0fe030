"""Calls to the server of a cluster: made once and answered once, or repeated as they were.

A call that got no answer may have been carried out. Each therefore has a number, and the same call
sent again changes nothing and is answered again; so whoever calls repeats until there is an answer.
"""

from __future__ import annotations

from importlib import resources
from typing import TYPE_CHECKING, NoReturn, TypeVar

import msgspec
import redis
from redis.backoff import NoBackoff
from redis.retry import Retry

from pytest_ultrapar.cluster.address import ServerFacts, server_facts
from pytest_ultrapar.cluster.claims import KEY_NAMES, Answer, Call, read_answer
from pytest_ultrapar.errors import ConfigError, UltraparError

if TYPE_CHECKING:
    from collections.abc import Callable

    from pytest_ultrapar.cluster.address import ClusterAddress

T = TypeVar("T")
ANSWER_S = 2.0
"""A call that took longer is repeated; the longest script takes some milliseconds."""
RULES = "+@connection +@read +@write +@scripting +info +time"
"""What a user of the server must be allowed, beside the keys (`ACL SETUSER`)."""


class NoAnswerError(UltraparError):
    """The server cannot be reached, or does not answer: to be tried again."""


class ClusterServer:
    """A connection of one thread to the server of a cluster.

    Attributes:
        facts: What it said of itself when the connection was made last; None before.
    """

    def __init__(self, address: ClusterAddress) -> None:
        self.address = address
        # Whoever calls repeats: how often, and what is said meanwhile, is theirs to decide.
        self._client = redis.Redis(**address.connection(ANSWER_S), retry=Retry(NoBackoff(), 0))
        self._claims = self._client.register_script(_script("claims.lua"))
        self.facts: ServerFacts | None = None

    def look(self) -> ServerFacts:
        """What the server says of itself, asked now.

        Raises:
            NoAnswerError: It does not answer.
            ConfigError: It refuses us, is too old, or may not be used as it is.
        """
        self.facts = self._ask(
            lambda: server_facts(self._client.info("server"), self._client.info("persistence"))
        )
        return self.facts

    def is_another(self) -> bool:
        """Whether it has started anew since `look`; looks again.

        Raises:
            As `look`.
        """
        before = self.facts
        return before is None or self.look().run_id != before.run_id

    def claim(self, run: str, call: Call) -> Answer | None:
        """Make a call about the cases of a run (`claims`).

        Raises:
            NoAnswerError: There was no answer; the same call may be made again.
            ConfigError: The server refuses it.
        """
        prefix = run_prefix(self.address, run)
        keys = [prefix + name for name in KEY_NAMES]
        said = self._ask(lambda: self._claims(keys=keys, args=[msgspec.json.encode(call)]))
        try:
            return read_answer(said)
        except ValueError as error:
            raise self._strange(error) from None

    def close(self) -> None:
        """Close the connection. Idempotent."""
        self._client.close()

    def _ask(self, ask: Callable[[], T]) -> T:
        try:
            return ask()
        except redis.RedisError as error:
            refuse(self.address, error)

    def _strange(self, error: Exception) -> ConfigError:
        return ConfigError(
            f"{self.address.shown} holds something else than pytest-ultrapar wrote there: {error}; "
            "give this installation a prefix of its own (?prefix=NAME)"
        )


def run_prefix(address: ClusterAddress, run: str) -> str:
    """Of all keys of one run."""
    return f"{address.key_prefix}run:{run}:"


def refuse(address: ClusterAddress, error: redis.RedisError) -> NoReturn:
    """Raise what an error of redis-py means to a user.

    Raises:
        NoAnswerError: It may work the next time.
        ConfigError: It will not.
    """
    where, said = address.shown, " ".join(str(error).split())[:200]
    if isinstance(error, redis.AuthenticationError):
        msg = f"{where} refuses user and password: {said}"
        raise ConfigError(msg) from None
    if isinstance(error, redis.exceptions.NoPermissionError):
        msg = f"{where} does not let this user do what is needed ({said}); it needs {RULES}"
        raise ConfigError(msg) from None
    is_passing = isinstance(
        error,
        redis.ConnectionError
        | redis.TimeoutError
        | redis.exceptions.TryAgainError
        | redis.exceptions.ClusterDownError,
    )
    if is_passing:
        # A wrong certificate comes as a failed connection, and stays wrong.
        if "certificate verify failed" in said.lower():
            msg = (
                f"{where}: its certificate is not trusted ({said}); name the authority's file with "
                "?ca_file=PATH"
            )
            raise ConfigError(msg) from None
        msg = f"{where} does not answer: {said}"
        raise NoAnswerError(msg) from None
    if isinstance(error, redis.exceptions.ResponseError) and "DB index" in said:
        msg = f"{where}: there is no such database: {said}"
        raise ConfigError(msg) from None
    if isinstance(error, redis.ReadOnlyError):
        msg = f"{where} is a replica that cannot be written to; name the primary"
        raise ConfigError(msg) from None
    msg = f"{where} refused a call: {said}"
    raise ConfigError(msg) from None


def _script(name: str) -> str:
    return resources.files("pytest_ultrapar.cluster").joinpath(name).read_text(encoding="utf-8")
