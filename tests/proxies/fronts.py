"""nginx and HAProxy with their own configuration, in front of one server on this machine."""

from __future__ import annotations

import contextlib
import json
from collections.abc import Callable, Iterator
from dataclasses import dataclass
from pathlib import Path

from tests.proxies.access_log import Seen, in_order
from tests.proxies.daemon import program, serving

NGINX = """\
daemon off;
master_process off;
worker_processes 1;
pid {directory}/nginx.pid;
error_log {directory}/error.log crit;
events {{ worker_connections 1024; }}
http {{
    log_format judged '{{"end_s":$msec,"took_s":$request_time,"status":$status,'
                      '"why":"$limit_req_status/$limit_conn_status"}}';
    access_log {directory}/access.log judged;
    client_body_temp_path {directory}/body;
    proxy_temp_path {directory}/proxy;
    fastcgi_temp_path {directory}/fastcgi;
    uwsgi_temp_path {directory}/uwsgi;
    scgi_temp_path {directory}/scgi;
    {http}
    upstream provider {{ server 127.0.0.1:{upstream}; keepalive 64; }}
    server {{
        listen 127.0.0.1:{port};
        client_max_body_size 16m;
        {server}
        location / {{
            {location}
            proxy_pass http://provider;
            proxy_http_version 1.1;
            proxy_set_header Connection "";
        }}
    }}
}}
"""
HAPROXY = """\
global
    nbthread 1
    maxconn 4096
    log stdout format raw local0
defaults
    mode http
    log global
    option dontlognull
    timeout connect 5s
    timeout client 60s
    timeout server 60s
frontend front
    bind 127.0.0.1:{port}
    log-format '{{"end_ms":%[date(0,ms)],"took_ms":%Ta,"status":%ST,"why":"%ts"}}'
    {frontend}
    default_backend provider
backend provider
    {backend}
    server one 127.0.0.1:{upstream} {server}
"""


@dataclass(frozen=True, slots=True)
class Nginx:
    """Configuration lines for each section."""

    http: str = ""
    server: str = ""
    location: str = ""


@dataclass(frozen=True, slots=True)
class Haproxy:
    """Configuration lines for each section; `server` is the rest of the server's line."""

    frontend: str = ""
    backend: str = ""
    server: str = ""


@dataclass(frozen=True, slots=True)
class Front:
    """A proxy that runs."""

    port: int
    _read: Callable[[], list[Seen]]

    def requests(self) -> tuple[Seen, ...]:
        """The requests so far, in order of arrival."""
        return in_order(self._read())


@contextlib.contextmanager
def running(proxy: Nginx | Haproxy, upstream: int, directory: Path) -> Iterator[Front]:
    """Start a proxy with its files in `directory`, and end it.

    Args:
        upstream: The port of the server behind it.
    """
    directory.mkdir(parents=True)
    write = _write_nginx if isinstance(proxy, Nginx) else _write_haproxy
    log = directory / ("access.log" if isinstance(proxy, Nginx) else "output.log")

    def command(port: int) -> list[str]:
        return write(proxy, port, upstream, directory)

    with serving(command, directory / "output.log") as port:
        yield Front(port, lambda: _read(log))


def _write_nginx(proxy: Nginx, port: int, upstream: int, directory: Path) -> list[str]:
    text = NGINX.format(
        directory=directory,
        port=port,
        upstream=upstream,
        http=proxy.http,
        server=proxy.server,
        location=proxy.location,
    )
    path = directory / "nginx.conf"
    path.write_text(text, encoding="utf-8")
    errors = str(directory / "error.log")
    return [program("nginx"), "-p", str(directory), "-e", errors, "-c", str(path)]


def _write_haproxy(proxy: Haproxy, port: int, upstream: int, directory: Path) -> list[str]:
    text = HAPROXY.format(
        port=port,
        upstream=upstream,
        frontend=proxy.frontend,
        backend=proxy.backend,
        server=proxy.server,
    )
    path = directory / "haproxy.cfg"
    path.write_text(text, encoding="utf-8")
    return [program("haproxy"), "-db", "-f", str(path)]


def _read(log: Path) -> list[Seen]:
    lines = log.read_text(encoding="utf-8", errors="replace").splitlines() if log.exists() else []
    return [seen for line in lines if (seen := parse_line(line)) is not None]


def parse_line(line: str) -> Seen | None:
    """Parse a line of either proxy's log; None for lines that are not about a request."""
    try:
        row = json.loads(line)
        end_s = row["end_s"] if "end_s" in row else row["end_ms"] / 1000
        took_s = row["took_s"] if "took_s" in row else row["took_ms"] / 1000
        if row["status"] < 0:  # HAProxy, about a connection without a request
            return None
        return Seen(end_s - took_s, end_s, row["status"], row["why"])
    except (ValueError, KeyError, TypeError):
        return None
