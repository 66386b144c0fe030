"""The way to one address: whom its certificate must satisfy, who we are, through which proxy."""

from __future__ import annotations

import os
from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple, NoReturn

from pytest_ultrapar.pool.place import Place, shown_text
from pytest_ultrapar.pool.proxy import (
    NO_PROXY_VARIABLES,
    PROXY_VARIABLES,
    Proxy,
    goes_around,
    parse_proxy,
    proxy_secrets,
)

if TYPE_CHECKING:
    import ssl
    from collections.abc import Callable, Iterator, Mapping

    from pytest_ultrapar.pool.model import Network, Pool, Provider

CA_VARIABLE = "SSL_CERT_FILE"


class Trust(NamedTuple):
    """What makes a TLS context; all are paths of PEM files.

    Attributes:
        ca_file: The authorities that are trusted, and no others; None: the default ones.
        client_cert: Our own certificate.
        client_key: Its key, where that is not in the same file.
    """

    ca_file: str | None = None
    client_cert: str | None = None
    client_key: str | None = None


DEFAULT_TRUST = Trust()


@dataclass(frozen=True, slots=True)
class Route:
    """How an address is reached; direct and with default trust, unless it says otherwise."""

    trust: Trust = DEFAULT_TRUST
    proxy: Proxy | None = None


DIRECT = Route()


def route_to(network: Network, url: str, environ: Mapping[str, str], place: Place) -> Route:
    """The way to a checked URL.

    What the pool says goes before the environment, which counts with `trust_env` only. http goes
    to this machine alone, and directly: through a proxy the key would leave it in the clear.

    Args:
        network: The provider's settings.
        url: Where to.
        environ: The environment's variables.
        place: The provider's table, for messages.

    Raises:
        ConfigError: A variable that names the proxy is unset or holds none.
    """
    if not url.startswith("https:"):
        return DIRECT
    ca_file = network.ca_file
    if ca_file is None and network.trust_env:
        ca_file = environ.get(CA_VARIABLE) or None
    trust = Trust(ca_file, network.client_cert, network.client_key)
    return Route(trust, _proxy(network, url, environ, place))


def tls_context(trust: Trust, default: Callable[[], ssl.SSLContext]) -> ssl.SSLContext:
    """A context that verifies certificates and host names.

    Args:
        trust: Whom to trust, and who we are.
        default: Makes one that trusts the default authorities.

    Raises:
        OSError: A file cannot be read or used; `check_routes` says it in words.
    """
    import ssl  # noqa: PLC0415 - 10 ms, needed for https only

    if trust.ca_file is None:
        context = default()
    else:
        context = ssl.create_default_context(cafile=trust.ca_file)
    if trust.client_cert is not None:
        context.load_cert_chain(trust.client_cert, trust.client_key, password=_refuse_password)
    return context


def check_routes(pool: Pool, environ: Mapping[str, str]) -> None:
    """Make sure that every address can be reached as the pool says: files and variables.

    Raises:
        ConfigError: A file is missing, cannot be read or is not what it should be, or a variable
            that names a proxy is unset or holds none.
    """
    checked = {DEFAULT_TRUST}
    for place, provider in _providers(pool):
        for url in _addresses(provider):
            trust = route_to(provider.network, url, environ, place).trust
            if trust not in checked:
                _check(trust, provider.network, place)
                checked.add(trust)


def proxy_variable(network: Network, environ: Mapping[str, str]) -> str | None:
    """The environment's variable that says which proxy to use, if one does."""
    names = _proxy_variables(network)
    if network.proxy_env is not None:
        names = (network.proxy_env,)
    return next((name for name in names if environ.get(name, "").strip()), None)


def route_secrets(pool: Pool, environ: Mapping[str, str]) -> set[str]:
    """Passwords of the pool's proxies, in each form in which they may appear."""
    return {
        secret
        for provider in pool.providers
        for secret in proxy_secrets(environ, _proxy_variables(provider.network))
    }


def route_variables(network: Network) -> tuple[str, ...]:
    """Names of the environment's variables that ways depend on."""
    from_env = (CA_VARIABLE, *NO_PROXY_VARIABLES) if network.trust_env else ()
    return (*_proxy_variables(network), *from_env)


def place_of(pool: Pool, index: int) -> Place:
    """The table of the pool's provider of that index."""
    return Place(pool.path).at("provider").item(index)


def _providers(pool: Pool) -> Iterator[tuple[Place, Provider]]:
    for index, provider in enumerate(pool.providers):
        if provider.api != "simulated":
            yield place_of(pool, index), provider


def _addresses(provider: Provider) -> Iterator[str]:
    yield provider.base_url
    for model in provider.models:
        for instance in model.instances:
            yield instance.base_url
            yield instance.metrics_url or ""


def _proxy_variables(network: Network) -> tuple[str, ...]:
    named = () if network.proxy_env is None else (network.proxy_env,)
    return (*named, *(PROXY_VARIABLES if network.trust_env else ()))


def _proxy(network: Network, url: str, environ: Mapping[str, str], place: Place) -> Proxy | None:
    if network.proxy is not None:
        return parse_proxy(place.at("proxy"), network.proxy, may_hold_secret=False)
    variable = proxy_variable(network, environ)
    if variable is None:
        if network.proxy_env is not None:
            place.at("proxy_env").refuse(
                f"names the environment variable {network.proxy_env}, which is not set or empty"
            )
        return None
    if network.proxy_env is None:
        exceptions = next((environ[name] for name in NO_PROXY_VARIABLES if environ.get(name)), "")
        if exceptions and goes_around(url, exceptions):
            return None
    return parse_proxy(Place("environment", variable), environ[variable], may_hold_secret=True)


def _check(trust: Trust, network: Network, place: Place) -> None:
    """Try each file by itself, to name the one that is wrong."""
    import ssl  # noqa: PLC0415 - needed for https only

    if trust.ca_file is not None:
        where = place.at("ca_file")
        if network.ca_file is None:
            where = Place("environment", CA_VARIABLE)
        _check_readable(where, trust.ca_file)
        try:
            ssl.create_default_context(cafile=trust.ca_file)
        except ssl.SSLError:
            _refuse_file(where, trust.ca_file, "holds no certificate in PEM form")
    if trust.client_cert is None:
        return
    where = place.at("client_cert")
    _check_readable(where, trust.client_cert)
    if trust.client_key is not None:
        where = place.at("client_key")
        _check_readable(where, trust.client_key)
    try:
        tls_context(trust._replace(ca_file=None), lambda: ssl.SSLContext(ssl.PROTOCOL_TLS_CLIENT))
    except _EncryptedKeyError:
        key_file = trust.client_key or trust.client_cert
        _refuse_file(where, key_file, "is encrypted; a key without a password is needed")
    except ssl.SSLError as error:
        if error.reason == "KEY_VALUES_MISMATCH":
            _refuse_file(where, trust.client_key or "", "does not belong to client_cert")
        both = "no certificate with its key in PEM form"
        if trust.client_key is None:
            both += "; name the key's file in client_key if it is another one"
        place.at("client_cert").refuse(f"and client_key hold {both}")


class _EncryptedKeyError(ValueError):
    """A key asks for a password."""


def _refuse_password() -> NoReturn:
    # Without it OpenSSL would ask on the terminal.
    raise _EncryptedKeyError


def _check_readable(place: Place, path: str) -> None:
    try:
        with open(path, "rb"):  # noqa: PTH123 - may be any text
            pass
    except OSError as error:
        reason = error.strerror or os.strerror(error.errno or 0)
        _refuse_file(place, path, f"cannot be read ({reason})")


def _refuse_file(place: Place, path: str, what: str) -> NoReturn:
    place.refuse(f"names a file that {what}: {shown_text(path)}")
