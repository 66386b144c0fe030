from __future__ import annotations

import pytest

from bench_suites.workflow import prompts
from bench_suites.workflow.prompt_digest import prompt_digest


def test_digest_changes_with_any_word_of_the_prompts(monkeypatch: pytest.MonkeyPatch) -> None:
    before = prompt_digest()
    assert len(before) == 16
    assert prompt_digest() == before
    monkeypatch.setattr(prompts, "SYSTEM", prompts.SYSTEM + " ")
    assert prompt_digest() != before
