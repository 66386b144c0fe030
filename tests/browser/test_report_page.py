"""The page of a run in a browser, with what models might write to do harm."""

from __future__ import annotations

import time

import pytest
from axe_playwright_python.sync_playwright import Axe

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.pages.page import PAGE, write_page
from pytest_ultrapar.records import TurnMessage
from tests.unit.finished_run import attempt, case, episode, grade, make_run, write_journal

pytestmark = pytest.mark.browser
HOSTILE = (
    "<script>document.title = 'run'</script>",
    "</script><script>document.title = 'run'</script>",
    "<img src=x onerror=\"document.title = 'run'\">",
    "<a href=\"javascript:document.title = 'run'\">press</a>",
    "<!-- never closed <style>body { display: none }",
    "\x1b[31mred\x1b[0m and \u202egnp.exe",
    "{{ 7 * 7 }} ${7 * 7} </textarea></pre>",
    "https://example.com/?q=secret",
    "x" * 5_000_000,
)


def page_of(directory, texts, *, n_cases=None):
    """The page of a run with a case for each text."""
    n_cases = n_cases or len(texts)
    cases = [
        case(n, model=("m1", "m2")[n % 2], flaw=("drop", "order", "late")[n % 3])
        for n in range(n_cases)
    ]
    run = make_run(directory / "run", cases)
    records = []
    for n in range(n_cases):
        text = texts[n % len(texts)]
        messages = [TurnMessage(0, "user", f"q{n}"), TurnMessage(0, "assistant", text)]
        attempts = [
            attempt(n / 10, n / 10 + 0.5, outcome="rate", status=429),
            attempt(n / 10 + 0.6, n / 10 + 1.0, 1, status=200, tokens_in=10, tokens_out=2),
        ]
        records.append(episode(n, n / 10, n / 10 + 1.0, messages=messages, attempts=attempts))
        outcome = ("solved", "unsolved", "infra")[n % 3 if n % 7 else 2]
        kind = "timeout" if outcome == "infra" else None
        records.append(grade(n, outcome, 50.0, kind=kind, error=text[:200] if kind else None))
    write_journal(run, "gw0", *records)
    compact(run.path)
    write_page(run.path, run.path / PAGE)
    return run.path / PAGE


@pytest.fixture(scope="module")
def hostile(tmp_path_factory):
    return page_of(tmp_path_factory.mktemp("hostile"), HOSTILE, n_cases=2 * len(HOSTILE))


@pytest.fixture
def opened(chromium, hostile):
    """The page, watched: nothing may be sent, and nothing said on the console."""
    context = chromium.new_context(viewport={"width": 1280, "height": 900})
    page = context.new_page()
    said, sent = [], []
    page.on("console", lambda message: said.append(message.text))
    page.on("pageerror", lambda error: said.append(str(error)))
    page.on("request", lambda request: sent.append(request.url))
    page.goto(hostile.as_uri())
    page.wait_for_selector(".plot svg")
    yield page
    assert said == []
    assert sent == [hostile.as_uri()]
    context.close()


def n_cases(page):
    return int(page.locator("#count").inner_text().split()[0])


def test_every_plot_has_marks(opened):
    plots = opened.locator(".plot")
    assert plots.count() == 3
    for number in range(3):
        plot = plots.nth(number)
        plot.locator("svg").wait_for()
        assert plot.locator("svg .role-mark path").count() > 0


def test_a_press_on_a_cell_shows_its_cases(opened):
    cell = opened.locator(".heat:visible .cell[data-model=m1][data-value=order]")
    n = int(cell.inner_text().split("n = ")[1])
    cell.click()
    opened.wait_for_function("document.querySelector('#count').innerText.includes('flaw')")
    graded = opened.locator(".case .outcome:not(.infra)")
    assert graded.count() == n
    opened.locator("#clear").click()
    opened.wait_for_function("!document.getElementById('count').textContent.includes('=')")
    assert n_cases(opened) == 2 * len(HOSTILE)


def test_failures_come_first(opened):
    outcomes = opened.locator(".case .outcome").all_inner_texts()
    order = ["infra", "unsolved", "solved"]
    assert outcomes == sorted(outcomes, key=order.index)


def test_search_finds_names_and_what_was_said(opened):
    opened.fill("#search", "test[3]")
    opened.wait_for_function("document.getElementById('count').textContent.startsWith('1 of')")
    opened.fill("#search", "example.com")
    opened.check("#deep")
    opened.wait_for_function("document.getElementById('count').textContent.startsWith('2 of')")


def test_what_models_wrote_is_text(opened):
    for number in range(2 * len(HOSTILE)):
        opened.locator(".case").nth(number).click()
    opened.wait_for_function(
        "[...document.querySelectorAll('.detail')].every((one) => one.querySelector('.message'))"
    )
    shown = opened.locator(".message.assistant pre").all_inner_texts()
    for text in HOSTILE[:5]:
        assert shown.count(text) == 2
    assert any(r"\x1b[31mred\x1b[0m and \u202egnp.exe" in text for text in shown)
    assert any("more characters in transcripts" in text for text in shown)
    assert opened.title().startswith("Run ")
    assert opened.locator(".message img, .message a, .message script, .message style").count() == 0


def test_keyboard_opens_a_case(opened):
    opened.locator("#list .case").first.focus()
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".detail .message")
    assert opened.locator(".case").first.get_attribute("aria-expanded") == "true"


def test_everything_can_be_reached_by_tab(opened):
    wanted = opened.evaluate(
        "[...document.querySelectorAll('button:not(:disabled), select, input, summary')]"
        ".filter((one) => one.checkVisibility()).length"
    )
    reached = set()
    for _ in range(wanted + 80):
        opened.keyboard.press("Tab")
        reached.add(
            opened.evaluate(
                "[...document.querySelectorAll('button:not(:disabled), select, input, summary')]"
                ".indexOf(document.activeElement)"
            )
        )
    assert len(reached - {-1}) >= wanted


@pytest.mark.parametrize("scheme", ["light", "dark"])
def test_axe_finds_no_serious_fault(chromium, hostile, scheme):
    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(hostile.as_uri())
    page.wait_for_selector(".plot svg")
    page.locator(".case").first.click()
    page.wait_for_selector(".detail .message")
    found = Axe().run(page).response["violations"]
    serious = [
        (one["id"], one["nodes"][0]["html"][:200])
        for one in found
        if one["impact"] in {"serious", "critical"}
    ]
    context.close()
    assert serious == []


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_page_fits_any_width(chromium, hostile, width):
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(hostile.as_uri())
    page.wait_for_selector(".plot svg")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_theme_can_be_chosen(opened):
    before = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.click("#theme")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_ten_thousand_cases_open_at_once(chromium, tmp_path):
    path = page_of(tmp_path, ["an answer of some words, " * 20], n_cases=10_000)
    context = chromium.new_context()
    page = context.new_page()
    start_s = time.monotonic()
    page.goto(path.as_uri())
    page.wait_for_selector("#list .case")
    took_s = time.monotonic() - start_s
    context.close()
    # Three seconds is the aim; a machine that is busy has thirty.
    assert took_s < 30
    assert path.stat().st_size < 12_000_000
