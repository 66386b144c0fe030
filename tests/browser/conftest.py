"""The browser, started once."""

from __future__ import annotations

import pytest


@pytest.fixture(scope="session")
def chromium():
    from playwright.sync_api import sync_playwright  # 0.4 s, in every collection

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield browser
        browser.close()
