"""Several hosts with shared limits and cases.

Two scripts run on a Redis or Valkey server: `division.lua` divides limits, `claims.lua` hands out
cases. `ledger_rows.py` names the limits of a pool there. `host_shares.py` runs next to a host's
broker and renews the host's shares about once a second. `claim_thread.py` claims cases a little
before they are needed. `run_identity.py` holds the facts that all hosts must agree on. `status.py`
and `command.py` are `ultrapar cluster`.
"""
