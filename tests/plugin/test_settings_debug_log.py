"""Debug logs of a run: the workers that write them, their content, and the secrets they omit."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import CANARY

SUITE = """
import os

@prefetch
async def spoken(llm, word) -> str:
    key = os.environ["TEST_KEY_0"]
    reply = await llm.chat([{"role": "user", "content": f"{word} canary-prompt {key}"}])
    return reply.text

@pytest.mark.parametrize(
    "word",
    ["say", "once 429", "status 400", "status 500"],
    ids=["secretid1", "secretid2", "secretid3", "secretid4"],
)
def test_it(spoken): pass
"""


def logs(project) -> dict[str, str]:
    return {path.name: path.read_text() for path in project.directory.glob("debug-*")}


def named(text: str) -> dict[str, str]:
    return dict(part.split("=", 1) for part in text.split() if "=" in part)


def test_debug_log_contains_every_case_and_no_secret(project, monkeypatch):
    project.suite(SUITE)
    monkeypatch.setenv("DEBUG_LOG", "true")

    result = project.run("-n0", "--ultrapar-max-attempts=2", "--ultrapar-coverage=0", "-rA")

    found = logs(project)
    assert set(found) == {"debug-main.log"}
    lines = [line.split(" ", 2)[2] for text in found.values() for line in text.splitlines()]
    cases = {row["case_id"]: row for row in project.rows()}
    assert len(cases) == 4
    for case_id, row in cases.items():
        own = [line for line in lines if named(line).get("case") == case_id]
        assert own[0].startswith("lease requested ")
        assert sum(line.startswith("episode began ") for line in own) == 1
        assert sum(line.startswith("request ended ") for line in own) == row["n_attempts"]
        assert own[-1].startswith("episode ended ")
        assert named(own[-1])["attempts"] == str(row["n_attempts"])
    granted = {named(line)["lease"] for line in lines if line.startswith("lease granted ")}
    returned = {named(line)["lease"] for line in lines if line.startswith("lease returned ")}
    assert granted == returned
    assert {named(line)["status"] for line in lines if line.startswith("request ended ")} == {
        "200",
        "400",
        "429",
        "500",
    }
    decided = [named(line) for line in lines if line.startswith("retry decided ")]
    assert {(one["after"], one["verdict"]) for one in decided} >= {
        ("rate", "again"),
        ("overload", "again"),
        ("overload", "give_up"),
        ("bad_request", "bad_request"),
    }
    everything = "".join(found.values())
    assert all(word not in everything for word in (CANARY, "canary-prompt", "secretid"))
    # These lines are not in pytest's report of a test either.
    assert "lease granted" not in result.stdout.str()


@pytest.mark.slow
def test_debug_log_of_the_second_worker_only(project, monkeypatch):
    project.suite(SUITE)
    monkeypatch.setenv("DEBUG_PROCESS_NUM", "1")

    project.run("-n2", "--ultrapar-coverage=0", "--ultrapar-debug-log=2")

    assert set(logs(project)) == {"debug-gw1.log"}


def test_without_the_option_there_is_no_debug_log(project, monkeypatch):
    project.suite(SUITE)
    monkeypatch.setenv("DEBUG_PROCESS_NUM", "1")

    result = project.run("-n0", "--ultrapar-max-attempts=1", "--ultrapar-coverage=0")

    assert logs(project) == {}
    # The first lines do not repeat values of the pool file or defaults.
    said = "\n".join(line for line in result.outlines if line.startswith("ultrapar: "))
    assert "max_attempts = 1 (command line --ultrapar-max-attempts)" in said
    assert all(word not in said for word in ("debug_log =", "(default", "(pool.toml"))
    assert len(project.rows()) == 4
