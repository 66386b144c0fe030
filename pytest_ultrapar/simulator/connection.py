"""One HTTP connection: uvicorn's own, which also tells of a departed client at once."""

from __future__ import annotations

from uvicorn.protocols.http.httptools_impl import HttpToolsProtocol

from pytest_ultrapar.simulator.asgi import DEPARTED


class Connection(HttpToolsProtocol):
    """Ends `receive` at the client's FIN.

    uvicorn 0.54.0 waits for `connection_lost`, which uvloop calls a turn of the loop later
    (`httptools_impl.py:142`). In that turn a request on another connection, sent after the FIN,
    would be judged while the departed one still held its seat.
    """

    def eof_received(self) -> None:
        """Called by the loop when the client has closed its side."""
        cycle = self.cycle
        if cycle is None or cycle.response_complete:
            return
        if cycle.body and not cycle.more_body:
            # Complete but unread. uvicorn would drop it; a judge of rates must have seen it.
            cycle.scope[DEPARTED] = True  # type: ignore[literal-required]
            return
        cycle.disconnected = True
        cycle.message_event.set()
