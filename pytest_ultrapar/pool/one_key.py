"""Keys that a pool lists more than once: each has one limit, whatever it is called there."""

from __future__ import annotations

from dataclasses import dataclass
from typing import TYPE_CHECKING, NamedTuple

from pytest_ultrapar.pool.key_identity import key_identity
from pytest_ultrapar.pool.limits import CAP_NAMES, Caps, read_caps
from pytest_ultrapar.pool.model import Key, Provider
from pytest_ultrapar.pool.place import Place
from pytest_ultrapar.pool.schema import CountByMode, ProviderTable, RateByMode

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

_NAMED = 3


@dataclass(frozen=True, slots=True)
class Declared:
    """A provider and what the file says of it, before its lanes are made.

    Attributes:
        keys: Those that may serve each of its models, in the order of the file.
    """

    place: Place
    table: ProviderTable
    provider: Provider
    keys: tuple[tuple[Key, ...], ...]


class Listing(NamedTuple):
    """An entry of `keys`, by the names of provider and key."""

    provider: str
    key: str


@dataclass(frozen=True, slots=True)
class OneKey:
    """A key, however often it is listed.

    Attributes:
        name: Of its limit, `lab/key0`; `lab/key0 + other/key0` where it is listed twice.
        caps: Its limit.
        listings: Where it is listed, in the order of the file.
    """

    name: str
    caps: Caps
    listings: tuple[Listing, ...]


def one_keys(providers: Sequence[Declared], environ: Mapping[str, str]) -> dict[Listing, OneKey]:
    """The key of each listing, the same one for all listings of a key.

    A key that is used on several hosts has one limit over all of them, so listings are also one
    key where a third one joins them.

    Args:
        providers: All of the pool, their names unique.
        environ: The environment's variables, which hold the secrets; none is kept. A variable that
            is not set counts as a secret of its own, the same for all who name it.

    Raises:
        ConfigError: A number of a limit is not allowed, or two listings of one key give it
            different ones.
    """
    entries = {
        Listing(of.provider.name, key.name): (of, index)
        for of in providers
        for index, key in enumerate(of.provider.keys)
    }
    found: dict[Listing, OneKey] = {}
    for listings in _joined(entries, providers, environ):
        caps = _common_caps(listings, entries)
        name = joined_name([f"{one.provider}/{one.key}" for one in listings])
        found |= dict.fromkeys(listings, OneKey(name, caps, listings))
    return found


def joined_name(names: Sequence[str]) -> str:
    """One name for what several names stand for: `a + b`, or `a + b + c + 2 more`."""
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return " + ".join([*names[:_NAMED], *more])


def _joined(
    entries: Mapping[Listing, object], providers: Sequence[Declared], environ: Mapping[str, str]
) -> list[tuple[Listing, ...]]:
    """The listings of each key, in the order of the file."""
    above: dict[Listing, Listing] = {}

    def first_of(listing: Listing) -> Listing:
        while (other := above.get(listing)) is not None:
            listing = other
        return listing

    order = {listing: number for number, listing in enumerate(entries)}
    holder: dict[str, Listing] = {}
    for listing, identity in _identities(providers, environ):
        pair = {first_of(holder.setdefault(identity, listing)), first_of(listing)}
        if len(pair) > 1:
            early, late = sorted(pair, key=order.__getitem__)
            above[late] = early
    groups: dict[Listing, list[Listing]] = {}
    for listing in entries:
        groups.setdefault(first_of(listing), []).append(listing)
    return [tuple(group) for group in groups.values()]


def _identities(
    providers: Sequence[Declared], environ: Mapping[str, str]
) -> Iterator[tuple[Listing, str]]:
    """Who each listing is at each of the servers that it is used on."""
    for of in providers:
        if of.provider.api == "simulated":
            # The simulated provider tells keys apart by name.
            continue
        used = {
            (key, instance.base_url): None
            for model, keys in zip(of.provider.models, of.keys, strict=True)
            for instance in model.instances
            for key in keys
        }
        for key, url in used:
            yield Listing(of.provider.name, key.name), key_identity(url, _secret(key, environ))


def _secret(key: Key, environ: Mapping[str, str]) -> str:
    if key.env is None:
        return ""
    # A plan needs no secrets. No key holds a blank, so that the stand-in is nobody's secret.
    return environ.get(key.env, "").strip() or f"variable {key.env}"


def _common_caps(
    listings: Sequence[Listing], entries: Mapping[Listing, tuple[Declared, int]]
) -> Caps:
    """What the listings say together: a number that one of them leaves out is that of the others.

    Raises:
        ConfigError: Two of them give different numbers.
    """
    said: dict[str, tuple[float, Place, Listing]] = {}
    caps = Caps()
    for listing in listings:
        of, index = entries[listing]
        own = _caps(of, index)
        for name, number, place in _numbers(of, index, own):
            first, where, other = said.setdefault(name, (number, place, listing))
            if number != first:
                key = of.provider.keys[index]
                why = "same address" if key.env is None else "same secret, same host and port"
                place.refuse(
                    f"= {number:g} contradicts {where.path} = {first:g}: "
                    f'"{"/".join(listing)}" is the same key as "{"/".join(other)}" ({why}), and a '
                    "key has one limit; write the same number in both places, or in one only"
                )
        caps = caps.over(own)
    return caps


def _caps(of: Declared, index: int) -> Caps:
    mode = of.provider.rate_mode
    own = read_caps(of.place.at("keys").item(index), of.table.keys[index], mode)
    return own.over(read_caps(of.place.at("per_key"), of.table.per_key, mode))


def _numbers(of: Declared, index: int, caps: Caps) -> Iterator[tuple[str, float, Place]]:
    """The numbers of a listing's caps, and where each is said."""
    entry, per_key = of.table.keys[index], of.table.per_key
    for name in CAP_NAMES:
        number: float | None = getattr(caps, name)
        if number is None:
            continue
        place, said = of.place.at("keys").item(index), getattr(entry, name)
        if said is None:
            place, said = of.place.at("per_key"), getattr(per_key, name)
        place = place.at(name)
        by_mode = isinstance(said, CountByMode | RateByMode)
        yield name, number, place.at(of.provider.rate_mode) if by_mode else place
