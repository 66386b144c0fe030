"""What the first Ctrl-C does, and those that follow; real signals, virtual time."""

from __future__ import annotations

import signal
import threading

import pytest

from pytest_ultrapar.session.ctrl_c import SAME_WISH_S, CtrlC


class Pressed:
    """A process in which Ctrl-C can be pressed."""

    def __init__(self) -> None:
        self.now_s = 0.0
        self.n_again = 0
        self.ctrl_c = CtrlC(self._note, now_s=lambda: self.now_s)

    def _note(self) -> None:
        self.n_again += 1

    def press(self, after_s: float = 100.0) -> bool:
        """Whether it interrupted the program."""
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


def test_first_interrupts_and_the_next_within_a_second_do_nothing(pressed):
    assert pressed.press()
    assert not pressed.press(SAME_WISH_S * 0.9)
    assert not pressed.press(SAME_WISH_S * 0.9)
    assert pressed.n_again == 0


def test_later_one_interrupts_again_what_swallowed_the_first(pressed):
    assert pressed.press()
    assert pressed.press()
    assert pressed.n_again == 0


def test_later_one_while_the_session_ends_does_not_interrupt_but_ends_it(pressed):
    assert pressed.press()
    pressed.ctrl_c.note_ending()
    assert not pressed.press(SAME_WISH_S * 0.5)
    assert pressed.n_again == 0
    assert not pressed.press(SAME_WISH_S * 1.5)
    assert pressed.n_again == 1


def test_what_was_there_before_is_given_back(pressed):
    pressed.ctrl_c.remove()
    assert signal.getsignal(signal.SIGINT) is signal.default_int_handler


def test_right_after_a_ctrl_c_the_next_are_still_ignored_and_later_ones_are_not(pressed):
    assert pressed.press()
    pressed.ctrl_c.note_ending()
    pressed.ctrl_c.remove()
    assert not pressed.press(SAME_WISH_S * 0.5)
    assert pressed.press(SAME_WISH_S * 1.5)
    assert pressed.n_again == 0


def test_process_that_ignores_ctrl_c_goes_on_ignoring_it():
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
