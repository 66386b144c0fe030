"""Prints and log records of episodes appear with their own item, in each capture mode of pytest."""

from __future__ import annotations

import pytest

from tests.plugin.conftest import section

SPEAKING = """
import logging

@prefetch
async def spoken(llm, prompt) -> str:
    print("<printed by", prompt + ">")
    logging.getLogger("suite").warning("<logged by %s>", prompt)
    return (await llm.chat([{"role": "user", "content": prompt}])).text

@pytest.mark.parametrize("prompt", ["say a", "say b"])
def test_it(spoken):
    print("<test prints", spoken + ">")
    assert spoken == "a"
"""


@pytest.mark.slow
@pytest.mark.parametrize("options", [["--capture=sys"], ["-p", "no:logging", "-p", "no:xdist"]])
def test_episode_output_appears_with_its_item_in_each_capture_mode(project, options):
    project.suite(SPEAKING)
    result = project.run_here(*options)
    output = result.stdout.str()
    result.assert_outcomes(failed=1)
    shown = section(output, "test_it[m-say b-r0]")
    for said in ("<printed by say b>", "<logged by say b>", "<test prints b>"):
        assert shown.count(said) == output.count(said) == 1
    assert "<logged by say a>" not in output
    assert "<printed by say a>" not in output
    assert " by say " not in result.stderr.str()


def test_episode_prints_appear_with_their_item_when_nothing_is_captured(project):
    project.suite(SPEAKING)
    result = project.run_here("-s")
    for name in "ab":
        result.stdout.fnmatch_lines(
            [f"*<printed by say {name}>", f"<test prints {name}>"], consecutive=True
        )


@pytest.mark.slow
def test_quiet_run_prints_no_lines_of_the_plugin(project):
    project.suite(SPEAKING)
    only_a = ("--deselect", "test_suite.py::test_it[m-say b-r0]")
    result = project.run("-q", "-q", *only_a)
    assert (result.ret, [line.split() for line in result.outlines], result.errlines) == (
        0,
        [[".", "[100%]"]],
        [],
    )
    silent = project.run("-p", "no:terminal", *only_a)
    assert (silent.ret, silent.outlines, silent.errlines) == (0, [], [])
    assert set(project.outcomes().values()) == {"solved"}


SUBTESTS = """
def test_subtests(subtests):
    with subtests.test("speaks"):
        speak()
        assert False
""" * hasattr(pytest, "Subtests")
"""pytest has them since 9.0."""


def test_capture_fixtures_of_a_test_contain_no_output_of_episodes(project):
    project.suite(
        """
import asyncio, sys, threading

@prefetch
async def talkative(llm) -> str:
    reply = asyncio.ensure_future(llm.chat([{"role": "user", "content": "slow 0.5 a"}]))
    while not reply.done():
        print("<an episode prints>")
        print("<an episode complains>", file=sys.stderr)
        await asyncio.sleep(0.005)
    return reply.result().text

def speak():
    print("mine")
    threading.Event().wait(0.05)

def test_capsys(capsys):
    speak()
    assert capsys.readouterr() == ("mine\\n", "")

def test_capfd(capfd):
    speak()
    with capfd.disabled():
        speak()
    assert capfd.readouterr() == ("mine\\n", "")

def test_capsysbinary(capsysbinary):
    speak()
    assert capsysbinary.readouterr() == (b"mine\\n", b"")

def test_talkative(talkative, capsys):
    speak()
    assert capsys.readouterr() == ("mine\\n", "")
    assert talkative == "b"
"""
        + SUBTESTS
    )
    result = project.run_here()
    output = result.stdout.str()
    result.assert_outcomes(failed=3 if SUBTESTS else 1, passed=3)
    if SUBTESTS:
        assert "<an episode" not in section(output, "test_subtests [speaks]")
    assert "<an episode prints>" in section(output, "test_talkative[m-r0]")
    assert "<an episode" not in output.partition("= FAILURES =")[0]
    assert "<an episode" not in result.stderr.str()
