"""No spelling of any secret passes the redactor."""

from __future__ import annotations

import base64
import html
import json
import re
from collections.abc import Callable
from urllib.parse import quote, quote_plus
from xml.sax.saxutils import escape

import pytest
from _pytest.junitxml import bin_xml_escape
from hypothesis import example, given
from hypothesis import strategies as st

from pytest_ultrapar.store.redact import Redactor
from tests.examples import examples

Spell = Callable[[str], str]

ESCAPES: dict[str, Spell] = {
    "plain": str,
    "json": lambda text: json.dumps(text)[1:-1],
    "json in utf-8": lambda text: json.dumps(text, ensure_ascii=False)[1:-1],
    "json with slashes escaped": lambda text: json.dumps(text)[1:-1].replace("/", "\\/"),
    "repr": lambda text: repr(text)[1:-1],
    "ascii": lambda text: ascii(text)[1:-1],
    "repr of bytes": lambda text: repr(text.encode())[2:-1],
    "junit": bin_xml_escape,
}
OUTER: dict[str, Spell] = {
    "percent": lambda text: quote(text, safe=""),
    "percent in lower case": lambda text: _lower_escapes(quote(text, safe="")),
    "percent with plus": quote_plus,
    "percent of a path": quote,
    "percent twice": lambda text: quote(quote(text, safe=""), safe=""),
    "html": html.escape,
    "html twice": lambda text: html.escape(html.escape(text)),
    "xml": escape,
    "json again": lambda text: json.dumps(text)[1:-1],
    "repr again": lambda text: repr(text)[1:-1],
}
EVERY: dict[str, Spell] = {
    "percent of every byte": lambda text: "".join(f"%{byte:02x}" for byte in text.encode()),
    "json of every character": lambda text: "".join(map(_utf16, text)),
    "json in upper case": lambda text: "".join(map(_utf16, text)).upper().replace("U", "u"),
    "repr of every byte": lambda text: "".join(f"\\x{byte:02x}" for byte in text.encode()),
    "decimal entities": lambda text: "".join(f"&#{ord(char)};" for char in text),
    "hexadecimal entities": lambda text: "".join(f"&#x{ord(char):02X};" for char in text),
    "every second one": lambda text: "".join(
        _utf16(char) if n % 2 else char for n, char in enumerate(text)
    ),
}
FEW = examples(40)
"""Each example compiles its own patterns, which takes 5 ms."""
EDGE = "Ω"
"""Delimits secrets and never occurs in one: otherwise the end of a secret would be unclear."""
SECRETS = st.text(
    st.characters(codec="utf-8", exclude_characters=EDGE), min_size=8, max_size=40
) | st.text("ab%&\\\"'/+ \n\té🙂", min_size=8, max_size=12)


def _utf16(char: str) -> str:
    """`char` as JSON that escapes every character."""
    raw = char.encode("utf-16-be")
    return "".join(f"\\u{raw[at]:02x}{raw[at + 1]:02x}" for at in range(0, len(raw), 2))


def _lower_escapes(text: str) -> str:
    """The first escape in upper case, the others in lower case."""
    head, *rest = text.split("%", 2)
    return "%".join([head, *rest[:1], *(re.sub("(?:^|%)..", _lower, one) for one in rest[1:])])


def _lower(escape: re.Match[str]) -> str:
    return escape[0].lower()


def check(secret: str, shown: str) -> None:
    redactor = Redactor([secret])
    text = f"before {EDGE}{shown}{EDGE} after"
    left = f"before {EDGE}***{EDGE} after"
    assert redactor.text(text) == left
    assert redactor.bytes(text.encode()) == left.encode()


@pytest.mark.parametrize("spell", ESCAPES.values(), ids=ESCAPES)
@FEW
@given(secret=SECRETS)
@example(secret="1234567Ã")  # its number is also the first of its two bytes
def test_no_part_of_an_escaped_secret_remains(spell, secret):
    check(secret, spell(secret))


@pytest.mark.parametrize("outer", OUTER.values(), ids=OUTER)
@FEW
@given(secret=SECRETS, inner=st.sampled_from([ESCAPES["plain"], ESCAPES["json"], ESCAPES["repr"]]))
def test_no_part_of_a_secret_escaped_twice_remains(outer, inner, secret):
    check(secret, outer(inner(secret)))


@pytest.mark.parametrize("every", EVERY.values(), ids=EVERY)
@FEW
@given(
    # A backslash before an escape would belong to the escape.
    secret=st.text(st.sampled_from("aZ09-_./+=~!x{}%&#;:'\" "), min_size=8, max_size=40),
    outer=st.sampled_from([str, *OUTER.values()]),
)
def test_no_part_of_a_fully_escaped_secret_remains(every, outer, secret):
    check(secret, outer(every(secret)))


@FEW
@given(SECRETS)
def test_no_part_of_a_secret_in_hexadecimal_remains(secret):
    digits = secret.encode().hex()
    check(secret, digits)
    check(secret, digits.upper())


@FEW
@given(SECRETS, st.binary(max_size=5), st.binary(max_size=5), st.sampled_from(["+/", "-_"]))
def test_no_base64_of_a_secret_remains_with_any_neighbours(secret, before, after, last):
    raw = before + secret.encode() + after
    shown = base64.b64encode(raw, altchars=last.encode()).decode()
    for spelled in (shown, quote(shown, safe="")):
        left = Redactor([secret]).text(spelled)
        # The rest also depends on the neighbours: two characters at each end at most.
        around = base64.b64encode(before).decode(), base64.b64encode(after).decode()
        assert left.count("***") == 1
        assert len(left.replace("%", "")) <= len(around[0]) + len(around[1]) + 3 + 4 + 3 * 6


@FEW
@given(
    secret=st.text("abc-/", min_size=8, max_size=20),
    text=st.text('defDEF \\"%2E&lt;', max_size=80),
    data=st.data(),
)
def test_other_text_is_not_masked(secret, text, data):
    # Even text that begins or ends like a secret: only a long piece shows that a secret was cut.
    start = data.draw(st.integers(max(0, len(secret) - 12), min(11, len(secret) - 1)))
    near = f"{text}{secret[:start]}{EDGE}{secret[start + 1 :]}{text}"
    assert Redactor([secret]).text(near) is near


@FEW
@given(st.text("ab", min_size=8, max_size=12), st.text("ab", min_size=8, max_size=60))
def test_no_part_of_overlapping_secrets_remains(secret, text):
    covered = set[int]()
    for at in range(len(text)):
        if text.startswith(secret, at):
            covered |= set(range(at, at + len(secret)))
    kept = "".join(char for at, char in enumerate(text) if at not in covered)
    assert Redactor([secret]).text(text).replace("***", "") == kept


@pytest.mark.parametrize("encode", [quote, quote_plus, html.escape])
@pytest.mark.parametrize(
    "secret", ["canary%25tail", "canary&amp;tail9", "canary%2Fzzz%25q/+=~!x{}"]
)
@pytest.mark.parametrize("times", [1, 2, 3])
def test_secret_that_looks_like_an_escape_is_masked_in_its_own_escapes(secret, encode, times):
    text = secret
    for _ in range(times):
        text = encode(text)
    assert Redactor([secret]).text(f"<{text}>") == "<***>"
