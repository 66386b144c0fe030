"""What is known after a round, as plain data: the server's log, the journal, tables, the suite."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Ask:
    """The suite was about to send a request.

    Attributes:
        case: The case's number.
        episode: Which of its episodes, by a number drawn anew each time.
        t_s: Monotonic seconds of the host, as all times here.
    """

    case: int
    episode: int
    t_s: float


@dataclass(frozen=True)
class Sent:
    """A request as the run recorded it."""

    case: int
    turn: int
    attempt: int
    key: str
    t_send_s: float
    t_end_s: float
    status: int | None


@dataclass(frozen=True)
class Journaled:
    """The end of an episode in the journal.

    Attributes:
        finished: Whether it needs no further request.
        episode: As in `Ask`; None when it returned nothing.
    """

    case: int
    finished: bool
    episode: int | None
    sent: tuple[Sent, ...] = ()


@dataclass(frozen=True)
class Served:
    """A request as the server saw it.

    Attributes:
        t_end_s: None if its end is not known, since the server was killed.
        refused: Never held a seat.
        left: The client left before its answer.
        server: Which one, where a round has several.
    """

    key: str
    t_arrival_s: float
    t_end_s: float | None
    status: int | None
    refused: bool = False
    left: bool = False
    server: str = ""


@dataclass(frozen=True)
class Row:
    """A row of the results."""

    case: int
    outcome: str
    episode: int | None


@dataclass(frozen=True)
class Ended:
    """How a session ended.

    Attributes:
        code: Its exit code, or minus the signal that ended it.
        codes: What it may be.
        output: All that it wrote.
        hung: It had to be killed.
    """

    code: int
    codes: frozenset[int]
    output: str
    hung: bool = False


@dataclass(frozen=True)
class Evidence:
    """A round that is over.

    Attributes:
        n_cases: Planned cases, numbered from 0.
        seats: Requests in flight that each key allows.
        sessions: In their order; the last one finished the run.
        asked: All that the suite was about to send.
        episode_ended_s: When the suite's episodes returned, by episode.
        journaled: From all journals below the round's folder.
        served: What the server saw; of all sessions.
        log_is_whole: Whether no server was killed, whose last lines are lost with it.
        rows: The final results.
        table: The final table of attempts.
        fault_times_s: When processes were killed or told to end.
        left_processes: Those that stayed after a session.
        left_paths: Folders, sockets and temporary files that stayed after the last one.
        n_served_after_the_end: Requests of a session that resumed the complete run.
    """

    n_cases: int
    seats: int
    sessions: tuple[Ended, ...] = ()
    asked: tuple[Ask, ...] = ()
    episode_ended_s: dict[int, float] = field(default_factory=dict)
    journaled: tuple[Journaled, ...] = ()
    served: tuple[Served, ...] = ()
    log_is_whole: bool = True
    rows: tuple[Row, ...] = ()
    table: tuple[Sent, ...] = ()
    fault_times_s: tuple[float, ...] = ()
    left_processes: tuple[str, ...] = ()
    left_paths: tuple[str, ...] = ()
    n_served_after_the_end: int = 0
