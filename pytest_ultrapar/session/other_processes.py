"""Refuse plugins that run tests in other processes, where the tests' answers are missing.

Such a process has no engine, and its grades are lost when it ends: all requests would be paid for
without a result. One of the refused plugins runs all tests in its own event loop instead, with the
same effect.
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
"""For each plugin, by the name of its module: the options that make it run all tests in other
processes, and the marks that do so for single tests."""
_OFF = {"pytest_isolate": ("--no-isolate", "timeout"), "pytest_isolated": ("--no-isolation",)}
"""For some of these plugins: the options, and the other plugins, that turn them off."""
_LOOP = "pytest_asyncio_cooperative"


def refuse(config: pytest.Config) -> None:
    """Refuse options that make a loaded plugin run all tests in another process.

    Raises:
        ConfigError: Such an option is given, or pytest-asyncio-cooperative is loaded. The message
            says what to leave out.
    """
    if _LOOP in _modules(config):
        raise ConfigError(
            "pytest-asyncio-cooperative cannot be used together with --ultrapar-pool: it runs tests"
            " in its own event loop, some of them twice; add -p no:asyncio-cooperative"
        )
    for name, option in _loaded(config):
        if option.startswith("-") and config.getoption(option, None):
            raise ConfigError(_message(f"{option} ({name.replace('_', '-')})"))


def marks_elsewhere(config: pytest.Config) -> list[str]:
    """The marks that make a loaded plugin run a test in another process."""
    return [word for _, word in _loaded(config) if not word.startswith("-")]


def mark_faults(item: pytest.Item, marks: list[str]) -> list[str]:
    """The reasons why a case cannot run: one for each of these marks that it has."""
    found = filter(item.get_closest_marker, marks)
    return [f"{item.nodeid}: {_message(f'@pytest.mark.{mark}')}" for mark in found]


def _loaded(config: pytest.Config) -> Iterator[tuple[str, str]]:
    """Yield each option and mark of the loaded plugins, with the plugin's name.

    Plugins that are turned off are left out.
    """
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
        f"{what} cannot be used together with --ultrapar-pool: it runs tests in separate "
        "processes, where they have no answers and their grades are lost; leave it out"
    )
