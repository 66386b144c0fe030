"""The documentation as a site: `tox -e docs`. The pages themselves are plain Markdown."""

from __future__ import annotations

import re
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from sphinx.application import Sphinx

project = "pytest-ultrapar"
copyright = "The pytest-ultrapar developers"  # noqa: A001 - Sphinx's word
extensions = ["myst_parser"]
html_theme = "furo"
html_title = project
html_copy_source = False
exclude_patterns = ["_build"]
highlight_language = "text"
myst_heading_anchors = 4
nitpicky = True


def add_navigation(_app: Sphinx, docname: str, source: list[str]) -> None:
    """Make the site's navigation from the lists on the first page."""
    if docname != "index":
        return
    _, *parts = re.split(r"^\*\*(.+)\*\*$", source[0], flags=re.MULTILINE)
    for caption, text in zip(parts[::2], parts[1::2], strict=True):
        links = re.findall(r"^- \[([^]]+)\]\(([^)]+)\.md\)", text, flags=re.MULTILINE)
        entries = [f"{title} <{name}>" for title, name in links]
        heading = f":caption: {caption}"
        source[0] += "\n".join(["\n\n```{toctree}", ":hidden:", heading, "", *entries, "```"])


def open_to_keyboards(
    _app: Sphinx, _page: str, _template: str, context: dict[str, Any], _: object
) -> None:
    """Make wide code and tables scrollable by keyboard, and give captions a heading level."""
    for name, old, new in (
        ("body", "<pre>", '<pre tabindex="0">'),
        ("body", '<div class="table-wrapper', '<div tabindex="0" class="table-wrapper'),
        ("furo_navigation_tree", ' role="heading">', ' role="heading" aria-level="2">'),
    ):
        context[name] = context.get(name, "").replace(old, new)


def setup(app: Sphinx) -> dict[str, bool]:
    """Connect the functions. Sphinx calls this."""
    app.connect("source-read", add_navigation)
    app.connect("html-page-context", open_to_keyboards, priority=900)  # after the theme
    return {"parallel_read_safe": True}
