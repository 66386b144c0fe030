"""Check the address of a cluster's server, and the names of runs and hosts, before a run.

A URL with a password is only accepted from an environment variable, because every user of a
machine can read its processes' command lines.
"""

from __future__ import annotations

import hashlib
import re
from dataclasses import dataclass, field
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any
from urllib.parse import SplitResult, parse_qsl, unquote, urlsplit

from pytest_ultrapar.errors import ConfigError, refuse
from pytest_ultrapar.pool.network import is_local
from pytest_ultrapar.pool.secret import Secret
from pytest_ultrapar.report.text import one_line
from pytest_ultrapar.store.redact import Redactor

if TYPE_CHECKING:
    from collections.abc import Mapping

VARIABLE = "ULTRAPAR_CLUSTER"
DEFAULT_PORT = 6379
SCHEMES = ("redis", "rediss", "unix")
_LEAST_REDIS, _LEAST_VALKEY = (6, 2), (7, 2)
_MOST_DIGITS = 5
_NAME = re.compile(r"[A-Za-z0-9._-]{1,100}")
_PREFIX = re.compile(r"[A-Za-z0-9._-]{1,64}")
_FORM = "redis://[USER:PASSWORD@]HOST[:PORT][/DATABASE], rediss:// with TLS, or unix:///PATH"
_PARAMETERS = ("prefix", "ca_file", "trusted", "database")


@dataclass(frozen=True, slots=True)
class ClusterAddress:
    """The address of the server. Its repr and `shown` contain no password.

    Attributes:
        host: Name or address; empty if there is a `path`.
        path: Path of a Unix socket; empty if there is a `host`.
        prefix: The `PREFIX` in the names of all Redis keys: `{ultrapar:PREFIX}:...`.
        ca_file: PEM file with the certificate authorities to trust instead of the system's.
        trusted: Whether the user has declared that a server without a password is acceptable.
    """

    host: str
    port: int
    path: str
    database: int
    user: str | None
    password: Secret | None = field(repr=False)
    tls: bool
    prefix: str = "default"
    ca_file: str | None = None
    trusted: bool = False

    @property
    def shown(self) -> str:
        """The URL without a password: `redis://db.example:6379/0`."""
        if self.path:
            return f"unix://{one_line(self.path)}"
        host = one_line(f"[{self.host}]" if ":" in self.host else self.host)
        return f"{'rediss' if self.tls else 'redis'}://{host}:{self.port}/{self.database}"

    @property
    def key_prefix(self) -> str:
        """The prefix of all Redis keys. Its braces keep the keys on one node of a Redis Cluster."""
        return f"{{ultrapar:{self.prefix}}}:"

    @property
    def label(self) -> str:
        """The suffix for the names of files in which a host stores facts about this server."""
        return f"cluster-{self.digest[:16]}"

    @property
    def digest(self) -> str:
        """A digest of 64 hexadecimal digits, the same for all hosts that share limits."""
        return hashlib.sha256(f"{self.shown}\n{self.prefix}".encode()).hexdigest()

    def quoted(self, said: object, most: int = 200) -> str:
        """Turn a text from the server into one short line for a message, without the password.

        Args:
            said: An error, or its text.
            most: The maximum length of the result in characters.
        """
        # If a server does not know a command, its error message repeats all arguments.
        text = str(said).partition(", with args beginning with")[0]
        secrets = () if self.password is None else (self.password.reveal(),)
        return one_line(Redactor(secrets).short(text, most))

    def connection(self, timeout_s: float) -> dict[str, Any]:
        """Return the arguments for a redis-py client (synchronous or not), with the password.

        Args:
            timeout_s: The time limit for connecting, and then for each answer, in seconds.
        """
        told: dict[str, Any] = {
            "db": self.database,
            "username": self.user,
            "password": None if self.password is None else self.password.reveal(),
            "socket_timeout": timeout_s,
            "socket_connect_timeout": timeout_s,
            "client_name": "pytest-ultrapar",
            "protocol": 2,
        }
        if self.path:
            return told | {"unix_socket_path": self.path}
        told |= {"host": self.host, "port": self.port}
        if self.tls:
            told |= {"ssl": True, "ssl_ca_certs": self.ca_file, "ssl_check_hostname": True}
        return told


def read_address(
    given: str | None, environ: Mapping[str, str], *, option: str = "--ultrapar-cluster"
) -> ClusterAddress:
    """Return the address of the server that the option or the environment names.

    Raises:
        ConfigError: No server is named, the URL is invalid, or a URL on the command line contains a
            password. Also if the server is on another machine, and the URL contains neither a
            password nor `trusted=yes`.
    """
    if given is not None:
        return _parse(given, option, is_public=True)
    named = environ.get(VARIABLE, "").strip()
    if not named:
        refuse(
            f"no cluster server is given: set the environment variable {VARIABLE}, or pass "
            f"{option} URL"
        )
    return _parse(named, VARIABLE, is_public=False)


def check_name(name: str, option: str) -> None:
    """Check the name of a run or host.

    Args:
        name: The name.
        option: The option that set it, for messages.

    Raises:
        ConfigError: The name is empty, too long, or contains a character that is not allowed.
    """
    if not _NAME.fullmatch(name):
        refuse(
            f"{option} must be 1 to 100 letters, digits, '.', '_' or '-' "
            f"(got {one_line(name):.120})"
        )


def check_installed(what: str) -> None:
    """Check that redis-py, the client for the server, is installed, without importing it.

    Args:
        what: The feature that needs it, for messages.

    Raises:
        ConfigError: redis-py is not installed.
    """
    if find_spec("redis") is None:
        refuse(f"{what} needs redis-py: pip install 'pytest-ultrapar[cluster]'")


def _parse(text: str, where: str, *, is_public: bool) -> ClusterAddress:
    try:
        url = urlsplit(text)
        port = url.port
    except ValueError:
        raise _refused(where, "is not a URL") from None
    if url.scheme not in SCHEMES or "://" not in text:
        raise _refused(where, "must begin with redis://, rediss:// or unix://")
    if "#" in text or "@" in url.path + url.query:
        # Check this before any part of the URL is shown: the rest may belong to a password.
        why = "contains a '/', '?', '#' or '@' that must be written as %2F, %3F, %23 or %40"
        raise _refused(where, why)
    password = unquote(url.password) if url.password else None
    if password is not None and is_public:
        refuse(
            f"{where} contains a password, and every user of this machine can read command lines; "
            f"put the URL into the environment variable {VARIABLE} instead"
        )
    said = _parameters(url, where)
    is_socket = url.scheme == "unix"
    if is_socket and (not url.path or url.hostname):
        raise _refused(where, "names no socket")
    if not is_socket and not url.hostname:
        raise _refused(where, "names no host")
    address = ClusterAddress(
        host="" if is_socket else url.hostname or "",
        port=DEFAULT_PORT if port is None else port,
        path=unquote(url.path) if is_socket else "",
        database=_database(said.get("database", "0") if is_socket else url.path[1:] or "0", where),
        user=unquote(url.username) if url.username else None,
        password=None if password is None else Secret(password),
        tls=url.scheme == "rediss",
        prefix=said.get("prefix", "default"),
        ca_file=said.get("ca_file"),
        trusted=said.get("trusted", "no") == "yes",
    )
    if password is None and not (is_socket or is_local(address.host) or address.trusted):
        refuse(
            f"{where}: the server {address.shown} has no password and is not on this machine, so "
            "others could change limits. Give the server a password and add it to the URL, or "
            "add ?trusted=yes if only your hosts can reach the server"
        )
    return address


def _parameters(url: SplitResult, where: str) -> dict[str, str]:
    said = dict(parse_qsl(url.query, keep_blank_values=True))
    for name in said:
        if name not in _PARAMETERS:
            shown = name if name.isprintable() else repr(name)
            raise _refused(where, f"has an unknown parameter {shown:.40}")
    if not _PREFIX.fullmatch(said.get("prefix", "default")):
        raise _refused(where, "has a prefix that is not 1 to 64 letters, digits, '.', '_' or '-'")
    if said.get("trusted", "no") not in {"yes", "no"}:
        raise _refused(where, "sets trusted to something other than yes or no")
    ca_file = said.get("ca_file")
    if ca_file is not None and url.scheme != "rediss":
        raise _refused(where, "has a ca_file, but only rediss:// URLs use it")
    if ca_file is not None and not Path(ca_file).is_file():
        raise _refused(where, "names a ca_file that does not exist or is not a file")
    return said


def _database(text: str, where: str) -> int:
    if not (text.isascii() and text.isdecimal() and len(text) <= _MOST_DIGITS):
        raise _refused(where, "does not end in a database number")
    return int(text)


def _refused(where: str, why: str) -> ConfigError:
    # The message never shows the URL: the wrong part may be next to the password.
    return ConfigError(
        f"{where} {why}. The URL must be {_FORM}, and may be followed by ? and any of prefix=NAME, "
        "ca_file=PATH and trusted=yes, joined with &"
    )


@dataclass(frozen=True, slots=True)
class ServerFacts:
    """Facts about a server from its `INFO`.

    Attributes:
        name: Its name and version, as users know them, such as `Valkey 8.1.3`.
        run_id: An id that changes each time the server starts.
        forgets: Whether it loses recent writes when it is killed.
    """

    name: str
    run_id: str
    forgets: bool


def server_facts(
    server: Mapping[str, Any], persistence: Mapping[str, Any], memory: Mapping[str, Any]
) -> ServerFacts:
    """Read a server's facts from three sections of its `INFO`.

    Raises:
        ConfigError: The server is neither Redis nor Valkey, is too old, is a proxy, or evicts keys
            when its memory is full.
    """
    is_valkey = "valkey_version" in server
    version = str(server.get("valkey_version" if is_valkey else "redis_version", ""))
    if not version:
        refuse(
            "the server is neither Redis nor Valkey: its INFO contains no version; use another "
            "server"
        )
    name, least = ("Valkey", _LEAST_VALKEY) if is_valkey else ("Redis", _LEAST_REDIS)
    if tuple(int(part) for part in re.findall(r"[0-9]+", version)[:2]) < least:
        needed = ".".join(map(str, least))
        refuse(f"the server is {name} {version}; version {needed} or later is required")
    run_id = server.get("run_id")
    if not run_id:
        refuse(
            "the server's INFO contains no run_id, so lost data cannot be detected: use the URL "
            "of the server itself, not of a proxy in front of it"
        )
    policy = memory.get("maxmemory_policy", "noeviction")
    if int(memory.get("maxmemory", 0)) and policy != "noeviction":
        refuse(
            f"the server has maxmemory-policy {one_line(str(policy))}: it deletes hosts' shares "
            "of limits when its memory is full; set the policy to noeviction"
        )
    return ServerFacts(f"{name} {version}", str(run_id), not int(persistence.get("aof_enabled", 0)))
