"""One HTTP connection: uvicorn's own, which also tells of a departed client at once.

And it can be closed by the application, as ASGI has no word for that.
"""

from __future__ import annotations

from typing import cast

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pytest_ultrapar.simulator.asgi import CLOSE, ON_DEPARTURE, Scope


class Connection(HttpToolsProtocol):
    """Acts on the client's FIN in the very callback that brings it.

    uvicorn 0.54.0 waits for `connection_lost`, which uvloop calls a turn of the loop later
    (`httptools_impl.py:142`), and then a task must wake up. Meanwhile a request that another
    connection sent after the FIN would be judged as if the departed one still held its seat. Nor
    does the kernel report connections in order: one that was active in the turn before comes first.
    All callbacks of a turn come before all tasks, so a seat freed here is free for all of them.
    """

    def on_message_begin(self) -> None:
        """Called by the parser at the first byte of a request."""
        super().on_message_begin()
        cast("Scope", self.scope)[CLOSE] = self.transport.close

    def eof_received(self) -> None:
        """Called by the loop when the client has closed its side."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        scope = cast("Scope", cycle.scope)
        if (leave := scope.get(ON_DEPARTURE)) is not None:
            leave()
        cycle.disconnected = True
        cycle.message_event.set()
