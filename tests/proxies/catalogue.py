"""The limits that proxies enforce, and the larger ones that a pool declares."""

from __future__ import annotations

from dataclasses import dataclass

from tests.proxies.fronts import Haproxy, Nginx

LATENCY_S = 0.2
PACED = 1200
"""Requests of a run at a large rate: finding the limit takes seconds, and 600 are sent too soon."""


@dataclass(frozen=True, slots=True)
class Hidden:
    """A limit that a pool does not know.

    Attributes:
        name: Its name on the command line.
        limit: The limit in words.
        declared: The larger limit that the pool declares.
        known: The limit in the pool of a run that knows it.
        n: The number of cases of a run, one request each.
    """

    name: str
    proxy: Nginx | Haproxy
    limit: str
    declared: str
    known: str
    n: int = 600


def _limit_req(rate: str, more: str, status: int) -> Nginx:
    return Nginx(
        http=f"limit_req_zone $binary_remote_addr zone=paced:1m rate={rate};",
        location=f"limit_req zone=paced{more}; limit_req_status {status};",
    )


def _limit_conn(n: int, status: int) -> Nginx:
    return Nginx(
        http="limit_conn_zone $binary_remote_addr zone=seats:1m;",
        location=f"limit_conn seats {n}; limit_conn_status {status};",
    )


def _by_rate(per_s: int) -> Haproxy:
    return Haproxy(
        frontend="stick-table type integer size 10 expire 60s store http_req_rate(1s)\n"
        "    http-request track-sc0 int(1)\n"
        f"    http-request deny deny_status 429 if {{ sc_http_req_rate(0) gt {per_s} }}"
    )


_NODELAY = " burst=5 nodelay"
_PACED = ("workers = 20", "workers = 20, qps = 40")
_SEATS = ("workers = 20", "workers = 8")
HIDDEN = (
    Hidden("nginx-conn-503", _limit_conn(8, 503), "nginx limit_conn 8, 503", *_SEATS),
    Hidden("nginx-conn-429", _limit_conn(8, 429), "nginx limit_conn 8, 429", *_SEATS),
    Hidden(
        "nginx-conn-2",
        _limit_conn(2, 503),
        "nginx limit_conn 2, 503",
        "workers = 10",
        "workers = 2",
    ),
    Hidden(
        "nginx-req-503",
        _limit_req("40r/s", _NODELAY, 503),
        "nginx limit_req 40r/s burst=5 nodelay, 503",
        *_PACED,
        n=PACED,
    ),
    Hidden(
        "nginx-req-429",
        _limit_req("40r/s", _NODELAY, 429),
        "nginx limit_req 40r/s burst=5 nodelay, 429",
        *_PACED,
        n=PACED,
    ),
    Hidden(
        "nginx-req-bare",
        _limit_req("10r/s", "", 503),
        "nginx limit_req 10r/s, 503",
        "workers = 20",
        "workers = 20, qps = 10",
    ),
    Hidden(
        "nginx-req-burst",
        _limit_req("10r/s", " burst=4", 503),
        "nginx limit_req 10r/s burst=4, 503",
        "workers = 20",
        "workers = 20, qps = 10",
    ),
    Hidden(
        "nginx-req-1",
        _limit_req("1r/s", " burst=2 nodelay", 503),
        "nginx limit_req 1r/s burst=2 nodelay, 503",
        "workers = 10",
        "workers = 10, qps = 1",
    ),
    Hidden(
        "nginx-keepalive",
        Nginx(server="keepalive_requests 10;"),
        "nginx keepalive_requests 10",
        "workers = 8",
        "workers = 8",
    ),
    Hidden(
        "haproxy-queue",
        Haproxy(backend="timeout queue 100ms", server="maxconn 8"),
        "HAProxy server maxconn 8, timeout queue 100ms, 503",
        *_SEATS,
    ),
    Hidden("haproxy-rate", _by_rate(40), "HAProxy http_req_rate(1s) gt 40, 429", *_PACED, n=PACED),
    Hidden(
        "haproxy-front",
        Haproxy(frontend="maxconn 5"),
        "HAProxy frontend maxconn 5",
        "workers = 20",
        "workers = 5",
    ),
)
"""The limits that the command runs by default. The rates and seats are large, so that a run takes
15 to 30 s; the tests skip slower ones."""
