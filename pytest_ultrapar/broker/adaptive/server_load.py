"""Asks servers how busy they are, and reads their answers."""

from __future__ import annotations

import contextlib
import re
import threading
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ultrapar.pool.network import Route, place_of, route_to, route_variables, tls_context
from pytest_ultrapar.system.clock import boot_s

if TYPE_CHECKING:
    import asyncio
    import urllib.request
    from collections.abc import Callable, Mapping

    from pytest_ultrapar.pool.model import Instance, Pool, Provider


_LARGEST = 1e9
_NAMES = {
    "vllm:num_requests_running": "running",
    "vllm:num_requests_waiting": "waiting",
    "sglang:num_running_reqs": "running",
    "sglang:num_queue_reqs": "waiting",
    "tgi_batch_current_size": "running",
    "tgi_queue_size": "waiting",
    "llamacpp:requests_processing": "running",
    "llamacpp:requests_deferred": "waiting",
}
_SAMPLE = re.compile(rf"^({'|'.join(_NAMES)})(?:\{{.*\}})?[ \t]+(\S+)", re.MULTILINE)


class ServerLoad(NamedTuple):
    """The requests at one server, summed over its engines and models.

    Attributes:
        running: How many requests are being processed, >= 0.
        waiting: How many requests are in the queue, >= 0.
    """

    running: float
    waiting: float


def parse_load(text: str) -> ServerLoad | None:
    """Read a server's load from Prometheus text; None if a number is missing. Never raises.

    Source: Prometheus, "Text-based format"; the gauges of vLLM ("Production Metrics"), SGLang
    ("Production Metrics"), TGI ("Metrics") and llama.cpp's server (its README, `--metrics`).
    """
    sums: dict[str, float] = {}
    for name, value in _SAMPLE.findall(text):
        with contextlib.suppress(ValueError):
            n = float(value)
            if 0 <= n <= _LARGEST:
                kind = _NAMES[name]
                sums[kind] = sums.get(kind, 0.0) + n
    return ServerLoad(**sums) if len(sums) == len(ServerLoad._fields) else None


_TIMEOUT_S = 2.0
_LARGEST_BYTES = 4 * 1024 * 1024
_PIECE_BYTES = 64 * 1024


def ask_load(url: str, route: Route) -> ServerLoad | None:
    """Ask a server for its load; None if it gives no valid answer within two seconds.

    This uses urllib because importing an HTTP client takes 90 ms, and the broker's process does not
    need one for anything else. The pool has already checked the scheme and the host. Redirects are
    not followed, and no proxy is used except one that the pool names.

    Args:
        url: The URL of the server's `/metrics`.
        route: The route to the server.
    """
    import http.client  # noqa: PLC0415 - 20 ms, and few runs need it
    import urllib.request  # noqa: PLC0415

    proxy = route.proxy
    proxies = {} if proxy is None else {"https": proxy.url}
    # urllib sends these headers to the proxy and not to the server.
    asked = urllib.request.Request(url, headers={} if proxy is None else proxy.headers)  # noqa: S310 - checked
    until_s = boot_s() + _TIMEOUT_S
    with (
        contextlib.suppress(OSError, ValueError, http.client.HTTPException),
        _opener(url, route, proxies).open(asked, timeout=_TIMEOUT_S) as answer,
    ):
        if answer.status != http.HTTPStatus.OK:
            return None
        body = bytearray()
        # Read in pieces: the time-out applies to each piece, so a slow server could send forever.
        while boot_s() < until_s and len(body) < _LARGEST_BYTES:
            piece = answer.read1(_PIECE_BYTES)
            if not piece:
                return parse_load(body.decode("utf-8", "replace"))
            body += piece
    return None


def _opener(url: str, route: Route, proxies: dict[str, str]) -> urllib.request.OpenerDirector:
    import ssl  # noqa: PLC0415 - as above
    import urllib.request  # noqa: PLC0415

    class Unread(urllib.request.HTTPErrorProcessor):
        def http_response(self, request: object, response: Any) -> Any:  # noqa: ANN401 - as urllib's
            """Return every answer unchanged: urllib must not follow redirects or raise errors."""
            return response

        https_response = http_response

    handlers: list[urllib.request.BaseHandler] = [urllib.request.ProxyHandler(proxies)]
    if url.startswith("https:"):
        context = tls_context(route.trust, ssl.create_default_context)
        handlers.append(urllib.request.HTTPSHandler(context=context))
    return urllib.request.build_opener(*handlers, Unread())


ASK_EVERY_S = 1.0
Place = tuple[str, str]
"""(provider, instance)."""
Source = tuple[str, Route]
"""The URL of a server's `/metrics`, and the route to it."""


def watched(pool: Pool, environ: Mapping[str, str]) -> dict[Place, Source]:
    """The adaptive providers' instances that declare a `metrics_url`, each with its source.

    Raises:
        ConfigError: An environment variable does not contain the proxy that the pool expects.
    """
    found: dict[Place, Source] = {}
    for index, provider in enumerate(pool.providers):
        for instance in servers_asked(provider):
            url = instance.metrics_url or ""
            route = route_to(provider.network, url, environ, place_of(pool, index))
            found[provider.name, instance.name] = (url, route)
    return found


def watch_variables(pool: Pool) -> set[str]:
    """The environment variables that `watched` depends on."""
    return {
        name
        for provider in pool.providers
        if any(servers_asked(provider))
        for name in route_variables(provider.network)
    }


def servers_asked(provider: Provider) -> list[Instance]:
    """A provider's instances whose servers report their load.

    The list is empty if the provider is not in adaptive mode.
    """
    if provider.rate_mode != "adaptive":
        return []
    return [
        instance
        for model in provider.models
        for instance in model.instances
        if instance.metrics_url is not None
    ]


class LoadWatch:
    """Asks each server for its load once a second until `stop`, in one thread per server.

    A server that gives no valid answer is asked again, and does not delay the requests to other
    servers.
    """

    def __init__(
        self,
        sources: Mapping[Place, Source],
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[Place, ServerLoad], None],
    ) -> None:
        """Start the threads.

        Args:
            sources: Where to ask for the load of each instance.
            loop: The event loop that calls `tell`.
            tell: Called with each instance and its load.
        """
        self._loop = loop
        self._tell = tell
        self._stopped = threading.Event()
        for place, source in sources.items():
            # Use a daemon thread, so that the end of the run does not wait for a slow server.
            threading.Thread(target=self._ask_on, args=(place, *source), daemon=True).start()

    def stop(self) -> None:
        """Stop the threads without waiting for them. Answers that arrive later are dropped."""
        self._stopped.set()

    def _ask_on(self, place: Place, url: str, route: Route) -> None:
        while not self._stopped.is_set():
            load = ask_load(url, route)
            if load is not None and not self._stopped.is_set():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._tell, place, load)
            self._stopped.wait(ASK_EVERY_S)
