"""Make a `Pool` from a pool file. All checks run once, before any request."""

from __future__ import annotations

import re
from dataclasses import replace
from hashlib import sha256
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.apis.registry import SIMULATED
from pytest_ultrapar.pool import limits
from pytest_ultrapar.pool.field_checks import Location, check_different, check_word, shown
from pytest_ultrapar.pool.file import (
    PoolFile,
    WholePoolTable,
    decode_as,
    parse_toml,
    read_pool_file,
    refuse_forbidden,
)
from pytest_ultrapar.pool.model import PRICES, Lane, Limit, Model, Pool, Provider
from pytest_ultrapar.pool.money import USD, ModelPrice
from pytest_ultrapar.pool.number_ranges import MONEY, WORKERS
from pytest_ultrapar.pool.providers import build_provider
from pytest_ultrapar.pool.roles import build_roles, models_without_cases
from pytest_ultrapar.pool.setting_values import Overrides, Sources, read_environment
from pytest_ultrapar.pool.settings import RATE_MODES, Options, RateMode

if TYPE_CHECKING:
    from collections.abc import Mapping, Sequence

    from pytest_ultrapar.pool.file import ProviderTable

_CURRENCY = re.compile(r"[A-Z]{3}")
__all__ = ["Overrides", "load_pool"]


def load_pool(
    path: Path | str, *, environ: Mapping[str, str], overrides: Overrides, text: str | None = None
) -> Pool:
    """Return the pool that a file describes, with the environment and command line applied.

    Secrets are read only to find keys that are listed twice, and are not stored. `read_secrets`
    checks that all secrets exist.

    Args:
        path: The pool file.
        environ: The environment's variables, usually `os.environ`.
        overrides: The settings of the command line.
        text: The content to use instead of the file; None reads the file.

    Raises:
        ConfigError: Something in the file or a setting is not allowed. The message names the file,
            the field, the value found and the allowed values. It contains no secret.
    """
    location = Location(str(path))
    if text is None:
        text, digest = read_pool_file(Path(path), location)
    else:
        digest = sha256(text.encode()).hexdigest()
    tables = parse_toml(text, location)
    refuse_forbidden(tables, location)
    file = decode_as(PoolFile, tables, location)
    sources = Sources(overrides, environ, read_environment(environ), Path(path).name)
    whole = file.pool or WholePoolTable()
    modes = _rate_modes(location, whole, file.provider, sources)
    currency, price_book = _money(location.at("pool"), whole)
    if not file.provider:
        location.at("provider").refuse("is empty: a pool needs at least one [[provider]]")
    book = limits.LimitBook(
        sources, prompt_types=limits.count_prompt_types(location, file, sources)
    )
    providers, lanes = _build(location, file, modes, book)
    roles = build_roles(location, file, sources)
    return Pool(
        path=str(path),
        digest=digest,
        providers=tuple(providers),
        lanes=tuple(lanes),
        limits=dict(book.limits),
        held=_held(location, file, modes, book),
        effective=tuple(sources.effective),
        repeats=whole.repeats,
        record=whole.record,
        currency=currency,
        prices=tuple(
            price
            for provider in providers
            for model in provider.models
            if (price := _price(provider.name, model, sources.file_name)) is not None
        ),
        price_book=price_book,
        roles=roles,
        caseless=models_without_cases(location, file, roles),
    )


def _money(location: Location, whole: WholePoolTable) -> tuple[str, str | None]:
    """The currency of all prices, and the price book for prices that the file omits.

    Raises:
        ConfigError: The currency or the book is not allowed, or the book uses another currency.
    """
    currency, book = whole.currency or USD, whole.prices
    if not _CURRENCY.fullmatch(currency):
        location.at("currency").refuse(
            f'must be a three-letter currency code, such as "{USD}" (got {shown(currency)})'
        )
    if book is not None and currency != USD:
        location.at("currency").refuse(
            f'= "{currency}" cannot be combined with prices = "{book}", which are in {USD}'
        )
    return currency, book


def _price(provider: str, model: Model, origin: str) -> ModelPrice | None:
    if model.unpriced:
        return None
    per_mtok = {name.removeprefix("price_"): getattr(model, name) for name in PRICES}
    return ModelPrice(provider, model.name, **per_mtok, origin=origin)


def _build(
    location: Location, file: PoolFile, modes: Sequence[RateMode], book: limits.LimitBook
) -> tuple[list[Provider], list[Lane]]:
    """Return all providers and lanes, and add the limits for their rate modes to `book`."""
    whole = file.pool or WholePoolTable()
    # There is only one pool limit: if any provider is adaptive, use the larger, adaptive number.
    _add_pool_limit(location.at("pool"), whole, book, max(modes, key=RATE_MODES.index))
    declared: list[limits.Declared] = []
    n_lanes = 0
    for index, (table, mode) in enumerate(zip(file.provider, modes, strict=True)):
        where = location.at("provider").item(index)
        provider = replace(build_provider(where, table, book.sources), rate_mode=mode)
        keys = limits.keys_of_models(where, table, provider)
        n_lanes += sum(
            len(model.instances) * len(of) for model, of in zip(provider.models, keys, strict=True)
        )
        if n_lanes > limits.MAX_LANES:
            where.refuse(f"gives the pool more than {limits.MAX_LANES} lanes (instances x keys)")
        declared.append(limits.Declared(where, table, provider, keys))
    check_different((of.location.at("name"), of.provider.name) for of in declared)
    one_key = limits.one_keys(declared, book.sources.environ)
    lanes = [lane for of in declared for lane in limits.build_lanes(of, one_key, book)]
    return [of.provider for of in declared], lanes


def _held(
    location: Location, file: PoolFile, modes: Sequence[RateMode], book: limits.LimitBook
) -> dict[str, Limit]:
    """The limits that simulated providers enforce: the fixed ones, which adaptive mode has to find.

    Empty if no simulated provider is in adaptive mode.
    """
    held_modes: list[RateMode] = [
        "fixed" if table.api == SIMULATED else mode
        for table, mode in zip(file.provider, modes, strict=True)
    ]
    if held_modes == list(modes):
        return {}
    silent = replace(book.sources, effective=[])
    held = limits.LimitBook(silent, prompt_types=book.prompt_types)
    _build(location, file, held_modes, held)
    return dict(held.limits)


def _rate_modes(
    location: Location, whole: WholePoolTable, tables: Sequence[ProviderTable], sources: Sources
) -> list[RateMode]:
    """The rate mode of each provider; one from the command line or environment applies to all."""
    where = location.at("pool").at("rate_mode")
    found, origin, place = sources.resolve(Options.rate_mode, whole.rate_mode, where)
    word = check_word(place, str(found or RATE_MODES[0]), RATE_MODES)
    sources.note("rate_mode", word, str(origin))
    is_for_all = bool(origin.name)
    modes = [word if is_for_all else table.rate_mode or word for table in tables]
    for table in tables:
        if not is_for_all:
            sources.note(f"{table.name} rate_mode", table.rate_mode)
    return modes


def _add_pool_limit(
    location: Location, table: WholePoolTable, book: limits.LimitBook, mode: RateMode
) -> None:
    amounts = limits.read_amounts(location, table, mode)
    workers = amounts.get("workers")
    found, origin, place = book.sources.resolve(
        Options.max_workers, None if workers is None else int(workers), location.at("workers")
    )
    if found is not None:
        amounts["workers"] = WORKERS.check(place, found)
    budget, of_budget, place = book.sources.resolve(
        Options.budget, amounts.get("budget"), location.at("budget")
    )
    if budget is not None:
        amounts["budget"] = float(MONEY.check(place, budget))
    book.add("pool", "pool", amounts, str(origin), str(of_budget))
