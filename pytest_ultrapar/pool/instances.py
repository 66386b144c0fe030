"""The instances of a model: as named in the file, one per port, or one of the model's own name."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import check_api_name, check_name
from pytest_ultrapar.pool.endpoint import check_base_url, with_port
from pytest_ultrapar.pool.model import Instance
from pytest_ultrapar.pool.place import Place
from pytest_ultrapar.pool.ports import check_ports, parse_ports
from pytest_ultrapar.pool.refused import check_variable

if TYPE_CHECKING:
    from pytest_ultrapar.pool.schema import InstanceTable, ModelTable
    from pytest_ultrapar.pool.sources import Sources


def build_instances(place: Place, table: ModelTable, base_url: str) -> tuple[Instance, ...]:
    """The instances of a model that gives no ports.

    Args:
        place: The model's place.
        table: The model's table.
        base_url: The provider's checked URL; empty for the simulated provider.

    Raises:
        ConfigError: A name or URL is not allowed, or the list is there but empty.
    """
    if table.instances is None:
        return (Instance(table.name, _api_name(place, table), base_url),)
    if table.api_name is not None:
        place.at("api_name").refuse(
            "stands beside instances: name it in their entries, { name = ..., api_name = ... }"
        )
    where = place.at("instances")
    if not table.instances:
        where.refuse("must name at least one instance (got none)")
    return tuple(
        _instance(where.item(i), entry, base_url) for i, entry in enumerate(table.instances)
    )


def build_port_instances(
    place: Place, table: ModelTable, base_url: str, ports: tuple[int, ...]
) -> tuple[Instance, ...]:
    """One instance per port on the host of `base_url`, named `<model>:<port>`.

    Raises:
        ConfigError: `instances` is there too, or the provider has no URL.
    """
    if table.instances is not None:
        place.at("instances").refuse("stands beside ports or ports_env; give only one")
    if not base_url:
        field = "ports" if table.ports is not None else "ports_env"
        place.at(field).refuse("needs a base_url, which a simulated provider has not")
    api_name = _api_name(place, table)
    return tuple(
        Instance(f"{table.name}:{port}", api_name, with_port(base_url, port)) for port in ports
    )


def ports_in_force(
    place: Place, table: ModelTable, sources: Sources, label: str
) -> tuple[int, ...] | None:
    """The ports of a model, noted with their origin; None when it gives none.

    The variable that `ports_env` names goes before `ports`; `USE_MULTI_VLLM=false` leaves only the
    first port.

    Args:
        place: The model's place.
        table: The model's table.
        sources: Where variables are read and origins noted.
        label: How the note calls the model.

    Raises:
        ConfigError: The variable is unset or empty and there are no `ports`, or a port is not
            allowed.
    """
    listed = None if table.ports is None else check_ports(place.at("ports"), table.ports)
    origin = sources.file_name
    if (variable := table.ports_env) is not None:
        text = sources.environ.get(check_variable(place.at("ports_env"), variable), "").strip()
        if text:
            listed = parse_ports(Place("environment", variable), text)
            origin = f"environment {variable}"
        elif listed is None:
            place.at("ports_env").refuse(
                f"names the environment variable {variable}, which is not set or empty (allowed: a"
                ' list such as "8001,8002")'
            )
    if listed is None:
        return None
    if sources.environment.use_multi_vllm is False:
        listed = listed[:1]
        origin += ", first port only by environment USE_MULTI_VLLM"
    sources.note(f"{label} ports", ",".join(map(str, listed)), origin)
    return listed


def _instance(place: Place, entry: str | InstanceTable, base_url: str) -> Instance:
    if isinstance(entry, str):
        return Instance(check_name(place, entry), entry, base_url)
    name = check_name(place.at("name"), entry.name)
    api_name = entry.api_name if entry.api_name is not None else name
    check_api_name(place.at("api_name"), api_name)
    if entry.base_url is None:
        return Instance(name, api_name, base_url)
    if not base_url:
        place.at("base_url").refuse("is not used by a simulated provider; leave it out")
    return Instance(name, api_name, check_base_url(place.at("base_url"), entry.base_url))


def _api_name(place: Place, table: ModelTable) -> str:
    if table.api_name is None:
        return table.name
    return check_api_name(place.at("api_name"), table.api_name)
