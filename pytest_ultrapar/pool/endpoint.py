"""Where requests of a provider go: only addresses to which a key may travel."""

from __future__ import annotations

from ipaddress import IPv4Address, IPv6Address, ip_address
from urllib.parse import SplitResult, quote, unquote, urlsplit

from pytest_ultrapar.pool.place import Place, shown

_EXAMPLE = 'such as "https://api.example.com/v1"'
_URL_CHARS = 2_000
_PORTS = {"http": 80, "https": 443}
_THIS_MACHINE = frozenset(("localhost", "127.0.0.1", "::1"))


def check_base_url(place: Place, url: str) -> str:
    """The URL without a slash at its end: https, or http to this machine only.

    The messages never show the URL whole, since keys have been pasted into URLs before.

    Raises:
        ConfigError: It is no absolute URL of that kind, or carries a user, password, query or
            fragment.
    """
    if not url or len(url) > _URL_CHARS or any(c in " \\" or not c.isprintable() for c in url):
        place.refuse(f"must be a URL {_EXAMPLE} (got one that is empty, very long or holds blanks)")
    try:
        parts = urlsplit(url)
        parts.port  # noqa: B018 - raises ValueError when out of range
    except ValueError:
        place.refuse(f"must be a URL {_EXAMPLE} (its host or port is malformed)")
    if parts.username is not None or parts.password is not None:
        place.refuse(
            "must not hold a user name or password: secrets come from environment variables only"
        )
    if parts.scheme not in {"http", "https"}:
        found = f"got scheme {shown(parts.scheme)}" if parts.scheme else "it names no scheme"
        place.refuse(f"must begin with https:// ({found})")
    if not parts.hostname:
        place.refuse(f"must be a URL {_EXAMPLE} (it names no host)")
    if "?" in url or "#" in url:
        place.refuse("must not hold a query or fragment (`?` or `#`)")
    address = _address(parts.hostname)
    if address is not None and address.is_link_local:
        # 169.254.169.254 hands out the machine's own credentials in most clouds.
        place.refuse(f"must not be a link-local address (got {shown(parts.hostname)})")
    if parts.scheme == "http" and not _is_local(parts.hostname):
        place.refuse(
            "must begin with https://: http:// would send the key in the clear, and is allowed to"
            f" this machine only (got host {shown(parts.hostname)})"
        )
    return url.rstrip("/")


def is_loopback(url: str) -> bool:
    """Whether a checked URL points at this machine; False for an empty one."""
    host = urlsplit(url).hostname
    return host is not None and _is_local(host)


def with_port(url: str, port: int) -> str:
    """A checked URL with its port replaced."""
    parts = urlsplit(url)
    host = parts.hostname or ""
    netloc = f"[{host}]:{port}" if ":" in host else f"{host}:{port}"
    return SplitResult(parts.scheme, netloc, parts.path, "", "").geturl()


def server_of(url: str) -> str:
    """Host and port of a checked URL in one spelling, such as `api.example.com:443`.

    `localhost`, `127.0.0.1` and `[::1]` are one host, and a port that is not given is the scheme's.
    Other names are compared, not looked up: two that lead to one server are two servers here.
    """
    parts = urlsplit(url)
    host = parts.hostname or ""
    host = str(_address(host) or host)
    port = _PORTS.get(parts.scheme, 0) if parts.port is None else parts.port
    return f"{'localhost' if host in _THIS_MACHINE else host}:{port}"


def address_of(url: str) -> str:
    """A checked URL in one spelling: that of `server_of`, with scheme and path.

    In the path, dot segments are resolved, empty segments are left out, and what need not be
    escaped is not.
    """
    parts = urlsplit(url)
    path: list[str] = []
    for segment in map(unquote, parts.path.split("/")):
        if segment == "..":
            del path[-1:]
        elif segment not in {"", "."}:
            path.append(quote(segment, safe=""))
    return f"{parts.scheme}://{server_of(url)}/{'/'.join(path)}"


def _is_local(host: str) -> bool:
    address = _address(host)
    return host == "localhost" if address is None else address.is_loopback


def _address(host: str) -> IPv4Address | IPv6Address | None:
    try:
        return ip_address(host)
    except ValueError:
        return None
