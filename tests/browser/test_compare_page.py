"""The page of a comparison in a browser, with text of models that tries to do harm."""

from __future__ import annotations

import re

import msgspec
import pytest
from playwright.sync_api import expect

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.cli import main
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.store.manifest import read_manifest, write_manifest
from tests.browser.conftest import serious_faults, watched
from tests.browser.test_report_page import HOSTILE
from tests.unit.finished_run import NOW, case, episode, grade, make_run, write_journal

pytestmark = pytest.mark.browser
N = 60
OUTCOMES = {
    "first": ["solved" if n % 2 else "unsolved" for n in range(N)],
    "second": ["solved" if n % 3 else "unsolved" for n in range(N)],
    "third": ["infra" if n % 10 == 9 else "unsolved" if n % 4 else "solved" for n in range(N)],
}


def write(path, outcomes):
    """Write a run in which each case has a different harmful text."""
    flaws = ("drop", "order", "late")
    cases = [case(n, model=("m1", "m2")[n % 2], flaw=flaws[n % 3]) for n in range(N)]
    run = make_run(path, cases)
    ended = msgspec.structs.replace(read_manifest(run.path), ended_at=NOW)
    write_manifest(run.path, ended)
    records = []
    for n, outcome in enumerate(outcomes):
        text = HOSTILE[n % len(HOSTILE)][:1_000]
        messages = [TurnMessage(0, "user", f"q{n}"), TurnMessage(0, "assistant", text)]
        ending = "infra" if outcome == "infra" else "returned"
        records.append(episode(n, n / 10, n / 10 + 1.0, ending, messages=messages))
        kind = "timeout" if outcome == "infra" else None
        test = "skipped" if outcome == "infra" else "passed"
        error = text[:200] if kind else None
        records.append(grade(n, outcome, kind=kind, error=error, test=test))
    write_journal(run, "gw0", *records)
    compact(run.path)
    return str(run.path)


@pytest.fixture(scope="module")
def pages(tmp_path_factory):
    folder = tmp_path_factory.mktemp("runs")
    first, second, third = (write(folder / name, own) for name, own in OUTCOMES.items())
    two, three = folder / "two.html", folder / "three.html"
    assert main(["compare", first, third, "--html", str(two)]) == 0
    assert main(["compare", first, second, third, "--html", str(three)]) == 0
    return {2: two, 3: three}


@pytest.fixture(params=[2, 3])
def opened(chromium, pages, request):
    with watched(chromium, pages[request.param], "#list .case") as page:
        yield page


def test_filters_find_the_cases_that_flipped(opened):
    n = sum(before != now for before, now in zip(OUTCOMES["first"], OUTCOMES["third"], strict=True))
    expect(opened.locator("#count")).to_have_text(f"{n} of {n} flips")
    opened.select_option("#turn", label="no grade now")
    for text in opened.locator(".case .turn").all_inner_texts():
        assert text.endswith("→ infra")
    opened.click("#clear")
    expect(opened.locator("#count")).to_have_text(re.compile(f"^{n} of"))


def test_a_click_on_a_cell_shows_the_flips_of_the_cell(opened):
    opened.select_option(".dimension", label="flaw")
    row = opened.locator(".heat:visible tr", has=opened.get_by_role("rowheader", name="m1")).last
    (at,) = (
        opened.locator(".heat:visible")
        .last.locator("thead th", has_text="order")
        .evaluate_all("found => found.map((one) => one.cellIndex)")
    )
    cell = row.locator("th, td").nth(at).locator(".cell")
    told = re.findall(r"\d+", cell.get_attribute("title"))
    cell.click()
    expect(opened.locator("#count")).to_contain_text("flaw = order")
    graded = opened.locator(".case .turn:not(:has(.infra))")
    assert graded.count() == sum(map(int, told))


def test_a_click_on_a_cell_shows_as_many_flips_as_its_count(chromium, tmp_path):
    names = [" lead", "tail ", "a  b", "a b", "tab\there", "nb\xa0sp", "\x1b", r"\x1b"]
    cases = [
        case(n, model=name, flaw=names[-n - 1], extra=None if n % 2 else "x" * (n % 4))
        for n, name in enumerate(names)
    ]
    runs = []
    for number, name in enumerate(("one", "two")):
        run = make_run(tmp_path / name, cases, models=tuple(names))
        ended = msgspec.structs.replace(read_manifest(run.path), ended_at=NOW)
        write_manifest(run.path, ended)
        for n in range(len(names)):
            outcome = "unsolved" if number and n % 3 else "solved"
            write_journal(run, f"gw{n}", episode(n, 0.0, 1.0), grade(n, outcome))
        compact(run.path)
        runs.append(str(run.path))
    assert main(["compare", *runs, "--html", str(tmp_path / "odd.html")]) == 0
    page = chromium.new_page()
    page.goto((tmp_path / "odd.html").as_uri())
    n_cells = 0
    for number in range(page.locator(".dimension option").count()):
        page.select_option(".dimension", str(number))
        for cell in page.locator(".heat:visible .cell").all():
            n = sum(map(int, re.findall(r"\d+", cell.get_attribute("title"))))
            cell.click()
            expect(page.locator("#count")).to_have_text(re.compile(f"^{n} of"))
            n_cells += 1
    assert n_cells > 2 * len(names)
    page.close()


def test_search_covers_both_conversations(opened):
    opened.fill("#search", "example.com")
    expect(opened.locator("#count")).to_have_text(re.compile("^0 of"))
    opened.check("#deep")
    expect(opened.locator("#count")).to_have_text(re.compile("^[1-9]"))


def test_output_of_models_is_text_on_both_sides(opened):
    shown = opened.locator(".case").count()
    for number in range(shown):
        opened.locator(".case").nth(number).click()
    expect(opened.locator(".both > section:nth-child(2) .message.assistant")).to_have_count(shown)
    texts = opened.locator(".message.assistant pre").all_inner_texts()
    for text in HOSTILE[:5]:
        assert texts.count(text) >= 2
    assert any(r"\x1b[31mred\x1b[0m and \u202egnp.exe" in text for text in texts)
    assert " against " in opened.title()
    assert opened.locator(".detail img, .detail a, .detail script, .detail style").count() == 0


def test_keyboard_opens_a_case(opened):
    opened.locator("#list .case").first.focus()
    opened.keyboard.press("Enter")
    expect(opened.locator(".both > section")).to_have_count(2)
    assert opened.locator(".case").first.get_attribute("aria-expanded") == "true"


def test_theme_can_be_chosen(opened):
    before = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.click("#theme")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != before


@pytest.mark.parametrize(("scheme", "n_runs"), [("light", 2), ("dark", 3)])
def test_axe_finds_no_serious_violation(chromium, pages, scheme, n_runs):
    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(pages[n_runs].as_uri())
    page.wait_for_selector("#list .case")
    page.locator(".case").first.click()
    expect(page.locator(".both .message").first).to_be_visible()
    assert serious_faults(page) == []
    context.close()


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_page_fits_any_width(chromium, pages, width):
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(pages[3].as_uri())
    page.wait_for_selector("#list .case")
    page.locator(".case").first.click()
    expect(page.locator(".both .message").first).to_be_visible()
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()
