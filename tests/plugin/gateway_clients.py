"""Clients in other processes for `test_gateway.py`: each sends requests in five ways."""

from __future__ import annotations

import asyncio
import json
import os
import sys

TOOL = {
    "type": "function",
    "function": {
        "name": "look_up",
        "description": "Look a word up.",
        "parameters": {"type": "object", "properties": {"word": {"type": "string"}}},
    },
}
SCHEMA = {
    "name": "reply",
    "strict": True,
    "schema": {
        "type": "object",
        "properties": {"word": {"type": "string"}},
        "required": ["word"],
        "additionalProperties": False,
    },
}
WAYS = ("plain", "stream", "tools", "structured", "error")
SAID = "Say a word."


def with_litellm(way: str) -> str:
    import litellm

    asked = {"model": "openai/m", "messages": [{"role": "user", "content": SAID}]}
    if way == "stream":
        pieces = litellm.completion(**asked, stream=True)
        return "".join(piece.choices[0].delta.content or "" for piece in pieces)
    if way == "tools":
        asked["tools"] = [TOOL]
    if way == "structured":
        asked["response_format"] = {"type": "json_schema", "json_schema": SCHEMA}
    if way == "error":
        try:
            litellm.completion(**{**asked, "model": "openai/other"})
        except litellm.BadRequestError as error:
            return str(error)
    return str(litellm.completion(**asked).choices[0].message)


def with_langchain(way: str) -> str:
    import openai
    from langchain_openai import ChatOpenAI

    chat = ChatOpenAI(model="other" if way == "error" else "m")
    if way == "stream":
        return "".join(str(piece.content) for piece in chat.stream(SAID))
    if way == "tools":
        return str(chat.bind_tools([TOOL]).invoke(SAID))
    if way == "structured":
        shape = {"title": "reply", "description": "A reply.", **SCHEMA["schema"]}
        return str(chat.with_structured_output(shape).invoke(SAID))
    if way == "error":
        try:
            chat.invoke(SAID)
        except openai.BadRequestError as error:
            return str(error)
    return str(chat.invoke(SAID).content)


def with_pydantic_ai(way: str) -> str:
    from pydantic_ai import Agent
    from pydantic_ai.exceptions import ModelHTTPError
    from pydantic_ai.models.openai import OpenAIChatModel

    agent = Agent(OpenAIChatModel("other" if way == "error" else "m"))

    async def stream() -> str:
        async with agent.run_stream(SAID) as run:
            return str(await run.get_output())

    if way == "stream":
        return asyncio.run(stream())
    if way == "tools":
        agent.tool_plain(lambda word="": word, name="look_up")
    if way == "error":
        try:
            agent.run_sync(SAID)
        except ModelHTTPError as error:
            return str(error)
    return str(agent.run_sync(SAID).output)


NODE = """
const [way] = process.argv.slice(1);
const body = {model: way === "error" ? "other" : "m",
              messages: [{role: "user", content: "Say a word."}]};
if (way === "stream") body.stream = true;
if (way === "tools") body.tools = [TOOL];
if (way === "structured") body.response_format = {type: "json_schema", json_schema: SCHEMA};
const answer = await fetch(`${process.env.OPENAI_BASE_URL}/chat/completions`, {
  method: "POST",
  headers: {authorization: `Bearer ${process.env.OPENAI_API_KEY}`,
            "content-type": "application/json"},
  body: JSON.stringify(body),
});
console.log(await answer.text());
if (answer.ok === (way === "error")) process.exit(1);
"""


def with_node(way: str) -> str:
    import subprocess

    script = NODE.replace("TOOL", json.dumps(TOOL)).replace("SCHEMA", json.dumps(SCHEMA))
    command = ["node", "--input-type=module", "-e", script, way]
    return subprocess.run(command, capture_output=True, text=True, check=True).stdout


CLIENTS = {
    "litellm": with_litellm,
    "langchain": with_langchain,
    "pydantic_ai": with_pydantic_ai,
    "node": with_node,
}

if __name__ == "__main__":
    assert os.environ["OPENAI_BASE_URL"].startswith("http://127.0.0.1:")
    said = CLIENTS[sys.argv[1]](sys.argv[2])
    assert said, sys.argv
    print(said)
