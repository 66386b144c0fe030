"""Asking servers how busy they are, beside the broker's own work."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.route import Route, place_of, route_to, route_variables

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from pytest_ultrapar.lanes.adaptive.vllm_metrics import ServerLoad
    from pytest_ultrapar.pool.model import Instance, Pool, Provider

ASK_EVERY_S = 1.0

Place = tuple[str, str]
"""(provider, instance)."""


Source = tuple[str, Route]
"""A server's `/metrics`, and the way there."""


def watched(pool: Pool, environ: Mapping[str, str]) -> dict[Place, Source]:
    """Where to ask, by instance: those of adaptive providers whose `metrics_url` is declared.

    Raises:
        ConfigError: A variable does not hold the proxy that it should.
    """
    found: dict[Place, Source] = {}
    for index, provider in enumerate(pool.providers):
        for instance in _asked(provider):
            url = instance.metrics_url or ""
            route = route_to(provider.network, url, environ, place_of(pool, index))
            found[provider.name, instance.name] = (url, route)
    return found


def watch_variables(pool: Pool) -> set[str]:
    """Names of the environment's variables that `watched` depends on."""
    return {
        name
        for provider in pool.providers
        if any(_asked(provider))
        for name in route_variables(provider.network)
    }


def _asked(provider: Provider) -> list[Instance]:
    if provider.rate_mode != "adaptive":
        return []
    return [
        instance
        for model in provider.models
        for instance in model.instances
        if instance.metrics_url is not None
    ]


class LoadWatch:
    """Asks every server once a second, each in a thread of its own, until `stop`.

    A server that does not answer, or answers nonsense, is asked again and keeps nobody waiting.
    """

    def __init__(
        self,
        sources: Mapping[Place, Source],
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[Place, ServerLoad], None],
    ) -> None:
        """Begin to ask.

        Args:
            sources: Where to ask.
            loop: Where `tell` is called.
            tell: Is told what each server says.
        """
        self._loop = loop
        self._tell = tell
        self._stopped = threading.Event()
        for place, source in sources.items():
            # A daemon: nobody waits for a server that drips when the run is over.
            threading.Thread(target=self._ask_on, args=(place, *source), daemon=True).start()

    def stop(self) -> None:
        """Ask no more. Never waits; what is under way is not told."""
        self._stopped.set()

    def _ask_on(self, place: Place, url: str, route: Route) -> None:
        from pytest_ultrapar.lanes.adaptive.load_question import ask_load  # noqa: PLC0415 - 20 ms of import

        while not self._stopped.is_set():
            load = ask_load(url, route)
            if load is not None and not self._stopped.is_set():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._tell, place, load)
            self._stopped.wait(ASK_EVERY_S)
