"""Correct the outcomes and mask the secrets in the files that allure-pytest writes.

Allure's listener takes the exception directly from pytest, and it reads the report before
`CaseReports` changes the report. The listener writes its files in the process that runs the case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.session.other_plugins import is_shown_as_expected

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class AllureResults:
    """Gives allure the same outcomes that other plugins get, and masks secrets.

    Args:
        config: pytest's configuration.
        text: Removes secrets and terminal control characters from a text.
    """

    def __init__(self, config: pytest.Config, text: Callable[[str], str]) -> None:
        import allure_commons  # noqa: PLC0415 - installed if its listener is

        self._text = text
        self._reason: str | None = None

        class Hooks:
            """Hooks for allure, which has its own plugin manager."""

            @staticmethod
            @allure_commons.hookimpl(tryfirst=True)
            def report_result(result: Any) -> None:  # noqa: ANN401 - allure ships no types
                self._correct(result)

            @staticmethod
            @allure_commons.hookimpl(tryfirst=True)
            def report_container(container: Any) -> None:  # noqa: ANN401 - as above
                self._mask(container)

        allure_commons.plugin_manager.register(Hooks)
        config.add_cleanup(lambda: allure_commons.plugin_manager.unregister(Hooks))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """If an answer is shown as an expected failure, remember the reason."""
        if report.when == "setup":
            self._reason = None
        if is_shown_as_expected(report):
            self._reason = report.wasxfail

    def _correct(self, result: Any) -> None:  # noqa: ANN401 - as above
        """Correct a result before allure writes it."""
        from allure_commons.model2 import Status, StatusDetails  # noqa: PLC0415

        if self._reason is not None and result.status in {Status.PASSED, Status.SKIPPED}:
            result.status = Status.SKIPPED
            result.statusDetails = StatusDetails(message=self._reason)
        self._mask(result)

    def _mask(self, part: Any) -> Any:  # noqa: ANN401 - as above
        """Mask all strings in a part of a result, and return the part."""
        if isinstance(part, str):
            return self._text(part)
        if isinstance(part, list):
            part[:] = map(self._mask, part)
        elif hasattr(part, "__dict__"):
            # Steps, parameters, labels and links are plain objects that contain texts and further
            # objects.
            for name, value in vars(part).items():
                setattr(part, name, self._mask(value))
        return part
