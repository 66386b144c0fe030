"""HTTP proxies: their URLs, which may hold a password, and which addresses go through them."""

from __future__ import annotations

import base64
from dataclasses import dataclass
from typing import TYPE_CHECKING
from urllib.parse import unquote, urlsplit

from pytest_ultrapar.pool.secret import Secret

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.pool.place import Place

PROXY_VARIABLES = ("https_proxy", "HTTPS_PROXY")
NO_PROXY_VARIABLES = ("no_proxy", "NO_PROXY")
_EXAMPLE = "such as http://proxy.example.com:3128"


@dataclass(frozen=True, slots=True)
class Proxy:
    """A proxy that makes tunnels (CONNECT).

    Attributes:
        url: Without user and password.
        authorization: The value of `Proxy-Authorization`, if it wants one.
    """

    url: str
    authorization: Secret | None = None

    @property
    def headers(self) -> dict[str, str]:
        """What the proxy gets in the clear and the server never."""
        if self.authorization is None:
            return {}
        return {"Proxy-Authorization": self.authorization.reveal()}


def parse_proxy(place: Place, text: str, *, may_hold_secret: bool) -> Proxy:
    """The proxy that a URL names.

    Args:
        place: Where the URL stands, for messages; they never show it.
        text: The URL.
        may_hold_secret: Whether it may name user and password; also whether `http://` may be left
            out, as is usual in the environment.

    Raises:
        ConfigError: It is no such URL.
    """
    text = text.strip()
    if may_hold_secret and "://" not in text:
        text = f"http://{text}"
    if not text.isprintable() or any(char in " \\" for char in text):
        place.refuse(f"must be a proxy's URL {_EXAMPLE} (it holds blanks or control characters)")
    try:
        parts = urlsplit(text)
        _ = parts.port  # raises ValueError when out of range
    except ValueError:
        place.refuse(f"must be a proxy's URL {_EXAMPLE} (its host or port is malformed)")
    if parts.scheme != "http":
        place.refuse(f"must begin with http:// {_EXAMPLE} (other kinds of proxies are not known)")
    if not parts.hostname:
        place.refuse(f"must be a proxy's URL {_EXAMPLE} (it names no host)")
    if parts.path not in {"", "/"} or "?" in text or "#" in text:
        place.refuse(f"must end with host and port {_EXAMPLE}")
    user_info, has_user, host = parts.netloc.rpartition("@")
    if has_user and not may_hold_secret:
        place.refuse(
            "must not hold a user name or password; put the URL into an environment variable and"
            ' name that one: proxy_env = "MY_PROXY"'
        )
    return Proxy(f"http://{host}", _basic(user_info) if has_user else None)


def proxy_secrets(environ: Mapping[str, str], variables: tuple[str, ...]) -> Iterator[str]:
    """What of the proxies' URLs in these variables nobody may see, in each form that may appear."""
    for name in variables:
        url = environ.get(name, "").strip()
        user_info, has_user, _ = url.rpartition("@")
        user_info = user_info.rpartition("://")[2]
        if not has_user:
            continue
        _, _, password = user_info.partition(":")
        for text in (password, user_info):
            yield text
            yield unquote(text)


def goes_around(url: str, exceptions: str) -> bool:
    """Whether `NO_PROXY` (hosts, `.suffixes`, `host:port`, `*`) excepts an https address."""
    from urllib import request  # noqa: PLC0415 - 20 ms, seldom needed

    parts = urlsplit(url)
    host = f"{parts.hostname}:{parts.port or 443}"
    return bool(request.proxy_bypass_environment(host, {"no": exceptions}))  # type: ignore[attr-defined]


def _basic(user_info: str) -> Secret:
    user, _, password = user_info.partition(":")
    said = f"{unquote(user)}:{unquote(password)}".encode()
    return Secret(f"Basic {base64.b64encode(said).decode()}")
