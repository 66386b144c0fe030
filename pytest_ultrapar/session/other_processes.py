"""Plugins that run tests in processes of their own, where their answers are missing.

Such a process has no engine, and what it grades is gone with it: everything paid for would be lost.
One more runs all tests in a loop of its own, with the same end.
"""

from __future__ import annotations

from typing import TYPE_CHECKING

from pytest_ultrapar.errors import ConfigError

if TYPE_CHECKING:
    from collections.abc import Iterator

    import pytest


_PLUGINS = {
    "pytest_forked": "--forked forked",
    "pytest_insubprocess": "--insubprocess insubprocess",
    "pytest_isolate": "--isolate --isolate-timeout --isolate-mem-limit --isolate-cpu-limit isolate"
    " forked timeout",
    "pytest_isolated": "--isolated isolated",
    "pytest_mp": "--mp",
    "pytest_parallel": "--workers --tests-per-worker",
    "pytest_subproc": "subproc",
}
"""By the name of their modules: options for all tests, and marks of tests."""
_OFF = {"pytest_isolate": ("--no-isolate", "timeout"), "pytest_isolated": ("--no-isolation",)}
"""Options and names of other plugins with which one leaves all tests where they are."""
_LOOP = "pytest_asyncio_cooperative"


def refuse(config: pytest.Config) -> None:
    """Refuse options by which a plugin that is there runs all tests elsewhere.

    Raises:
        ConfigError: Naming option and plugin.
    """
    if _LOOP in _modules(config):
        raise ConfigError(
            "pytest-asyncio-cooperative cannot be used together with --ultrapar-pool: it runs tests"
            " in a loop of its own, some of them twice; -p no:asyncio-cooperative leaves it out"
        )
    for name, option in _loaded(config):
        if option.startswith("-") and config.getoption(option, None):
            raise ConfigError(_message(f"{option} ({name.replace('_', '-')})"))


def marks_elsewhere(config: pytest.Config) -> list[str]:
    """The marks by which a plugin that is there runs a test elsewhere."""
    return [word for _, word in _loaded(config) if not word.startswith("-")]


def mark_faults(item: pytest.Item, marks: list[str]) -> list[str]:
    """Why a case cannot run that has some of these marks."""
    found = filter(item.get_closest_marker, marks)
    return [f"{item.nodeid}: {_message(f'@pytest.mark.{mark}')}" for mark in found]


def _loaded(config: pytest.Config) -> Iterator[tuple[str, str]]:
    """The plugins that are there and at work, each with every option and mark that it has."""
    has_plugin = config.pluginmanager.hasplugin
    for name in sorted(_modules(config) & _PLUGINS.keys()):
        off = _OFF.get(name, ())
        if not any(config.getoption(one, None) or has_plugin(one) for one in off):
            yield from ((name, word) for word in _PLUGINS[name].split())


def _modules(config: pytest.Config) -> set[str]:
    plugins = config.pluginmanager.get_plugins()
    return {str(getattr(plugin, "__name__", "")).partition(".")[0] for plugin in plugins}


def _message(what: str) -> str:
    return (
        f"{what} cannot be used together with --ultrapar-pool: a test that runs in a process of "
        "its own has no answer, and its grade is lost; leave it out"
    )
