"""The tests' own server says what went wrong in it."""

from __future__ import annotations

import errno
import socket

import pytest

from tests.raw_server import RawServer


def test_server_that_cannot_accept_ends_and_says_why():
    async def answer(_peer, _request):
        raise NotImplementedError

    server = RawServer(answer)
    server.start()
    server._listener.shutdown(socket.SHUT_RDWR)
    server._thread.join(60)
    assert server._listener.fileno() == -1
    with pytest.raises(OSError, match="Invalid argument") as caught:
        server.stop()
    assert caught.value.errno == errno.EINVAL
