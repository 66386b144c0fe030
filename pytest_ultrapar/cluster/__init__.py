"""Many machines, one budget: limits divided between the hosts that share keys.

Two scripts run on a Redis or Valkey server: `division.lua` divides limits, `claims.lua` gives out
cases. `rows.py` says what the limits of a pool are called there. `host_shares.py` renews a host's
part about once a second, beside its broker; `claiming.py` claims cases a little before they are
needed. `identity.py` is what all hosts must agree on. `status.py` and `command.py` are `ultrapar
cluster`.
"""
