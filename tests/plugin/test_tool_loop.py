"""The tool loop of docs/reference/apis.md works."""

from __future__ import annotations

import json
import re
from dataclasses import dataclass, field
from pathlib import Path
from typing import Any

from tests.raw_server import Peer, RawServer, Request, json_response

DOCS = Path(__file__).parents[2] / "docs" / "reference" / "apis.md"
TEMPERATURES = {"Oslo": 3, "Lima": 19}


def example() -> str:
    """The suite in the section on tools."""
    text = DOCS.read_text(encoding="utf-8").split("\n## Tools", 1)[1].split("\n## ", 1)[0]
    (found,) = re.findall(r"```python\n(.*?)```", text, re.DOTALL)
    return found


@dataclass
class ToolApi:
    """An API as strict as OpenAI's: each call needs an answer with its id before the next turn."""

    conversations: list[list[dict[str, Any]]] = field(default_factory=list)

    async def answer(self, peer: Peer, request: Request) -> None:
        status, answer = self._answer(request.json()["messages"])
        await peer.send(json_response(answer, status=status))

    def _answer(self, messages: list[dict[str, Any]]) -> tuple[int, dict[str, Any]]:
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


def test_tool_loop_of_the_docs_answers_each_call_by_its_id(project):
    api = ToolApi()
    project.pytester.path.joinpath("test_cities.py").write_text(example())
    with RawServer(api.answer) as server:
        project.write_pool(base_url=server.base_url)
        result = project.run("-n0")
    assert result.ret == 0
    assert list(project.outcomes().values()) == ["solved"]
    assert [[m["role"] for m in messages] for messages in api.conversations] == [
        ["user"],
        ["user", "assistant", "tool", "tool"],
    ]
    assert "It is Lima." in [row["content"] for row in project.rows("transcripts")]
