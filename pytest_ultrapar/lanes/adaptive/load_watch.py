"""Asking servers how busy they are, beside the broker's own work."""

from __future__ import annotations

import contextlib
import threading
from typing import TYPE_CHECKING

if TYPE_CHECKING:
    import asyncio
    from collections.abc import Callable, Mapping

    from pytest_ultrapar.lanes.adaptive.vllm_metrics import ServerLoad
    from pytest_ultrapar.pool.model import Pool

ASK_EVERY_S = 1.0

Place = tuple[str, str]
"""(provider, instance)."""


def watched(pool: Pool) -> dict[Place, str]:
    """Where to ask, by instance: those of adaptive providers whose `metrics_url` is declared."""
    return {
        (provider.name, instance.name): instance.metrics_url
        for provider in pool.providers
        if provider.rate_mode == "adaptive"
        for model in provider.models
        for instance in model.instances
        if instance.metrics_url is not None
    }


class LoadWatch:
    """Asks every server once a second, each in a thread of its own, until `stop`.

    A server that does not answer, or answers nonsense, is asked again and keeps nobody waiting.
    """

    def __init__(
        self,
        urls: Mapping[Place, str],
        loop: asyncio.AbstractEventLoop,
        tell: Callable[[Place, ServerLoad], None],
    ) -> None:
        """Begin to ask.

        Args:
            urls: Where to ask.
            loop: Where `tell` is called.
            tell: Is told what each server says.
        """
        self._loop = loop
        self._tell = tell
        self._stopped = threading.Event()
        for place, url in urls.items():
            # A daemon: nobody waits for a server that drips when the run is over.
            threading.Thread(target=self._ask_on, args=(place, url), daemon=True).start()

    def stop(self) -> None:
        """Ask no more. Never waits; what is under way is not told."""
        self._stopped.set()

    def _ask_on(self, place: Place, url: str) -> None:
        from pytest_ultrapar.lanes.adaptive.load_question import ask_load  # noqa: PLC0415 - 20 ms of import

        while not self._stopped.is_set():
            load = ask_load(url)
            if load is not None and not self._stopped.is_set():
                with contextlib.suppress(RuntimeError):  # the loop is closed
                    self._loop.call_soon_threadsafe(self._tell, place, load)
            self._stopped.wait(ASK_EVERY_S)
