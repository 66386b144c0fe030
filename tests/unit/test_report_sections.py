from __future__ import annotations

import re

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.report.sections import Section, markdown_lines, markdown_within

LONG = Section(
    "cells", ("model", "n"), tuple((f"model-{n}", str(n)) for n in range(5000)), notes=("legend",)
)
SHORT = Section("speed", notes=("2 cases in 3.0 s",))


def table(text):
    return "\n".join(markdown_lines([Section("t", ("name",), ((text,),))])).splitlines()[4]


def test_long_tables_lose_their_last_rows_and_say_so():
    text = markdown_within([LONG, SHORT], 64_000)
    assert len(text.encode()) <= 64_000
    assert "| model-0 " in text
    assert "- 2,500 more rows are left out for their size" in text
    assert "- legend" in text
    assert "### speed" in text


def test_sections_that_do_not_fit_are_named():
    many = [Section(f"notes _of_ {n}", notes=("x" * 500,) * 16) for n in range(10)]
    text = markdown_within([SHORT, *many, SHORT], 64_000)
    assert text.count("### speed") == 2
    assert "more sentences are left out for their size" in text
    assert re.search(r"Left out for its size: (notes \\_of\\_ \d, )*notes \\_of\\_ 9$", text)


@given(
    st.lists(
        st.builds(
            Section,
            st.text(max_size=300),
            st.just(("a", "b")),
            st.lists(st.tuples(st.text(max_size=90), st.text(max_size=90)), max_size=60).map(tuple),
            st.just(1),
            st.lists(st.text(max_size=900), max_size=9).map(tuple),
        ),
        max_size=30,
    )
)
@pytest.mark.slow
def test_nothing_is_longer_than_it_may_be(sections):
    assert len(markdown_within(sections, 9_000).encode("utf-8", "surrogatepass")) <= 9_000


def test_names_in_a_table_are_no_markup():
    assert table("<img src=x onerror=alert(1)>") == r"| \<img src=x onerror=alert(1)> |"
    assert table("[a](javascript:b)") == r"| [a]\(javascript:b) |"
    assert table("pass@1") == "| pass@1 |"
    assert table("@somebody/team") == "| @\u200bsomebody/team |"
    assert table(r"a\|b") == r"| a\\\|b |"
    assert table("**`x`**") == r"| \*\*\`x\`\*\* |"
    assert table("n <= 3 a_b [1] \x1b[0m") == "| n <= 3 a_b [1] \\x1b[0m |"


def test_names_have_a_bound_in_a_file_too():
    lines = [*markdown_lines([Section("n" * 10_000, ("n" * 10_000,), (("n" * 10_000,),))])]
    assert max(map(len, lines)) < 400
    assert "[+9,700 characters]" in lines[0]
