"""Keep secrets out of pytest's own output and files, in every process of a run."""

from __future__ import annotations

from collections import Counter
from functools import cached_property
from typing import TYPE_CHECKING

import pytest

from pytest_ultrapar.report.text import harmless, visible
from pytest_ultrapar.session import internals, run_config
from pytest_ultrapar.session.masking import redact

if TYPE_CHECKING:
    import logging
    import warnings
    from collections.abc import Callable

    from pytest_ultrapar.store.redact import Redactor


class SecretMasking:
    """Masks secrets in test names, collection errors, warnings, logs and terminal output."""

    def __init__(self, config: pytest.Config) -> None:
        self._config = config
        self._n_named: Counter[str] = Counter()

    @cached_property
    def _redactor(self) -> Redactor:
        return run_config.redactor(run_config.settings(self._config)[1])

    @pytest.hookimpl(tryfirst=True)
    def pytest_sessionstart(self) -> None:
        """Mask live output and logs. At this point, all plugins have installed their handlers."""
        internals.mask_terminal(self._config, self._redactor.text)
        handlers = internals.log_handlers(self._config)
        if handlers is not None:
            live, file = handlers
            _mask(live, lambda text: harmless(self._redactor.text(text)))
            _mask(file, self._redactor.text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_itemcollected(self, item: pytest.Item) -> None:
        """Mask secrets in a test's name before any plugin stores the name. Called once per item."""
        plain = self._redactor.text(item.nodeid)
        if plain == item.nodeid:
            return
        self._n_named[plain] += 1
        n = self._n_named[plain]
        name = self._redactor.text(item.name)
        internals.rename(item, _numbered(name, n), _numbered(plain, n))

    @pytest.hookimpl(tryfirst=True)
    def pytest_collectreport(self, report: pytest.CollectReport) -> None:
        """Mask secrets in collection errors."""
        redact(report, self._config, self._redactor.text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_internalerror(self, excrepr: object) -> None:
        """Mask secrets in the traceback of an internal error, which junit files also contain."""
        internals.mask_traceback(excrepr, self._redactor.text)

    @pytest.hookimpl(tryfirst=True)
    def pytest_warning_recorded(self, warning_message: warnings.WarningMessage) -> None:
        """Mask secrets and control characters in warnings, which may quote a model's text."""
        said = str(warning_message.message)
        shown = visible(self._redactor.text(said))
        if shown != said:
            warning_message.message = Warning(shown)


def _numbered(name: str, n: int) -> str:
    """A unique name for the `n`th item with this masked name: secrets may share one mask."""
    if n == 1:
        return name
    return f"{name[:-1]}#{n}]" if name.endswith("]") else f"{name}#{n}"


def _mask(handler: logging.Handler, change: Callable[[str], str]) -> None:
    shown = handler.format
    handler.format = lambda record: change(shown(record))  # type: ignore[method-assign]
