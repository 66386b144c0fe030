"""The thread that watches the thread of the event loop."""

from __future__ import annotations

from threading import Event, Thread
from threading import enumerate as all_threads

from pytest_ultrapar.engine.stalls import watch_stalls


def test_watch_ends_if_its_thread_ends_without_notice():
    before = {*all_threads()}
    watched = Thread(target=watch_stalls, args=(lambda: (0.0, 0.0), Event()))
    watched.start()
    watched.join()
    (watch,) = {*all_threads()} - before
    watch.join(60)
    assert not watch.is_alive()
