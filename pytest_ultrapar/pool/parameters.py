"""Under which name each parameter of a suite is sent: what a model does not know is said here."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.place import Place, kind_of, shown

if TYPE_CHECKING:
    from pytest_ultrapar.pool.schema import ModelTable, ProviderTable

_NAME = re.compile(r"[A-Za-z_][A-Za-z0-9_]{0,99}")
_OURS = ("model", "messages", "stream")
_STREAM_OPTIONS = "stream_options"


def build_parameters(
    place: Place, table: ModelTable, provider_place: Place, provider: ProviderTable
) -> dict[str, str | None]:
    """The names under which a model's parameters are sent; None: not sent.

    Where both have a word about a parameter the model's goes before the provider's, and `true`
    says that it is sent under its own name after all.

    Raises:
        ConfigError: A name is none or the client's own, a value is neither a name nor true or
            false, or two parameters would be sent under one name.
    """
    given = _read(provider_place.at("parameters"), provider.parameters or {})
    given |= _read(place.at("parameters"), table.parameters or {})
    sent: dict[str, str | None] = {}
    taken: dict[str, str] = {}
    where = (place if table.parameters else provider_place).at("parameters")
    for name, word in given.items():
        if word is True:
            continue
        sent[name] = None if word is False else str(word)
        if isinstance(word, str) and taken.setdefault(word, name) != name:
            where.at(name).refuse(f"is sent as {shown(word)}, which {taken[word]} is sent as, too")
    return sent


def _read(place: Place, table: dict[str, object]) -> dict[str, str | bool]:
    found: dict[str, str | bool] = {}
    for name, word in table.items():
        if not _NAME.fullmatch(name):
            place.refuse(f"must have names of parameters (got {shown(name)})")
        where = place.at(name)
        if name in _OURS:
            where.refuse("cannot be changed: it is the client's own")
        if not isinstance(word, str | bool):
            where.refuse(
                "must be the name to send it as, false (not sent) or true (as it is)"
                f" (got {shown(word) if isinstance(word, int | float) else kind_of(word)})"
            )
        if isinstance(word, str):
            _check_target(where, name, word)
        found[name] = word
    return found


def _check_target(place: Place, name: str, word: str) -> None:
    if not _NAME.fullmatch(word):
        place.refuse(f"must be the name of a parameter (got {shown(word)})")
    if word in {*_OURS, _STREAM_OPTIONS}:
        place.refuse(f"cannot be sent as {shown(word)}, which is the client's own")
    if name == _STREAM_OPTIONS:
        place.refuse("cannot be renamed, only be false (not sent)")
    if word == name:
        place.refuse("names itself; write true, or leave it out")
