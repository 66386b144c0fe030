"""Check the English of this repository: `python .ci/english.py [--count] [PATH ...]`.

The rules are in CONTRIBUTING.md, "How we write", and in the glossary's table "Write / not". This
program finds the violations that a pattern can find: in Markdown without its code, in docstrings,
comments and strings of Python files, and in names of tests. It prints each violation with its
place, then the counts by rule, and exits with 1 if there are any. With `--count` it prints only
counts, and exits with 0.
"""

from __future__ import annotations

import ast
import io
import re
import sys
import tokenize
from collections import Counter
from functools import cache
from itertools import groupby
from pathlib import Path
from typing import TYPE_CHECKING, NamedTuple

if TYPE_CHECKING:
    from collections.abc import Iterator, Sequence

ROOT = Path(__file__).resolve().parents[1]
PLACES = "README.md CONTRIBUTING.md docs examples pytest_ultrapar bench_suites benchmarks tests"
LONGEST = 30  # words of a sentence: the rule says 25, so there is room for names
MODELS_READ = {
    "overhead/conversation.py",
    "workflow/arguments.py",
    "workflow/feedback.py",
    "workflow/prompts.py",
    "workflow/reply_parser.py",
    "workflow/simulation.py",
}
"""Files whose strings models read or write: a new wording changes results."""
RULES = {
    "what or who": r"^(what|who|whose)\b(?!.*\?$)|[;:] (what|who|whose) ",
    "nobody": r"\b(nobody|somebody|anybody|everybody|no one|who(so)?ever|whomever)\b",
    "is none": r"\bnone of (it|them|this|that|these|those|which)\b"
    r"|\b(is|are|was|were|has|have|had|and) (?-i:none)\b",
    "is no": r"(?<!there )\b(is|are|was|were|be) no (?!longer|more|less|later)",
    "that of": r"\b(that|those) of\b",
    "inverted": r"^of (?!course)|^(nor|not (in|on|by|for|of|only|even|so))\b",
}
_END = re.compile(
    r"(?<=[.!?])[\"')*]*\s+(?=[\"'(*]*[A-Z`])|\n\s*(?=\n|[-*] |\d+\. |\w+: )|(?<=:)\n"
)
_CODE = re.compile(r"(`+).+?\1", re.DOTALL)
_BLOCK = re.compile(r"^\s*(?:[-*>]|\d+\.) ")


class Text(NamedTuple):
    """A paragraph, table cell, comment, docstring, string or test name, and its first line."""

    line: int
    kind: str
    words: str


@cache
def patterns() -> dict[str, re.Pattern[str]]:
    """The rules as patterns, among them the words in the last column of the glossary's table."""
    page = (ROOT / "docs/reference/glossary.md").read_text(encoding="utf-8")
    rows = page.partition("\n## Write / not\n")[2].splitlines()
    cells = [row.strip("| ").rpartition("|")[2] for row in rows if row[:1] == "|"]
    words = [re.escape(word) for cell in cells for word in re.findall(r"`([^`]+)`", cell)]
    avoided = rf"\b({'|'.join(words)})\b".replace(r"\*", r"\w*")
    rules = {**RULES, "word to avoid": avoided}
    return {rule: re.compile(pattern, re.IGNORECASE) for rule, pattern in rules.items()}


def of_markdown(page: str) -> Iterator[Text]:
    """Split a page into paragraphs, list items and table cells, without code and headings."""
    first, block, is_fenced = 0, "", False
    for line, raw in enumerate([*page.splitlines(), ""], 1):
        is_fence = raw.lstrip().startswith("```")
        is_fenced ^= is_fence
        is_code = is_fenced or is_fence or (raw.startswith("    ") and not block)
        is_plain = bool(raw.strip()) and not is_code and raw[0] not in "|#"
        if block and (not is_plain or _BLOCK.match(raw)):
            yield Text(first, "doc", block)
            block = ""
        if raw[:1] == "|" and not is_code:
            yield from (Text(line, "doc", cell.strip()) for cell in re.split(r"(?<!\\)\|", raw))
        elif is_plain:
            first = first if block else line
            block += f"{_BLOCK.sub('', raw, count=1)}\n"


def of_python(source: str) -> Iterator[Text]:
    """Find docstrings, comments, names of tests, and strings of two words or more.

    Arguments of functions of `re` are left out: a regular expression is not prose.
    """
    nodes = list(ast.walk(ast.parse(source)))
    docstrings = {id(node.value) for node in nodes if isinstance(node, ast.Expr)}
    formatted = [node for node in nodes if isinstance(node, ast.JoinedStr)]
    calls = [node for node in nodes if isinstance(node, ast.Call)]
    expressions = [node for node in calls if ast.unparse(node.func).startswith("re.")]
    wholes = (*formatted, *expressions)
    parts = {id(part) for node in wholes for part in ast.walk(node) if part is not node}
    for node in nodes:
        if isinstance(node, ast.FunctionDef | ast.AsyncFunctionDef) and node.name[:5] == "test_":
            yield Text(node.lineno, "test name", node.name[5:].replace("_", " "))
        if id(node) in parts:
            continue
        if isinstance(node, ast.JoinedStr):
            pieces = [part.value for part in node.values]
            text = "".join(piece if isinstance(piece, str) else "X" for piece in pieces)
            yield Text(node.lineno, "string", text)
        elif isinstance(node, ast.Constant) and isinstance(node.value, str) and " " in node.value:
            kind = "docstring" if id(node) in docstrings else "string"
            yield Text(node.lineno, kind, node.value)
    comments = [
        (*token.start, token.string.lstrip("#: "))
        for token in tokenize.generate_tokens(io.StringIO(source).readline)
        if token.type == tokenize.COMMENT and not re.match(r"#( noqa| type:|!)", token.string)
    ]
    for _, run in groupby(enumerate(comments), lambda one: (one[1][0] - one[0], one[1][1])):
        block = [comment for _, comment in run]
        yield Text(block[0][0], "comment", "\n".join(words for *_, words in block))


def sentences(text: Text) -> Iterator[tuple[int, str]]:
    """Split a text into sentences, each with its line; a piece of code counts as a word."""
    words = _CODE.sub(lambda one: "X" + "\n" * one[0].count("\n"), text.words)
    words = re.sub(r"(?<=\])\([^)]*\)", "", words)
    ends = [(end.start(), end.end()) for end in _END.finditer(words)]
    for (_, start), (stop, _) in zip([(0, 0), *ends], [*ends, (len(words), 0)], strict=True):
        lines = 0 if text.kind == "string" else words.count("\n", 0, start)
        yield text.line + lines, re.sub(r"^\W*(\w+: )?\W*", "", " ".join(words[start:stop].split()))


def breaches(path: Path) -> Iterator[tuple[int, str, str]]:
    """Find the violations in a file: line, rule and text. In `tests` only names are checked."""
    read = of_markdown if path.suffix == ".md" else of_python
    rules = patterns()
    for text in read(path.read_text(encoding="utf-8")):
        if "tests" in path.parts and text.kind != "test name":
            continue
        if text.kind == "string" and "/".join(path.parts[-2:]) in MODELS_READ:
            continue
        for line, sentence in sentences(text):
            for rule, pattern in rules.items():
                for found in pattern.finditer(sentence):
                    yield line, rule, sentence[max(0, found.start() - 20) : found.end() + 40]
            if (n_words := len(re.findall(r"[\w'-]*[A-Za-z][\w'-]*", sentence))) > LONGEST:
                yield line, f"over {LONGEST} words", f"{n_words}: {sentence[:60]}"


def main(arguments: Sequence[str]) -> int:
    """Check the given files and folders, or the whole repository."""
    roots = [Path(one) for one in arguments if one != "--count"]
    counts: Counter[str] = Counter()
    for root in roots or [ROOT / one for one in PLACES.split()]:
        inside = sorted(one for one in root.rglob("*") if one.suffix in {".md", ".py"})
        for path in inside or [root]:
            for line, rule, text in breaches(path):
                counts[rule] += 1
                if "--count" not in arguments:
                    print(f"{str(path).removeprefix(f'{ROOT}/')}:{line}: {rule}: {text}")
    for rule, n in counts.most_common():
        print(f"{n:6,} {rule}")
    return int(bool(counts) and "--count" not in arguments)


if __name__ == "__main__":
    sys.exit(main(sys.argv[1:]))
