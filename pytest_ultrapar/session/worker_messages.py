"""What a worker tells the controller: one message and one event of many items."""

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
"""Of marshal: all versions of Python that may stand on the two sides (`//python=`) read it."""
_HELD = frozenset({"logstart", "testreport", "logfinish", "runtest_protocol_complete"})
"""What xdist's `WorkerInteractor` sends of each item, three reports among it."""
_HELD_S = 0.02
"""50 messages a second are next to nothing, and nobody sees that a result comes so much later."""
_NOTE = Struct("<q")
_NOTHING = -1
Message = tuple[str, dict[str, Any]]
"""What xdist's two sides send each other: an event and its arguments."""


class Outbox:
    """Stands in for `WorkerInteractor.sendevent`. Worker, main thread and one of its own.

    An item's messages are one piece with the word that the next one starts, and leave with those of
    other items, 20 ms later at most. A failure leaves at once: it may be what ends the run (`-x`),
    and other workers go on sending until the controller hears of it.
    """

    def __init__(self, send: Callable[..., None], starts: Callable[[], None]) -> None:
        """Hold nothing yet.

        Args:
            send: xdist's own `sendevent`.
            starts: Called when an item starts: before the controller hears of it, it may be what
                kills the worker.
        """
        self._send = send
        self._starts = starts
        # Of the item that ran last, up to the word that the next one starts; main thread.
        self._item: list[Message] = []
        # Of the items before. Guarded by the lock, as is the order in which they leave.
        self._lock = threading.Lock()
        self._held: list[bytes] = []
        self._has_held = threading.Event()
        threading.Thread(target=self._send_late, name="ultrapar-outbox", daemon=True).start()

    def sendevent(self, name: str, **kwargs: Any) -> None:  # noqa: ANN401 - as xdist's own
        """Send a message, now or with those that follow; all arrive in their order."""
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
        """Send what is held; to be called before the main thread waits."""
        self._pack()
        self._send_packed()

    def _pack(self) -> None:
        """Hold as one piece what may leave at any moment; what cannot be packed leaves now."""
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
    """Where a worker notes which item it runs, in the run's directory."""
    return directory / f"running-{worker}"


def remove_notes(directory: Path) -> None:
    """Remove the notes of all workers."""
    for path in directory.glob("running-*"):
        path.unlink(missing_ok=True)


def note_at(path: Path) -> Callable[[int], None]:
    """What notes the item that this process runs, by its position.

    `noted_at` reads it when the process is gone, whatever killed it. To write is to set 8 bytes of
    memory.

    Raises:
        ResultsError: The file cannot be written.
    """
    with cannot(f"write {path}"), path.open("w+b") as file:
        # A file of a full disk that has no block yet would end the process at the first note.
        file.write(_NOTE.pack(_NOTHING))
        file.flush()
        return partial(_NOTE.pack_into, mmap(file.fileno(), _NOTE.size), 0)


def noted_at(path: Path) -> int:
    """The item that a process ran last; -1 for none."""
    try:
        (index,) = _NOTE.unpack(read_file(path))
    except (FileNotFoundError, StructError):  # it died before it had written any
        return _NOTHING
    return int(index)


def receive_packed(node: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Have a `WorkerController` let through what an `Outbox` sent. Before it has a channel.

    xdist takes messages apart in a thread for each worker, which the main thread then waits for.
    """
    process = node.process_from_remote

    def process_from_remote(message: Any) -> None:  # noqa: ANN401 - a message, or xdist's end marker
        if isinstance(message, tuple) and message[0] == _PACKED:
            node.notify_inproc(_PACKED, node=node, **message[1])
        else:
            process(message)

    node.process_from_remote = process_from_remote


def handle_packed(dsession: Any) -> None:  # noqa: ANN401 - xdist ships no types
    """Have a `DSession` carry out what comes as one event. Before it has workers."""
    config = dsession.config

    def handle(node: Any, messages: Sequence[bytes]) -> None:  # noqa: ANN401 - as above
        for packed in messages:
            # From our own worker; JSON would make lists of tuples.
            for name, arguments in marshal.loads(packed):  # noqa: S302
                own = arguments
                if name == "testreport":
                    # As `WorkerController.process_from_remote`.
                    make = config.hook.pytest_report_from_serializable
                    own = {"rep": make(config=config, data=arguments["data"])}
                getattr(dsession, f"worker_{name}")(node=node, **own)

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


def _packed(messages: list[Message]) -> bytes | None:
    """Through marshal; None where that does not give back what it is given.

    It also takes whatever has a buffer, a numpy number such as a score among them, and gives back
    its bytes. To look at each value before costs three times as much.
    """
    try:
        packed = marshal.dumps(messages, _FORMAT)
        return packed if marshal.loads(packed) == messages else None  # noqa: S302 - our own
    except Exception:  # noqa: BLE001 - values may be anything, and compare as they like
        return None
