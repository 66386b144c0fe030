"""Declare the options to pytest's parser; defaults, ranges and help are in `pool/settings.py`."""

from __future__ import annotations

from contextlib import contextmanager
from pathlib import Path
from typing import TYPE_CHECKING, Any

import pytest

from pytest_ultrapar.errors import UltraparError
from pytest_ultrapar.pool.settings import SETTINGS, Options, Setting

if TYPE_CHECKING:
    from collections.abc import Generator


_LIMITS = (
    {Options.policy, Options.rate_mode, Options.max_workers, Options.max_attempts}
    | {Options.episode_timeout_s, Options.wait_for_servers_s, Options.check, Options.key_lock}
    | {Options.simulator, Options.faults, Options.debug_log}
)
_MACHINES = {Options.shard, Options.cluster_run, Options.cluster} | {
    Options.cluster_host,
    Options.cluster_patience_s,
}


def add_options(parser: pytest.Parser) -> None:
    """Declare the options and their ini settings. Called once by pytest at start-up."""
    every_day = parser.getgroup("ultrapar", "LLM evaluations (pytest-ultrapar)")
    limits = parser.getgroup("ultrapar-limits", "LLM evaluations: limits, keys and servers")
    machines = parser.getgroup("ultrapar-machines", "LLM evaluations: several machines")
    for row in SETTINGS:
        group = limits if row in _LIMITS else machines if row in _MACHINES else every_day
        if row.option:
            group.addoption(
                row.option, dest=row.dest, default=None, help=row.help_text, **_facts(row)
            )
        if row.ini:
            parser.addini(row.ini, f"Pool file to use if {row.option} is not given.", default="")


def _facts(row: Setting[Any]) -> dict[str, Any]:
    """An option's arguments for argparse. Values with their own grammar are parsed later."""
    if row.kind is bool:
        return {"action": "store_true"}
    if row.bare is not None:
        # Leave out `choices`: if a path followed the option, argparse would refuse it without
        # giving a reason.
        return {"metavar": row.metavar, "nargs": "?", "const": row.bare}
    if row.choices is not None:
        return {"choices": row.choices}
    if row.kind is tuple:
        return {"metavar": row.metavar, "action": "append"}
    return {"metavar": row.metavar, "type": row.kind if row.kind in {int, float} else str}


def only_looks(config: pytest.Config) -> bool:
    """Whether pytest was asked to show tests or fixtures instead of running anything."""
    # Each of these options belongs to a plugin that `-p no:` can switch off.
    names = ("collectonly", "setupplan", "showfixtures", "show_fixtures_per_test")
    return any(config.getoption(name, False) for name in names)


def plans(config: pytest.Config) -> bool:
    """Whether pytest was asked for a plan instead of a run."""
    return bool(config.getoption(Options.plan.dest))


def is_active(config: pytest.Config) -> bool:
    """Whether this plugin has work to do, because the user named models or a pool.

    A pool file that only the ini settings name need not exist. Without it, this is False unless a
    hook provides a pool, because only evaluations need the file.
    """
    if config.getoption(Options.models.dest) or config.getoption(Options.pool.dest):
        return True
    path = pool_path(config)
    is_given = bool(config.hook.pytest_ultrapar_pool.get_hookimpls())
    return path is not None and (is_given or path.exists())


def pool_path(config: pytest.Config) -> Path | None:
    """The pool file that the option or the ini setting names, if any."""
    row = Options.pool
    given = config.getoption(row.dest)
    if given:
        return Path(given)
    ini = config.getini(row.ini)
    if not ini:
        return None
    path = Path(ini)
    return path if path.is_absolute() or config.inipath is None else config.inipath.parent / path


@contextmanager
def usage_errors() -> Generator[None]:
    """Turn this package's errors into pytest's usage errors: exit code 4, no traceback.

    A message may quote a file that someone else wrote, so control characters are made visible.
    """
    try:
        yield
    except UltraparError as error:
        from pytest_ultrapar.report.text import visible  # noqa: PLC0415 - needed only for errors

        raise pytest.UsageError(visible(str(error))) from error


NEEDED = "--ultrapar-model VENDOR/NAME or --ultrapar-pool FILE (ini ultrapar_pool)"
"""The options that set the models, for messages."""
INPUT = "ultrapar"
"""The key of this plugin's part of `workerinput`, which contains plain values and never a
secret."""
