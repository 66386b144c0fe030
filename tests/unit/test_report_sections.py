from __future__ import annotations

import re

from pytest_ultrapar.report.sections import Section, markdown_lines, markdown_within, text_lines

SHORT = Section("speed", notes=("2 cases in 3.0 s",))


def test_long_tables_lose_their_last_rows_with_a_note():
    rows = tuple((f"model-{n}", str(n)) for n in range(5000))
    long = Section("cells", ("model", "n"), rows, notes=("legend",))
    text = markdown_within([long, SHORT], 64_000)
    assert len(text.encode()) <= 64_000
    assert "| model-0 " in text
    assert "- 2,500 more rows omitted to save space" in text
    assert "- legend" in text
    assert "### speed" in text


def test_sections_that_do_not_fit_are_named():
    many = [Section(f"notes _of_ {n}", notes=("x" * 500,) * 16) for n in range(10)]
    text = markdown_within([SHORT, *many, SHORT], 64_000)
    assert text.count("### speed") == 2
    assert "more sentences omitted to save space" in text
    assert re.search(r"Too large to show: (notes \\_of\\_ \d, )*notes \\_of\\_ 9$", text)


def test_long_names_are_shortened_in_files():
    lines = [*markdown_lines([Section("n" * 10_000, ("n" * 10_000,), (("n" * 10_000,),))])]
    assert max(map(len, lines)) < 400
    assert "[+9,700 characters]" in lines[0]


def test_names_with_line_breaks_do_not_break_a_table():
    section = Section("a\nb", ("one\ntwo", "n"), (("c\nd", "1"),), notes=("e\nf",))
    assert [*text_lines([section])] == ["a\\nb", "one\\ntwo  n", "c\\nd      1", "  e\\nf"]
