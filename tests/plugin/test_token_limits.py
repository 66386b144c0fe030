"""Tokens per minute over a whole run, as the server counts them."""

from __future__ import annotations

import random
from dataclasses import replace

import pytest

from pytest_ultrapar.pool.model import LIMIT_KINDS

SUITE = """
import pytest
from pytest_ultrapar import prefetch

@prefetch
async def bounded(llm, prompt) -> str:
    return (await llm.chat([{{"role": "user", "content": prompt}}], max_tokens={most})).text

@prefetch
async def free(llm, prompt) -> str:
    return (await llm.chat([{{"role": "user", "content": prompt}}])).text

@pytest.mark.parametrize("prompt", {prompts!r})
def test_it({fixture}): pass
"""


def write(project, prompts, *, tpm: int, fixture: str = "bounded", most: int = 100) -> None:
    project.write_pool(keys=1, key=f", tpm = {tpm}")
    text = SUITE.format(prompts=prompts, fixture=fixture, most=most)
    project.pytester.path.joinpath("test_suite.py").write_text(text)


def most_in_window(used: list[tuple[float, int]], window_s: float) -> int:
    return max(
        sum(tokens for at_s, tokens in used if begin_s <= at_s < begin_s + window_s)
        for begin_s, _ in used
    )


@pytest.mark.slow
@pytest.mark.parametrize("fixture", ["bounded", "free"])
def test_tokens_in_any_window_are_never_above_the_limit(project, monkeypatch, fixture):
    # A minute in 1.5 s.
    monkeypatch.setitem(LIMIT_KINDS, "tpm", replace(LIMIT_KINDS["tpm"], window_s=1.5))
    draw = random.Random(1)
    prompts = [f"use {draw.randint(5, 15)} {draw.randint(1, 100)} {n}" for n in range(40)]
    write(project, prompts, tpm=1200, fixture=fixture)
    assert project.run("-n0").ret == 0
    used = project.server.used
    assert len(used) == 40
    # The server is a thread of this process: if the machine stalls, it sees requests late.
    sent_s = sorted(row["t_send_s"] for row in project.rows("attempts"))
    late_s = [at_s - sent for (at_s, _), sent in zip(used, sent_s, strict=True)]
    assert most_in_window(used, 1.5 - (max(late_s) - min(late_s))) <= 1200
    assert sum(tokens for _, tokens in used) > 1200


def test_request_above_every_limit_is_infra_with_a_reason(project):
    write(project, ["use 1 1 a", "use 1 1 b"], tpm=500, most=5000)
    assert project.run("-n0", "-rA").ret == 1
    assert set(project.outcomes().values()) == {"infra"}
    (error,) = {row["error"] for row in project.rows()}
    assert "tokens, but the limit p/key0 allows 500 per minute (tpm)" in error
    assert project.server.prompts == []
