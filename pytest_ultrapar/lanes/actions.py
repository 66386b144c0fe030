"""What the broker decides: the answers to waiting requests."""

from __future__ import annotations

import msgspec

from pytest_ultrapar.lanes.protocol import Lease


class Grant(msgspec.Struct, frozen=True):
    """`worker` may send the request it asked for as `request_id`."""

    worker: str
    request_id: int
    lease: Lease


class Refusal(msgspec.Struct, frozen=True):
    """The request can never be served; `reason` is one sentence for people."""

    worker: str
    request_id: int
    reason: str


Action = Grant | Refusal
