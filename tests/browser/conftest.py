"""The browser of one module: while it runs, no test in this process can run an event loop."""

from __future__ import annotations

from contextlib import contextmanager

import pytest


@pytest.fixture(scope="module")
def chromium():
    from playwright.sync_api import sync_playwright  # 0.4 s in each collection

    with sync_playwright() as playwright:
        browser = playwright.chromium.launch(
            executable_path="/usr/bin/chromium", args=["--no-sandbox"]
        )
        yield browser
        browser.close()


@contextmanager
def watched(chromium, path, ready):
    """Open a page and wait for `ready`; fail on any request and any console message."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said, sent = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: sent.append(request.url))
    page.goto(path.as_uri())
    page.wait_for_selector(ready)
    yield page
    assert said == []
    assert sent == [path.as_uri()]
    context.close()


def serious_faults(page):
    """The violations by which axe says that a user cannot use the page."""
    from axe_playwright_python.sync_playwright import Axe

    return [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in Axe().run(page).response["violations"]
        if one["impact"] in {"serious", "critical"}
    ]
