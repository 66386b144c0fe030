"""A local server for OpenAI's API whose models are functions, so that examples need no key."""

from __future__ import annotations

import json
import threading
from http.server import BaseHTTPRequestHandler, ThreadingHTTPServer
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable

    Message = dict[str, Any]
    Player = Callable[[list[Message]], Message]


def serve(port: int, players: dict[str, Player]) -> None:
    """Serve these models until the process ends.

    Args:
        port: A port on the loopback interface.
        players: Maps each model's name to a function that returns a conversation's next message.
    """

    class Handler(BaseHTTPRequestHandler):
        protocol_version = "HTTP/1.1"

        def do_POST(self) -> None:
            asked = json.loads(self.rfile.read(int(self.headers["content-length"])))
            message = {"role": "assistant", **players[asked["model"]](asked["messages"])}
            reason = "tool_calls" if message.get("tool_calls") else "stop"
            body = json.dumps({"choices": [{"message": message, "finish_reason": reason}]}).encode()
            self.send_response(200)
            self.send_header("content-length", str(len(body)))
            self.end_headers()
            self.wfile.write(body)

        def log_message(self, *_: object) -> None:
            pass

    server = ThreadingHTTPServer(("127.0.0.1", port), Handler)
    threading.Thread(target=server.serve_forever, daemon=True).start()
