"""The route to a provider's servers: addresses, TLS and proxies."""

from __future__ import annotations

import base64
import os
import re
from contextlib import suppress
from dataclasses import dataclass
from ipaddress import IPv4Address, IPv6Address, ip_address
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple, NoReturn
from urllib.parse import SplitResult, unquote, urlsplit

from pytest_ultrapar.apis.registry import SIMULATED
from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import Location, shown, shown_text
from pytest_ultrapar.pool.model import Network
from pytest_ultrapar.pool.secret import Secret, refuse_of_others
from pytest_ultrapar.system.files import open_file

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping, Sequence

    from pytest_ultrapar.pool.file import ProviderTable
    from pytest_ultrapar.pool.model import Model, Pool
    from pytest_ultrapar.pool.setting_values import Sources


_EXAMPLE = 'such as "https://api.example.com/v1"'
_URL_CHARS = 2_000
_PORTS = {"http": 80, "https": 443}
_THIS_MACHINE = frozenset(("localhost", "127.0.0.1", "::1"))


def check_base_url(location: Location, url: str) -> str:
    """Return the URL without a trailing slash, if it is https, or http to this machine.

    Messages never show the whole URL, because users sometimes paste keys into URLs.

    Raises:
        ConfigError: It is not an absolute URL of that kind, its host is not allowed, or it contains
            a user name, password, query or fragment.
    """
    if not url or len(url) > _URL_CHARS or any(c in " \\" or not c.isprintable() for c in url):
        location.refuse(
            f"must be a URL {_EXAMPLE} (got one that is empty, too long or contains blanks)"
        )
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError when out of range
    except ValueError:
        location.refuse(f"must be a URL {_EXAMPLE} (its host or port is malformed)")
    if parts.username is not None or parts.password is not None:
        location.refuse(
            "must not contain a user name or password: secrets come from environment variables only"
        )
    if parts.scheme not in {"http", "https"}:
        found = f"got scheme {shown(parts.scheme)}" if parts.scheme else "it has no scheme"
        location.refuse(f"must begin with https:// ({found})")
    if not parts.hostname:
        location.refuse(f"must be a URL {_EXAMPLE} (it has no host)")
    if not parts.hostname.isascii():
        # Letters from other alphabets can imitate a host that the reader knows.
        location.refuse("must name its host in ASCII; write an international name as xn--...")
    if "?" in url or "#" in url:
        location.refuse("must not contain a query or fragment (`?` or `#`)")
    address = _address(parts.hostname)
    if address is not None and address.is_link_local:
        # In most clouds 169.254.169.254 returns the machine's own credentials.
        location.refuse(f"must not be a link-local address (got {shown(parts.hostname)})")
    if parts.scheme == "http" and not is_local(parts.hostname):
        location.refuse(
            "must begin with https://: http:// would send the key unencrypted, and is allowed only"
            f" for this machine (got host {shown(parts.hostname)})"
        )
    return parts.scheme + url[len(parts.scheme) :].rstrip("/")


def host_of(url: str) -> str:
    """Return the host of a checked URL, as messages name it."""
    return urlsplit(url).hostname or ""


def with_port(url: str, port: int) -> str:
    """Return a checked URL with another port."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return SplitResult(parts.scheme, netloc, parts.path, "", "").geturl()


def server_of(url: str) -> str:
    """Return the host and port of a checked URL in a canonical form: `api.example.com:443`.

    `localhost`, `127.0.0.1` and `[::1]` count as the same host. If the port is missing, the
    scheme's default is used. Other names are not resolved, so two names for one server count as two
    servers.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = str(_address(host) or host)
    port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    return f"{'localhost' if host in _THIS_MACHINE else host}:{port}"


def address_of(url: str) -> str:
    """Return a checked URL in a canonical form: scheme, `server_of` and path."""
    parts = urlsplit(url)
    return f"{parts.scheme}://{server_of(url)}/{parts.path.strip('/')}"


def is_local(host: str) -> bool:
    """Whether a host is this machine: `localhost` or a loopback address."""
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None


PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY")
NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY")
_PROXY = re.compile(r"http://[^\s/?#\\]+/?", re.IGNORECASE)


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that opens tunnels (CONNECT).

    Attributes:
        url: The proxy's URL without user name and password.
        authorization: The value of the header `Proxy-Authorization`, if the proxy requires it.
    """

    url: str
    authorization: Secret | None = None

    @property
    def headers(self) -> dict[str, str]:
        """Headers that only the proxy receives. They are sent unencrypted."""
        if self.authorization is None:
            return {}
        return {"Proxy-Authorization": self.authorization.reveal()}


def parse_proxy(location: Location, text: str, *, may_hold_secret: bool) -> Proxy:
    """Parse the URL of a proxy.

    Args:
        location: The place of the URL, for messages, which never show the URL itself.
        text: The URL.
        may_hold_secret: Whether the URL may contain a user name and password, and may omit
            `http://`, as is usual in environment variables for proxies.

    Raises:
        ConfigError: The text is not such a URL.
    """
    text = text.strip()
    if may_hold_secret and "://" not in text:
        text = f"http://{text}"
    try:
        parts = urlsplit(text)
        is_one = bool(parts.hostname) and parts.port != 0 and text.isprintable()
    except ValueError:  # an invalid port, or brackets that do not match
        is_one = False
    if not is_one or not _PROXY.fullmatch(text):
        location.refuse(
            "must be a proxy's URL such as http://proxy.example.com:3128, and consist only of "
            "http://, a host and an optional port"
        )
    user_info, has_user, host = parts.netloc.rpartition("@")
    if has_user and not may_hold_secret:
        location.refuse(
            "must not contain a user name or password; put the URL into an environment variable"
            ' and write the name of that variable: proxy_env = "MY_PROXY"'
        )
    return Proxy(f"http://{host}", _basic(user_info) if has_user else None)


def goes_around(url: str, exceptions: str) -> bool:
    """Whether `NO_PROXY` (hosts, `.suffixes`, `host:port`, `*`) exempts an https address."""
    from urllib import request  # noqa: PLC0415 - 20 ms, rarely needed

    parts = urlsplit(url)
    host = f"{parts.hostname}:{parts.port or 443}"
    return bool(request.proxy_bypass_environment(host, {"no": exceptions}))  # type: ignore[attr-defined]


def _basic(user_info: str) -> Secret:
    user, _, password = user_info.partition(":")
    said = f"{unquote(user)}:{unquote(password)}".encode()
    return Secret(f"Basic {base64.b64encode(said).decode()}")


CA_VARIABLE = "SSL_CERT_FILE"


class Trust(NamedTuple):
    """The paths of PEM files for a TLS context.

    Attributes:
        ca_file: The only authorities to trust; None means the default authorities.
        client_cert: The client certificate.
        client_key: The certificate's key, if it is in another file.
    """

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


DEFAULT_TRUST = Trust()


@dataclass(frozen=True, slots=True)
class Route:
    """The route to an address. By default it is direct, with the default authorities."""

    trust: Trust = DEFAULT_TRUST
    proxy: Proxy | None = None


DIRECT = Route()


def route_to(network: Network, url: str, environ: Mapping[str, str], location: Location) -> Route:
    """Return the route to a checked URL.

    The pool's settings override the environment, which applies only with `trust_env`. http is
    allowed only to this machine. Such a request never uses a proxy, because through a proxy, the
    key would leave the machine unencrypted.

    Args:
        network: The provider's settings.
        url: The URL to reach.
        environ: The environment's variables.
        location: The provider's table, for messages.

    Raises:
        ConfigError: The variable for the proxy is unset, or its value is not the URL of a proxy.
    """
    if not url.startswith("https:"):
        return DIRECT
    ca_file = network.ca_file
    if ca_file is None and network.trust_env:
        ca_file = environ.get(CA_VARIABLE) or None
    trust = Trust(ca_file, network.client_cert, network.client_key)
    return Route(trust, _proxy(network, url, environ, location))


def tls_context(trust: Trust, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """Make a TLS context that verifies certificates and host names.

    Args:
        trust: The trusted authorities and the client certificate.
        default: Makes a context that trusts the default authorities.

    Raises:
        OSError: A file cannot be read or used; `check_routes` explains why.
    """
    import ssl  # noqa: PLC0415 - 10 ms, and only https uses it

    if trust.ca_file is None:
        context = default()
    else:
        context = ssl.create_default_context(cafile=trust.ca_file)
    if trust.client_cert is not None:
        # With an empty password, OpenSSL does not ask for a password on the terminal.
        context.load_cert_chain(trust.client_cert, trust.client_key, password="")
    return context


def check_routes(pool: Pool, environ: Mapping[str, str]) -> None:
    """Check the files and variables that determine the routes to all providers with lanes.

    Raises:
        ConfigError: A file is missing, unreadable or invalid, the variable for a proxy is unset, or
            its value is not the URL of a proxy.
    """
    checked = {DEFAULT_TRUST}
    asked = {lane.provider for lane in pool.lanes}
    for index, provider in enumerate(pool.providers):
        if provider.name not in asked:
            continue
        location = place_of(pool, index)
        for url in _addresses(provider.base_url, provider.models):
            trust = route_to(provider.network, url, environ, location).trust
            if trust not in checked:
                _check(trust, provider.network, location)
                checked.add(trust)


def proxy_variable(network: Network, environ: Mapping[str, str]) -> str | None:
    """The environment variable that sets the proxy; None if no variable does."""
    names = _proxy_variables(network)
    if network.proxy_env is not None:
        names = (network.proxy_env,)
    return next((name for name in names if environ.get(name, "").strip()), None)


def route_secrets(pool: Pool, environ: Mapping[str, str]) -> set[str]:
    """The passwords for the pool's proxies, in every form in which they may appear in output."""
    found: set[str] = set()
    for provider in pool.providers:
        for name in _proxy_variables(provider.network):
            user_info, has_user, _ = environ.get(name, "").strip().rpartition("@")
            if has_user:
                user_info = user_info.rpartition("://")[2]
                password = user_info.partition(":")[2]
                found |= {user_info, password, unquote(user_info), unquote(password)}
    return found


def route_variables(network: Network) -> tuple[str, ...]:
    """Names of the environment variables that affect the route to a server."""
    from_env = (CA_VARIABLE, *NO_PROXY_VARIABLES) if network.trust_env else ()
    return (*_proxy_variables(network), *from_env)


def place_of(pool: Pool, index: int) -> Location:
    """The location of a provider's table, given the provider's index in the pool."""
    return Location(pool.path).at("provider").item(index)


def _addresses(base_url: str, models: Sequence[Model]) -> Iterator[str]:
    yield base_url
    for model in models:
        for instance in model.instances:
            yield instance.base_url
            yield instance.metrics_url or ""


def _proxy_variables(network: Network) -> tuple[str, ...]:
    named = () if network.proxy_env is None else (network.proxy_env,)
    return (*named, *(PROXY_VARIABLES if network.trust_env else ()))


def _proxy(
    network: Network, url: str, environ: Mapping[str, str], location: Location
) -> Proxy | None:
    if network.proxy is not None:
        return parse_proxy(location.at("proxy"), network.proxy, may_hold_secret=False)
    variable = proxy_variable(network, environ)
    if variable is None:
        if network.proxy_env is not None:
            location.at("proxy_env").refuse(
                f"names the environment variable {network.proxy_env}, which is unset or empty"
            )
        return None
    if network.proxy_env is None:
        exceptions = next((environ[name] for name in NO_PROXY_VARIABLES if environ.get(name)), "")
        if exceptions and goes_around(url, exceptions):
            return None
    return parse_proxy(Location("environment", variable), environ[variable], may_hold_secret=True)


def _check(trust: Trust, network: Network, location: Location) -> None:
    """Load the files one by one, and refuse the first one that is unreadable or invalid."""
    import ssl  # noqa: PLC0415 - only https uses it

    of_ca = location.at("ca_file")
    if network.ca_file is None:
        of_ca = Location("environment", CA_VARIABLE)
    places = (of_ca, location.at("client_cert"), location.at("client_key"))
    for where, path in zip(places, trust, strict=True):
        if path is not None:
            _check_readable(where, path)
    try:
        tls_context(Trust(trust.ca_file), lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except ssl.SSLError:
        _refuse_file(of_ca, trust.ca_file or "", "contains no certificate in PEM format")
    try:
        tls_context(trust, lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except ssl.SSLError:
        location.at("client_cert").refuse(
            "and client_key do not contain a certificate and its key in PEM format; the key must "
            "belong to the certificate and must not be encrypted"
        )


def _check_readable(location: Location, path: str) -> None:
    try:
        open_file(path).close()
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        _refuse_file(location, path, f"cannot be read ({reason})")


def _refuse_file(location: Location, path: str, what: str) -> NoReturn:
    location.refuse(f"names a file that {what}: {shown_text(path)}")


_FIELDS = ("ca_file", "client_cert", "client_key", "proxy", "proxy_env", "trust_env")


def build_network(
    location: Location, table: ProviderTable, models: Sequence[Model], sources: Sources
) -> Network:
    """Return a provider's network settings, and record them in `sources` without any secret.

    Paths become absolute. A relative path is relative to the directory of the pool file.

    Raises:
        ConfigError: The provider is simulated or has no https address, `client_key` is set without
            `client_cert`, both `proxy` and `proxy_env` are set, or a value is not allowed.
    """
    given = [field for field in _FIELDS if getattr(table, field) is not None]
    if not given:
        return Network()
    if table.api == SIMULATED:
        location.at(given[0]).refuse('does not apply to api = "simulated"; leave it out')
    if not any(url.startswith("https:") for url in _addresses(table.base_url or "", models)):
        location.at(given[0]).refuse(
            "applies only to https:// addresses, but this provider has only http:// ones, which are"
            " on this machine and use no proxy; leave it out"
        )
    if table.client_key is not None and table.client_cert is None:
        location.at("client_key").refuse("requires client_cert, the certificate for this key")
    if table.proxy is not None and table.proxy_env is not None:
        location.at("proxy_env").refuse("cannot be combined with proxy; leave one of them out")
    if table.proxy is not None:
        parse_proxy(location.at("proxy"), table.proxy, may_hold_secret=False)
    if table.proxy_env is not None:
        refuse_of_others(location.at("proxy_env"), table.proxy_env)
    settings: dict[str, Any] = {field: getattr(table, field) for field in given}
    for field in ("ca_file", "client_cert", "client_key"):
        if field in settings:
            settings[field] = _path(location.at(field), settings[field])
    network = Network(**settings)
    for field, value in settings.items():
        sources.note(f"{table.name} {field}", value)
    _note_environment(table.name, network, sources)
    return network


def _note_environment(name: str, network: Network, sources: Sources) -> None:
    """Record the values from the environment. A proxy's address is recorded without credentials."""
    environ = sources.environ
    ca_file = environ.get(CA_VARIABLE)
    if network.trust_env and network.ca_file is None and ca_file:
        sources.note(f"{name} ca_file", ca_file, f"environment {CA_VARIABLE}")
    variable = proxy_variable(network, environ) if network.proxy is None else None
    if variable is not None:
        # The run refuses an invalid value later; a plan does not need the proxy.
        with suppress(ConfigError):
            where = Location("environment", variable)
            proxy = parse_proxy(where, environ[variable], may_hold_secret=True)
            sources.note(f"{name} proxy", proxy.url, f"environment {variable}")


def _path(location: Location, given: str) -> str:
    if not given or "\0" in given:
        location.refuse("must be the path of a PEM file (got an empty or malformed path)")
    return str(Path(location.source).absolute().parent / given)
