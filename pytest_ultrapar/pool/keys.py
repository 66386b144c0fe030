"""The keys of a provider: named, with their secrets elsewhere."""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.pool.bounds import check_different, check_name
from pytest_ultrapar.pool.endpoint import is_loopback
from pytest_ultrapar.pool.model import Api, Key
from pytest_ultrapar.pool.place import Place, looks_like_secret, shown, shown_text

if TYPE_CHECKING:
    from pytest_ultrapar.pool.schema import KeyTable


def build_keys(place: Place, tables: list[KeyTable], api: Api, base_url: str) -> tuple[Key, ...]:
    """The keys of a provider in the order of the file.

    A key of the simulated provider or of a server on this machine may go without `env`.

    Raises:
        ConfigError: There is none, a name is not allowed or there twice, or `env` is missing where
            needed.
    """
    if not tables:
        place.refuse('is empty: a provider needs at least one key, { name = "key0", ... }')
    keys = tuple(_key(place.item(i), table, api, base_url) for i, table in enumerate(tables))
    check_different((place.item(i).at("name"), key.name) for i, key in enumerate(keys))
    return keys


def chosen_keys(place: Place, names: list[str] | None, keys: tuple[Key, ...]) -> tuple[Key, ...]:
    """The keys that may serve a model: those it names, else all, in the order of the provider.

    Raises:
        ConfigError: It names none, one twice, or one that the provider has not.
    """
    if names is None:
        return keys
    if not names:
        place.refuse("must name at least one key (got none); leave it out for all keys")
    known = {key.name for key in keys}
    for index, name in enumerate(names):
        if name not in known:
            allowed = shown_text(", ".join(key.name for key in keys))
            place.item(index).refuse(
                f"must be a key of this provider (got {shown(name)}; allowed: {allowed})"
            )
    check_different((place.item(i), name) for i, name in enumerate(names))
    return tuple(key for key in keys if key.name in names)


def _key(place: Place, table: KeyTable, api: Api, base_url: str) -> Key:
    if looks_like_secret(table.name):
        place.at("name").refuse(
            "looks like a secret (it is not shown); a key's name stands in all results, so give it"
            ' one such as "key0"'
        )
    check_name(place.at("name"), table.name)
    if table.env is None and api != "simulated" and not is_loopback(base_url):
        place.at("env").refuse(
            f'is missing: api = "{api}" needs the environment variable that holds the key'
        )
    return Key(table.name, table.env)
