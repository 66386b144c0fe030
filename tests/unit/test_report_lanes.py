from __future__ import annotations

import msgspec

from pytest_ultrapar.broker.protocol import LaneStatus
from pytest_ultrapar.report.summary import MOST_LANES, lane_lines

OUT = ": removed for the rest of the run"


def lane(name="p/a/k", state="up", reason="", **more):
    plain = LaneStatus(name, state, reason, 0, 5, 40, 30, 0, 0, {})
    return msgspec.structs.replace(plain, **more)


def lines(*lanes):
    return list(lane_lines(lanes))


def test_lane_with_failed_requests_has_a_line_with_the_kinds():
    failed = lane(outcomes={"ok": 40, "timeout": 5, "malformed": 6, "refused": 3, "cancelled": 2})
    assert lines(failed, lane()) == ["lane p/a/k: 11 failed requests (6 malformed, 5 timeout)"]


def test_lane_with_timeouts_warns_if_its_server_keeps_computing():
    given_up = lane(outcomes={"ok": 40, "timeout": 5}, is_whole=True)
    (line,) = lines(given_up, lane(is_whole=True), lane(outcomes={"ok": 9}, is_whole=True))
    assert line == (
        "lane p/a/k: 5 failed requests (5 timeout); 5 requests timed out: without `stream = true`, "
        "the server may continue to compute abandoned answers"
    )


def test_lane_with_cut_answers_shows_their_share_and_max_tokens():
    cut = lane(outcomes={"ok": 40, "timeout": 1}, cut=(10, 4096))
    assert lines(cut, lane(outcomes={"ok": 9})) == [
        "lane p/a/k: 1 failed request (1 timeout); "
        "25.0 % of the answers were cut off at max_tokens = 4096"
    ]
    (line,) = lines(lane(outcomes={"ok": 10}, cut=(10, 0)))
    assert line.endswith("100.0 % of the answers were cut off at max_tokens = unknown")


def test_lane_paused_at_the_end_shows_its_total_pause():
    reason = "lane p/a/k was rate limited and asked to wait 1 s: paused for 1.04 s"
    paused = lane("p/a/k", "paused", reason, pauses={"rate": 2}, paused_s={"rate": 1.3})
    assert lines(paused) == [f"{reason}; paused twice, for 1.30 s in total"]


def test_lanes_removed_for_the_same_reason_share_the_first_line():
    reason = f"key p/k was refused (401){OUT}"
    dead = [
        lane(f"p/i{n}/k", "out", reason, removed_after_s=3.0 + n, outcomes={"auth": 1})
        for n in range(60)
    ]
    other = lane("p/a/j", outcomes={"timeout": 1})
    assert lines(other, *dead) == [
        f"key p/k was refused (401){OUT} (60 lanes, after 3.00 s); 60 failed requests (60 auth)",
        "lane p/a/j: 1 failed request (1 timeout)",
    ]


def test_lines_about_lanes_are_limited():
    many = [lane(f"p/i{n}/k", outcomes={"timeout": 1}) for n in range(MOST_LANES + 5)]
    found = lines(*many)
    assert len(found) == MOST_LANES + 1
    assert found[-1] == "... and 5 more lines about lanes; manifest.json lists all lanes"


def test_ignored_fields_are_reported_once_per_instance():
    odd = ("message.reasoning (object)", "message.refusal (bool)")
    lanes = [lane(f"p/{name}", left_out=odd) for name in ("a/k", "a/l", "b/k")]
    assert lines(*lanes, lane("p/c/k", left_out=odd[:1]), lane()) == [
        "answers from p/a, p/b had fields of unexpected types, which were ignored: "
        "message.reasoning (object), message.refusal (bool)",
        "answers from p/c had fields of unexpected types, which were ignored: "
        "message.reasoning (object)",
    ]


def test_metrics_url_without_effect_is_reported_once_per_instance():
    deaf = [lane(f"p/{name}", is_unheard=True) for name in ("a/k", "a/l", "b/k")]
    assert lines(*deaf, lane("p/c/k"), lane("p/d/k", granted=0, is_unheard=True)) == [
        "metrics_url of p/a, p/b had no effect: the URL returned no known metric "
        "(from vLLM, SGLang, TGI or llama.cpp)"
    ]


def test_wider_spacing_is_reported_once_per_limit():
    one, other = lane("p/a/k", widened=("p/k",)), lane("p/b/k", widened=("p/k",))
    (line,) = lines(one, other)
    assert line.startswith(
        "requests on p/k were spaced 5 % further apart, because some were refused"
    )
