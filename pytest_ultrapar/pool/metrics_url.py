"""Where a vLLM server tells how busy it is, for each instance for which that may be asked."""

from __future__ import annotations

from dataclasses import replace
from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_ultrapar.pool.endpoint import check_base_url, with_port
from pytest_ultrapar.pool.schema import InstanceTable

if TYPE_CHECKING:
    from pytest_ultrapar.pool.model import Instance
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.pool.schema import ModelTable, ProviderTable


def with_metrics(
    place: Place,
    table: ModelTable,
    provider_place: Place,
    provider: ProviderTable,
    instances: tuple[Instance, ...],
) -> tuple[Instance, ...]:
    """A model's instances, each with its own `metrics_url` or the provider's.

    The provider's is that of its `base_url`: an instance with a `base_url` of its own does not get
    it, and one per port gets it with that port.

    Raises:
        ConfigError: A URL is not allowed, or the provider is simulated.
    """
    general = _checked(provider_place, provider.metrics_url, provider.api)
    entries = table.instances or []
    found = []
    for index, instance in enumerate(instances):
        entry = entries[index] if entries else None
        url = general
        if isinstance(entry, InstanceTable):
            where = place.at("instances").item(index)
            own = _checked(where, entry.metrics_url, provider.api)
            url = own or (general if entry.base_url is None else None)
        elif url is not None and not entries and instance.name != table.name:
            url = with_port(url, urlsplit(instance.base_url).port or 0)
        found.append(replace(instance, metrics_url=url))
    return tuple(found)


def _checked(place: Place, url: str | None, api: str) -> str | None:
    if url is None:
        return None
    where = place.at("metrics_url")
    if api == "simulated":
        where.refuse('is not for api = "simulated"; leave it out')
    return check_base_url(where, url)
