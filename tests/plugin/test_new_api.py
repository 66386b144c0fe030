"""A new API is one module and one line of the registry: a pool that names it runs."""

from __future__ import annotations

from pathlib import Path

import pytest

from pytest_ultrapar.apis.registry import MODULES
from pytest_ultrapar.cli import main
from tests.plugin.conftest import CANARY, cases
from tests.raw_server import Peer, RawServer, Request, response

MODULE = Path(__file__).with_name("toy_api.py")


class Toys:
    """A server of the toy API; it refuses the second request and stores all of them."""

    def __init__(self) -> None:
        self.url = ""
        self.seen: list[tuple[str, str, str, str | None]] = []

    async def answer(self, peer: Peer, request: Request) -> None:
        body = request.body.decode()
        key, other = request.headers["x-toy-key"], request.headers.get("authorization")
        self.seen.append((request.path, key, body, other))
        if len(self.seen) == 2:
            await peer.send(response(b"No more toys.", status=b"418 No"))
        elif "stream=yes" in body:
            await peer.send(response(b"A bear.", b"content-type: text/event-stream"))
        else:
            await peer.send(response(b"3 4 A bear."))


@pytest.fixture
def toys():
    toys = Toys()
    with RawServer(toys.answer) as server:
        toys.url = f"{server.url}/toys"
        yield toys


@pytest.fixture
def toy_project(project, toys, monkeypatch):
    """The toy's module in the project, with its line; real APIs are listed in `MODULES`."""
    monkeypatch.setitem(MODULES, "toy", "toy_api")
    project.pytester.path.joinpath("toy_api.py").write_text(MODULE.read_text())
    project.pytester.makeconftest(
        "from pytest_ultrapar.apis.registry import MODULES\nMODULES['toy'] = 'toy_api'\n"
    )
    monkeypatch.syspath_prepend(project.pytester.path)
    project.write_pool(api="toy", base_url=toys.url)
    return project


@pytest.mark.slow
@pytest.mark.parametrize("streams", [False, True])
def test_pool_of_a_new_api_runs(toy_project, toys, streams):
    provider = "stream = true" if streams else ""
    toy_project.write_pool(api="toy", base_url=toys.url, provider=provider)
    toy_project.suite(cases(["a", "b", "c"], 'assert answer == "A bear."'))
    result = toy_project.run("-n0")
    assert result.ret == 0
    given = "stream=yes\n" if streams else ""
    assert sorted({body for _, _, body, _ in toys.seen}) == [f"{given}user: {p}" for p in "abc"]
    assert {(path, key, other) for path, key, _, other in toys.seen} == {
        ("/toys/m", f"{CANARY}-0", None)
    }
    rows = toy_project.rows("attempts")
    assert sorted(row["outcome"] for row in rows) == ["ok", "ok", "ok", "rate"]
    assert {(row["tokens_in"], row["tokens_out"]) for row in rows if row["outcome"] == "ok"} == {
        (3, 4)
    }
    assert all(
        (row["t_first_token_s"] is not None) == streams for row in rows if row["status"] == 200
    )
    assert f"{CANARY}-0" not in result.stdout.str() + result.stderr.str()


def test_pool_of_a_new_api_is_validated_by_its_own_rules(toy_project, toys):
    toy_project.write_pool(api="toy", base_url=toys.url.removesuffix("/toys"))
    toy_project.suite("def test_answer(answer): pass")
    said = toy_project.refusal(toy_project.run("-n0"))
    assert "provider[0].base_url must end in /toys" in said
    assert toys.seen == []


def test_lanes_of_a_new_api_are_checked(toy_project, toys):
    assert main(["check", "--pool", "pool.toml"]) == 0
    assert len(toys.seen) == 1
