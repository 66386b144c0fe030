"""Answers that are cut off, or invalid HTTP: the exact words of rows 3, 4 and 6."""

from __future__ import annotations

from tests.faults.byte_faults import after, stale
from tests.faults.played import between, play

CUT = ["long_length", "cut_chunk", "bad_chunk", "short_length", "long_header"]


def test_answer_that_is_invalid_http_is_malformed(project):
    cut = [f"{fault}:1 it" for fault in CUT]
    played = play(project, between(cut), "--ultrapar-max-attempts=2", keys=3, timeout_s=15)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 5 * len(cut)}
    assert {prompt: played.classes(prompt) for prompt in cut} == {
        prompt: ["malformed", "ok"] for prompt in cut
    }
    assert all(played.billed(prompt) == [True, False] for prompt in cut)


ALL_STALE = """
@prefetch
async def talk(llm, prompt) -> str:
    wait, _, words = prompt.partition(" ")
    first = await llm.chat([{{"role": "user", "content": wait + " " + words}}])
    if wait == "stale":
        return first.text
    return (await llm.chat([{{"role": "user", "content": "say " + words}}])).text

@pytest.mark.parametrize("prompt", {prompts!r})
def test_it(talk):
    assert talk.startswith("fine")
"""


def test_request_on_a_stale_connection_is_not_sent_again_on_another_stale_one(project):
    # Three idle connections besides its own; the server closes all four next.
    project.server.faults["late_stale"] = after(0.5, stale)
    prompts = [*(f"stale fine {n}" for n in range(3)), "late_stale fine"]
    played = play(project, prompts, "--ultrapar-max-attempts=2", suite=ALL_STALE, judged=False)
    assert played.result.ret == 0
    assert played.outcomes() == {("solved", None): 4}
    found = [(a["turn"], a["outcome"]) for a in played.attempts["late_stale fine"]]
    assert found == [(0, "ok"), (1, "closed"), (1, "ok")]
