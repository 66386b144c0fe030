"""Answers of a real server under a schema, as the official `openai` client asks for them."""

from __future__ import annotations

from importlib import import_module
from typing import Literal

import pytest
from pydantic import BaseModel

from tests.simulated_pool import PROVIDER, running, simulated_pool

MESSAGES = [{"role": "user", "content": "what is the answer"}]


class Part(BaseModel):
    name: str
    weight: float | None


class Tree(BaseModel):
    label: Literal["oak", "elm"]
    parts: list[Part]
    children: list[Tree]


@pytest.fixture(scope="module")
def client(tmp_path_factory):
    openai = import_module("openai")
    with (
        running(simulated_pool(), tmp_path_factory.mktemp("structured")) as server,
        openai.OpenAI(api_key="sim-lab-key0", base_url=server.base_url(PROVIDER)) as made,
    ):
        yield made


def test_client_parses_a_completion(client):
    completion = client.chat.completions.parse(model="m", messages=MESSAGES, response_format=Tree)
    assert isinstance(completion.choices[0].message.parsed, Tree)
