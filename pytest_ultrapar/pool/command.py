"""`ultrapar init`: write a pool file for given models, or for those found in the environment."""

from __future__ import annotations

import os
from pathlib import Path
from typing import TYPE_CHECKING

from pytest_ultrapar.pool.field_checks import Location

if TYPE_CHECKING:
    import argparse

NAME = "init"
SUMMARY = "write a pool.toml for the models that this environment can use"
DESCRIPTION = """\
Write the pool file that pytest --ultrapar-model WORD uses internally. By default it contains one
model from each vendor whose key is set, and the models on local vLLM and ollama servers. It names
the variables that hold the keys; it does not contain the keys. No request is sent to a vendor, and
no existing file is overwritten.
"""


def add_arguments(parser: argparse.ArgumentParser) -> None:
    """Declare the options of `ultrapar init`."""
    parser.add_argument("file", nargs="?", default="pool.toml", help="default: %(default)s")
    parser.add_argument(
        "--model",
        action="append",
        default=[],
        metavar="WORD",
        help="VENDOR/NAME such as openai/gpt-5-mini, or a local server such as "
        "http://localhost:8000/v1; may be repeated (default: see above)",
    )


def run(arguments: argparse.Namespace) -> int:
    """Write the file, and print which models it lists and where their keys are sent.

    Raises:
        ConfigError: A value of `--model` does not name a model, no model was found, or the file
            already exists.
    """
    from pytest_ultrapar.pool.keys import sent_lines  # noqa: PLC0415
    from pytest_ultrapar.pool.load_pool import load_pool  # noqa: PLC0415 - light `--help`
    from pytest_ultrapar.pool.setting_values import Overrides  # noqa: PLC0415
    from pytest_ultrapar.pool.vendors import named, of_environment, pool_text  # noqa: PLC0415

    file, where = arguments.file, Location("--model")
    models = [named(where, word, os.environ) for word in arguments.model]
    models = models or [*of_environment(os.environ)]
    if not models:
        where.refuse(
            "is required (for example openai/gpt-5-mini): no key for a known vendor is set "
            "(OPENAI_API_KEY, ...), and no server answers on the default port of vLLM or ollama"
        )
    text = pool_text(models)
    pool = load_pool(file, text=text, environ={}, overrides=Overrides())
    try:
        with Path(file).open("x", encoding="utf-8") as written:
            written.write(text)
    except FileExistsError:
        Location(file).refuse("exists and was not changed; choose another name: ultrapar init FILE")
    print(f"{file} lists {', '.join(pool.models)}", *sent_lines(pool, pool.lanes), sep="\n")
    print(f"to check it: ultrapar check --pool {file}; to use it: pytest --ultrapar-pool {file}")
    return 0
