"""Runs of several hosts under faults of hosts, network and server, judged by the provider's log.

`python -m tests.cluster_faults --help` says what there is. A round is played by `rounds.py` on
machines (`machines.py`): namespaces of their own on a network of their own where that is allowed,
else plain processes. What goes wrong is in `faults.py`, what must hold all the same in
`verdict.py`. `paired.py` compares whole runs on several hosts with one host's.
"""
