"""The documentation as a reader sees it: a site, built once by the command of `tox -e docs`."""

from __future__ import annotations

import configparser
import subprocess
import sys
import threading
from functools import partial
from http.server import SimpleHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path

import pytest

from tests.browser.conftest import serious_faults

pytestmark = [pytest.mark.browser, pytest.mark.slow]
ROOT = Path(__file__).parents[2]
WIDTHS = (1280, 400)
SCHEMES = ("light", "dark")
TOO_WIDE = """() => [...document.querySelectorAll('article *')].filter(one =>
    one.getBoundingClientRect().right > innerWidth + 1 && !one.closest('.table-wrapper, pre')
).map(one => one.outerHTML.slice(0, 120))"""


class Quiet(SimpleHTTPRequestHandler):
    """A request handler without a log."""

    def log_message(self, *_: object) -> None:
        """Write nothing to standard error."""


@pytest.fixture(scope="module")
def site(tmp_path_factory):
    """The address of the built site, and the names of its pages."""
    folder = tmp_path_factory.mktemp("docs")
    tox = configparser.ConfigParser(interpolation=None)
    tox.read(ROOT / "tox.ini")
    packages = tox["testenv:docs"]["deps"].split()
    subprocess.run([sys.executable, "-m", "venv", folder / "venv"], check=True)
    python = str(folder / "venv" / "bin" / "python")
    subprocess.run([python, "-m", "pip", "install", "-q", *packages], check=True)
    html = folder / "site"
    build = [python, "-m", "sphinx", "-q", "--fail-on-warning", "--nitpicky", ROOT / "docs", html]
    subprocess.run(build, check=True)
    with ThreadingHTTPServer(("127.0.0.1", 0), partial(Quiet, directory=str(html))) as server:
        threading.Thread(target=server.serve_forever, daemon=True).start()
        pages = [f"{one.relative_to(ROOT / 'docs').with_suffix('.html')}" for one in sources()]
        yield f"http://127.0.0.1:{server.server_port}/", pages
        server.shutdown()


def sources():
    """The pages of the documentation."""
    return sorted((ROOT / "docs").rglob("*.md"))


@pytest.fixture(params=[(width, scheme) for width in WIDTHS for scheme in SCHEMES], ids=str)
def tab(request, chromium):
    width, scheme = request.param
    context = chromium.new_context(
        viewport={"width": width, "height": 900}, color_scheme=scheme, reduced_motion="reduce"
    )
    yield context.new_page()
    context.close()


def test_no_page_is_wider_than_the_window(site, tab):
    address, pages = site
    for page in pages:
        tab.goto(address + page)
        assert tab.evaluate(TOO_WIDE) == [], page
        assert tab.evaluate("document.documentElement.scrollWidth <= innerWidth"), page


def test_search_finds_a_word_and_the_navigation_finds_its_page(site, tab):
    address, pages = site
    tab.goto(f"{address}search.html?q=lease")
    tab.wait_for_selector("#search-results li")
    tab.wait_for_selector("text=Search finished")
    found = tab.eval_on_selector_all("#search-results li a", "all => all.map(one => one.href)")
    assert any(one.startswith(f"{address}explanation/how-it-works.html") for one in found)
    listed = tab.eval_on_selector_all(".sidebar-tree a", "all => all.map(one => one.href)")
    assert {one.partition("#")[0] for one in listed} == {
        address + page for page in pages if page != "index.html"
    }


def test_axe_finds_no_serious_violation_on_first_pages(site, tab):
    address, _ = site
    for page in ("index.html", "explanation/how-it-works.html", "explanation/why-not.html"):
        tab.goto(address + page)
        assert serious_faults(tab) == [], page
