"""Suites with cases from a data file, as pytest runs and shows them."""

from __future__ import annotations

from tests.plugin.conftest import said_by

WORDS = """{"name": "sky", "word": "blue", "tags": "slow"}
{"name": "sun", "word": "gelb", "tags": null}
{"name": "sea", "word": "deep", "tags": ["skip"]}
"""
SUITE = """
import pytest
from pytest_ultrapar import cases

@pytest.mark.parametrize("word", cases("words.jsonl", "word", id="name", marks="tags"))
async def test_word(llm, word):
    assert word in (await llm.chat(f"say {word}")).text

@pytest.mark.parametrize("row", cases("words.jsonl"))
def test_plain(row):
    assert row["word"]
"""


def write(project, text: str):
    folder = project.pytester.path / "words"
    folder.mkdir(exist_ok=True)
    (folder / "words.jsonl").write_text(text)
    (folder / "test_words.py").write_text(SUITE)
    (project.pytester.path / "pytest.ini").write_text("[pytest]\nmarkers = slow\n")


def test_rows_are_cases_with_their_ids_and_marks(project):
    write(project, WORDS)
    said_by(project.run("-n0", "--strict-markers"), 0)
    assert project.outcomes() == {
        "test_word[m-sky-r0]": "solved",
        "test_word[m-sun-r0]": "solved",
        "test_word[m-sea-r0]": "skipped",
    }
    slow = project.run_here("--collect-only", "-q", "-m", "slow")
    assert [line for line in slow.outlines if "::" in line] == [
        "words/test_words.py::test_word[m-sky-r0]"
    ]
    # The same rows in another order are the same cases, and only new ones are sent.
    more = '{"name": "sand", "word": "fine"}\n'.replace("}", ', "tags": ""}')
    write(project, "".join(reversed(WORDS.splitlines(keepends=True))) + more)
    n_sent = len(project.server.prompts)
    said_by(project.run("-n0", "--ultrapar-resume=latest"), 0)
    assert project.server.prompts[n_sent:] == ["say fine"]


def test_broken_file_is_reported_in_one_sentence_without_a_traceback(project, workers):
    write(project, WORDS + '{"name": \n')
    for options in ((workers,), (workers, "--collect-only")):
        result = project.run(*options)
        said = said_by(result, 1, 2)
        assert "words.jsonl:4: Input data was truncated" in said
        assert "data_cases.py" not in said
        assert "cases(" not in said
    assert project.server.prompts == []
    result = project.run_here(pool=False)
    assert "words.jsonl:4: Input data was truncated" in said_by(result, 2)
