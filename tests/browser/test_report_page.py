"""The report of a run in a browser, with text of models that tries to do harm."""

from __future__ import annotations

import re
import time

import pytest
from playwright.sync_api import expect

from pytest_ultrapar.analysis.compaction import compact
from pytest_ultrapar.records import TurnMessage
from pytest_ultrapar.report.pages import transcripts
from pytest_ultrapar.report.pages.page import write_page
from pytest_ultrapar.report.report_file import PAGE
from tests.browser.conftest import serious_faults, watched
from tests.unit.finished_run import (
    attempt,
    case,
    episode,
    grade,
    make_run,
    run_of_repetitions,
    write_journal,
)

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
    """The report of a run with a case for each text."""
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
    with watched(chromium, hostile, "#list .case") as page:
        yield page


def n_cases(page):
    return int(page.locator("#count").inner_text().split()[0])


MARKS = ".area, .drawn circle, .drawn > rect"


def test_every_plot_has_marks(opened):
    plots = opened.locator(".plot")
    assert plots.count() == 3
    for number in range(3):
        (box,) = [plots.nth(number).locator(MARKS).first.bounding_box()]
        assert box["width"] > 0
        assert box["height"] > 0


def test_optional_plots_have_marks(chromium, tmp_path):
    run = run_of_repetitions(tmp_path / "repeated")
    compact(run.path)
    write_page(run.path, run.path / PAGE)
    with watched(chromium, run.path / PAGE, "#list .case") as page:
        for key in ("passes", "costs", "limits", "first-tokens"):
            expect(page.locator(f"#plot-{key}").locator(MARKS).first).to_be_visible()
        # A point and an interval for each model and k; no two points overlap.
        points = page.locator("#plot-passes circle").evaluate_all(
            "all => all.map((one) => one.getBoundingClientRect()).map((at) => `${at.x} ${at.y}`)"
        )
        assert len(points) == len(set(points)) == 6
        expect(page.locator("#plot-passes .interval")).to_have_count(6)
        # Two pauses, and a circuit breaker that was open.
        expect(page.locator("#plot-lanes :is(.paused, .opened)")).to_have_count(3)


def test_a_plot_shows_the_values_below_the_pointer(opened):
    strip = opened.locator("#plot-lanes .drawn[data-values]").first
    strip.scroll_into_view_if_needed()
    # A tip moves with the page when it scrolls.
    opened.evaluate("new Promise((done) => requestAnimationFrame(() => setTimeout(done)))")
    box = strip.bounding_box()
    opened.mouse.move(box["x"] + box["width"] * 0.999, box["y"] + box["height"] / 2)
    values, step = strip.evaluate("one => [one.dataset.values.split('|'), one.dataset.step]")
    tip = opened.locator("#tip")
    expect(tip).to_contain_text(f"azure/dep0/key0: {values[-1]} at ")
    expect(tip).to_be_in_viewport(ratio=1)
    assert float(tip.inner_text().split(" at ")[1].split()[0]) == pytest.approx(
        199 * float(step), abs=0.01
    )
    opened.mouse.move(5, 5)
    expect(tip).to_be_hidden()


def test_contents_lead_to_each_part(opened):
    links = opened.locator("#contents a")
    assert links.count() > 4
    links.last.click()
    expect(opened.locator("#h-report")).to_be_in_viewport()
    expect(links.first).to_be_in_viewport()


def test_an_opened_case_shows_the_command_that_runs_it_again(opened):
    case = opened.locator(".case").first
    case.click()
    name = case.locator(".name").evaluate("one => one.firstChild.textContent").split(" (")[0]
    expect(opened.locator(".detail code").first).to_have_text(f"pytest '{name}'")


def test_no_figure_breaks_into_two_lines(chromium, tmp_path):
    run = run_of_repetitions(tmp_path / "costly")
    compact(run.path)
    write_page(run.path, run.path / PAGE)
    for width in (400, 1000, 1280):
        page = chromium.new_page(viewport={"width": width, "height": 900})
        page.goto((run.path / PAGE).as_uri())
        values = page.locator(".tile .value")
        assert "USD" in values.last.inner_text()
        assert values.evaluate_all(
            "found => found.every((one) => one.scrollWidth <= one.clientWidth"
            " && one.clientHeight < 1.6 * parseFloat(getComputedStyle(one).fontSize))"
        )
        page.close()


def test_cases_are_shown_in_the_chosen_order(opened):
    first = opened.locator(".case .took").all_inner_texts()
    opened.locator("#order").select_option("longest")
    seconds = [float(text.split()[0]) for text in opened.locator(".case .took").all_inner_texts()]
    assert seconds == sorted(seconds, reverse=True)
    opened.locator("#clear").click()
    assert opened.locator(".case .took").all_inner_texts() == first


def test_times_of_an_opened_case_add_up_to_the_times_in_the_list(chromium, tmp_path):
    cases = [case(0), case(1)]
    run = make_run(tmp_path / "run", cases)
    long = [TurnMessage(0, "user", "a line\n" * 200), TurnMessage(0, "assistant", "short")]
    for n, line_s in ((0, 1.0), (1, 9.0)):
        sent = [attempt(0.0, 2.0 - n, rate_wait_s=line_s)]
        ended = episode(n, 0.0, 3.0 - n, attempts=sent, messages=long, backoff_s=0.5)
        write_journal(run, f"gw{n}", ended, grade(n))
    compact(run.path)
    write_page(run.path, run.path / PAGE)
    page = chromium.new_page()
    page.goto((run.path / PAGE).as_uri())
    took = page.locator(".case .took")
    for order, first in (("longest", "3.00 s"), ("longest_in_all", "2.00 s")):
        page.locator("#order").select_option(order)
        expect(took.first).to_contain_text(first)
    expect(took.first.locator(".line")).to_have_text("after 9.00 s in the queue")
    page.locator(".case").first.click()
    said = page.locator(".detail .times").inner_text()
    line_s, whole_s, *parts = map(float, re.findall(r"([\d.]+) s\b", said))
    assert (line_s, whole_s) == (9.0, 2.0)
    assert sum(parts) == whole_s
    # A text that is too long is cut with a button that shows the rest.
    more = page.locator(".detail .more")
    expect(more).to_have_text("Show all 1,400 characters")
    more.click()
    body = page.locator(".message.user pre")
    assert body.evaluate("one => one.scrollHeight <= one.clientHeight + 1")
    expect(more).to_have_count(0)
    page.close()


def test_a_click_on_a_cell_shows_its_cases(opened):
    expect(opened.locator(".dimension option").first).to_have_text("all cases")
    opened.select_option(".dimension", label="flaw")
    row = opened.locator(".heat:visible tr", has=opened.get_by_role("rowheader", name="m1"))
    (at,) = opened.locator(".heat:visible thead th", has_text="order").evaluate_all(
        "found => found.map((one) => one.cellIndex)"
    )
    cell = row.locator("th, td").nth(at).locator(".cell")
    n = int(cell.inner_text().split("n = ")[1])
    cell.click()
    expect(opened.locator("#count")).to_contain_text("flaw")
    graded = opened.locator(".case .outcome:not(.infra)")
    assert graded.count() == n
    opened.locator("#clear").click()
    expect(opened.locator("#count")).not_to_contain_text("=")
    assert n_cases(opened) == 2 * len(HOSTILE)


@pytest.fixture
def odd(chromium, tmp_path):
    """A report with names that a browser would display differently, and with long waits."""
    names = [" lead", "tail ", "a  b", "a b", "tab\there", "nb\xa0sp", "", "\x1b", r"\x1b"]
    cases = [
        case(n, model=name, flaw=names[-n - 1], extra=None if n % 2 else "x" * (n % 4))
        for n, name in enumerate(names)
    ]
    run = make_run(tmp_path / "odd", cases, models=tuple(names))
    for n in range(len(names)):
        said = [TurnMessage(0, "user", 'say "x" \\ y\nz'), TurnMessage(0, "assistant", f"it {n}")]
        attempts = [attempt(0.0, 1500.0 * n, tokens_in=1, tokens_out=1)]
        ended = episode(n, 0.0, 1500.0 * n, messages=said, attempts=attempts)
        write_journal(run, f"gw{n}", ended, grade(n))
    compact(run.path)
    write_page(run.path, run.path / PAGE)
    page = chromium.new_page()
    page.goto((run.path / PAGE).as_uri())
    yield page
    page.close()


def test_a_click_on_a_cell_shows_as_many_cases_as_its_count(odd):
    for number in range(odd.locator(".dimension option").count()):
        odd.select_option(".dimension", str(number))
        for cell in odd.locator(".heat:visible .cell").all():
            n = int(cell.inner_text().split("n = ")[1])
            cell.click()
            expect(odd.locator("#count")).to_have_text(re.compile(f"^{n} of"))
            odd.select_option(".dimension", str(number))


def test_times_are_shown_in_hours_minutes_and_seconds(odd):
    took = odd.locator(".case .took").all_inner_texts()
    assert took[:6] == [
        "0.00 s",
        "25 min 00 s",
        "50 min 00 s",
        "75 min 00 s",
        "100 min 00 s",
        "2 h 05 min",
    ]


@pytest.mark.parametrize(
    ("words", "n"),
    [("it 3", 1), ('say "x"', 9), ("\\ y", 9), ("content", 0), ("turn", 0), ("y z", 9)],
)
def test_search_in_conversations_reads_messages(odd, words, n):
    odd.check("#deep")
    odd.fill("#search", words)
    expect(odd.locator("#count")).to_have_text(re.compile(f"^{n} of"))


def test_a_search_counts_the_conversations_that_are_not_in_the_page(
    chromium, tmp_path, monkeypatch
):
    monkeypatch.setattr(transcripts, "MOST_BYTES", 0)
    page = chromium.new_page()
    page.goto(page_of(tmp_path, ["a", "b", "c"]).as_uri())
    page.check("#deep")
    page.fill("#search", "nothing of it")
    expect(page.locator("#count")).to_have_text(
        "0 of 3 cases; 3 conversations are not on this page and were not searched"
    )
    page.close()


def test_failures_come_first(opened):
    outcomes = opened.locator(".case .outcome").all_inner_texts()
    order = ["infra", "unsolved", "solved"]
    assert outcomes == sorted(outcomes, key=order.index)


def test_a_failed_case_shows_its_reason_in_the_list(opened):
    case = opened.locator(".case", has=opened.locator(".outcome.infra")).first
    expect(case.locator(".why")).not_to_be_empty()
    solved = opened.locator(".case", has=opened.locator(".outcome.solved")).first
    expect(solved.locator(".why")).to_have_count(0)


def test_search_finds_names_and_messages(opened):
    opened.fill("#search", "test[3]")
    expect(opened.locator("#count")).to_have_text(re.compile("^1 of"))
    opened.fill("#search", "example.com")
    opened.check("#deep")
    expect(opened.locator("#count")).to_have_text(re.compile("^2 of"))


def test_output_of_models_is_text(opened):
    for number in range(2 * len(HOSTILE)):
        opened.locator(".case").nth(number).click()
    expect(opened.locator(".detail:has(.message)")).to_have_count(2 * len(HOSTILE))
    shown = opened.locator(".message.assistant pre").all_inner_texts()
    for text in HOSTILE[:5]:
        assert shown.count(text) == 2
    assert any(r"\x1b[31mred\x1b[0m and \u202egnp.exe" in text for text in shown)
    assert any(re.search(r"\[\+[\d,]+ characters\]", text) for text in shown)
    assert ", phase53: run " in opened.title()
    assert opened.locator(".message img, .message a, .message script, .message style").count() == 0


def test_keyboard_opens_a_case(opened):
    opened.locator("#list .case").first.focus()
    opened.keyboard.press("Enter")
    opened.wait_for_selector(".detail .message")
    assert opened.locator(".case").first.get_attribute("aria-expanded") == "true"


def test_every_control_can_be_reached_by_tab(opened):
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
def test_axe_finds_no_serious_violation(chromium, hostile, scheme):
    context = chromium.new_context(color_scheme=scheme, bypass_csp=True)
    page = context.new_page()
    page.goto(hostile.as_uri())
    page.wait_for_selector("#list .case")
    page.locator(".case").first.click()
    page.wait_for_selector(".detail .message")
    assert serious_faults(page) == []
    context.close()


@pytest.mark.parametrize("width", [360, 768, 3840])
def test_page_fits_any_width(chromium, hostile, width):
    context = chromium.new_context(viewport={"width": width, "height": 800})
    page = context.new_page()
    page.goto(hostile.as_uri())
    page.wait_for_selector("#list .case")
    assert page.evaluate("document.documentElement.scrollWidth") <= width
    context.close()


def test_theme_can_be_chosen(opened):
    before = opened.evaluate("getComputedStyle(document.body).backgroundColor")
    opened.click("#theme")
    assert opened.evaluate("getComputedStyle(document.body).backgroundColor") != before


def test_a_report_of_ten_thousand_cases_opens_in_seconds(chromium, tmp_path):
    path = page_of(tmp_path, ["an answer of some words, " * 20], n_cases=10_000)
    context = chromium.new_context()
    page = context.new_page()
    start_s = time.monotonic()
    page.goto(path.as_uri())
    page.wait_for_selector("#list .case")
    took_s = time.monotonic() - start_s
    context.close()
    # The aim is three seconds; a busy machine gets thirty.
    assert took_s < 30
    assert path.stat().st_size < 12_000_000
