"""Asking servers how busy they are, beside the broker's own work."""

from __future__ import annotations

import asyncio
from typing import TYPE_CHECKING

if TYPE_CHECKING:
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


async def watch_loads(urls: Mapping[Place, str], tell: Callable[[Place, ServerLoad], None]) -> None:
    """Ask every server once a second, for ever; a server that does not answer is asked again.

    Args:
        urls: Where to ask.
        tell: Called on the loop with what each server says.
    """
    from pytest_ultrapar.lanes.adaptive.load_question import ask_load  # noqa: PLC0415 - 20 ms of import

    while True:
        loads = await asyncio.gather(*(asyncio.to_thread(ask_load, url) for url in urls.values()))
        for place, load in zip(urls, loads, strict=True):
            if load is not None:
                tell(place, load)
        await asyncio.sleep(ASK_EVERY_S)
