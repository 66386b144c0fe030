"""Where the requests of each lane go, with the secret that opens the door."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING

from pytest_ultrapar.engine.openai_api import PATH
from pytest_ultrapar.pool.model import LaneId

if TYPE_CHECKING:
    from collections.abc import Callable, Mapping

    from pytest_ultrapar.pool.model import Pool


@dataclass(frozen=True, slots=True, repr=False)
class Endpoint:
    """One lane's address.

    Attributes:
        url: Full URL of the chat-completions resource.
        token: The secret of the lane's key, in the clear; never shown (`repr` hides it).
        api_name: The model or deployment name to send.
        timeout_s: Total deadline of one request.
    """

    lane: LaneId
    provider: str
    instance: str
    key: str
    url: str
    token: str
    api_name: str
    timeout_s: float

    def __repr__(self) -> str:
        return f"Endpoint({self.lane!r}, url={self.url!r}, token='***')"


def endpoints(
    pool: Pool, *, token_of: Callable[[str, str], str], base_url_of: Mapping[str, str]
) -> dict[LaneId, Endpoint]:
    """The endpoint of every lane of the pool.

    Args:
        pool: Where the lanes are.
        token_of: The secret of (provider, key).
        base_url_of: Base URL by provider where it is known at run time only (the simulated
            provider).
    """
    found: dict[LaneId, Endpoint] = {}
    providers = {provider.name: provider for provider in pool.providers}
    for lane in pool.lanes:
        provider = providers[lane.provider]
        model = next(m for m in provider.models if m.name == lane.model)
        instance = next(i for i in model.instances if i.name == lane.instance)
        base_url = base_url_of.get(provider.name) or instance.base_url or provider.base_url
        found[lane.lane_id] = Endpoint(
            lane=lane.lane_id,
            provider=provider.name,
            instance=instance.name,
            key=lane.key,
            url=base_url.rstrip("/") + PATH,
            token=token_of(provider.name, lane.key),
            api_name=instance.api_name,
            timeout_s=provider.timeout_s,
        )
    return found
