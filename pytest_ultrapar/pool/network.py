"""How a provider's servers are reached: the fields of a pool file for TLS and proxies, checked.

Certificates are always verified; these fields only say whom to trust, who we are, and which way to
go. Whether files can be read and variables hold what they should: `route.check_routes`.
"""

from __future__ import annotations

from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.model import Network
from pytest_ultrapar.pool.place import Place
from pytest_ultrapar.pool.proxy import parse_proxy
from pytest_ultrapar.pool.route import CA_VARIABLE, proxy_variable
from pytest_ultrapar.pool.schema import InstanceTable

if TYPE_CHECKING:
    from collections.abc import Iterator

    from pytest_ultrapar.pool.schema import ProviderTable
    from pytest_ultrapar.pool.sources import Sources

_FILES = ("ca_file", "client_cert", "client_key")
_FIELDS = (*_FILES, "proxy", "proxy_env", "trust_env")


def build_network(place: Place, table: ProviderTable, sources: Sources) -> Network:
    """A provider's network settings, noted in `sources` without any secret.

    Paths become absolute; relative ones are relative to the pool file.

    Raises:
        ConfigError: A field makes no sense: for a simulated provider, for one without any https
            address, a key without its certificate, two proxies, or a proxy's URL that is none.
    """
    given = [field for field in _FIELDS if getattr(table, field) is not None]
    if not given:
        return Network()
    if table.api == "simulated":
        place.at(given[0]).refuse('is not for api = "simulated"; leave it out')
    if not any(url.startswith("https:") for url in _addresses(table)):
        place.at(given[0]).refuse(
            "is for https:// addresses, and this provider has none: http:// goes to this machine"
            " only, and directly"
        )
    if table.client_key is not None and table.client_cert is None:
        place.at("client_key").refuse("needs client_cert, the certificate that it belongs to")
    if table.proxy is not None and table.proxy_env is not None:
        place.at("proxy_env").refuse("cannot stand beside proxy; leave one of them out")
    if table.proxy is not None:
        parse_proxy(place.at("proxy"), table.proxy, may_hold_secret=False)
    network = Network(
        ca_file=_path(place.at("ca_file"), table.ca_file),
        client_cert=_path(place.at("client_cert"), table.client_cert),
        client_key=_path(place.at("client_key"), table.client_key),
        proxy=table.proxy,
        proxy_env=table.proxy_env,
        trust_env=bool(table.trust_env),
    )
    for field in _FIELDS:
        if field in given:
            sources.note(f"{table.name} {field}", getattr(network, field))
    _note_environment(table.name, network, sources)
    return network


def _note_environment(name: str, network: Network, sources: Sources) -> None:
    """Note what the environment says, a proxy's address without its password."""
    environ = sources.environ
    ca_file = environ.get(CA_VARIABLE)
    if network.trust_env and network.ca_file is None and ca_file:
        sources.note(f"{name} ca_file", ca_file, f"environment {CA_VARIABLE}")
    variable = proxy_variable(network, environ) if network.proxy is None else None
    if variable is not None:
        # A value that is no proxy's is refused before a run; a plan does not need it.
        with suppress(ConfigError):
            where = Place("environment", variable)
            proxy = parse_proxy(where, environ[variable], may_hold_secret=True)
            sources.note(f"{name} proxy", proxy.url, f"environment {variable}")


def _addresses(table: ProviderTable) -> Iterator[str]:
    yield table.base_url or ""
    yield table.metrics_url or ""
    for model in table.model:
        for instance in model.instances or ():
            if isinstance(instance, InstanceTable):
                yield instance.base_url or ""
                yield instance.metrics_url or ""


def _path(place: Place, given: str | None) -> str | None:
    if given is None:
        return None
    if not given or "\0" in given:
        place.refuse("must be the path of a PEM file (got an empty or malformed one)")
    return str(Path(place.source).absolute().parent / given)
