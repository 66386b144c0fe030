"""The first Ctrl-C and those that follow, with real signals and virtual time."""

from __future__ import annotations

import signal
import threading

import pytest

from pytest_ultrapar.session.ctrl_c import SAME_WISH_S, CtrlC


class Pressed:
    """A process that can receive Ctrl-C."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.n_again = 0
        self.ctrl_c = CtrlC(self._note, now_s=lambda: self.now_s)

    def _note(self) -> None:
        self.n_again += 1

    def press(self, after_s: float = 100.0) -> bool:
        """Press Ctrl-C; return whether it interrupted the program."""
        self.now_s += after_s
        try:
            signal.raise_signal(signal.SIGINT)
        except KeyboardInterrupt:
            return True
        return False


@pytest.fixture
def pressed():
    before = signal.signal(signal.SIGINT, signal.default_int_handler)
    pressed = Pressed()
    pressed.ctrl_c.install()
    yield pressed
    signal.signal(signal.SIGINT, before)


def test_first_ctrl_c_interrupts_and_others_within_a_second_do_nothing(pressed):
    assert pressed.press()
    assert not pressed.press(SAME_WISH_S * 0.9)
    assert not pressed.press(SAME_WISH_S * 0.9)
    assert pressed.n_again == 0


def test_later_ctrl_c_interrupts_again_if_the_first_was_swallowed(pressed):
    assert pressed.press()
    assert pressed.press()
    assert pressed.n_again == 0


def test_later_ctrl_c_at_the_end_of_a_session_ends_it_without_an_interrupt(pressed):
    assert pressed.press()
    pressed.ctrl_c.note_ending()
    assert not pressed.press(SAME_WISH_S * 0.5)
    assert pressed.n_again == 0
    assert not pressed.press(SAME_WISH_S * 1.5)
    assert pressed.n_again == 1


def test_earlier_signal_handler_is_restored(pressed):
    pressed.ctrl_c.remove()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_second_ctrl_c_within_a_second_is_ignored_even_after_removal(pressed):
    assert pressed.press()
    pressed.ctrl_c.note_ending()
    pressed.ctrl_c.remove()
    assert not pressed.press(SAME_WISH_S * 0.5)
    assert pressed.press(SAME_WISH_S * 1.5)
    assert pressed.n_again == 0


def test_process_that_ignores_ctrl_c_continues_to_ignore_it():
    before = signal.signal(signal.SIGINT, signal.SIG_IGN)
    try:
        CtrlC(lambda: None).install()
        assert signal.getsignal(signal.SIGINT) is signal.SIG_IGN
    finally:
        signal.signal(signal.SIGINT, before)


def test_session_in_another_thread_leaves_ctrl_c_alone():
    before = signal.getsignal(signal.SIGINT)
    ctrl_c = CtrlC(lambda: None)

    def session() -> None:
        ctrl_c.install()
        ctrl_c.remove()

    thread = threading.Thread(target=session)
    thread.start()
    thread.join()
    assert signal.getsignal(signal.SIGINT) is before
