"""Text of a model is stored unchanged and cannot control a terminal: row 5 of the catalogue."""

from __future__ import annotations

import re
from xml.etree import ElementTree

import pytest

from tests.faults.played import play

pytestmark = pytest.mark.slow

HOSTILE = {
    "nul": "a\0b",
    "ansi": "\x1b[2J\x1b]0;owned\x07\x9b31m\x1b[45;1mPASSED\x1b[0m",
    "bidi": "\u202egnp.exe\u2066",
    "script": "</script><script>alert(1)</script>",
    "formula": "=cmd|' /C calc'!A0",
    # Text that no file can hold is stored in escaped form.
    "bad_utf8": r"caf\xe9 \xff",
    "surrogate": r"half \ud83d of it",
}
SHOWING = """
import logging

@prefetch
async def shown(llm, prompt) -> str:
    text = (await llm.chat([{{"role": "user", "content": prompt}}])).text
    print("episode:", text)
    logging.getLogger("suite").warning("episode %s", text)
    return text

@pytest.mark.parametrize("prompt", {prompts!r})
def test_it(shown):
    print("test:", shown)
    assert shown == "something else", shown
"""
UNSAFE = set(map(chr, [*range(9), *range(11, 32), *range(127, 160), 0x202E, 0x2066])) - {"\r"}


@pytest.mark.parametrize("workers", ["-n0", "-n2"])
def test_hostile_text_is_stored_unchanged_and_displayed_safely(project, workers):
    played = play(
        project,
        list(HOSTILE),
        workers,
        "-rA",
        "-vv",
        "--color=yes",
        "--junitxml=junit.xml",
        suite=SHOWING,
    )
    assert played.result.ret == 1
    assert played.outcomes() == {("unsolved", None): len(HOSTILE)}
    prompt_of = {row["case_id"]: prompt for prompt, row in played.rows.items()}
    stored = {
        prompt_of[row["case_id"]]: row["content"]
        for row in project.rows("transcripts")
        if row["role"] == "assistant"
    }
    assert stored == HOSTILE
    # pytest colours the lines that it shows; this colour belongs to none of its lines.
    assert "\x1b[31m" in played.output
    assert "\x1b[45;1m" not in played.output
    shown = re.sub("\x1b\\[[0-9;]*m", "", played.output)
    assert sorted(UNSAFE & set(shown)) == []
    assert "\\x1b" in played.output
    ElementTree.parse(project.pytester.path / "junit.xml")
