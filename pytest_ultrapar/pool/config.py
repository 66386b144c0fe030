"""From a pool file to a `Pool`: every check is made here, once, before any request."""

from __future__ import annotations

from dataclasses import replace
from pathlib import Path
from typing import TYPE_CHECKING, Literal

from pytest_ultrapar.pool.bounds import REPEATS, WORKERS, check_different, check_word
from pytest_ultrapar.pool.decode import decode
from pytest_ultrapar.pool.environment import RATE_MODES, Overrides, option_of, read_environment
from pytest_ultrapar.pool.lane_paths import build_lanes
from pytest_ultrapar.pool.limits import LimitBook, read_caps
from pytest_ultrapar.pool.model import EffectiveValue, Lane, Pool, Provider
from pytest_ultrapar.pool.place import Place
from pytest_ultrapar.pool.pool_file import parse_toml, read_pool_file
from pytest_ultrapar.pool.prompt_types import check_prompt_types
from pytest_ultrapar.pool.providers import build_provider
from pytest_ultrapar.pool.refused import refuse_forbidden
from pytest_ultrapar.pool.schema import WholePoolTable
from pytest_ultrapar.pool.secret import check_secrets
from pytest_ultrapar.pool.sources import Sources

if TYPE_CHECKING:
    from collections.abc import Mapping

__all__ = ["Overrides", "check_secrets", "load_pool"]


def load_pool(path: Path | str, *, environ: Mapping[str, str], overrides: Overrides) -> Pool:
    """The pool of a file, as the environment and the command line change it.

    No secret is read: see `check_secrets`.

    Args:
        path: The pool file.
        environ: The environment's variables, usually `os.environ`.
        overrides: What the command line says.

    Raises:
        ConfigError: Anything is not allowed; one message that names file, field, what was found
            and what is allowed, without any secret.
    """
    place = Place(str(path))
    content = read_pool_file(Path(path), place)
    tables = parse_toml(content.text, place)
    refuse_forbidden(tables, place)
    file = decode(tables, place)
    sources = Sources(overrides, environ, read_environment(environ), Path(path).name)
    whole = file.pool or WholePoolTable()
    rate_mode = _rate_mode(place.at("pool").at("rate_mode"), whole.rate_mode, sources)
    if whole.repeats is not None:
        REPEATS.check(place.at("pool").at("repeats"), whole.repeats)
    prompt_types = check_prompt_types(place, file)
    sources.note("prompt_types", prompt_types)
    book = LimitBook(sources, prompt_types=prompt_types or 1)
    _add_pool_limit(place.at("pool"), whole, book)
    if not file.provider:
        place.at("provider").refuse("is empty: a pool needs at least one [[provider]]")
    providers: list[Provider] = []
    lanes: list[Lane] = []
    for index, table in enumerate(file.provider):
        where = place.at("provider").item(index)
        provider = build_provider(where, table, sources)
        lanes += build_lanes(where, table, provider, book, len(lanes))
        providers.append(provider)
    check_different(
        (place.at("provider").item(i).at("name"), p.name) for i, p in enumerate(providers)
    )
    _check_shared_secrets(place, providers)
    return Pool(
        path=str(path),
        digest=content.digest,
        rate_mode=rate_mode,
        providers=tuple(providers),
        lanes=tuple(lanes),
        limits=dict(book.limits),
        effective=tuple(sources.effective),
        repeats=whole.repeats,
    )


def _rate_mode(place: Place, file: str | None, sources: Sources) -> Literal["fixed"]:
    if file is not None:
        check_word(place, file, RATE_MODES)
    value = sources.rate_mode(file)
    word = check_word(_origin_place(value, place), str(value.value), RATE_MODES)
    if word == "adaptive":
        _origin_place(value, place).refuse(
            'must be "fixed" (got "adaptive"): adaptive mode is not available yet; use fixed'
        )
    sources.note("rate_mode", word, value.origin)
    return word


def _add_pool_limit(place: Place, table: WholePoolTable, book: LimitBook) -> None:
    caps = read_caps(place, table)
    value = book.sources.max_workers(caps.workers)
    if isinstance(value.value, int):
        WORKERS.check(_origin_place(value, place.at("workers")), value.value)
        caps = replace(caps, workers=value.value)
    book.add("pool", "pool", caps, value.origin)


def _origin_place(value: EffectiveValue, file_place: Place) -> Place:
    if value.origin.startswith("command line "):
        return Place("command line", option_of(value.name))
    if value.origin.startswith("environment "):
        return Place(*value.origin.split(" ", 1))
    return file_place


def _check_shared_secrets(place: Place, providers: list[Provider]) -> None:
    # Two providers may share an address or a variable, but not both: one key, counted twice.
    seen: dict[tuple[str, str], str] = {}
    for p, provider in enumerate(providers):
        for k, key in enumerate(provider.keys):
            if key.env is None or provider.api == "simulated":
                continue
            other = seen.setdefault((provider.base_url, key.env), provider.name)
            if other != provider.name:
                where = place.at("provider").item(p).at("keys").item(k).at("env")
                where.refuse(
                    f'is the same key at the same base_url as in provider "{other}": its limits'
                    " would be counted twice; put its models under one provider"
                )
