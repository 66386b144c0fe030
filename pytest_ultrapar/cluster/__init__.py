"""Share limits and cases between several hosts.

Two scripts run on a Redis or Valkey server: `division.lua` divides limits, and `claims.lua` hands
out cases. `ledger_rows.py` gives the limits of a pool their names on the server. `host_shares.py`
runs next to a host's broker and renews the host's shares about once a second. `claim_thread.py`
claims cases shortly before they are needed. `run_identity.py` defines the facts that all hosts must
agree on.
`status.py` and `command.py` implement the command `ultrapar cluster`.
"""
