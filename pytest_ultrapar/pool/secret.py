"""API keys: read from the environment, shown to nobody."""

from __future__ import annotations

from typing import TYPE_CHECKING, NoReturn

from pytest_ultrapar.pool.endpoint import is_loopback
from pytest_ultrapar.pool.place import Place

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.pool.model import Pool


class Secret:
    """A secret that no traceback, log or table shows; only `reveal()` gives it away."""

    __slots__ = ("_text",)

    def __init__(self, text: str) -> None:
        self._text = text

    def reveal(self) -> str:
        """The secret itself, for the header of a request and for nothing else."""
        return self._text

    def __repr__(self) -> str:
        return "***"

    __str__ = __repr__

    def __format__(self, format_spec: str) -> str:
        return format("***", format_spec)

    def __eq__(self, other: object) -> bool:
        return isinstance(other, Secret) and self._text == other._text

    def __hash__(self) -> int:
        return hash(self._text)

    def __reduce__(self) -> NoReturn:
        # Pickled it would travel to another process or into a file in the clear.
        msg = "a Secret cannot be pickled"
        raise TypeError(msg)


def check_secrets(pool: Pool, environ: Mapping[str, str]) -> None:
    """Make sure that every key the pool needs is there and could stand in a header.

    Raises:
        ConfigError: Variables are unset or empty (all are named), a value cannot be a key, or
            two keys of a provider hold the same secret, whose limits would be counted twice.
    """
    missing = [(place, env) for place, _, env in _needed(pool) if not environ.get(env, "").strip()]
    if missing:
        place, env = missing[0]
        others = ", ".join(dict.fromkeys(other for _, other in missing[1:]))
        also = f"; not set either: {others}" if others else ""
        place.refuse(f"names the environment variable {env}, which is not set or empty{also}")
    _read(pool, environ)


def read_secrets(pool: Pool, environ: Mapping[str, str]) -> dict[tuple[str, str], Secret]:
    """The secrets by (provider, key). A key that needs none (simulated, local server) has no entry.

    Raises:
        ConfigError: As `check_secrets`.
    """
    check_secrets(pool, environ)
    return _read(pool, environ)


def _read(pool: Pool, environ: Mapping[str, str]) -> dict[tuple[str, str], Secret]:
    secrets: dict[tuple[str, str], Secret] = {}
    remote = {p.name for p in pool.providers if not is_loopback(p.base_url)}
    for place, (provider, key), env in _needed(pool):
        text = environ[env].strip()
        if not (text.isascii() and text.isprintable() and " " not in text):
            place.refuse(
                f"names {env}, whose value cannot be an API key: it holds blanks, line ends or"
                " characters outside ASCII"
            )
        secret = Secret(text)
        for (other_provider, other_key), other in secrets.items():
            if other_provider == provider and other == secret and provider in remote:
                place.refuse(
                    f'names {env}, which holds the same secret as key "{other_key}": the limits of'
                    " one key would be counted twice; list it once"
                )
        secrets[provider, key] = secret
    return secrets


def _needed(pool: Pool) -> Iterator[tuple[Place, tuple[str, str], str]]:
    for p, provider in enumerate(pool.providers):
        if provider.api == "simulated":
            continue
        for k, key in enumerate(provider.keys):
            if key.env is not None:
                place = Place(pool.path).at("provider").item(p).at("keys").item(k).at("env")
                yield place, (provider.name, key.name), key.env
