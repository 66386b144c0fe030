"""Messages from a worker to the controller. Those about several items are sent together."""

from __future__ import annotations

import marshal
import threading
from contextlib import suppress
from functools import partial
from mmap import mmap
from struct import Struct
from struct import error as StructError  # noqa: N812
from time import sleep
from typing import TYPE_CHECKING, Any

from pytest_ultrapar.system.files import cannot, read_file

if TYPE_CHECKING:
    from collections.abc import Callable, Sequence
    from pathlib import Path


_PACKED = "ultrapar_packed"
_FORMAT = 4
"""The version of marshal's format. The worker's Python may differ from the controller's (xdist's
`//python=`), but every version that may run can read this format."""
_HELD = frozenset({"logstart", "testreport", "logfinish", "runtest_protocol_complete"})
"""The events that xdist's `WorkerInteractor` sends for each item, including three reports."""
_HELD_S = 0.02
"""How long messages are held, in seconds. Sending 50 messages a second costs next to nothing, and
results are not noticeably late."""
_NOTE = Struct("<q")
_NOTHING = -1
Message = tuple[str, dict[str, Any]]
"""A message between xdist's worker and controller: an event and its arguments."""


class Outbox:
    """Replaces `WorkerInteractor.sendevent`; uses the worker's main thread and a thread of its own.

    The messages of an item, up to the start of the next item, are sent as one piece. Pieces of
    several items are sent together, after at most 20 ms. A failure is sent immediately: it may end
    the run (`-x`), and other workers continue until the controller receives it.
    """

    def __init__(self, send: Callable[..., None], starts: Callable[[], None]) -> None:
        """Create an empty outbox.

        Args:
            send: xdist's own `sendevent`.
            starts: Called when an item starts, before the controller is told, because the item may
                kill the worker.
        """
        self._send = send
        self._starts = starts
        # Messages of the item that ran last, until the next item starts. Used only on the main
        # thread.
        self._item: list[Message] = []
        # Messages of earlier items. The lock guards these messages, and the order in which they are
        # sent.
        self._lock = threading.Lock()
        self._held: list[bytes] = []
        self._has_held = threading.Event()
        threading.Thread(target=self._send_late, name="ultrapar-outbox", daemon=True).start()

    def sendevent(self, name: str, **kwargs: Any) -> None:  # noqa: ANN401 - as xdist's own
        """Send a message, now or together with later messages, but always in their order."""
        if name not in _HELD:
            self.flush()
            self._send(name, **kwargs)
            return
        self._item.append((name, kwargs))
        if name == "logstart":
            self._starts()
            self._pack()
        elif name == "testreport" and kwargs["data"]["outcome"] == "failed":
            self.flush()

    def flush(self) -> None:
        """Send all held messages. Call it before the main thread waits."""
        self._pack()
        self._send_packed()

    def _pack(self) -> None:
        """Pack the item's messages into one piece; if they cannot be packed, send them now."""
        item, self._item = self._item, []
        packed = _packed(item) if item else None
        if packed is not None:
            with self._lock:
                self._held.append(packed)
            self._has_held.set()
        elif item:
            self._send_packed()
            for name, arguments in item:
                self._send(name, **arguments)

    def _send_packed(self) -> None:
        with self._lock:
            if self._held:
                held, self._held = self._held, []
                self._send(_PACKED, messages=held)

    def _send_late(self) -> None:
        with suppress(OSError):  # the session is over
            while self._has_held.wait():
                self._has_held.clear()
                sleep(_HELD_S)
                self._send_packed()


def note_of(directory: Path, worker: str) -> Path:
    """The file in the run's directory in which a worker records the item that it is running."""
    return directory / f"running-{worker}"


def remove_notes(directory: Path) -> None:
    """Remove the files in which workers recorded their items."""
    for path in directory.glob("running-*"):
        path.unlink(missing_ok=True)


def note_at(path: Path) -> Callable[[int], None]:
    """Return a function that records the position of the item that this process is running.

    `noted_at` reads the position after the process has ended, even if the process was killed.
    Recording a position only sets 8 bytes of memory.

    Raises:
        ResultsError: The file cannot be written.
    """
    with cannot(f"write {path}"), path.open("w+b") as file:
        # Write to the file now, so that it gets a block. Without one, recording the first item on a
        # full disk would end the process.
        file.write(_NOTE.pack(_NOTHING))
        file.flush()
        return partial(_NOTE.pack_into, mmap(file.fileno(), _NOTE.size), 0)


def noted_at(path: Path) -> int:
    """The position of the item that a process ran last; -1 if it ran no item."""
    try:
        (index,) = _NOTE.unpack(read_file(path))
    except (FileNotFoundError, StructError):  # it died before it recorded an item
        return _NOTHING
    return int(index)


def receive_packed(node: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Make a `WorkerController` pass on an `Outbox`'s messages without decoding them.

    Call this before the `WorkerController` has a channel. xdist decodes messages in one thread for
    each worker, and the main thread waits for these threads.
    """
    process = node.process_from_remote

    def process_from_remote(message: Any) -> None:  # noqa: ANN401 - a message, or xdist's end marker
        if isinstance(message, tuple) and message[0] == _PACKED:
            node.notify_inproc(_PACKED, node=node, **message[1])
        else:
            process(message)

    node.process_from_remote = process_from_remote


def handle_packed(dsession: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Make a `DSession` handle packed events. Call this before the `DSession` has workers."""
    config = dsession.config

    def handle(node: Any, messages: Sequence[bytes]) -> None:  # noqa: ANN401 - as above
        for packed in messages:
            # The data comes from this plugin's worker. JSON would turn tuples into lists.
            for name, arguments in marshal.loads(packed):  # noqa: S302
                own = arguments
                if name == "testreport":
                    # As in `WorkerController.process_from_remote`.
                    make = config.hook.pytest_report_from_serializable
                    own = {"rep": make(config=config, data=arguments["data"])}
                getattr(dsession, f"worker_{name}")(node=node, **own)

    setattr(dsession, f"worker_{_PACKED}", handle)


def event(
    dsession: Any,  # noqa: ANN401 - xdist ships no types
    name: str,
    handle: Callable[..., None],
) -> Callable[..., None]:
    """Return a function that any thread may call, and that makes a `DSession` call `handle`.

    `handle` runs on the main thread: the call is queued as an event between the events of workers.
    After each event, xdist checks whether all tests have finished (`DSession.loop_once`).
    """
    setattr(dsession, f"worker_ultrapar_{name}", lambda arguments: handle(*arguments))

    def tell(*arguments: Any) -> None:  # noqa: ANN401 - the arguments of `handle`
        dsession.queue.put((f"ultrapar_{name}", {"arguments": arguments}))

    return tell


def _packed(messages: list[Message]) -> bytes | None:
    """The messages in marshal's format; None if marshal cannot restore equal messages.

    Marshal also accepts any object with a buffer, such as a score that is a numpy number, but
    restores only its bytes. Checking each value beforehand would take three times as long.
    """
    try:
        packed = marshal.dumps(messages, _FORMAT)
        return packed if marshal.loads(packed) == messages else None  # noqa: S302 - our own
    except Exception:  # noqa: BLE001 - values of any type, with any comparison
        return None
