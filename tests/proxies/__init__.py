"""Tests with real proxies: nginx and HAProxy between a run and a simulated provider.

The proxy enforces a limit that the pool does not know, and its access log shows the requests of the
run. The slow tests need Debian's `nginx` and `haproxy`; `python -m tests.proxies` prints all
figures.
"""
