"""The checker of texts, `.ci/english.py`."""

from __future__ import annotations

import importlib.util
from pathlib import Path

import pytest

CHECKER = Path(__file__).parents[2] / ".ci" / "english.py"
spec = importlib.util.spec_from_file_location("english", CHECKER)
english = importlib.util.module_from_spec(spec)
spec.loader.exec_module(english)

LONG = "The run sends " + "a request and " * 10 + "a request."
MARKDOWN = f"""# What you see

A plain sentence. It
continues anew here.

| who | what for |
| --- | --- |
| lanes | those of `nobody` |

- Nobody waits; the rest
  is none.

```text
Whoever writes code
```

    nobody indented

{LONG}
"""
PYTHON = '''"""Read a file. What
is left is none of it."""
LIMIT = 1  # noqa: F401
# A comment of two lines, that of
# a limit that is no limit.
def test_nobody_waits(): ...
def f(x):
    """Return x.

    Args:
        x: Of a run.

    Returns: None, or the lane that is None.
    """
    raise ValueError(f"{x!r} is none" " of three")
NAMES = re.compile("(nobody|that of) waits" f"|{x} is none")
'''


@pytest.mark.parametrize(
    ("name", "text", "expected"),
    [
        (
            "page.md",
            MARKDOWN,
            [
                (3, "word to avoid"),
                (6, "what or who"),
                (6, "what or who"),
                (8, "that of"),
                (10, "nobody"),
                (10, "is none"),
                (19, "over 30 words"),
            ],
        ),
        (
            "module.py",
            PYTHON,
            [
                (1, "what or who"),
                (1, "is none"),
                (4, "that of"),
                (4, "is no"),
                (6, "nobody"),
                (11, "inverted"),
                (15, "is none"),
            ],
        ),
    ],
)
def test_every_breach_is_found_at_its_line(tmp_path, name, text, expected):
    path = tmp_path / name
    path.write_text(text)
    found = sorted((line, rule) for line, rule, _ in english.breaches(path))
    assert found == sorted(expected)


def test_counting_prints_no_breach_and_succeeds(tmp_path, capsys):
    path = tmp_path / "page.md"
    path.write_text("Nobody waits, and nobody asks.\n")
    assert english.main(["--count", str(path)]) == 0
    assert capsys.readouterr().out == "     2 nobody\n"
    assert english.main([str(path)]) == 1
    assert f"{path}:1: nobody: Nobody waits" in capsys.readouterr().out


def test_words_to_avoid_come_from_the_glossary():
    pattern = english.patterns()["word to avoid"]
    assert pattern.search("grade anew")
    assert pattern.search("needlessly")
    assert not pattern.search("a new grade")


def test_strings_that_models_read_are_not_checked(tmp_path):
    path = tmp_path / "workflow" / "prompts.py"
    path.parent.mkdir()
    path.write_text('"""Nobody waits."""\nPROMPT = "Nobody answers."\n')
    assert [(line, rule) for line, rule, _ in english.breaches(path)] == [(1, "nobody")]
