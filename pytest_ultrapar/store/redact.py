"""Remove known secrets from all text that is written or shown.

`session.run_config.redactor` collects the secrets. All writers pass their text through a
`Redactor`: the journal, manifest and summary of a run, the debug log, and pytest's own output
(`session.secret_masking`, `session.reports`).
"""

from __future__ import annotations

import base64
import re
import unicodedata
from functools import cache, cached_property
from itertools import chain
from typing import TYPE_CHECKING, NoReturn

if TYPE_CHECKING:
    from collections.abc import Iterable, Iterator, Mapping, Sequence


BASE64_SHIFTS = range(3)
"""How many bytes of other text can precede a secret in the base64 group in which it begins. RFC
4648 encodes three bytes as four characters, so the base64 form is different for each shift."""
_PERCENT_BACKSLASH = r"%(?:25)*+5[Cc]"
_BACKSLASH = rf"(?:\\|{_PERCENT_BACKSLASH})"
_FIRST_BACKSLASHES = rf"(?:(?<!\\)\\++|{_PERCENT_BACKSLASH})"
"""A pattern for the backslashes before the first character of a secret: all consecutive ones or, in
URLs, only the last one."""
_MOST_IN_URL = 32
"""The maximum number of extra backslashes before a secret in a URL, if the secret itself begins
with a backslash."""
_PERCENT = 0x25
_ASCII_END = 0x80
_BYTE_END = 0x100
_WORD_END = 0x10000
_LETTER_OF = {"\n": "n", "\r": "r", "\t": "t", "\b": "b", "\f": "f", "\v": "v", "\a": "a"}
_ENTITY_OF = {'"': "quot", "<": "lt", ">": "gt", "'": "apos"}


def escaped(text: str, equals: Mapping[str, str] | None = None) -> str:
    """A pattern for `text`, plain or escaped as in JSON, `repr`, URLs, HTML and XML.

    Args:
        text: Not empty.
        equals: For some characters, another character that may appear in its place.
    """
    pieces: list[str] = []
    after_backslashes = False
    for run in re.findall(r"\\+|[^\\]", text):
        if run[0] == "\\":
            pieces.append(_first_run(len(run)) if not pieces else f"{_BACKSLASH}{{{len(run)},}}+")
        elif run.isascii() and run.isalnum():
            pieces.append(run)
        else:
            other = (equals or {}).get(run)
            also = [] if other is None else [*_spellings(other)]
            one_or_more, any_number = f"{_BACKSLASH}++", f"{_BACKSLASH}*+"
            if not pieces:
                one_or_more, any_number = _FIRST_BACKSLASHES, f"{_FIRST_BACKSLASHES}?"
            before = any_number if after_backslashes else one_or_more
            escapes = f"{before}(?:{'|'.join(_escapes(run))})"
            plain = f"{any_number}(?:{'|'.join([*_spellings(run), *also])})"
            pieces.append(f"(?:{escapes}|{plain})")
        after_backslashes = run[0] == "\\"
    return "".join(pieces)


def _first_run(n: int) -> str:
    """A pattern for the first `n` backslashes of a text; it also matches more of them."""
    # A pattern cannot see the beginning of a run in a URL. The search tries each place, so it takes
    # linear time only because the length of the run is bounded.
    in_url = f"(?:{_PERCENT_BACKSLASH}){{{n},{n + _MOST_IN_URL}}}+"
    return rf"(?:(?<!\\)\\{{{n},}}+|{in_url})(?!{_BACKSLASH})"


def base64_core(raw: bytes, shift: int) -> str:
    """The part of the base64 form of `raw` that does not depend on the neighbouring bytes.

    In the base64 group in which `raw` begins, `shift` other bytes precede it.

    The result uses the standard alphabet; the URL alphabet has `-` and `_` instead of `+` and `/`.
    """
    text = base64.b64encode(b"\0" * shift + raw).decode("ascii")
    return text[(shift * 8 + 5) // 6 : (shift + len(raw)) * 8 // 6]


def _escapes(char: str) -> Iterator[str]:
    """Yield patterns for the texts that, after a backslash, represent `char`."""
    code = ord(char)
    if char in _LETTER_OF:
        yield _LETTER_OF[char]
    if code >= _ASCII_END:
        # Yield this before the character's number, which may equal the number of its first byte.
        raw = char.encode("utf-8", "surrogatepass")
        yield f"{_BACKSLASH}++".join(f"x(?i:{byte:02x})" for byte in raw)
    if code < _BYTE_END:
        yield f"x(?i:{code:02x})"
    if code < _WORD_END:
        yield f"u(?i:{code:04x})"
    else:
        high, low = 0xD800 + ((code - _WORD_END) >> 10), 0xDC00 + (code & 0x3FF)
        yield f"U(?i:{code:08x})"
        yield f"u(?i:{high:04x}){_BACKSLASH}++u(?i:{low:04x})"


def _spellings(char: str) -> Iterator[str]:
    """Yield patterns for the forms of `char` in URLs, HTML, XML and JUnit files, and as plain text.

    The plain form comes last: `%` is also the beginning of its own escape `%25`.
    """
    code = ord(char)
    raw = char.encode("utf-8", "surrogatepass")
    yield "".join("%(?:25)+" if byte == _PERCENT else f"%(?:25)*+(?i:{byte:02x})" for byte in raw)
    if char == " ":
        yield r"\+"
    if char == "&":
        yield "&(?:amp;)+"
    if char in _ENTITY_OF:
        yield f"&(?:amp;)*+{_ENTITY_OF[char]};"
    yield f"&(?:amp;)*+#0*+{code};"
    yield f"&(?:amp;)*+#[xX]0*+(?i:{code:x});"
    if not char.isprintable():
        yield f"#x(?i:{code:02x})" if code < _BYTE_END else f"#x(?i:{code:04x})"
    yield re.escape(char)


Utf8 = bytes
"""UTF-8 text. `Redactor` needs this alias because it has a method with the name `bytes`."""
MASK = "***"
MIN_SECRET_LENGTH = 8
"""Shorter values are not masked: they would also match ordinary words and numbers."""
PIECE_LENGTH = 12
"""The beginning or end of a secret is masked, too, if it is at least this long: a server or a
library may have cut the text. Shorter parts are not masked. Otherwise, if a key began with an
ordinary word, that word would be masked everywhere."""
_MARKED_LENGTH = MIN_SECRET_LENGTH
"""The minimum length of a beginning or end that is masked next to an ellipsis. The ellipsis shows
that text was cut."""
_ELLIPSIS = r"(?:\.\.|\u2026|\*\*)"
_QUOTES = """['"]{0,8}+"""
# Text that may come between the characters of a secret. No pattern here may scan a run of
# characters again from each of its characters. Servers send texts of 64 KiB, and the engine's loop
# scans them.
_COLOUR = r"[0-?]*+[ -/]*+[@-~]"
"""The rest of a terminal's control sequence after `ESC [`."""
_AFTER_BACKSLASH = (
    rf"(?:[bfnrtv]|(?:x1[bB]|u001[bB]|033|e)\[{_COLOUR}|x[0-9a-fA-F]{{2}}|u[0-9a-fA-F]{{4}})"
)
_AFTER_PERCENT = (
    rf"(?:25)*+(?:1[bB](?:\[|%(?:25)*+5[bB]){_COLOUR}"
    r"|[01][0-9a-fA-F]|20|7[fF]|[89a-fA-F][0-9a-fA-F])"
)
_GAPS = (
    re.compile(r"[\x00-\x20\x7f]+"),
    re.compile(
        rf"(?:[\x00-\x1a\x1c-\x20\x7f]++|\x1b(?:\[{_COLOUR})?+"
        rf"|(?<!\\)\\++{_AFTER_BACKSLASH}|%{_AFTER_PERCENT})+"
    ),
)
"""Patterns for gaps, the text that may come between the characters of a secret. They are for text
whose invisible characters were replaced with blanks (`_blanked`). The second pattern is for texts
with escapes. The first one is needed there, too, because the end of a path before a secret may look
like an escape."""
_ESCAPES = {"\\": rf"\\{_AFTER_BACKSLASH}", "%": f"%{_AFTER_PERCENT}", "\x1b": rf"\x1b\[{_COLOUR}"}
# Use one pattern for each first character: a fixed character is found three times faster than any
# of three characters.
_ESCAPES_IN_BYTES = tuple(
    (start.encode(), re.compile(escape.encode())) for start, escape in _ESCAPES.items()
)
_HEX = "([2-7][0-9a-fA-F])"
_compiled = cache(re.compile)
"""Compiles a pattern when it is first used. Few texts need these patterns, and compiling them at
the start would cost each process a millisecond."""
_SPELLED = (
    rf"(?<!\\)\\++(?:(?:x|u00|U0{{6}}){_HEX}|([!-/:-@\[\]-`{{-~])|(?<=\\\\))"
    rf"|%(?:25)*+{_HEX}|%(?:25)++"
    rf"|&(?:amp;)*+(?:#[xX]0*+{_HEX};|#0*+([0-9]{{2,3}});|(quot|lt|gt|apos);)|&(?:amp;)++"
)
"""A pattern for a printable ASCII character that is escaped, possibly several times in the same
way. It also matches the escaped first character of another escape, such as `%25` in `%25C3`."""
_CHAR_OF = {"quot": '"', "lt": "<", "gt": ">", "apos": "'"}
_MOST_WAYS = 4
"""How many levels of nested escapes are undone. An HTML entity in JSON in a URL has three."""
_TELLING = rb"(?:2[356]|3[0-9bB]|[46][1-9a-fA-F]|5[0-9aAcC]|7[0-9aA])"
"""A pattern for the hexadecimal codes of letters, digits, and the first and last characters of
escapes. Only if such a character is escaped can a needle be hidden from the search."""
_TELLING_NUMBER = rb"0*+(?:3[578]|4[89]|5[0-79]|6[5-9]|[78][0-9]|9[0-27-9]|1[01][0-9]|12[0-2]);"
_HIDING = (
    (rb"\x", rb"\\x" + _TELLING),
    (rb"\u00", rb"\\u00" + _TELLING),
    (rb"\U000000", rb"\\U000000" + _TELLING),
    (b"%", b"%(?:25)*?" + _TELLING),
    (b"&", b"&(?:amp;)*+#(?:[xX]0*+" + _TELLING + b"|" + _TELLING_NUMBER + b")"),
)
_FILLERS = frozenset("\u115f\u1160\u2800\u3164\uffa0")
"""Blank characters that Unicode classifies as letters or symbols."""
_RUN = re.compile("[a-z0-9._~-]+")
"""Characters that are the same in every escaped form."""
_KEPT = b"abcdefghijklmnopqrstuvwxyz0123456789"
_PIECE_BYTES, _OVERLAP_BYTES = 1 << 20, 1 << 16
_LOWER_BYTES = bytes(range(256)).lower()
_OTHER_BYTES = bytes(set(range(256)) - set(_KEPT) - set(_KEPT.upper()))
_LOWER = {code: code + 32 for code in range(ord("A"), ord("Z") + 1)}
"""Translates ASCII text to lower case. Other letters may become longer in lower case."""


class Redactor:
    """Replaces the secrets that it knows, in each of their usual forms, with `***`.

    Forms: plain; escaped as in JSON, Python's `repr`, URLs, HTML and XML; hexadecimal; base64.
    Escapes may be nested, and any character may be escaped. Base64 is also found inside a longer
    base64 text such as an `Authorization: Basic` header. Case is ignored. The beginning or end of a
    secret matches, too, if it has at least 12 characters (8 next to an ellipsis). Blanks, control
    characters, invisible characters, combining marks and terminal colours may come between the
    characters of a secret, even if they are escaped with a backslash or as in URLs. The time is
    linear in the length of the text. The `repr` of a redactor shows nothing, and a redactor cannot
    be pickled.
    """

    __slots__ = ("_forms", "_needles")

    def __init__(self, secrets: Iterable[str]) -> None:
        told = {*secrets}
        # If a secret looks like an escape, also search for it in texts whose escapes are undone.
        odd = [one for one in told if any(char in one for char in "\\%&")]
        told |= {plain for secret in odd for plain, _ in _unescaped(secret)}
        known = sorted(secret for secret in told if len(secret) >= MIN_SECRET_LENGTH)
        self._forms = tuple(form for secret in known for form in _forms(secret))
        needles = chain.from_iterable(form.needles for form in self._forms)
        self._needles = tuple(dict.fromkeys(needles))

    def __repr__(self) -> str:
        return "Redactor(***)"

    def __reduce__(self) -> NoReturn:
        raise TypeError("a Redactor contains secrets and cannot leave its process")

    def bytes(self, data: Utf8) -> Utf8:
        """UTF-8 `data` without secrets; the same object if `data` contains none."""
        if not self._needles:  # as with a simulated provider
            return data
        if not any(self._may_hold_secret(_squeezed(piece)) for piece in _pieces(data)):
            return data
        text = data.decode("utf-8", "surrogateescape")
        plain = self._redacted(text, _squeezed(data))
        return data if plain is text else plain.encode("utf-8", "surrogateescape")

    def text(self, text: str) -> str:
        """`text` without secrets; the same object if `text` contains none."""
        if not self._needles:
            return text
        squeezed = _squeezed(text.encode("utf-8", "surrogatepass"))
        return self._redacted(text, squeezed) if self._may_hold_secret(squeezed) else text

    def short(self, text: str, most: int) -> str:
        """Shorten a text to one line for a message; secrets are removed before it is cut.

        Args:
            text: The whole text, or the beginning that `apis.failure` takes from it. A text that
                was cut in another way may end with a part of a secret that is too short to match.
            most: The maximum length of the result in characters, > 0.
        """
        return " ".join(self.text(text).split())[:most]

    def _redacted(self, text: str, squeezed: str) -> str:
        whole = [form for form in self._forms if any(one in squeezed for one in form.needles)]
        spans = [
            (starts[start], starts[end])
            for plain, starts in _unescaped(text)
            for start, end in self._spans(plain, whole)
        ]
        return _masked(text, sorted(spans)) if spans else text

    def _spans(self, text: str, whole: list[_Form]) -> Iterator[tuple[int, int]]:
        for form in whole:
            yield from form.spans(text)
        blanked = _blanked(text)
        has_escapes = any(start in text for start in _ESCAPES)
        for gap in _GAPS if has_escapes else _GAPS[:1]:
            chars, places = _without(gap, blanked)
            for form in self._forms:
                for start, end in form.pieces(chars):
                    yield places[start], places[end - 1] + 1

    def _may_hold_secret(self, squeezed: str) -> bool:
        for needle in self._needles:  # noqa: SIM110 - `any` takes twice as long
            if needle in squeezed:
                return True
        return False


class _Form:
    """One form of a secret.

    Attributes:
        needles: Short texts to look for first. A text that contains the form, its beginning or
            (plain form only) its end also contains a needle after it is squeezed (`_squeezed`).
            Looking for the needles in a text of 5 kB takes 2 us; the pattern takes at least 30 us.
    """

    def __init__(self, plain: str, pattern: str, *, coded: bool = True) -> None:
        self._plain = _without(_GAPS[0], _blanked(plain))[0]
        self._source = pattern
        self._least = min(len(self._plain), PIECE_LENGTH)
        lower = plain.translate(_LOWER)
        ends = (lower[:_MARKED_LENGTH], lower[-_MARKED_LENGTH:])
        # Each needle costs time in every text, so there are no needles for the ends of encoded
        # forms.
        self.needles = tuple(dict.fromkeys(map(_needle, ends[:1] if coded else ends)))

    @cached_property
    def _pattern(self) -> re.Pattern[str]:
        return re.compile(self._source, re.IGNORECASE)  # only if needed: 1 ms for a long key

    def spans(self, text: str) -> Iterator[tuple[int, int]]:
        """Yield the start and end of each occurrence of the whole form; occurrences may overlap."""
        match = self._pattern.search(text)
        while match is not None:
            yield match.span()
            match = self._pattern.search(text, match.start() + 1)

    def pieces(self, chars: str) -> Iterator[tuple[int, int]]:
        """Yield where the form's beginning or end occurs in a lower-case text without gaps."""
        plain, least = self._plain, self._least
        if len(plain) < MIN_SECRET_LENGTH:
            return
        at = chars.find(plain[:least])
        while at >= 0:
            yield at, at + _n_common(plain, chars[at : at + len(plain)])
            at = chars.find(plain[:least], at + 1)
        end = chars.find(plain[-least:]) + least
        while end >= least:
            yield end - _n_common(plain[::-1], chars[max(0, end - len(plain)) : end][::-1]), end
            end = chars.find(plain[-least:], end - least + 1) + least
        if ".." in chars or "\u2026" in chars or "**" in chars:
            for pattern in self._marked:
                for match in pattern.finditer(chars):
                    yield match.span(1)

    @cached_property
    def _marked(self) -> tuple[re.Pattern[str], re.Pattern[str]]:
        """Patterns for a short beginning before an ellipsis, and for a short end after one.

        Short means that it has fewer than `PIECE_LENGTH` characters.
        """
        plain, most = self._plain, self._least - 1
        beginning = end = ""
        for char in reversed(plain[_MARKED_LENGTH:most]):
            beginning = f"(?:{re.escape(char)}{beginning})?"
        for char in plain[-most:-_MARKED_LENGTH]:
            end = f"(?:{end}{re.escape(char)})?"
        first, last = re.escape(plain[:_MARKED_LENGTH]), re.escape(plain[-_MARKED_LENGTH:])
        return (
            re.compile(f"({first}{beginning})(?={_QUOTES}{_ELLIPSIS})"),
            re.compile(f"{_ELLIPSIS}({end}{last})"),
        )


def _forms(secret: str) -> Iterator[_Form]:
    yield _Form(secret, escaped(secret), coded=False)
    raw = secret.encode("utf-8", "surrogatepass")
    yield _Form(raw.hex(), raw.hex())
    for shift in BASE64_SHIFTS:
        core = base64_core(raw, shift)
        if len(core) >= MIN_SECRET_LENGTH:
            yield _Form(core, escaped(core, {"+": "-", "/": "_"}))


def _n_common(one: str, other: str) -> int:
    """The length of the common prefix of two texts."""
    pairs = enumerate(zip(one, other, strict=False))
    return next((n for n, (a, b) in pairs if a != b), min(len(one), len(other)))


def _needle(text: str) -> str:
    known = re.sub("|".join(_ESCAPES.values()), " ", text)
    runs = (re.sub("[._~-]", "", run) for run in _RUN.findall(known))
    return max(runs, key=len, default="")


def _pieces(data: Utf8) -> Iterator[Utf8]:
    """Yield the data. Large data is split into overlapping parts to keep squeezed copies small."""
    if len(data) <= _PIECE_BYTES:
        yield data
        return
    for start in range(0, len(data), _PIECE_BYTES):
        yield data[start : start + _PIECE_BYTES + _OVERLAP_BYTES]


def _squeezed(data: Utf8) -> str:
    """Reduce text to its ASCII letters and digits, in lower case.

    If the text contains escapes, two more versions may follow in the result: one with the escapes
    removed, and one with the escapes undone.
    """
    text = data.translate(_LOWER_BYTES, _OTHER_BYTES)
    plain, n_escapes = data, 0
    for start, escape in _ESCAPES_IN_BYTES:
        if start in plain:
            plain, n = escape.subn(b" ", plain)
            n_escapes += n
    if n_escapes:
        text += b"\n" + plain.translate(_LOWER_BYTES, _OTHER_BYTES)
    for start, hiding in _HIDING:
        if start in data and _compiled(hiding).search(data):
            *_, (meant, _) = _unescaped(data.decode("latin-1"))
            text += b"\n" + meant.encode().translate(_LOWER_BYTES, _OTHER_BYTES)
            break
    return text.decode("ascii")


def _unescaped(text: str) -> Iterator[tuple[str, Sequence[int]]]:
    """Yield `text`, then undo its ASCII escapes and yield the result, up to `_MOST_WAYS` times.

    With each version come the positions in `text` at which its characters begin, and the end.
    """
    starts: Sequence[int] = range(len(text) + 1)
    yield text, starts
    for _ in range(_MOST_WAYS):
        kept: list[str] = []
        places: list[int] = []
        at = 0
        for match in _compiled(_SPELLED).finditer(text):
            start, end = match.span()
            kept += (text[at:start], _meant(match))
            places.extend(range(at, start + 1))
            at = end
        if not at:
            return
        places.extend(range(at, len(text) + 1))
        text = "".join([*kept, text[at:]])
        starts = [starts[place] for place in places]
        yield text, starts


def _meant(match: re.Match[str]) -> str:
    """The character that an escape represents."""
    by_x, char, by_percent, by_entity, number, name = match.groups()
    if code := by_x or by_percent or by_entity:
        return chr(int(code, 16))
    if number:
        return chr(int(number))
    return char or _CHAR_OF.get(name) or match[0][0]


def _blanked(text: str) -> str:
    """`text` with blanks in place of characters that are invisible or modify the previous one."""
    if text.isascii():
        return text
    return text.translate({ord(char): " " for char in set(text) if _is_unseen(char)})


def _is_unseen(char: str) -> bool:
    return not char.isprintable() or char in _FILLERS or unicodedata.category(char) in ("Mn", "Me")


def _without(gap: re.Pattern[str], text: str) -> tuple[str, list[int]]:
    """`text` in lower case without gaps, and the position in `text` of each remaining character."""
    kept: list[str] = []
    places: list[int] = []
    at = 0
    for start, end in chain((match.span() for match in gap.finditer(text)), [(len(text),) * 2]):
        kept.append(text[at:start])
        places.extend(range(at, start))
        at = end
    return "".join(kept).translate(_LOWER), places


def _masked(text: str, spans: list[tuple[int, int]]) -> str:
    """`text` with each group of overlapping spans masked; the spans are sorted."""
    pieces: list[str] = []
    kept_from = 0
    start, end = spans[0]
    for next_start, next_end in spans[1:]:
        if next_start < end:
            end = max(end, next_end)
            continue
        pieces += (text[kept_from:start], MASK)
        kept_from, start, end = end, next_start, next_end
    pieces += (text[kept_from:start], MASK, text[end:])
    return "".join(pieces)
