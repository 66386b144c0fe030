"""Answers that are meant to harm use a bounded amount of memory and get a failure class."""

import json
import subprocess
import sys
from pathlib import Path

import pytest

pytestmark = pytest.mark.slow

ROOT = Path(__file__).parents[2]
MOST_MIB = 64
TOO_LARGE = "malformed: the answer is larger than 16777216 bytes"
DEEP = "malformed: the answer is not a valid chat completion: it is nested too deeply"
EXPECTED = {
    "small": "5 characters",
    "100 kB header": "malformed: the answer is not valid HTTP: ",
    "100 kB of headers": "malformed: the answer is not valid HTTP: ",
    "100 k nested": DEEP,
    "100 k nested in a stream": DEEP,
    "declared too long": TOO_LARGE,
    "bytes one by one": "malformed: the answer is not a valid chat completion: ",
    "10 GiB bomb": TOO_LARGE,
    "10 GiB bomb in a stream": TOO_LARGE,
    "endless": TOO_LARGE,
    "endless line in a stream": TOO_LARGE,
    "endless deltas": TOO_LARGE,
    "many objects": "malformed: the answer has more than 10000 objects",
    "many objects with fields": "malformed: the answer has more than 10000 objects",
    "10 MB": "10000000 characters",
    "10 MB, one wide character": "10000001 characters",
    "anthropic 10 MB": "10000000 characters",
    "anthropic 10 MB of thinking": "10000000 characters",
    "anthropic many objects": "malformed: the answer has more than 10000 objects",
    "anthropic endless deltas": TOO_LARGE,
    "anthropic endless events": TOO_LARGE,
    "openai-responses 10 MB": "10000000 characters",
    "openai-responses 10 MB in a stream": "10000000 characters",
    "openai-responses many objects": "malformed: the answer has more than 10000 objects",
    "gemini 10 MB": "10000000 characters",
    "gemini endless deltas": TOO_LARGE,
    "gemini many parts": "malformed: the answer has more than 10000 objects",
}
COMMAND = [sys.executable, "-m", "tests.engine.hostile_answers"]


def test_hostile_answers_get_a_class_and_use_little_memory():
    with subprocess.Popen(
        [*COMMAND, "serve"], cwd=ROOT, stdin=subprocess.PIPE, stdout=subprocess.PIPE, text=True
    ) as server:
        command = [*COMMAND, server.stdout.readline().strip(), *EXPECTED]
        done = subprocess.run(
            command, cwd=ROOT, capture_output=True, text=True, check=True, timeout=300
        )
        server.communicate()
    found = [json.loads(line) for line in done.stdout.splitlines()]
    assert [name for name, _, _ in found] == list(EXPECTED)
    for name, said, grown_mib in found:
        assert said.startswith(EXPECTED[name]), name
        assert len(said) < 500, name
        assert grown_mib < MOST_MIB, name
