"""The evidence of a round, as plain data: the server's log, the journal, tables, the suite."""

from __future__ import annotations

from dataclasses import dataclass, field


@dataclass(frozen=True)
class Ask:
    """The suite was about to send a request.

    Attributes:
        case: The case's number.
        episode: Its episode, by a number that is drawn again each time.
        t_s: Monotonic seconds of the machine, like all times here.
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
        finished: Whether it needs no more requests.
        episode: As in `Ask`; None if it returned nothing.
    """

    case: int
    finished: bool
    episode: int | None
    sent: tuple[Sent, ...] = ()


@dataclass(frozen=True)
class Served:
    """A request as the server saw it.

    Attributes:
        t_end_s: The time of its end; None if unknown because the server was killed.
        refused: Whether it never held a seat.
        left: Whether the client left before its answer.
        server: The server, if a round has several.
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
    """The end of a session.

    Attributes:
        code: Its exit code, or minus the signal that ended it.
        codes: The allowed exit codes.
        output: The text that it wrote.
        hung: Whether it had to be killed.
    """

    code: int
    codes: frozenset[int]
    output: str
    hung: bool = False


@dataclass(frozen=True)
class Evidence:
    """The evidence of a round.

    Attributes:
        n_cases: Planned cases, numbered from 0.
        seats: Requests in flight that each key allows.
        sessions: The sessions in order; the last one finished the run.
        asked: All requests that the suite was about to send.
        episode_ended_s: The time at which each of the suite's episodes returned.
        journaled: The ends of episodes in all journals below the round's folder.
        served: The requests that the server saw, of all sessions.
        log_is_whole: Whether no server was killed; a killed server loses its last lines.
        rows: The final results.
        table: The final table of attempts.
        fault_times_s: The times at which processes were killed or told to end.
        left_processes: Processes that outlived a session.
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
