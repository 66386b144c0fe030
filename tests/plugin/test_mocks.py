"""Mocks of HTTP clients: requests bypass them, and the run warns, if possible before sending."""

from __future__ import annotations

import re
import socket
from pathlib import Path
from unittest import mock

import pytest

from tests.plugin.conftest import said_by

IMPORTS = """
import aiohttp, httpx, pytest, respx, sys
from unittest import mock

URL = "http://127.0.0.1/chat/completions"
BODY = {"choices": [{"message": {"role": "assistant", "content": "mocked"}}]}
"""
EPISODE = """
@prefetch
async def mocked(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "say real"}])).text
"""
TEST = """
def test_it(mocked):
    assert mocked
"""
PYTEST_HTTPX = '''
"""A replacement for pytest-httpx: its fixture patches the same method in the same way."""

import httpx, pytest

@pytest.fixture
def httpx_mock(monkeypatch):
    async def handle_async_request(transport, request):
        return httpx.Response(200, json={})

    monkeypatch.setattr(httpx.AsyncHTTPTransport, "handle_async_request", handle_async_request)
    yield
'''
AUTOUSE = """
@pytest.fixture(autouse=True{scope})
def no_network({argument}):
    {body}
"""
PATCHED = (
    AUTOUSE.replace("{argument}", "monkeypatch").replace("{body}", "{how}").replace("{scope}", "")
)
CASSETTE = """
def cassette(function):
    wrapped = __import__("functools").wraps(function)(lambda mocked: function(mocked))
    wrapped._self_wrapper = type("Cassette", (), {"__module__": "vcr.cassette"})()
    return wrapped
"""
WITH = "with respx.mock:\n        yield"
REFUSED = {
    "respx_mock": (
        EPISODE + "def test_it(mocked, respx_mock):\n    respx_mock.post(URL)",
        "test_suite.py::test_it: fixture 'respx_mock' (respx)",
    ),
    "httpx_mock": (
        EPISODE + "def test_it(mocked, httpx_mock):\n    pass",
        "fixture 'httpx_mock' (pytest_httpx)",
    ),
    "by way of another fixture": (
        AUTOUSE.format(scope="", argument="respx_mock", body="pass") + EPISODE + TEST,
        "fixture 'respx_mock' (respx)",
    ),
    "a mark": (EPISODE + "@pytest.mark.respx(base_url=URL)" + TEST, "@pytest.mark.respx"),
    "around the test": (EPISODE + "@respx.mock" + TEST, "the test itself (respx)"),
    "patched around the test": (
        EPISODE + "@mock.patch('httpx.AsyncClient.post', new=print)" + TEST,
        "the test itself (httpx)",
    ),
    "around the episode": (
        EPISODE.replace("async def", "@respx.mock\nasync def") + TEST,
        "the episode 'mocked' (respx)",
    ),
    "in the episode": (
        EPISODE.replace("    return", "  with respx.mock:\n    return") + TEST,
        "the episode 'mocked' (respx)",
    ),
    "a fixture of each test": (
        AUTOUSE.format(scope="", argument="", body=WITH) + EPISODE + TEST,
        "fixture 'no_network' (respx)",
    ),
    "a fixture of the session": (
        AUTOUSE.format(scope=", scope='session'", argument="", body=WITH) + EPISODE + TEST,
        "fixture 'no_network' (respx)",
    ),
    "by hand, of aiohttp": (
        AUTOUSE.format(scope=", scope='session'", argument="", body="yield aioresponses")
        + EPISODE.replace("(llm)", "(llm, no_network)")
        + TEST,
        "fixture 'no_network' (aioresponses)",
    ),
    "monkeypatched in a fixture": (
        PATCHED.format(how="monkeypatch.setattr(httpx.AsyncClient, 'send', lambda *_: None)")
        + EPISODE
        + TEST,
        "fixture 'no_network' (httpx)",
    ),
    "monkeypatched by name": (
        PATCHED.format(how="monkeypatch.setattr('aiohttp.ClientSession._request', print)")
        + EPISODE
        + TEST,
        "fixture 'no_network' (aiohttp)",
    ),
    "patched in a fixture": (
        AUTOUSE.format(
            scope="", argument="", body="with mock.patch('httpx.AsyncClient.post'):\n        yield"
        )
        + EPISODE
        + TEST,
        "fixture 'no_network' (httpx)",
    ),
    "patched in the episode": (
        EPISODE.replace("    return", "  with mock.patch('httpx.get'):\n    return") + TEST,
        "the episode 'mocked' (httpx)",
    ),
    "in a function within a fixture": (
        AUTOUSE.format(scope="", argument="", body="yield (lambda: respx.start())")
        + EPISODE
        + TEST,
        "fixture 'no_network' (respx)",
    ),
    "set up for each test of a module": (
        "def setup_function():\n    respx.start()" + EPISODE + TEST,
        "setup_function (respx)",
    ),
    "set up for a class": (
        EPISODE
        + "class TestIt:\n    @classmethod\n    def setup_class(cls):\n        respx.start()\n"
        + "    def test_it(self, mocked):\n        pass",
        "setup_class (respx)",
    ),
    "around the test by an object, as vcr does": (
        CASSETTE + EPISODE + "@cassette" + TEST,
        "a decorator of the test itself (vcr)",
    ),
    "from the start": (
        "respx.start()\n" + EPISODE + TEST,
        "a mock is active when tests are collected (httpcore.",
    ),
    "patched from the start": (
        "mock.patch('httpx.AsyncClient.send').start()\n" + EPISODE + TEST,
        "a mock is active when tests are collected (httpx.AsyncClient.send is",
    ),
    "an autospec from the start": (
        "mock.patch('aiohttp.ClientSession._request', autospec=True).start()\n" + EPISODE + TEST,
        "a mock is active when tests are collected (aiohttp.ClientSession._request is",
    ),
}


@pytest.fixture
def mocks(project):
    """A project whose mocks end with its run, which runs in this process."""
    import respx

    project.pytester.path.joinpath("pytest_httpx.py").write_text(PYTEST_HTTPX)
    project.pytester.syspathinsert()
    yield project
    respx.stop()
    mock.patch.stopall()


@pytest.mark.parametrize("way", REFUSED)
def test_mock_that_cannot_answer_is_refused_before_the_first_request(mocks, way):
    body, what = REFUSED[way]
    mocks.suite(IMPORTS + body)
    said = mocks.refusal(mocks.run_here("-n0", "-prespx.plugin", "-ppytest_httpx"))
    assert what in said
    assert "requests from llm bypass this mock" in said
    assert "docs/how-to/mocks.md" in said


SAID = "did not use that mock but went to the pool's servers; if the mock should answer an episode"
TOOLS = """
@pytest.fixture(scope="session")
def tools():
    with respx.mock(assert_all_called=False) as router:
        router.get("http://tools/").respond(text="a tool's")
        yield

@prefetch
async def mocked(llm, n, tools) -> list:
    async with httpx.AsyncClient() as client:
        found = await client.get("http://tools/")
    return [found.text, (await llm.chat([{"role": "user", "content": f"say {n}"}])).text]

@pytest.mark.parametrize("n", range(3))
def test_it(mocked, n):
    assert mocked == ["a tool's", str(n)]
"""


def test_mock_of_an_episodes_tools_is_allowed_and_reported_once(mocks, workers):
    mocks.suite(IMPORTS + TOOLS)
    said = said_by(mocks.run(workers, "-prespx.plugin"), 0)
    assert said.count(SAID) == 1
    what = "httpcore.AsyncConnectionPool.handle_async_request is mocked by respx.mocks"
    assert f"ultrapar: {what}: " in said
    assert set(mocks.outcomes().values()) == {"solved"}


BESIDE = """
import threading
MOCKED = threading.Event()
SENT = threading.Event()

async def other(*_, **__):
    raise AssertionError("a request of another test's")

@prefetch
async def unmocked(llm) -> str:
    while not MOCKED.is_set():
        await __import__("asyncio").sleep(0.005)
    reply = await llm.chat([{"role": "user", "content": "say real"}])
    async with llm.httpx_client() as client:
        body = {"model": llm.model, "messages": [{"role": "user", "content": "say native"}]}
        native = await client.post("https://pool.invalid/v1/chat/completions", json=body)
    SENT.set()
    return reply.text + native.json()["choices"][0]["message"]["content"]

def test_of_somebody_else(monkeypatch):
    spec = mock.patch("aiohttp.ClientSession._request", autospec=True)
    monkeypatch.setattr(httpx.AsyncClient, "send", other)
    with respx.mock, spec:
        MOCKED.set()
        assert SENT.wait(20)

def test_last():
    pass

def test_it(unmocked):
    assert unmocked == "realnative"
"""


def test_mock_of_another_test_neither_answers_nor_fails_an_episode(mocks):
    mocks.suite(IMPORTS + BESIDE)
    said = said_by(mocks.run_here("-n0"), 0)
    assert said.count(SAID) == 1
    assert "ultrapar: httpx.AsyncClient.send is mocked by test_suite: requests did not use" in said
    assert mocks.outcomes() == {"test_it[m-r0]": "solved"}


def test_telemetry_that_wraps_a_client_is_not_a_mock(mocks):
    mocks.pytester.path.joinpath("site-packages").mkdir()
    mocks.pytester.path.joinpath("site-packages/telemetry.py").write_text("""
import httpx
send = httpx.AsyncClient.send

async def counted(client, *given, **how):
    return await send(client, *given, **how)

httpx.AsyncClient.send = counted
""")
    mocks.pytester.syspathinsert(mocks.pytester.path / "site-packages")
    mocks.suite("import telemetry" + EPISODE + TEST)
    with mock.patch("httpx.AsyncClient.send", new=__import__("httpx").AsyncClient.send):
        assert "past" not in said_by(mocks.run_here("-n0"), 0)


HOW_TO = (Path(__file__).parents[2] / "docs/how-to/mocks.md").read_text(encoding="utf-8")
OVERRIDDEN = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)[-1]


def test_fixture_that_stops_evaluations_can_be_overridden_next_to_them(mocks):
    mocks.pytester.makeconftest(IMPORTS + AUTOUSE.format(scope="", argument="", body=WITH))
    mocks.suite(EPISODE + TEST)
    assert "fixture 'no_network' (respx)" in mocks.refusal(mocks.run_here("-n0"))
    mocks.suite(OVERRIDDEN + EPISODE + TEST)
    said_by(mocks.run_here("-n0"), 0)


@pytest.mark.slow
def test_documented_ways_to_mock_answers_work(pytester, outside_xdist, monkeypatch):
    simulated, own = re.findall(r"```toml\n(.*?)```", HOW_TO, re.DOTALL)
    server, transport, _ = re.findall(r"```python\n(.*?)```", HOW_TO, re.DOTALL)
    with socket.create_server(("127.0.0.1", 0)) as free:
        port = str(free.getsockname()[1])
    assert "8123" in own
    assert "8123" in server
    pytester.path.joinpath("simulated.toml").write_text(simulated)
    pytester.path.joinpath("own.toml").write_text(own.replace("8123", port))
    pytester.makeconftest(server.replace("8123", port))
    of_llm = """
from pytest_ultrapar import prefetch

@prefetch
async def told(llm) -> str:
    return (await llm.chat([{"role": "user", "content": "What is 2 + 2?"}])).text

def test_told(told, grade):
    grade("four" in told)
"""
    pytester.makepyfile(test_transport=transport, test_of_llm=of_llm)
    for pool, solved in (("own.toml", 2), ("simulated.toml", 1)):
        done = pytester.runpytest_subprocess("-n2", "--ultrapar-pool", pool, timeout=120)
        assert f"{solved} solved" in said_by(done, 0, 1)
    done = pytester.runpytest_subprocess(
        "-n0", "--ultrapar-pool=own.toml", "--ultrapar-replay=latest"
    )
    assert "1 solved" in said_by(done, 0, 1)
