"""One `[[provider]]` table as a checked provider."""

from __future__ import annotations

from typing import TYPE_CHECKING
from urllib.parse import urlsplit

from pytest_ultrapar.pool.bounds import DEADLINE_S, SEED, check_different, check_name, check_word
from pytest_ultrapar.pool.endpoint import check_base_url
from pytest_ultrapar.pool.keys import build_keys
from pytest_ultrapar.pool.model import Api, Key, Model, Provider
from pytest_ultrapar.pool.models import build_model
from pytest_ultrapar.pool.network import build_network
from pytest_ultrapar.pool.simulation import refuse_simulation

if TYPE_CHECKING:
    from pytest_ultrapar.pool.place import Place
    from pytest_ultrapar.pool.schema import ProviderTable
    from pytest_ultrapar.pool.sources import Sources

APIS: tuple[Api, ...] = ("openai", "azure-openai", "simulated")
DEFAULT_TIMEOUT_S = 150.0


def build_provider(place: Place, table: ProviderTable, sources: Sources) -> Provider:
    """The provider of a table, with its numbers noted in `sources`.

    Raises:
        ConfigError: Anything about it is not allowed.
    """
    name = check_name(place.at("name"), table.name)
    if name == "pool":
        place.at("name").refuse('must not be "pool", the name of the whole pool\'s limit')
    api = check_word(place.at("api"), table.api, APIS)
    base_url = _base_url(place.at("base_url"), table, api)
    api_version = _api_version(place.at("api_version"), table, api)
    if api != "simulated":
        refuse_simulation(place, table, api)
    keys = build_keys(place.at("keys"), table.keys, api, base_url)
    timeout_s, timeout_origin = DEFAULT_TIMEOUT_S, "default"
    if table.timeout_s is not None:
        timeout_s = float(DEADLINE_S.check(place.at("timeout_s"), table.timeout_s))
        timeout_origin = sources.file_name
    sources.note(f"{name} timeout_s", timeout_s, timeout_origin)
    seed = SEED.check(place.at("simulation_seed"), table.simulation_seed or 0)
    sources.note(f"{name} simulation_seed", table.simulation_seed)
    if not table.model:
        place.at("model").refuse("is empty: a provider needs at least one [[provider.model]]")
    models = tuple(build_model(place, i, table, base_url, sources) for i in range(len(table.model)))
    check_different((place.at("model").item(i).at("name"), m.name) for i, m in enumerate(models))
    _check_instances(place.at("model"), models, keys)
    network = build_network(place, table, sources)
    return Provider(
        name, api, base_url, keys, models, timeout_s, api_version, seed, network=network
    )


def _base_url(place: Place, table: ProviderTable, api: Api) -> str:
    if api == "simulated":
        if table.base_url is not None:
            place.refuse(
                'is not used by api = "simulated", whose server the run starts itself; leave it out'
            )
        return ""
    if table.base_url is None:
        place.refuse(f'is missing: api = "{api}" needs it')
    url = check_base_url(place, table.base_url)
    if api == "azure-openai" and "/openai" in urlsplit(url).path:
        # The path to a deployment is ours to write, and ".../openai/v1" is OpenAI's own API.
        place.refuse(
            'must be the resource\'s address without "/openai" and what follows (api = "openai" is'
            ' for Azure\'s ".../openai/v1")'
        )
    return url


def _api_version(place: Place, table: ProviderTable, api: Api) -> str | None:
    if api != "azure-openai":
        if table.api_version is not None:
            place.refuse(f'is for api = "azure-openai" only (got api = "{api}")')
        return None
    if table.api_version is None:
        place.refuse('is missing: api = "azure-openai" needs it, such as "2024-10-21"')
    return check_name(place, table.api_version)


def _check_instances(place: Place, models: tuple[Model, ...], keys: tuple[Key, ...]) -> None:
    places = [
        (place.item(m).at("instances").item(i), instance.name)
        for m, model in enumerate(models)
        for i, instance in enumerate(model.instances)
    ]
    check_different(places)
    key_names = {key.name for key in keys}
    for where, name in places:
        if name in key_names:
            # Both would be the limit `<provider>/<name>`.
            where.refuse(f'is called "{name}" like a key of the same provider')
