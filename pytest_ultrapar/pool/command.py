"""`ultrapar init`: writes the pool file that models without a pool stand for."""

from __future__ import annotations

import os
from contextlib import suppress
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError
from pytest_ultrapar.pool.fields import Location

if TYPE_CHECKING:
    import argparse
    from collections.abc import Iterator, Mapping

    from pytest_ultrapar.pool.vendors import Named


NAME = "init"
SUMMARY = "write a pool.toml of the models that the environment has"
DESCRIPTION = """\
Write a pool file: of the models that are named, or else of each vendor whose key is set in the
environment and of each server that answers on this machine where vLLM and ollama usually do. Keys
stand there by the names of their variables, nothing is sent to any vendor, and a file that is there
is never written to.

pytest --ultrapar-model WORD runs on the same pool without any file.
"""
_LOCAL_S = 1.0


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar init`."""
    parser.add_argument("file", nargs="?", default="pool.toml", help="default: %(default)s")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="WORD",
        help="VENDOR/NAME such as openai/gpt-5-mini, or a server of this machine such as "
        "http://localhost:8000/v1; may be repeated (default: what the environment has)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file and say what is in it.

    Raises:
        ConfigError: A word names no model, nothing was found, or the file is there.
    """
    from pytest_ultrapar.pool.config import build_pool  # noqa: PLC0415 - light `--help`
    from pytest_ultrapar.pool.keys import sent_lines  # noqa: PLC0415
    from pytest_ultrapar.pool.setting_values import Overrides  # noqa: PLC0415
    from pytest_ultrapar.pool.vendors import named, pool_text  # noqa: PLC0415

    file = arguments.file
    words = [named(Location("--model"), word, os.environ) for word in arguments.model]
    text = pool_text(words or _found(os.environ))
    pool = build_pool(file, text, "", environ={}, overrides=Overrides())
    try:
        with Path(file).open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        msg = f"{file} is there, and stays as it is; name another file: ultrapar init FILE"
        raise ConfigError(msg) from None
    print(f"{file} has {', '.join(pool.models)}", *sent_lines(pool, pool.lanes), sep="\n")
    print(f"check it: ultrapar check --pool {file}; use it: pytest --ultrapar-pool {file}")
    return 0


def _found(environ: Mapping[str, str]) -> list[Named]:
    """What the environment has: vendors with a key, servers that answer.

    Raises:
        ConfigError: Nothing.
    """
    from pytest_ultrapar.pool.vendors import vendors  # noqa: PLC0415

    found = [one for vendor in vendors() for one in _of(vendor, environ)]
    if not found:
        keys = ", ".join(
            keys[0] for one in vendors().values() if "model" in one for keys in [one["keys"]]
        )
        msg = (
            f"no key is set ({keys}), and no server answers where vLLM and ollama do; name a "
            "model: ultrapar init --model openai/gpt-5-mini"
        )
        raise ConfigError(msg)
    return found


def _of(vendor: str, environ: Mapping[str, str]) -> Iterator[Named]:
    from pytest_ultrapar.pool.served import served_models  # noqa: PLC0415
    from pytest_ultrapar.pool.vendors import named_of, vendors  # noqa: PLC0415

    known = vendors()[vendor]
    one = named_of(vendor, known.get("model", ""), environ)
    if one.api_name:
        if environ.get(str(one.variable), "").strip():
            yield one
    elif one.base_url.startswith("http:"):
        with suppress(ConfigError):
            for name in served_models(one.base_url, _LOCAL_S):
                yield named_of(vendor, name, environ)
