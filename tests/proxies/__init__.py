"""Judged by real proxies: nginx and HAProxy between a run and a simulated provider.

The proxy holds a limit that the pool does not know, and its access log says what a run made of it.
The slow tests need Debian's `nginx` and `haproxy`; `python -m tests.proxies` prints all of it.
"""
