"""Make named limits from the bounds in the pool file, and list those that apply to each lane."""

from __future__ import annotations

from dataclasses import dataclass, field
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ultrapar.pool.field_checks import Location, check_name, check_zone
from pytest_ultrapar.pool.file import ByMode, LimitTable, ProviderTable
from pytest_ultrapar.pool.keys import chosen_keys, key_identity
from pytest_ultrapar.pool.model import LIMIT_KINDS, Key, Lane, LaneId, Level, Limit, Model, Provider
from pytest_ultrapar.pool.number_ranges import WORKERS
from pytest_ultrapar.pool.setting_values import Sources

if TYPE_CHECKING:
    from collections.abc import Iterator, Mapping, Sequence

    from pytest_ultrapar.pool.file import ModelTable, PoolFile
    from pytest_ultrapar.pool.settings import RateMode


Amounts = dict[str, Any]
"""The bounds in one table, by field name. `day` is included if it is set. If a bound is missing,
there is no such limit."""


def read_amounts(location: Location, table: LimitTable | None, mode: RateMode) -> Amounts:
    """Return the bounds in a table for one rate mode. Values for the other mode are checked, too.

    Raises:
        ConfigError: A value that depends on the mode has no number for this mode, or two numbers in
            the table contradict each other.
    """
    found: Amounts = {}
    for word, kind in LIMIT_KINDS.items():
        value = getattr(table, word, None)
        if isinstance(value, ByMode):
            value = _of_mode(location.at(word), value, mode)
        if value is not None:
            found[word] = float(value) if kind.window_s else value
    for word, amount in found.items():
        kind = LIMIT_KINDS[word]
        for other, most in found.items():
            wider = LIMIT_KINDS[other]
            # Some providers sell 60 requests per minute and 50 per day.
            is_wider = wider.window_s > kind.window_s and not wider.is_daily
            if wider.counts == kind.counts and is_wider and most < amount:
                location.at(other).refuse(
                    f"= {most:g} contradicts {location.at(word).path} = {amount:g}: the limit per"
                    f" {wider.per} must not be below the limit per {kind.per}"
                )
    day = None if table is None else table.day
    if day is not None:
        if not any(LIMIT_KINDS[word].is_daily for word in found):
            location.at("day").refuse("has no effect without rpd or tpd in the same table")
        found["day"] = check_zone(location.at("day"), day)
    if table is not None and table.budget is not None:
        found["budget"] = table.budget
    return found


@dataclass(frozen=True, slots=True)
class LimitBook:
    """All limits made so far, by name. Within each provider, the outermost limits come first.

    Attributes:
        sources: Records the origin of every number, under the name `<limit> <field>`.
        prompt_types: The factor by which `workers` is multiplied for models with
            `multiply_by_prompt_types`.
    """

    sources: Sources
    limits: dict[str, Limit] = field(default_factory=dict)
    prompt_types: int = 1

    def add(
        self,
        name: str,
        level: Level,
        amounts: Amounts,
        workers_origin: str | None = None,
        budget_origin: str | None = None,
    ) -> None:
        """Add a limit, unless it has no bounds or already exists (a key may be listed twice).

        Args:
            name: The name of the limit, unique in the pool.
            level: The level that declares the limit.
            amounts: The bounds of the limit.
            workers_origin: The origin of `workers`, if it does not come from the file.
            budget_origin: The origin of `budget`, if it does not come from the file.
        """
        if not amounts or name in self.limits:
            return
        self.limits[name] = limit = Limit(name, level, **amounts)
        for kind, amount in limit.rows:
            origin = workers_origin if kind.word == "workers" else None
            self.sources.note(f"{name} {kind.word}", amount, origin)
        self.sources.note(f"{name} day", limit.day)
        self.sources.note(f"{name} budget", limit.budget, budget_origin)

    def path(self, *names: str) -> tuple[str, ...]:
        """Return only the `names` of existing limits, in the same order."""
        return tuple(name for name in names if name in self.limits)


def _of_mode(location: Location, by_mode: ByMode, mode: RateMode) -> float:
    fixed, adaptive = by_mode.fixed, by_mode.adaptive
    if fixed is not None and adaptive is not None and adaptive < fixed:
        location.at("adaptive").refuse(
            f"= {adaptive:g} contradicts {location.at('fixed').path} = {fixed:g}: the adaptive"
            " limit must not be below the fixed limit"
        )
    value = fixed if mode == "fixed" else adaptive
    if value is None:
        location.at(mode).refuse(f"is missing: {mode} mode requires its own value")
    return value


def multiplied(
    location: Location, amounts: Amounts, n: int, file_name: str
) -> tuple[Amounts, str | None]:
    """Return the amounts with `workers` multiplied by `n`, and the origin of the product.

    Rates are not multiplied, because the provider sets them regardless of the number of prompt
    types. The origin is None if nothing was multiplied.

    Raises:
        ConfigError: The product is out of bounds.
    """
    own = amounts.get("workers")
    if own is None or n == 1:
        return amounts, None
    if own * n > WORKERS.at_most:
        location.at("workers").refuse(
            f"times {n} prompt types must be <= {WORKERS.at_most} (got {own * n})"
        )
    return amounts | {"workers": own * n}, f"{file_name}, {own} x {n} prompt types"


def count_prompt_types(location: Location, file: PoolFile, sources: Sources) -> int:
    """Return and record the factor for the `workers` of models with `multiply_by_prompt_types`.

    Raises:
        ConfigError: The file sets `prompt_types`, but no model uses it.
    """
    number = file.pool.prompt_types if file.pool is not None else None
    if not any(model.multiply_by_prompt_types for one in file.provider for model in one.model):
        if number is not None:
            location.at("pool").at("prompt_types").refuse(
                "has no effect: no model has multiply_by_prompt_types = true"
            )
        return 1
    origin = None if number is not None else "prompt types that the run selects"
    number = number or sources.overrides.prompt_types()
    sources.note("prompt_types", number, origin)
    return number or 1


_NAMED = 3


@dataclass(frozen=True, slots=True)
class Declared:
    """A provider and its table, before its lanes are made.

    Attributes:
        keys: For each of the provider's models, the keys that may serve the model, in the order of
            the file.
    """

    location: Location
    table: ProviderTable
    provider: Provider
    keys: tuple[tuple[Key, ...], ...]


class Listing(NamedTuple):
    """An entry in a provider's list `keys`: the names of the provider and the key."""

    provider: str
    key: str


@dataclass(frozen=True, slots=True)
class OneKey:
    """A key with all entries that list it.

    Attributes:
        name: The name of its limit: `lab/key0`, or `lab/key0 + other/key0` if it is listed twice.
        amounts: The bounds of the limit.
        listings: The entries that list the key, in the order of the file.
    """

    name: str
    amounts: Amounts
    listings: tuple[Listing, ...]


def one_keys(providers: Sequence[Declared], environ: Mapping[str, str]) -> dict[Listing, OneKey]:
    """Map each listing to its key. All listings of the same key get the same object.

    A key that is used on several servers has a single limit for all of them. Therefore two listings
    on different servers also count as the same key if a third listing uses this key on both
    servers.

    Args:
        providers: All providers of the pool, with unique names.
        environ: The environment's variables, which hold the secrets. Secrets are not stored. An
            unset variable is treated as if it held a secret that no other variable holds.

    Raises:
        ConfigError: A number in a limit is not allowed, or two listings of one key declare
            different numbers.
    """
    entries = {
        Listing(of.provider.name, key.name): (of, index)
        for of in providers
        for index, key in enumerate(of.provider.keys)
    }
    found: dict[Listing, OneKey] = {}
    for listings in _joined(entries, providers, environ):
        amounts = _common_amounts(listings, entries)
        name = joined_name([f"{one.provider}/{one.key}" for one in listings])
        found |= dict.fromkeys(listings, OneKey(name, amounts, listings))
    return found


def joined_name(names: Sequence[str]) -> str:
    """Join several names into one name: `a + b`, or `a + b + c + 2 more`."""
    more = [f"{len(names) - _NAMED} more"] if len(names) > _NAMED else []
    return " + ".join([*names[:_NAMED], *more])


def _joined(
    entries: Mapping[Listing, object], providers: Sequence[Declared], environ: Mapping[str, str]
) -> Iterator[tuple[Listing, ...]]:
    """Yield the listings of each key, in the order of the file."""
    group_of = {listing: [listing] for listing in entries}
    first: dict[str, Listing] = {}
    for listing, identity in _identities(providers, environ):
        own, more = group_of[first.setdefault(identity, listing)], group_of[listing]
        if more is not own:
            own += more
            group_of |= dict.fromkeys(more, own)
    order = {listing: number for number, listing in enumerate(entries)}
    for group in {id(group): group for group in group_of.values()}.values():
        yield tuple(sorted(group, key=order.__getitem__))


def _identities(
    providers: Sequence[Declared], environ: Mapping[str, str]
) -> Iterator[tuple[Listing, str]]:
    """Yield each listing with its identity on each server for which its key is used."""
    for of in providers:
        if of.provider.is_simulated:
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
    # A plan works without secrets. The placeholder contains a blank, so it cannot be a real key.
    return environ.get(key.env, "").strip() or f"variable {key.env}"


def _common_amounts(
    listings: Sequence[Listing], entries: Mapping[Listing, tuple[Declared, int]]
) -> Amounts:
    """Merge the bounds of a key from all its listings. Each listing may omit numbers.

    Raises:
        ConfigError: Two listings declare different numbers.
    """
    amounts: Amounts = {}
    of_listing: dict[str, Listing] = {}
    for listing in listings:
        of, index = entries[listing]
        where = of.location.at("keys").item(index)
        for name, number in _amounts(of, index).items():
            other = of_listing.setdefault(name, listing)
            if other is listing:
                amounts[name] = number
            elif number != (first := amounts[name]):
                is_open = of.provider.keys[index].env is None
                why = "same address" if is_open else "same secret, host and port"
                where.at(name).refuse(
                    f"= {_said(number)} contradicts {_said(first)} for the same key "
                    f'"{"/".join(other)}" ({why}): a key has one limit; write the same number in '
                    "both places, or a number in only one of them"
                )
    return amounts


def _said(value: float | str) -> str:
    return f'"{value}"' if isinstance(value, str) else f"{value:g}"


def _amounts(of: Declared, index: int) -> Amounts:
    mode = of.provider.rate_mode
    own = read_amounts(of.location.at("keys").item(index), of.table.keys[index], mode)
    return read_amounts(of.location.at("per_key"), of.table.per_key, mode) | own


MAX_LANES = 10_000
"""The maximum number of lanes in a pool. Without it, a file of 1 MiB could declare about 10**8
lanes."""
SIMULATED_GRACE_S = 0.05
"""`orphan_grace_s` of the simulated provider's lanes. Its server frees a seat when the connection
drops, but only after a short delay."""
DEFAULT_GRACE_S = 10.0
"""`orphan_grace_s` until the lane's own answers give a better value: see `Lane.longest_grace_s`."""
REQUEST_MARGIN_S = 5.0
"""Extra time for a busy client to return the lease after a request's deadline, in seconds."""
GRACE_PER_HINT = 2.0
"""`orphan_grace_s` as a multiple of `latency_hint_s`. It is more than 1 because an orphaned request
may be slower than a typical one."""


def keys_of_models(
    location: Location, table: ProviderTable, provider: Provider
) -> tuple[tuple[Key, ...], ...]:
    """Return, for each model of a provider, the keys that may serve it.

    Args:
        location: The provider's place in the file.
        table: The provider's table, which lists the models' keys.
        provider: The provider itself.

    Raises:
        ConfigError: A model's list of keys is empty, repeats a key, or contains an unknown one.
    """
    return tuple(
        chosen_keys(location.at("model").item(index).at("keys"), model.keys, provider.keys)
        for index, model in enumerate(table.model)
    )


def build_lanes(of: Declared, one_key: Mapping[Listing, OneKey], book: LimitBook) -> list[Lane]:
    """Make the lanes of a provider, ordered by model, then instance, then key, as in the file.

    Adds the provider's limits to `book`, outermost first. If the provider lists a key twice, the
    `per_key` bounds apply to that key only once.

    Args:
        of: The provider and its table.
        one_key: All keys in the pool, by listing.
        book: The limits made so far, which include the limit of the whole pool, if there is one.

    Raises:
        ConfigError: A bound is not allowed.
    """
    location, table, provider = of.location, of.table, of.provider
    mode = provider.rate_mode
    book.add(provider.name, "provider", read_amounts(location, table, mode))
    for key in provider.keys:
        one = one_key[Listing(provider.name, key.name)]
        book.add(one.name, "key", one.amounts)
    per_key_model = read_amounts(location.at("per_key_model"), table.per_key_model, mode)
    families = _families(location, table, bounded=bool(per_key_model))
    lanes: list[Lane] = []
    models = zip(provider.models, table.model, of.keys, strict=True)
    for index, (model, model_table, keys) in enumerate(models):
        where = location.at("model").item(index)
        per_instance = read_amounts(where.at("per_instance"), model_table.per_instance, mode)
        per_lane = read_amounts(where.at("per_lane"), model_table.per_lane, mode)
        n = 1
        if model_table.multiply_by_prompt_types:
            n = book.prompt_types
            if not any("workers" in one for one in (per_key_model, per_instance, per_lane)):
                where.at("multiply_by_prompt_types").refuse(
                    "= true has no effect: set workers in per_instance, per_lane or the provider's "
                    "per_key_model"
                )
        file_name = book.sources.file_name
        of_key = multiplied(location.at("per_key_model"), per_key_model, n, file_name)
        of_instance = multiplied(where.at("per_instance"), per_instance, n, file_name)
        of_lane = multiplied(where.at("per_lane"), per_lane, n, file_name)
        names_of = _names_of(provider.name, keys, one_key)
        key_model = {
            name: joined_name([f"{provider.name}/{one}/{families[index]}" for one in names])
            for name, names in names_of.items()
        }
        for limit in key_model.values():
            book.add(limit, "key_model", *of_key)
        for instance in model.instances:
            of_this = f"{provider.name}/{instance.name}"
            book.add(of_this, "instance", *of_instance)
            for name, names in names_of.items():
                lane_limit = joined_name([f"{of_this}/{one}" for one in names]) + " lane"
                book.add(lane_limit, "lane", *of_lane)
                one_of = one_key[Listing(provider.name, name)]
                path = book.path(
                    "pool", provider.name, one_of.name, key_model[name], of_this, lane_limit
                )
                lanes.append(_lane(provider, model, (instance.name, name), path, one_of))
    return lanes


def _families(location: Location, table: ProviderTable, *, bounded: bool) -> list[str]:
    """Return the family of each of a provider's models.

    Models in the same family share the `per_key_model` limit of each key. By default, each model
    forms its own family, which has the name of the model.

    Raises:
        ConfigError: A name is not allowed, there is no `per_key_model` to share, or models in a
            family differ in `multiply_by_prompt_types`.
    """
    first_of: dict[str, ModelTable] = {}
    families = []
    for index, model in enumerate(table.model):
        where = location.at("model").item(index).at("family")
        family = model.name if model.family is None else check_name(where, model.family)
        if model.family is not None and not bounded:
            where.refuse("has no effect: the provider has no per_key_model to share")
        first = first_of.setdefault(family, model)
        if first.multiply_by_prompt_types != model.multiply_by_prompt_types:
            where.refuse(
                f'= "{family}" is shared with model "{first.name}": models in one family must have'
                " the same multiply_by_prompt_types"
            )
        families.append(family)
    return families


def _names_of(
    provider: str, keys: Sequence[Key], one_key: Mapping[Listing, OneKey]
) -> dict[str, list[str]]:
    """For the name of each of these keys, all names under which the provider lists that key."""
    names: dict[str, list[str]] = {}
    found = {}
    for key in keys:
        one = one_key[Listing(provider, key.name)]
        found[key.name] = names.setdefault(one.name, [])
        found[key.name].append(key.name)
    return found


def _lane(
    provider: Provider, model: Model, pair: tuple[str, str], path: tuple[str, ...], one: OneKey
) -> Lane:
    instance, key = pair
    variables = {} if provider.is_simulated else {one.name: one.env for one in provider.keys}
    grace_s, longest_s = _graces_s(provider, model)
    return Lane(
        LaneId(f"{provider.name}/{instance}/{key}"),
        provider.name,
        model.name,
        instance,
        key,
        path,
        orphan_grace_s=grace_s,
        request_s=provider.timeout_s + REQUEST_MARGIN_S,
        longest_grace_s=longest_s,
        listed_as=one.name if len(one.listings) > 1 else "",
        variable=variables.get(key),
    )


def _graces_s(provider: Provider, model: Model) -> tuple[float, float | None]:
    """The `orphan_grace_s` and `longest_grace_s` of each of a model's lanes."""
    if provider.is_simulated:
        return SIMULATED_GRACE_S, None
    if model.latency_hint_s is None:
        return DEFAULT_GRACE_S, provider.timeout_s
    return GRACE_PER_HINT * model.latency_hint_s, None
