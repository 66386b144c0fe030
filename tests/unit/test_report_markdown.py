"""Markdown as GitHub renders it: any text is shown literally and makes no link."""

from __future__ import annotations

import re
from html import unescape

import cmarkgfm
import pytest
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ultrapar.report.sections import Section, markdown_lines, markdown_within
from pytest_ultrapar.report.text import visible

HOSTILE = [
    "http://evil.example/a",
    "see https://evil.example, ftp://evil.example",
    "_www.evil-host.com",
    "me@my-host.com and me@host.com",
    "mailto:x@my-host.com xmpp:a@b-c.d",
    "@somebody #12 team/it#12 GH-1",
    "[a](javascript:b) ![x](http://evil.com/a.png) [a][b] [a]: http://evil.example",
    "[a]: /url",
    "<img src=http://evil.com> </td></table> <!-- <?php",
    "~~x~~ ~y~ **b** __init__ _i_ `c` ``d`` $\\color{red}{100}$",
    "&lt;b&gt; &copy; &#64;x",
    "a | b \\| c \\",
    "# head #",
    "- item",
    "1. item",
    "    code",
    "> quote",
    "===",
    "---",
    "+ plus",
    ":---",
    "***",
    "0@.A",
    "#",
]
MARKS = r"\`*_~|>[]()!$ -=.:#+&"
PARTS = [*MARKS, "x", "\n", "    ", "http://", "www.", "a.b", "@", "1", "<b", "&amp;", "GH-"]
TEXTS = st.text(max_size=40) | st.lists(st.sampled_from(PARTS), max_size=12).map("".join)


def words(text):
    return " ".join(text.replace("\u200b", "").split())


def rendered(markdown):
    return cmarkgfm.github_flavored_markdown_to_html(markdown)


def assert_shown(html, tag, text):
    """Check that the only element of this kind contains exactly this text."""
    (inner,) = re.findall(f"<{tag}[^>]*>(.*?)</{tag}>", html, re.DOTALL)
    assert "<" not in inner, inner
    assert words(unescape(inner)) == words(visible(text).replace("\x00", "\ufffd"))


def in_all_places(check):
    for text in reversed(HOSTILE):
        check = example(text)(check)
    return given(TEXTS)(check)


@in_all_places
def test_cell_shows_any_text_literally(text):
    section = Section("t", ("name", "n"), ((text, "1"),))
    html = rendered("\n".join(markdown_lines([section])))
    assert html.count("<td") == 2
    assert_shown(html.replace('<td align="right">1</td>', ""), "td", text)


@in_all_places
def test_sentence_and_title_show_any_text_literally(text):
    (title, _, note) = markdown_lines([Section(text, notes=(text,))])
    if text.strip():
        assert_shown(rendered(note), "li", text)
        assert_shown(rendered(title), "h3", text)
    else:
        assert "<a" not in rendered(f"{title}\n\n{note}")


@pytest.mark.parametrize("most_bytes", [9_000, 65_536])
def test_important_lines_come_first_even_with_long_names(most_bytes):
    name = "n" * 70_000
    first = Section(f"Run {name}", notes=("SIMULATED: so it is", "2 cases: 1 solved", name))
    wide = Section("cells", tuple(f"score {n}" for n in range(8000)), (("1",) * 8000,) * 3)
    long = Section("names", ("name",), ((name,),) * 9)
    text = markdown_within([first, wide, long], most_bytes)
    assert len(text.encode()) <= most_bytes
    assert "- SIMULATED: so it is\n- 2 cases: 1 solved\n" in text
    assert text.endswith("Too large to show: cells")
    assert "### names" in text
