"""Models that the user names without a pool file, and the pool file that the plugin makes for them.

`openai/gpt-5-mini` is a vendor's model, and `http://localhost:8000/v1#NAME` is a model on a local
server. In results, these models are called `openai/gpt-5-mini` and `localhost:8000/NAME`.
"""

from __future__ import annotations

import functools
import json
import re
from contextlib import suppress
from importlib.util import find_spec
from pathlib import Path
from typing import TYPE_CHECKING, Any, NamedTuple

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.field_checks import (
    Location,
    check_name,
    did_you_mean,
    looks_like_secret,
    shown,
)
from pytest_ultrapar.pool.load_pool import Overrides, load_pool
from pytest_ultrapar.pool.model import SERVED, Pool
from pytest_ultrapar.pool.network import address_of, check_base_url, host_of, is_local
from pytest_ultrapar.pool.served_models import served_models
from pytest_ultrapar.records import by_key

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping

_WAYS = 'VENDOR/NAME such as "openai/gpt-5-mini", or a server such as "http://localhost:8000/v1"'


@functools.cache
def vendors() -> dict[str, dict[str, Any]]:
    """The vendors in `vendors.toml` by name; comments in that file explain the fields."""
    import tomllib  # noqa: PLC0415 - only for models without a pool

    return tomllib.loads(Path(__file__).with_suffix(".toml").read_text(encoding="utf-8"))


class Named(NamedTuple):
    """A model that can be used without a pool file.

    Attributes:
        provider: The name of its provider in the pool that the plugin makes.
        model: The model's name in results.
        api_name: The model's name at the API; `SERVED` for the only model on a server.
        base_url: The URL of the API.
        variable: The environment variable that holds the key; None if the server needs no key.
    """

    provider: str
    model: str
    api_name: str
    base_url: str
    variable: str | None = None


def is_address(word: str) -> bool:
    """Whether a word can name a model without a pool, as a URL or VENDOR/NAME does."""
    return "://" in word or word.partition("/")[0] in vendors()


def named(location: Location, word: str, environ: Mapping[str, str]) -> Named:
    """Return the model that a word names.

    Args:
        location: The place of the word, for messages.
        word: The user's word.
        environ: The environment's variables, which hold keys and may hold addresses.

    Raises:
        ConfigError: The word does not name a model. The message contains nothing that may be a
            secret.
    """
    if "://" in word:
        return _at_server(location, word)
    vendor, _, name = word.partition("/")
    if vendor not in vendors() or not name:
        location.refuse(
            f"must be {_WAYS} (got {shown(word)})"
            f"{did_you_mean(vendor, vendors()) if name else ''}; the vendors are "
            f"{', '.join(vendors())}; to use a pool, add --ultrapar-pool FILE"
        )
    _checked(location, name)
    return named_of(vendor, name, environ)


def named_of(vendor: str, name: str, environ: Mapping[str, str]) -> Named:
    """Return the vendor's model with this name.

    Raises:
        ConfigError: The environment variable for the vendor's address does not contain a valid URL.
    """
    known, moved = vendors()[vendor], f"{vendor.upper()}_BASE_URL"
    base_url = environ.get(moved, "").strip() or known["base_url"]
    check_base_url(Location("environment", moved), base_url)
    variable = next((one for one in known["keys"] if environ.get(one, "").strip()), None)
    if not all(is_local(host_of(url)) for url in (base_url, known["base_url"])):
        variable = variable or known["keys"][0]
    return Named(vendor, f"{vendor}/{name.strip('/')}", name, base_url, variable)


def of_environment(environ: Mapping[str, str]) -> Iterator[Named]:
    """Find the models that can be used without a pool in this environment.

    These are the default model of each vendor whose key is set, and all models on local servers.

    Args:
        environ: The environment's variables, as for `named`.

    Raises:
        ConfigError: As for `named_of`.
    """
    for vendor, known in vendors().items():
        one = named_of(vendor, known.get("model", ""), environ)
        if one.api_name and environ.get(str(one.variable), "").strip():
            yield one
        elif not one.api_name and one.base_url.startswith("http:"):
            with suppress(ConfigError):
                for name in served_models(one.base_url, timeout_s=1.0):
                    # Skip names that contain other characters. The user can still write them after
                    # the address.
                    with suppress(ConfigError):
                        yield named(Location(vendor), f"{vendor}/{name}", environ)


def _at_server(location: Location, word: str) -> Named:
    url, _, name = word.partition("#")
    url = check_base_url(location, url)
    if not is_local(host_of(url)):
        location.refuse(
            f"must be a local server, which needs no key (got host "
            f"{shown(host_of(url))}); for a remote server, set OPENAI_BASE_URL and OPENAI_API_KEY "
            "and write openai/NAME, or write a pool file"
        )
    if url.count("/") == 2:  # noqa: PLR2004 - the slashes of http://
        url += "/v1"
    place = _checked(location, address_of(url).partition("://")[2].removesuffix("/v1"))
    provider = place.replace("/", ":")
    if not name:
        if not url.startswith("http:"):
            location.refuse(
                "must end with #NAME, the model's name: only http:// servers are asked for it"
            )
        return Named(provider, place, SERVED, url)
    return Named(provider, f"{place}/{_checked(location, name)}", name, url)


def _checked(location: Location, name: str) -> str:
    for part in (name := name.strip("/")).split("/"):
        if looks_like_secret(part):
            location.refuse("must name a model (got a possible secret, which is not shown)")
        check_name(location, part)
    return name


def named_pool(
    option: str, words: Iterable[str], environ: Mapping[str, str], overrides: Overrides
) -> Pool:
    """Make the pool for models that the user named without a pool file.

    Args:
        option: The option with which the user named the models, for messages.
        words: The words, as for `named`.
        environ: The environment's variables, as for `named`.
        overrides: The settings for the pool from the command line.

    Raises:
        ConfigError: As for `named`.
    """
    text = pool_text(named(Location(option), word, environ) for word in words)
    return load_pool(option, text=text, environ=environ, overrides=overrides)


def pool_text(models: Iterable[Named]) -> str:
    """Return a pool file for these models, with adaptive limits.

    It names the price book if that is installed, unless all models are on local servers.
    """
    of_provider = by_key((one.provider, one) for one in dict.fromkeys(models))
    lines = ["schema = 1", "", "[pool]", 'rate_mode = "adaptive"']
    # The price book finds a server by its host.
    is_sold = any(not is_local(host_of(own[0].base_url)) for own in of_provider.values())
    if is_sold and find_spec("genai_prices"):
        lines.append('prices = "genai-prices"')
    for provider, own in of_provider.items():
        known, variable = vendors().get(provider, {"api": "openai"}), own[0].variable
        key = {"name": "key0"} | ({"env": variable} if variable else {})
        table = {"name": provider, "api": known["api"], "base_url": own[0].base_url, "keys": [key]}
        if "parameters" in known:
            table["parameters"] = known["parameters"]
        lines += ["", "[[provider]]", *(f"{name} = {_toml(one)}" for name, one in table.items())]
        for one in own:
            # The name becomes part of ids, and `/` separates the parts of ids.
            own_name = provider if one.api_name == SERVED else one.api_name.strip("/")
            instance = {"name": re.sub(r"[^\w.:-]", ":", own_name), "api_name": one.api_name}
            lines += ["", "[[provider.model]]", f"name = {_toml(one.model)}"]
            lines.append(f"instances = [{_toml(instance)}]")
    return "\n".join((*lines, ""))


def _toml(value: object) -> str:
    if isinstance(value, list):
        return f"[{', '.join(map(_toml, value))}]"
    if isinstance(value, dict):
        return f"{{ {', '.join(f'{name} = {_toml(one)}' for name, one in value.items())} }}"
    return json.dumps(value)
