"""The plugin of `--collect-only` and its like: shows what a run would be on, and starts nothing."""

from __future__ import annotations

from pytest_ultrapar import process
from pytest_ultrapar.leading import header


class Looking(process.CollectOnly):
    """Collects as a run would."""

    def pytest_report_header(self) -> list[str]:
        """Say which pool and models the listed cases come from."""
        options, pool = process.settings(self._config)
        lines = header.settings_lines(options, pool, process.lanes(self._config))
        plain = process.redactor(pool).text
        return [plain(line) for line in lines]
