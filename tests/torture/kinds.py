"""The kinds of faults: their moment, their victim, and the allowed ends of the run."""

from __future__ import annotations

import signal
from dataclasses import dataclass
from fnmatch import fnmatchcase
from typing import Literal

Phase = Literal["startup", "collection", "running", "compaction"]
Victim = Literal[
    "controller",
    "worker",
    "workers",
    "replacement",
    "broker",
    "compaction",
    "simulator",
    "group",
    "all",
]
Moment = Literal[
    "process",
    "compaction process",
    "broker process",
    "first worker",
    "last worker",
    "first import",
    "last import",
    "first collected",
    "last collected",
    "some asked",
    "some graded",
    "all graded",
    "temporary file",
    "first table",
    "last table",
]

MOMENTS: dict[Phase, tuple[Moment, ...]] = {
    "startup": ("process", "compaction process", "broker process", "first worker", "last worker"),
    "collection": ("first import", "last import", "first collected", "last collected"),
    "running": ("some asked", "some graded"),
    "compaction": ("all graded", "temporary file", "first table", "last table"),
}
"""The signs by which a phase is recognised, in their usual order."""

OWN_PROCESS: dict[Victim, tuple[Moment, ...]] = {
    "worker": ("first worker", "last worker"),
    "broker": ("broker process",),
    "compaction": ("compaction process",),
}
"""The moments at which a separate process exists while the run starts."""

KILLED = -signal.SIGKILL
INTERRUPTED = 2
REFUSED = 4
"""The exit code of a run that could not start and gave the reason in one sentence."""
LOST_SOME = 1
"""The exit code if cases became `infra`, or no tables could be written."""


@dataclass(frozen=True)
class Kind:
    """One kind of fault.

    Attributes:
        name: `phase/victim`, `signal/WHAT` or `stop/VICTIM`. `--kind` matches it.
        phase: The part of the run in which it happens.
        victim: The processes that it hits. `group` is the controller's process group, which a
            terminal's Ctrl-C hits; `all` is every process of the run; `replacement` is a worker
            and then its replacement.
        codes: The allowed exit codes of the session that was hit.
        signals: The signals that are sent, in turn.
        pauses: Whether the victim continues afterwards.
        workers: Values of pytest's `-n` for which it makes sense.
        own_simulator: Whether the run starts the simulated provider itself.
    """

    name: str
    phase: Phase
    victim: Victim
    codes: frozenset[int]
    signals: tuple[signal.Signals, ...] = (signal.SIGKILL,)
    pauses: bool = False
    workers: tuple[int, ...] = (0, 2, 3)
    own_simulator: bool = False

    @property
    def moments(self) -> tuple[Moment, ...]:
        """The moments at which it may happen."""
        if self.phase == "startup":
            moments = OWN_PROCESS.get(self.victim, MOMENTS["startup"])
            # Python itself reacts to a signal before pytest's start with a traceback.
            skipped = 0 if self.signals == (signal.SIGKILL,) or len(moments) == 1 else 1
            return moments[skipped:] if self.victim not in OWN_PROCESS else moments
        return MOMENTS[self.phase]


def _killed(phase: Phase, victim: Victim, *codes: int, workers: tuple[int, ...]) -> Kind:
    return Kind(f"{phase}/{victim}", phase, victim, frozenset(codes), workers=workers)


def _signalled(what: str, *signals: signal.Signals, codes: set[int]) -> Kind:
    return Kind(f"signal/{what}", "running", "group", frozenset(codes), signals)


_ANY = (0, 2, 3)
_SOME = (2, 3)
_INT = signal.SIGINT
_KINDS = (
    _killed("startup", "controller", KILLED, workers=_ANY),
    _killed("startup", "worker", 0, workers=_SOME),
    _killed("startup", "broker", LOST_SOME, REFUSED, workers=_SOME),
    _killed("startup", "compaction", 0, workers=_ANY),
    _killed("startup", "group", KILLED, workers=_SOME),
    _killed("startup", "all", KILLED, workers=_ANY),
    # Not the group: interpreters of workers that have just started react with a traceback.
    Kind("startup/INT", "startup", "controller", frozenset({INTERRUPTED}), (_INT,)),
    _killed("collection", "controller", KILLED, workers=_ANY),
    _killed("collection", "worker", 0, workers=_SOME),
    _killed("collection", "broker", LOST_SOME, REFUSED, workers=_SOME),
    _killed("collection", "all", KILLED, workers=_ANY),
    Kind("collection/INT", "collection", "group", frozenset({INTERRUPTED}), (_INT,)),
    _killed("running", "controller", KILLED, workers=_ANY),
    _killed("running", "worker", 0, workers=_SOME),
    _killed("running", "workers", 0, workers=_SOME),
    _killed("running", "replacement", 0, workers=_SOME),
    _killed("running", "broker", 0, LOST_SOME, workers=_SOME),
    _killed("running", "compaction", 0, workers=_ANY),
    Kind(
        "running/simulator",
        "running",
        "simulator",
        frozenset({0, LOST_SOME}),
        own_simulator=True,
    ),
    _killed("running", "group", KILLED, workers=_SOME),
    _killed("running", "all", KILLED, workers=_ANY),
    _killed("compaction", "controller", KILLED, workers=_ANY),
    _killed("compaction", "compaction", 0, LOST_SOME, workers=_ANY),
    _killed("compaction", "all", KILLED, workers=_ANY),
    Kind("compaction/INT", "compaction", "group", frozenset({0, INTERRUPTED}), (_INT,)),
    _signalled("INT", _INT, codes={INTERRUPTED}),
    _signalled("INT-twice", _INT, _INT, codes={INTERRUPTED}),
    _signalled("INT-thrice", _INT, _INT, _INT, codes={INTERRUPTED}),
    _signalled("TERM", signal.SIGTERM, codes={-signal.SIGTERM}),
    _signalled("HUP", signal.SIGHUP, codes={-signal.SIGHUP}),
    _signalled("QUIT", signal.SIGQUIT, codes={-signal.SIGQUIT}),
    *(
        Kind(
            f"stop/{victim}",
            "running",
            victim,
            frozenset({0}),
            (signal.SIGSTOP,),
            pauses=True,
            workers=_ANY if victim == "controller" else _SOME,
        )
        for victim in ("controller", "worker", "broker", "all")
    ),
)
KINDS: dict[str, Kind] = {kind.name: kind for kind in _KINDS}


def kinds_like(patterns: list[str]) -> list[Kind]:
    """The kinds whose name matches one of the patterns, in the catalogue's order.

    Raises:
        ValueError: A pattern matches no kind.
    """
    for pattern in patterns:
        if not any(fnmatchcase(name, pattern) for name in KINDS):
            msg = f"no kind is called {pattern!r}; there are: {', '.join(KINDS)}"
            raise ValueError(msg)
    return [
        kind
        for name, kind in KINDS.items()
        if not patterns or any(fnmatchcase(name, pattern) for pattern in patterns)
    ]
