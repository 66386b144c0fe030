"""The names and identities of a provider's keys, and the variables that hold their secrets."""

from __future__ import annotations

import hashlib
import hmac
import re
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.registry import SIMULATED
from pytest_ultrapar.pool.field_checks import (
    Location,
    check_different,
    check_name,
    looks_like_secret,
    shown,
    shown_text,
)
from pytest_ultrapar.pool.model import Key
from pytest_ultrapar.pool.network import address_of, host_of, is_local, server_of
from pytest_ultrapar.records import by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator

    from pytest_ultrapar.pool.file import KeyTable
    from pytest_ultrapar.pool.model import Lane, Pool


def key_identity(url: str, secret: str) -> str:
    """The identity of a key, which is the same wherever the file lists the key.

    Two entries with the same secret are one key if they have the same host and port, because a
    provider counts requests by account, not by path. Servers without a key are identified by their
    whole address.

    Args:
        url: The base URL.
        secret: The key itself; empty for a server without a key.

    Returns:
        A keyed digest of 256 bits in hex, which reveals nothing about the secret.
    """
    where = server_of(url) if secret else address_of(url)
    # The prefix separates this digest from other digests of the same secret.
    said = f"pytest-ultrapar key lock\n{where}".encode()
    # The environment may hold bytes that are not text. `read_secrets` refuses such a key.
    return hmac.new(secret.encode(errors="surrogatepass"), said, hashlib.sha256).hexdigest()


def build_keys(
    location: Location, tables: list[KeyTable], api: str, base_url: str
) -> tuple[Key, ...]:
    """Return the keys of a provider, in the order of the file.

    A key for the simulated provider or for a local server does not require `env`.

    Raises:
        ConfigError: There is no key, a name is not allowed or is repeated, or a required `env` is
            missing.
    """
    if not tables:
        location.refuse('is empty: a provider needs a key, such as { name = "key0", ... }')
    keys = tuple(_key(location.item(i), table, api, base_url) for i, table in enumerate(tables))
    check_different((location.item(i).at("name"), key.name) for i, key in enumerate(keys))
    return keys


def chosen_keys(
    location: Location, names: list[str] | None, keys: tuple[Key, ...]
) -> tuple[Key, ...]:
    """Return the keys that may serve a model: the keys in `names`, or all keys of the provider.

    They are in the provider's order.

    Raises:
        ConfigError: `names` is empty, repeats a key, or contains an unknown one.
    """
    if names is None:
        return keys
    if not names:
        location.refuse("must name at least one key (got none); omit the field to use all keys")
    known = {key.name for key in keys}
    for index, name in enumerate(names):
        if name not in known:
            allowed = shown_text(", ".join(key.name for key in keys))
            location.item(index).refuse(
                f"must be one of this provider's keys (got {shown(name)}; allowed: {allowed})"
            )
    check_different((location.item(i), name) for i, name in enumerate(names))
    return tuple(key for key in keys if key.name in names)


def sent_lines(pool: Pool, lanes: Iterable[Lane]) -> Iterator[str]:
    """Yield lines that name each provider's key variables and the hosts to which the keys are sent.

    All variables are listed, because the pool file may have been written by someone else. Only long
    series of numbered names are abbreviated, such as `KEY_0 to KEY_9 (10)`. The lines never contain
    the values of variables.
    """
    providers = {one.name: one for one in pool.providers if not one.is_simulated}
    variables = {(p.name, key.name): key.env for p in providers.values() for key in p.keys}
    urls = pool.urls
    sent = by_key(
        ((lane.provider, variable), host_of(urls[lane.provider, lane.instance]))
        for lane in lanes
        if (variable := variables.get((lane.provider, lane.key)))
    )
    together = by_key(
        ((provider, ", ".join(dict.fromkeys(to))), variable)
        for (provider, variable), to in sent.items()
    )
    for (name, where), names in together.items():
        network = providers[name].network
        by = f", through the proxy {network.proxy}" if network.proxy else ""
        # These authorities can certify any server as the host.
        by += f", trusting the CAs in {shown_text(network.ca_file)}" if network.ca_file else ""
        by += f", presenting {shown_text(network.client_cert)}" if network.client_cert else ""
        yield f"{name} sends {', '.join(_in_short(names))} to {where}{by}"


_NUMBER = re.compile(r"[0-9]*\Z")
_FEW = 3


def _in_short(names: Iterable[str]) -> Iterator[str]:
    alike = by_key((_NUMBER.sub("", name), name) for name in names)
    for own in alike.values():
        if len(own) > _FEW:
            yield f"{own[0]} to {own[-1]} ({len(own)})"
        else:
            yield from own


def _key(location: Location, table: KeyTable, api: str, base_url: str) -> Key:
    if looks_like_secret(table.name):
        location.at("name").refuse(
            "looks like a secret, so it is not shown here; all results contain the names of keys:"
            ' write a name such as "key0"'
        )
    check_name(location.at("name"), table.name)
    if table.env is None and api != SIMULATED and not is_local(host_of(base_url)):
        location.at("env").refuse(
            f'is missing: api = "{api}" requires the name of the variable that holds the key'
        )
    return Key(table.name, table.env)
