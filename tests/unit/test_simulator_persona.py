from __future__ import annotations

import random

from pytest_ultrapar.simulator.persona import ChatMessage
from pytest_ultrapar.simulator.served_pool import persona_by_name


def test_echo_returns_the_beginning_of_the_last_user_message():
    echo = persona_by_name("echo")
    messages = [
        ChatMessage("user", "first"),
        ChatMessage("user", "x" * 39 + "yz"),
        ChatMessage("assistant", "mine"),
    ]
    reply = echo(messages, random.Random(0), 1.0)
    assert reply.content == "echo: " + "x" * 39 + "y"
    assert not reply.tool_calls
    assert reply.finish_reason == "stop"


def test_echo_without_a_user_message_is_empty():
    reply = persona_by_name("echo")([ChatMessage("system", "s")], random.Random(0), 1.0)
    assert reply.content == "echo: "
