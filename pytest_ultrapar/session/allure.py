"""What allure-pytest writes of cases: it makes its files of what pytest knew before us.

Its listener looks at a report from further inside than `CaseReports` does, and at the exception
itself, and writes both in the process that runs the case.
"""

from __future__ import annotations

from typing import TYPE_CHECKING, Any

from pytest_ultrapar.session.other_plugins import is_shown_as_expected

if TYPE_CHECKING:
    from collections.abc import Callable

    import pytest


class AllureResults:
    """Gives allure the outcomes that others see, and no secret.

    Args:
        config: pytest's.
        text: Takes secrets out, and what steers terminals.
    """

    def __init__(self, config: pytest.Config, text: Callable[[str], str]) -> None:
        import allure_commons  # noqa: PLC0415 - there where its listener is

        self._text = text
        self._reason: str | None = None

        class Hooks:
            """Of allure, whose hooks are none of pytest's and have a manager of their own."""

            @staticmethod
            @allure_commons.hookimpl(tryfirst=True)
            def report_result(result: Any) -> None:  # noqa: ANN401 - allure ships no types
                self._mend(result)

            @staticmethod
            @allure_commons.hookimpl(tryfirst=True)
            def report_container(container: Any) -> None:  # noqa: ANN401 - as above
                self._mask(container)

        allure_commons.plugin_manager.register(Hooks)
        config.add_cleanup(lambda: allure_commons.plugin_manager.unregister(Hooks))

    def pytest_runtest_logreport(self, report: pytest.TestReport) -> None:
        """Note why an answer is shown as an expected failure."""
        if report.when == "setup":
            self._reason = None
        if is_shown_as_expected(report):
            self._reason = report.wasxfail

    def _mend(self, result: Any) -> None:  # noqa: ANN401 - as above
        """Before it is written."""
        from allure_commons.model2 import Status, StatusDetails  # noqa: PLC0415

        if self._reason is not None and result.status in {Status.PASSED, Status.SKIPPED}:
            result.status = Status.SKIPPED
            result.statusDetails = StatusDetails(message=self._reason)
        self._mask(result)

    def _mask(self, part: Any) -> Any:  # noqa: ANN401 - as above
        """A part of a result, and all that it holds, with its texts put through `text`."""
        if isinstance(part, str):
            return self._text(part)
        if isinstance(part, list):
            part[:] = map(self._mask, part)
        elif hasattr(part, "__dict__"):
            # Steps, parameters, labels, links: plain objects that hold such and texts.
            for name, value in vars(part).items():
                setattr(part, name, self._mask(value))
        return part
