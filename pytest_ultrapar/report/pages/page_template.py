"""Provide what all pages share: style, scripts, and a policy that blocks all other scripts."""

from __future__ import annotations

import base64
import hashlib
import re
from functools import cache
from importlib.resources import files
from typing import TYPE_CHECKING, Any

import msgspec

from pytest_ultrapar.report.text import percent, visible

if TYPE_CHECKING:
    import jinja2

_PACKAGE = files("pytest_ultrapar")
_HEADING = re.compile(r'<h2 id="([^"]*)"[^>]*>([^<]*)</h2>')
"""Matches a heading for the table of contents: its id, and its text, which is already markup."""


class Tile(msgspec.Struct, frozen=True):
    """A headline figure. `source` says where in the run's files the figure is."""

    label: str
    value: str
    note: str
    source: str


@cache
def template(name: str) -> jinja2.Template:
    """Load a template from the package.

    Args:
        name: The template's path in the package, such as `report/pages/report.html.j2`.
    """
    import jinja2  # noqa: PLC0415 - only here

    environment = jinja2.Environment(
        loader=jinja2.FunctionLoader(_text),
        autoescape=True,
        undefined=jinja2.StrictUndefined,
        finalize=_shown,
        trim_blocks=True,
        lstrip_blocks=True,
    )
    environment.filters |= {"percent": percent, "headings": _HEADING.findall}
    return environment.get_template(name)


def _shown(value: object) -> object:
    """Apply `visible` to all text that is not our own markup."""
    return visible(value) if type(value) is str else value


_DATA = "\0"
"""A placeholder for the data. It cannot occur elsewhere, because `visible` escapes it in all text
that is not our own. The data is kept out of the page's string, because with a single character
above U+FFFF, each character in that string would take 4 bytes."""


def framed(name: str, script: str, data: bytes, **shown: object) -> bytes:
    """Make a page from a template, the shared style and scripts, and a policy that allows them.

    Args:
        name: The template's path, as in `template`.
        script: The path of the page's own script in the package. It runs after the shared script.
        data: The data for the scripts, as returned by `embedded`.
        shown: The values of the template's other variables.
    """
    texts = [_text("report/pages/page.js"), _text(script)]
    style = _text("report/pages/page.css")
    pieces = template(name).generate(
        policy=_policy(texts, style),
        scripts=[_unescaped(one) for one in texts],
        style=_unescaped(style),
        data=_unescaped(_DATA),
        **shown,
    )
    return b"".join(data if one == _DATA else one.encode("utf-8", "replace") for one in pieces)


def embedded(data: object) -> bytes:
    """Encode data as JSON for a script element, so that nothing in it can end the element."""
    return msgspec.json.encode(data).replace(b"<", rb"\u003c").replace(b">", rb"\u003e")


def _unescaped(text: str) -> Any:  # noqa: ANN401 - jinja2 has no types of its own here
    import markupsafe  # noqa: PLC0415 - only here

    return markupsafe.Markup(text)  # noqa: S704 - our own files, and output of `embedded`


def _policy(scripts: list[str], style: str) -> str:
    """Return a policy that lets a page run only these scripts, and send and load nothing."""
    allowed = " ".join(_digest(script) for script in scripts)
    return (
        f"default-src 'none'; script-src {allowed}; style-src {_digest(style)}; "
        "base-uri 'none'; form-action 'none'"
    )


def _digest(text: str) -> str:
    digest = base64.b64encode(hashlib.sha256(text.encode()).digest()).decode()
    return f"'sha256-{digest}'"


def _text(name: str) -> str:
    return _PACKAGE.joinpath(*name.split("/")).read_text(encoding="utf-8")
