"""Cluster runs under faults of hosts, network and server, judged by the provider's log.

`python -m tests.cluster_faults --help` lists the options. `rounds.py` plays a round on machines
(`machines.py`): namespaces on a private network if the system allows it, otherwise plain processes.
`faults.py` contains the faults, and `verdict.py` the rules that must hold in spite of them.
`paired.py` compares whole runs on several hosts with runs on one host.
"""
