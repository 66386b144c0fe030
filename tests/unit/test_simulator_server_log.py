from __future__ import annotations

import pytest
from hypothesis import given
from hypothesis import strategies as st

from pytest_ultrapar.errors import ResultsError
from pytest_ultrapar.pool.model import Limit
from pytest_ultrapar.simulator.log import (
    LogFile,
    encode_header,
    encode_line,
    encode_names,
    with_more,
)
from pytest_ultrapar.testing import ServerLog, ServerRequest, read_server_log

TICKS = st.integers(min_value=0, max_value=20).map(lambda n: n / 8)


def request(t_arrival_s, t_end_s, *, key="key0", instance="i", admitted=True, status=200):
    return ServerRequest(
        request_id=1,
        t_arrival_s=t_arrival_s,
        t_end_s=t_end_s,
        status=status,
        provider="lab",
        key=key,
        model="m",
        instance=instance,
        disconnected=False,
        admitted=admitted,
    )


@st.composite
def requests(draw):
    rows = []
    for _ in range(draw(st.integers(0, 20))):
        t_arrival_s = draw(TICKS)
        took_s = draw(st.one_of(st.none(), TICKS))
        rows.append(
            request(
                t_arrival_s,
                None if took_s is None else t_arrival_s + took_s,
                key=draw(st.sampled_from(["key0", "key1"])),
                instance=draw(st.sampled_from(["i", "j"])),
                admitted=draw(st.booleans()),
            )
        )
    return tuple(sorted(rows, key=lambda row: row.t_arrival_s))


@given(rows=requests(), key=st.sampled_from([None, "key0"]), instance=st.sampled_from([None, "i"]))
def test_max_in_flight_is_the_maximum_at_any_instant(rows, key, instance):
    held = [
        row
        for row in rows
        if row.admitted and key in (None, row.key) and instance in (None, row.instance)
    ]
    # The maximum is reached at an arrival. A request holds a seat from its arrival to its end.
    most = max(
        (
            sum(
                other.t_arrival_s <= row.t_arrival_s
                and (other.t_end_s is None or row.t_arrival_s < other.t_end_s)
                for other in held
            )
            for row in held
        ),
        default=0,
    )
    assert ServerLog(rows).max_in_flight(key=key, instance=instance) == most


@given(rows=requests(), window_s=st.sampled_from([0.125, 0.5, 1.0, 60.0]))
def test_max_in_window_is_the_maximum_in_any_window(rows, window_s):
    arrivals_s = [row.t_arrival_s for row in rows]
    most = max((sum(t <= o < t + window_s for o in arrivals_s) for t in arrivals_s), default=0)
    assert ServerLog(rows).max_in_window(window_s) == most


def test_late_reads_count_only_in_windows_that_contain_their_whole_delay(tmp_path):
    path = tmp_path / "log"
    names = encode_names("lab", "m", "i", "key0")
    late = with_more(names, since=1.5)
    lines = [encode_line(2.0, "arrival", n, late if n < 6 else names) for n in range(1, 8)]
    path.write_bytes(
        encode_header([], 0.0) + b"".join(lines) + encode_line(2.5, "arrival", 8, names)
    )
    log = read_server_log(path)
    assert [row.t_since_s for row in log.requests] == [1.5] * 5 + [None] * 3
    assert log.max_in_window(1.0) == 7
    assert log.max_in_window(0.5) == 2


def test_phase_is_first_arrival_to_last_answer():
    log = ServerLog((request(1.0, 2.0), request(1.5, 4.0), request(3.0, None)))
    assert log.phase_s == 3.0
    assert ServerLog(()).phase_s == 0.0


@given(
    names=st.tuples(*[st.one_of(st.none(), st.text())] * 4),
    now_s=st.floats(0, 1e9),
)
def test_log_lines_are_read_as_written(tmp_path_factory, names, now_s):
    encoded = encode_names(*names)
    path = tmp_path_factory.mktemp("log") / "server.log"
    path.write_bytes(
        encode_header([], 0.0)
        + encode_line(now_s, "arrival", 7, encoded)
        + encode_line(now_s, "refused", 7, encoded, 429)
    )
    (row,) = read_server_log(path).requests
    assert (row.provider, row.model, row.instance, row.key) == names
    assert abs(row.t_arrival_s - now_s) <= 1e-9
    assert (row.status, row.admitted, row.disconnected) == (429, False, False)


def written(path, *lines):
    names = encode_names("lab", "m", "i", "key0")
    log = LogFile(path, [Limit("lab/key0", "key", workers=2)], 1.0)
    for line in lines:
        log.write(*line[:3], names, *line[3:])
    log.flush()


def test_log_distinguishes_answered_refused_cancelled_and_open_requests(tmp_path):
    path = tmp_path / "server.log"
    written(
        path,
        (1.0, "arrival", 1),
        (1.0, "arrival", 2),
        (1.5, "end", 1, 200),
        (1.5, "arrival", 3),
        (1.5, "refused", 3, 429),
        (1.6, "disconnect", 2),
        (1.7, "arrival", 4),
    )
    log = read_server_log(path)
    assert [(r.t_end_s, r.status, r.disconnected, r.admitted) for r in log.requests] == [
        (1.5, 200, False, True),
        (1.6, None, True, True),
        (1.5, 429, False, False),
        (None, None, False, True),
    ]
    assert [log.count(status) for status in (200, 429, 500)] == [1, 1, 0]
    assert log.max_in_flight(key="key0", instance="i", model="m", provider="lab") == 2
    assert log.max_in_flight(key="key1") == 0
    assert log.limits == (Limit("lab/key0", "key", workers=2),)


def test_log_file_is_readable_only_by_its_owner(tmp_path):
    written(tmp_path / "server.log")
    assert (tmp_path / "server.log").stat().st_mode & 0o777 == 0o600


def test_log_with_an_incomplete_last_line_is_read_up_to_it(tmp_path):
    path = tmp_path / "server.log"
    written(path, (1.0, "arrival", 1), (2.0, "end", 1, 200))
    content = path.read_bytes()
    path.write_bytes(content[:-5])
    (row,) = read_server_log(path).requests
    assert row.t_end_s is None


@pytest.mark.parametrize(
    ("content", "says"),
    [
        (b"", "not a server"),
        (b"hello\n", "not a server"),
        (b'{"format":2,"version":"9","pid":1,"t":0,"limits":[]}\n', "reads format 1"),
        (encode_header([], 0.0) + b'{"t":1}\n', "not a server's log"),
        (encode_header([], 0.0) + b'{"t":1.0,"event":"bang","id":1}\n', "not a server's log"),
    ],
    ids=["empty", "text", "later format", "no event", "unknown event"],
)
def test_file_that_is_not_a_log_is_refused_with_its_name(tmp_path, content, says):
    path = tmp_path / "server.log"
    path.write_bytes(content)
    with pytest.raises(ResultsError, match=says) as caught:
        read_server_log(path)
    assert "server.log" in str(caught.value)


def test_missing_log_is_refused_with_its_name(tmp_path):
    with pytest.raises(ResultsError, match=r"nothing\.log: No such file"):
        read_server_log(tmp_path / "nothing.log")
