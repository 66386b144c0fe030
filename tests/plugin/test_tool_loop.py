"""The tool loop that docs/reference/apis.md shows is one that works."""

from __future__ import annotations

import json
import re
import threading
from collections.abc import Iterator
from dataclasses import dataclass, field
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from pathlib import Path
from typing import Any

import pytest

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "apis.md"
TEMPERATURES = {"Oslo": 3, "Lima": 19}


def example() -> str:
    """The suite below the heading of tools."""
    text = DOCS.read_text(encoding="utf-8").split("\n## Tools", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return found


@dataclass
class ToolApi:
    """An API as strict as OpenAI's: each call must be answered by its id before the next turn."""

    port: int = 0
    conversations: list[list[dict[str, Any]]] = field(default_factory=list)

    def answer(self, body: dict[str, Any]) -> tuple[int, dict[str, Any]]:
        messages = body["messages"]
        self.conversations.append(messages)
        if (wrong := self._wrong(messages)) is not None:
            return 400, {"error": {"message": wrong, "type": "invalid_request_error"}}
        told = [json.loads(m["content"]) for m in messages if m["role"] == "tool"]
        if not told:
            calls = [self._call(f"call-{city}", city) for city in TEMPERATURES]
            return 200, _completion({"role": "assistant", "content": None, "tool_calls": calls})
        warmest = max(told, key=lambda one: one["celsius"])
        return 200, _completion({"role": "assistant", "content": f"It is {warmest['city']}."})

    @staticmethod
    def _call(call_id: str, city: str) -> dict[str, Any]:
        function = {"name": "temperature", "arguments": json.dumps({"city": city})}
        return {"id": call_id, "type": "function", "function": function}

    def _wrong(self, messages: list[dict[str, Any]]) -> str | None:
        expected: list[str] = []
        for message in messages:
            if message["role"] == "assistant" and "tool_calls" in message:
                if message["tool_calls"] != [self._call(f"call-{c}", c) for c in TEMPERATURES]:
                    return "these are not the calls that I made"
                expected = [call["id"] for call in message["tool_calls"]]
            elif message["role"] == "tool":
                if message["tool_call_id"] not in expected:
                    return f"no call has the id {message['tool_call_id']}"
                expected.remove(message["tool_call_id"])
        return f"not answered: {expected}" if expected else None


def _completion(message: dict[str, Any]) -> dict[str, Any]:
    reason = "tool_calls" if "tool_calls" in message else "stop"
    return {"choices": [{"index": 0, "message": message, "finish_reason": reason}]}


@pytest.fixture
def api() -> Iterator[ToolApi]:
    api = ToolApi()

    class Handler(BaseHTTPRequestHandler):
        def do_POST(self) -> None:
            body = json.loads(self.rfile.read(int(self.headers["content-length"])))
            status, answer = api.answer(body)
            content = json.dumps(answer).encode()
            self.send_response(status)
            self.send_header("content-type", "application/json")
            self.send_header("content-length", str(len(content)))
            self.end_headers()
            self.wfile.write(content)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", 0), Handler)
    thread = threading.Thread(target=server.serve_forever, args=[0.05])
    thread.start()
    api.port = server.server_port
    yield api
    server.shutdown()
    thread.join()
    server.server_close()


def test_tool_loop_of_the_docs_answers_each_call_by_its_id(project, api):
    project.write_pool(base_url=f"http://127.0.0.1:{api.port}/v1")
    project.pytester.path.joinpath("test_cities.py").write_text(example())
    result = project.run("-n0")
    assert result.ret == 0
    assert list(project.outcomes().values()) == ["solved"]
    assert [[m["role"] for m in messages] for messages in api.conversations] == [
        ["user"],
        ["user", "assistant", "tool", "tool"],
    ]
    assert "It is Lima." in [row["content"] for row in project.rows("transcripts")]
