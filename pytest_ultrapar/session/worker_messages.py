"""What a worker tells the controller: one message and one event per item, where xdist has six."""

from __future__ import annotations

import marshal
from typing import TYPE_CHECKING, Any

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence


_PACKED = "ultrapar_packed"
_FORMAT = 4
"""Of marshal: all versions of Python that may stand on the two sides (`//python=`) read it."""
_HELD = frozenset({"logstart", "testreport", "logfinish", "runtest_protocol_complete"})
"""What xdist's `WorkerInteractor` sends of each item, three reports among it."""
_WORDS = frozenset({str, int, float, bool, type(None), bytes, complex})
_ROWS = frozenset({list, tuple, set, frozenset})
Message = tuple[str, dict[str, Any]]
"""What xdist's two sides send each other: an event and its arguments."""


class Outbox:
    """Stands in for `WorkerInteractor.sendevent`. Worker, main thread.

    An item's messages leave together with the word that the next one starts, so that whatever kills
    the worker, the controller knows which item ran. A failure leaves at once: it may be what ends
    the run (`-x`), and other workers go on sending until the controller hears of it.
    """

    def __init__(self, send: Callable[..., None]) -> None:
        """Hold nothing yet.

        Args:
            send: xdist's own `sendevent`.
        """
        self._send = send
        self._held: list[Message] = []
        self._holds = True

    def sendevent(self, name: str, **kwargs: Any) -> None:  # noqa: ANN401 - as xdist's own
        """Send a message, now or with those that follow; all arrive in their order."""
        if name in _HELD and _can_be_packed(kwargs):
            self._held.append((name, kwargs))
            if name == "logstart" or not self._holds or _tells_failure(kwargs):
                self.flush()
        else:
            self.flush()
            self._send(name, **kwargs)

    def flush(self) -> None:
        """Send what is held; to be called before the main thread waits."""
        if self._held:
            self._send(_PACKED, messages=marshal.dumps(self._held, _FORMAT))
            self._held.clear()

    def stop_holding(self) -> None:
        """From now on send everything at once: no item follows the one that runs next."""
        self._holds = False
        self.flush()


def receive_packed(node: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Have a `WorkerController` take apart what an `Outbox` sent. Before it has a channel.

    Its events come to the main thread as one (`handle_packed`).
    """
    process, put = node.process_from_remote, node.putevent

    def process_from_remote(message: Any) -> None:  # noqa: ANN401 - a message, or xdist's end marker
        if isinstance(message, tuple) and message[0] == _PACKED:
            # From our own worker; JSON would make lists of tuples.
            messages = marshal.loads(message[1]["messages"])  # noqa: S302
            events: list[Message] = []
            node.putevent = events.append
            try:
                for one in messages:
                    process(one)
            finally:
                node.putevent = put
                put((_PACKED, {"events": events}))
        else:
            process(message)

    node.process_from_remote = process_from_remote


def handle_packed(dsession: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Have a `DSession` carry out what came as one event. Before it has workers.

    For each event by itself there is a round of xdist's queue, with its question whether all tests
    have finished (`DSession.loop_once`): 0.02 of the 0.3 ms that an item costs the controller.
    """

    def handle(events: Sequence[Message]) -> None:
        for name, arguments in events:
            getattr(dsession, f"worker_{name}")(**arguments)

    setattr(dsession, f"worker_{_PACKED}", handle)


def event(
    dsession: Any,  # noqa: ANN401 - xdist ships no types
    name: str,
    handle: Callable[..., None],
) -> Callable[..., None]:
    """A function for any thread that has a `DSession` call `handle` on the main thread.

    It comes as an event among those of workers, after which xdist asks whether all tests have
    finished (`DSession.loop_once`).
    """
    setattr(dsession, f"worker_ultrapar_{name}", lambda arguments: handle(*arguments))

    def tell(*arguments: Any) -> None:  # noqa: ANN401 - those of `handle`
        dsession.queue.put((f"ultrapar_{name}", {"arguments": arguments}))

    return tell


def _tells_failure(arguments: dict[str, Any]) -> bool:
    match arguments:
        case {"data": {"outcome": "failed"}}:
            return True
    return False


def _can_be_packed(arguments: dict[str, Any]) -> bool:
    """Whether marshal takes them; if not, execnet says what it thinks of them."""
    try:
        return _is_plain(arguments)
    except RecursionError:
        return False


def _is_plain(value: Any) -> bool:  # noqa: ANN401 - that is the question
    """Whether marshal gives back what it is given.

    It also takes whatever has a buffer, a numpy number such as a score among them, and gives back
    its bytes.
    """
    kind = type(value)
    if kind is dict:
        return all(map(_is_plain, value)) and all(map(_is_plain, value.values()))
    return kind in _WORDS or (kind in _ROWS and all(map(_is_plain, value)))
