"""The thread that looks at the loop's thread."""

from __future__ import annotations

from threading import Event, Thread
from threading import enumerate as all_threads

from pytest_ultrapar.engine.stalls import watch_stalls


def test_watch_ends_with_a_thread_that_does_not_say_that_it_ends():
    before = {*all_threads()}
    watched = Thread(target=watch_stalls, args=(lambda: (0.0, 0.0), Event()))
    watched.start()
    watched.join()
    (watch,) = {*all_threads()} - before
    watch.join(60)
    assert not watch.is_alive()
